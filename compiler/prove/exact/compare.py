"""The comparison of two programs for all sizes, and the set of positions at which they differ.

Both sides are one expression per output (problem), as sums of products of reads (question). Where the difference has the empty normal
form, the programs are equal for all sizes; where only monomials of free tensors are left, they differ, and any position of such a
monomial shows it (counterexamples).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from dslc.analysis.isl import GivenUp, limited
from dslc.ir.graph import Input, ScopeNode, Value
from dslc.ir.scalar import Apply, Iter, Num, Read, Reduce, Scalar, apply, walk
from dslc.prove.exact.affine import NotAffine, digits
from dslc.prove.exact.answers import Answer, Differs, Equal, Undecided, presumed
from dslc.prove.exact.counterexamples import counterexample, refuted_by_numbers
from dslc.prove.exact.inline import CannotInline
from dslc.prove.exact.pointwise import vanishes
from dslc.prove.exact.problem import ComparisonProblem, Quotient, posed, symbols
from dslc.prove.exact.question import Question
from dslc.prove.exact.regions import DifferenceRegion, region
from dslc.prove.exact.terms import Effort, Unsolved
from dslc.prove.exact.windows import cases_of_sizes, generalized
from dslc.records import record

OPERATIONS = 400_000  #: isl takes a second at most for so many operations, mostly
BRIEF = 0.1  #: of the time of a comparison, what is for the plain one before windows are looked for

_Found = TypeVar("_Found")


@dataclass(slots=True)
class Habit:
    """Return whether windows helped where the plain comparison did not, as is mostly so for all instances of a rule alike."""

    windows: bool = False


def compare(
    left: Sequence[Value], right: Sequence[Value], conditions: Sequence[Scalar] = (), seconds: float = 10.0,
    outer: Effort | None = None, reflexive: bool = False, habit: Habit | None = None,
) -> Answer:  # fmt: skip
    """Return whether two lists of outputs (expanded: only inputs, constants and scopes) are equal for all sizes and all inputs.

    Args:
        conditions: what is known of the sizes: truth values over symbols.
        seconds: after as many steps, and operations of isl, as mostly take so long, the answer is Undecided.
        outer: what its steps are counted in too, for several comparisons together.
        reflexive: it is shown first that each side equals itself; where that is not so, nothing is decided.
        habit: what helped with other instances of the same rule, and is tried first; it is kept up to date.

    Normal forms: engines of Verdoolaege's integer set library; the idea of deciding linear programs by reads is in PET, section 5.
    """
    effort = Effort(seconds, outer)

    def answer() -> Answer:
        try:
            comparison = _Comparison(posed(left, right, conditions, effort), effort, reflexive)
            pairs = list(zip(left, right, strict=True))
            inside = [_inside(*pair) for pair in pairs]
            if inside != pairs:
                # chains of windows are hard as a whole
                ones, others = zip(*inside, strict=True)
                within = compare(ones, others, conditions, seconds / 4, effort.part(seconds / 4), reflexive)
                if isinstance(within, Equal):
                    return within
            found = comparison.brief(habit or Habit(), seconds)
            if found:
                return found
            with limited(_operations(seconds)):
                return comparison.verdict(effort)
        except (Unsolved, CannotInline, GivenUp) as reason:
            if isinstance(reason, GivenUp):
                effort.spend(seconds)
            if isinstance(reason, Quotient):
                # they may be equal whatever is read at places that are quotients by sizes
                with suppress(Unsolved, GivenUp):
                    part = effort.part(seconds / 4)
                    problem = ComparisonProblem(left, right, conditions, part, opaque=True)
                    with limited(_operations(seconds / 4)):
                        if isinstance(_Comparison(problem, part, reflexive).verdict(part), Equal):
                            return Equal()
            return Undecided(str(reason), isinstance(reason, Quotient))

    found = answer()
    if isinstance(found, Differs) and not refuted_by_numbers(left, right, found):
        return Undecided("terms are left that may cancel each other")
    return Equal(presumed((*left, *right))) if isinstance(found, Equal) else found


def _inside(left: Value, right: Value) -> tuple[Value, Value]:
    """The only operands in which two outputs of equal shape differ where one expression makes both: they are equal if these are."""
    one, other = left.node, right.node
    if isinstance(one, ScopeNode) and isinstance(other, ScopeNode) and _meaning(one) == _meaning(other):
        differing = {pair for pair in zip(one.args, other.args, strict=True) if pair[0] != pair[1]}
        if len(differing) == 1:
            return next(iter(differing))
    return left, right


def _meaning(node: ScopeNode) -> tuple[object, ...]:
    """An expression and its types, with sizes only where they say which iterators make up a position: others are of the shape."""
    scope, types = node.scope, [arg.type.dtype for arg in node.args]
    return scope.body, scope.dtype, types, scope.groups and (scope.groups, scope.extents)


def difference(
    left: Sequence[Value], right: Sequence[Value], conditions: Sequence[Scalar] = (), seconds: float = 10.0
) -> DifferenceRegion:
    """The positions at which two lists of outputs differ. Raises Unsolved where the programs have no normal form."""
    effort = Effort(seconds)
    try:
        problem = posed(left, right, conditions, effort)
        question = Question(problem, problem.roots, problem.extents, problem.conditions, effort)
        with limited(_operations(seconds)):
            return question.asked(lambda: region(question))
    except (CannotInline, GivenUp) as reason:
        raise Unsolved(str(reason)) from None


def _operations(seconds: float) -> int:
    return int(seconds * OPERATIONS) + 1


@record
class _Comparison:
    """The ways in which the programs of a problem are compared. `reflexive`: each side is to be shown to equal itself."""

    problem: ComparisonProblem
    effort: Effort
    reflexive: bool

    def brief(self, habit: Habit, seconds: float) -> Equal | Differs | None:
        """The answer where it comes soon: by the plain comparison, or by the one of windows; else None.

        Mostly the plain one takes a tenth of the time of the other, or does not end.
        """
        nodes = [node for root in self.problem.roots for node in walk(root)]
        if any(isinstance(node, Reduce) and node.kind in {"max", "min"} for node in nodes):
            if not habit.windows and self._equal(seconds * BRIEF):
                return Equal()
            if self._equal_by_windows(seconds / 4, by_position=True):
                habit.windows = True
                return Equal()
            if self._equal(seconds / 4):
                habit.windows = False
                return Equal()
        elif not habit.windows:
            found = self._within(seconds * BRIEF, self.verdict)
            if isinstance(found, Equal | Differs):
                return found
        # more than sums and products of elements
        elif any(
            isinstance(node, Apply) and node.reads and node.name not in {"+", "*", "select"} for node in nodes
        ) and self._equal_by_windows(seconds / 4, by_position=True):
            return Equal()
        habit.windows = self._equal_by_windows(seconds / 2, by_position=False)
        return Equal() if habit.windows else None

    def verdict(self, effort: Effort) -> Answer:
        """The answer of the plain comparison."""
        question, order = self._plain(effort), (Differs, Undecided, Equal)

        def worst() -> Answer:
            answers = [self._answer(question, number) for number in range(len(question.pairs))]
            return min(answers, key=lambda answer: order.index(type(answer)), default=Equal())

        return question.asked(worst)

    def _plain(self, effort: Effort, by_position: bool = False) -> Question:
        problem = self.problem
        return Question(problem, problem.roots, problem.extents, problem.conditions, effort, by_position)

    def _within(self, seconds: float, found: Callable[[Effort], _Found]) -> _Found | None:
        """The result of a search in a shorter time; None where it takes too long."""
        try:
            with limited(_operations(seconds)):
                return found(self.effort.part(seconds))
        except GivenUp:
            self.effort.spend(seconds)
            return None
        except Unsolved:
            return None

    def _equal(self, seconds: float) -> bool:
        """Return whether the programs are shown to be equal in a shorter time, with functions named by position."""
        return self._within(seconds, lambda effort: self._all_equal(self._plain(effort, by_position=True))) or False

    def _equal_by_windows(self, seconds: float, by_position: bool) -> bool:
        """Return whether the programs are equal wherever their windows are (see windows), in each case that sizes decide."""
        every = cases_of_sizes(self.problem.roots, self.problem.conditions, self.problem.extents)
        return all(self._equal_in_windows(roots, conditions, seconds, by_position) for roots, conditions in every)

    def _equal_in_windows(
        self, roots: Sequence[Scalar], given: Sequence[Scalar], seconds: float, by_position: bool
    ) -> bool:
        problem = self.problem
        claim = generalized(roots, problem.extents)
        if not claim:
            return False
        roots = claim.roots
        nodes = [node for root in roots for node in walk(root)]
        iters = {it for node in nodes for it in (node.iters if isinstance(node, Reduce) else node.free)}
        extents = {it: extent for it, extent in problem.extents.items() if it in iters}
        present = set(symbols((*roots, *extents.values())))
        conditions = [each for each in given if present.issuperset(symbols([each]))]

        def plainly(effort: Effort) -> bool:
            question = Question(problem, roots, extents, conditions, effort, by_position)
            return self._all_equal(question, pointwise=not claim.facts)

        def with_facts(effort: Effort) -> bool:
            held = [each for each, goal in claim.facts if self._holds(goal, effort)]
            return self._all_equal(Question(problem, roots, extents, [*conditions, *held], effort, by_position))

        # mostly the facts are not needed, and take longer to find than all the rest
        return bool(self._within(seconds / 4, plainly) or (claim.facts and self._within(seconds, with_facts)))

    def _holds(self, goal: Scalar, effort: Effort) -> bool:
        """Return whether a condition on positions (that something is at least 0) is shown to hold at all of them."""
        if isinstance(goal, Num):
            return bool(goal.value)
        problem = self.problem
        if isinstance(goal, Apply) and problem.radix.least(apply("-", *goal.args)):
            return True
        extents: Mapping[Iter, Scalar] = {it: problem.extents[it] for it in goal.free}
        question = Question(problem, (), extents, problem.conditions, effort)
        variables = tuple(sorted(goal.free, key=lambda it: it.name))
        try:
            return question.asked(
                lambda: bool(question.place(variables).domain.is_subset(question.affine.condition(goal, variables)))
            )
        except NotAffine:
            return False

    def _all_equal(self, question: Question, pointwise: bool = True) -> bool:
        """Return whether all outputs are shown to be equal; where they differ is not asked. `pointwise`: functions of elements too."""
        return question.asked(
            lambda: all(self._is_equal(question, number, pointwise) for number in range(len(question.pairs)))
        )

    def _is_equal(self, question: Question, number: int, pointwise: bool) -> bool:
        place, terms = question.terms(number, self.reflexive)
        opaque = any(each.opaque for term in terms for each in term.atoms)
        if terms and not (pointwise and opaque and vanishes(terms, place.domain, question.functions)):
            return False
        return question.defined_alike(number)

    def _answer(self, question: Question, number: int) -> Answer:
        inputs = self.problem.inputs
        place, terms = question.terms(number, self.reflexive)
        if not terms:
            return _where_defined(question, number)
        functions = [each for term in terms for each in term.atoms if each.opaque]
        if functions:
            if vanishes(terms, place.domain, question.functions):
                return _where_defined(question, number)
            names = dict.fromkeys(question.functions.name(each) for each in functions)
            return Undecided(f"the sides differ in how they use {', '.join(names)}, of which too little is known")
        operands = {int(each.name[1:]) for term in terms for each in term.atoms}
        if any(not isinstance(inputs[operand].node, Input) for operand in operands):
            return Undecided("the sides differ in the elements of a constant")
        if not _told_apart(question, operands):
            return Undecided("the sides differ in positions in mixed radix, of which too little is known", places=True)
        for term in terms:
            found = counterexample(question, number, term)
            if found:
                return found
        return Undecided("the sides differ, at no sizes that were found")


def _where_defined(question: Question, number: int) -> Answer:
    """The answer where two sides are equal as far as they have values."""
    if question.defined_alike(number):
        return Equal()
    return Undecided("the sides are equal only where no divisor is 0 and no root's or logarithm's argument is negative")


def _told_apart(question: Question, operands: set[int]) -> bool:
    """Return whether different digits are different positions, wherever the operands are read."""
    for root in (root for pair in question.pairs for root in pair):
        for node in walk(root):
            if isinstance(node, Read) and node.operand in operands:
                for axis, index in enumerate(node.index):
                    order = question.layouts[node.operand, axis]
                    if len(order) > 1 and not question.problem.radix.in_range(digits(index, order), order):
                        return False
    return True

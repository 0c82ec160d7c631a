"""The comparison of two programs for all sizes, and the set of positions at which they differ.

Both sides are one expression per output (inline), in mixed radix (radix), as sums of products of reads (evaluate, terms). Where the
difference has the empty normal form, the programs are equal for all sizes; where only monomials of free tensors are left, they differ,
and any position of such a monomial shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from dslc.analysis.conditions import Case
from dslc.analysis.isl import Frame, GivenUp, limited
from dslc.analysis.numeric import Unknown, value
from dslc.analysis.poly import Monomial, Poly, atom
from dslc.ir.graph import Input, Value, topological
from dslc.ir.scalar import Apply, Iter, Num, Read, Reduce, Scalar, Sym, apply, as_scalar, num, rebuild, walk
from dslc.prove.exact.affine import (
    Affine,
    MissingUnknown,
    NotAffine,
    about_positions,
    digits,
    largest_first,
    strides,
    unknown,
)
from dslc.prove.exact.equations import as_scalar_of, facts, named, solved
from dslc.prove.exact.evaluate import Evaluator, Place
from dslc.prove.exact.functions import Functions
from dslc.prove.exact.inline import CannotInline, Inliner
from dslc.prove.exact.pointwise import vanishes
from dslc.prove.exact.radix import Radix, flattened, quotient_by_size, quotients_left
from dslc.prove.exact.terms import Algebra, Deadline, Sum, Term, Unsolved, negated
from dslc.prove.exact.windows import generalized

if TYPE_CHECKING:
    from dslc.semantics.library import Rules

# isl takes a second at most for so many operations, mostly
_OPERATIONS = 400_000
_PARAMETERS = 24
# of the time of a comparison, what is for the plain one before windows are looked for
_BRIEF = 0.1
_SMALL = (2, 3, 5, 9)
_Answer = TypeVar("_Answer")
_ASSIGNMENTS = 2_000


@dataclass(frozen=True, slots=True)
class Equal:
    """The programs are equal for all sizes that satisfy the conditions."""


@dataclass(frozen=True, slots=True)
class Differs:
    """At these sizes, output number `output` differs at `position`, in the coefficient of `monomial`."""

    sizes: Mapping[str, int]
    output: int
    position: tuple[int, ...]
    monomial: str


@dataclass(frozen=True, slots=True)
class Undecided:
    reason: str


@dataclass(frozen=True, slots=True)
class Region:
    """Where two programs differ: per output an isl set of its positions, parametric in the sizes.

    `exact`: they differ at every point of the set, for some tensors; else they are equal outside it, and it may be too large.
    The dimensions of a set are `variables`, in terms of which `positions` gives the axes of the output; `parameters` are what its
    parameters stand for, in order.
    """

    sets: tuple[Any, ...]
    exact: bool
    parameters: tuple[Scalar, ...]
    variables: tuple[tuple[Iter, ...], ...]
    positions: tuple[tuple[Scalar, ...], ...]
    frame: Frame

    @property
    def is_empty(self) -> bool:
        return all(bool(each.is_empty()) for each in self.sets)

    def at(self, sizes: Mapping[str, int]) -> tuple[frozenset[tuple[int, ...]], ...]:
        """The positions of each output at given sizes."""
        known: dict[Scalar, int] = {
            part: sizes[part.name] for each in self.parameters for part in walk(each) if isinstance(part, Sym)
        }
        numbers = [int(value(each, known)) for each in self.parameters]
        out: list[frozenset[tuple[int, ...]]] = []
        for where, variables, position in zip(self.sets, self.variables, self.positions, strict=True):
            points = self.frame.points(where, numbers)
            whole = [{**known, **dict(zip(variables, point, strict=True))} for point in points]
            out.append(frozenset(tuple(int(value(axis, at)) for axis in position) for at in whole))
        return tuple(out)

    def __str__(self) -> str:
        return "\n".join(str(each) for each in self.sets)


@dataclass(slots=True)
class Habit:
    """Whether windows helped where the plain comparison did not, as is mostly so for all instances of a rule alike."""

    windows: bool = False


def compare(
    rules: Rules, left: Sequence[Value], right: Sequence[Value], conditions: Sequence[Scalar] = (), seconds: float = 10.0,
    ends: float = inf, reflexive: bool = False, habit: Habit | None = None,
) -> Equal | Differs | Undecided:  # fmt: skip
    """Whether two lists of outputs (expanded: only inputs, constants and scopes) are equal for all sizes and all inputs.

    Args:
        conditions: what is known of the sizes: truth values over symbols.
        seconds: after so long, by steps, the answer is Undecided.
        ends: and when this process has run for so long.
        reflexive: it is shown first that each side equals itself; where that is not so, nothing is decided.
        habit: what helped with other instances of the same rule, and is tried first; it is kept up to date.

    Normal forms: engines of Verdoolaege's integer set library; the idea of deciding linear programs by reads is in PET, section 5.
    """
    try:
        problem = _problem(left, right, conditions, seconds, ends)
        problem.reflexive = reflexive
        found = problem.brief(habit, seconds)
        if found is not None:
            return found
        with limited(int(seconds * _OPERATIONS) + 1):
            return problem.verdict()
    except (Unsolved, CannotInline, GivenUp) as reason:
        return Undecided(str(reason))


def difference(
    rules: Rules, left: Sequence[Value], right: Sequence[Value], conditions: Sequence[Scalar] = (), seconds: float = 10.0
) -> Region:
    """Where two lists of outputs differ. Raises Unsolved where the programs have no normal form."""
    try:
        problem = _problem(left, right, conditions, seconds)
        with limited(int(seconds * _OPERATIONS) + 1):
            return problem.region()
    except (CannotInline, GivenUp) as reason:
        raise Unsolved(str(reason)) from None


class _Quotient(Unsolved):
    """A position is divided by what does not divide its range, as far as is seen; with the ranges that there are."""

    def __init__(self, extents: Sequence[Scalar]) -> None:
        super().__init__("a position is divided by a size that does not divide the range")
        self.extents = extents


def _problem(
    left: Sequence[Value], right: Sequence[Value], conditions: Sequence[Scalar], seconds: float, ends: float = inf
) -> _Problem:
    deadline = Deadline(seconds, ends)
    try:
        return _Problem(left, right, conditions, deadline)
    except _Quotient as problem:
        names, more = named(problem.extents)
        if not names:
            raise
        return _Problem(left, right, conditions, deadline, names, more)


class _Problem:
    """One comparison. `names`: sizes in terms of names for compound extents, with what is known of those."""

    def __init__(
        self,
        left: Sequence[Value],
        right: Sequence[Value],
        conditions: Sequence[Scalar],
        deadline: Deadline,
        names: Mapping[Scalar, Scalar] | None = None,
        more: Sequence[Scalar] = (),
    ) -> None:
        self._deadline = deadline
        #: how functions are told apart (see Functions)
        self.by_position = False
        #: whether each side is to be shown to equal itself
        self.reflexive = False
        self._all = tuple(conditions)
        self._known, self._conditions = solved(conditions)
        if names:
            put = cache(lambda node: rebuild(node, names.get))
            self._known = {size: put(meaning) for size, meaning in self._known.items()} | dict(names)
            self._conditions = [*(put(condition) for condition in self._conditions), *more]
        inliner = Inliner(self._known, deadline.check, self._shorter((*left, *right)))
        self._inputs = inliner.inputs
        roots: list[Scalar] = []
        self._positions: list[tuple[Scalar, ...]] = []
        if len(left) != len(right):
            raise Unsolved("the programs have different numbers of outputs")
        for a, b in zip(left, right, strict=True):
            self._same_shape(inliner, a, b)
            position = inliner.position(a)
            roots += [inliner.output(a, position), inliner.output(b, position)]
            self._positions.append(position)
        radix = Radix(inliner.extents, self._facts(roots, inliner.extents.values()), deadline.check)
        self._conditions = [radix.simplify(condition) for condition in self._conditions]
        roots, self._parts = radix.split(roots)
        self._radix = radix
        self._roots = self._flattened(inliner, radix, roots)
        self._extents = inliner.extents

    def _about(self, roots: Sequence[Scalar], extents: Mapping[Iter, Scalar], conditions: Sequence[Scalar]) -> None:
        """What is compared: pairs of expressions over iterators with these ranges (those without one are any integer)."""
        self._pairs = list(zip(roots[::2], roots[1::2], strict=True))
        self._ranges = extents
        self._assumed = conditions
        self._layouts = self._strides(roots)
        self._monomials: list[Monomial] = [(s,) for s in self._symbols((*roots, *extents.values(), *conditions))]

    def _shorter(self, outputs: Sequence[Value]) -> Callable[[Scalar, dict[Iter, Scalar]], Scalar]:
        """Indices simplified as soon as they are made, by what is known of the sizes of all tensors."""
        sizes = [as_scalar(size) for node in topological(v.node for v in outputs) for v in node.values for size in v.type.shape]
        known = self._facts((rebuild(size, self._known.get) for size in sizes), ())
        found: list[Radix] = []

        def shorter(index: Scalar, extents: dict[Iter, Scalar]) -> Scalar:
            if not quotient_by_size(index):
                return index
            if not found:
                found.append(Radix(extents, known, self._deadline.check))
            return found[0].simplify(index)

        return shorter

    def _same_shape(self, inliner: Inliner, a: Value, b: Value) -> None:
        shapes = [[inliner.size(size) for size in each.type.shape] for each in (a, b)]
        if len(shapes[0]) != len(shapes[1]):
            raise Unsolved(f"the types {a.type} and {b.type} differ")
        radix = Radix({}, self._facts([size for shape in shapes for size in shape], ()), self._deadline.check)
        for one, other in zip(*shapes, strict=True):
            if one is not other and not (
                radix.least(apply("-", one, other)) and radix.least(apply("-", other, one))
            ):
                raise Unsolved(f"the sizes {one} and {other} are not known to be equal")

    def _flattened(self, inliner: Inliner, radix: Radix, roots: list[Scalar]) -> list[Scalar]:
        """Tensors that are still read at quotients by sizes, by their position in memory."""
        for operand in sorted(quotients_left(roots)):
            shape = [inliner.size(size) for size in self._inputs[operand].type.shape]
            roots = [radix.simplify(flattened(root, operand, shape)) for root in roots]
        if quotients_left(roots):
            raise _Quotient(list(inliner.extents.values()))
        return roots

    def _strides(self, roots: Sequence[Scalar]) -> dict[tuple[int, int], tuple[Monomial, ...]]:
        found: dict[tuple[int, int], set[Monomial]] = {}
        for root in roots:
            for node in walk(root):
                if isinstance(node, Read) and all(about_positions(index) for index in node.index):
                    for axis, index in enumerate(node.index):
                        found.setdefault((node.operand, axis), set()).update(strides(index))
        return {place: largest_first(monomials) for place, monomials in found.items()}

    def _facts(self, roots: Iterable[Scalar], extents: Iterable[Scalar]) -> Case:
        """The conditions, and the least values of the sizes."""
        sizes = self._symbols((*roots, *extents, *self._conditions))
        lower = tuple(atom(size) - size.least for size in sizes if size.least is not None)
        return facts(self._conditions) & Case(lower)

    def _symbols(self, roots: Iterable[Scalar]) -> list[Sym]:
        names: dict[Sym, None] = {}
        for root in roots:
            names.update((node, None) for node in walk(root) if isinstance(node, Sym))
        return sorted(names, key=lambda s: s.name)

    # ---- solving ---------------------------------------------------------------------------------------------------

    def verdict(self) -> Equal | Differs | Undecided:
        self._about(self._roots, self._extents, self._conditions)
        return self._solved(self._verdict)

    @property
    def has_extremes(self) -> bool:
        """Whether something is the largest or the smallest of a range."""
        return any(isinstance(node, Reduce) and node.kind in {"max", "min"} for root in self._roots for node in walk(root))

    def brief(self, habit: Habit | None, seconds: float) -> Equal | Differs | None:
        """The answer where it comes soon: by the plain comparison, or by the one of windows; else None.

        Mostly the plain one takes a tenth of the time of the other, or does not end.
        """
        habit = Habit() if habit is None else habit
        found: Equal | Differs | Undecided | None
        if self.has_extremes:
            self.by_position = True
            if not habit.windows and self.equal(seconds * _BRIEF):
                return Equal()
            if self.equal_by_windows(seconds / 4):
                habit.windows = True
                return Equal()
            if self.equal(seconds / 4):
                habit.windows = False
                return Equal()
            self.by_position = False
        elif not habit.windows:
            found = self._within(seconds * _BRIEF, self.verdict)
            if isinstance(found, Equal | Differs):
                return found
        habit.windows = self.equal_by_windows(seconds / 2)
        return Equal() if habit.windows else None

    def equal(self, seconds: float) -> bool:
        """Whether the programs are shown to be equal in a shorter time."""
        return self._within(seconds, lambda: self._equal(self._roots, self._extents, self._conditions)) or False

    def _equal(
        self, roots: Sequence[Scalar], extents: Mapping[Iter, Scalar], conditions: Sequence[Scalar], pointwise: bool = True
    ) -> bool:
        self._about(roots, extents, conditions)
        return self._solved(lambda: self._all_equal(pointwise))

    def _within(self, seconds: float, question: Callable[[], _Answer]) -> _Answer | None:
        """The answer to a question; None where it takes too long."""
        whole, self._deadline = self._deadline, self._deadline.part(seconds)
        try:
            with limited(int(seconds * _OPERATIONS) + 1):
                return question()
        except (Unsolved, GivenUp):
            return None
        finally:
            self._deadline = whole

    def equal_by_windows(self, seconds: float) -> bool:
        """Whether the programs are shown to be equal wherever their windows are (see windows)."""
        claim = generalized(self._roots, self._extents)
        if claim is None:
            return False
        roots = claim.roots
        nodes = [node for root in roots for node in walk(root)]
        iters = {it for node in nodes for it in (node.iters if isinstance(node, Reduce) else node.free)}
        extents = {it: extent for it, extent in self._extents.items() if it in iters}
        present = set(self._symbols((*roots, *extents.values())))
        conditions = [each for each in self._conditions if present.issuperset(self._symbols([each]))]

        def plainly() -> bool:
            return self._equal(roots, extents, conditions, pointwise=not claim.facts)

        def with_facts() -> bool:
            held = [each for each, goal in claim.facts if self._holds(goal)]
            return self._equal(roots, extents, [*conditions, *held])

        # mostly the facts are not needed, and take longer to find than all the rest
        return bool(self._within(seconds / 4, plainly) or (claim.facts and self._within(seconds, with_facts)))

    def _holds(self, goal: Scalar) -> bool:
        """Whether a condition on positions (that something is at least 0) is shown to hold at all of them."""
        if isinstance(goal, Num):
            return bool(goal.value)
        if isinstance(goal, Apply) and self._radix.least(apply("-", *goal.args)):
            return True
        self._about((), {it: self._extents[it] for it in goal.free}, self._conditions)
        while True:
            try:
                self._prepare()
                variables = tuple(sorted(goal.free, key=lambda it: it.name))
                place = self._evaluator.place(variables, self._sizes)
                return bool(place.domain.is_subset(self._affine.condition(goal, variables)))
            except MissingUnknown as missing:
                self._add(missing.monomials)
            except NotAffine:
                return False

    def _solved(self, answer: Callable[[], _Answer]) -> _Answer:
        while True:
            try:
                return answer()
            except MissingUnknown as missing:
                self._add(missing.monomials)

    def region(self) -> Region:
        self._about(self._roots, self._extents, self._conditions)
        return self._solved(self._region)

    def _add(self, monomials: Sequence[Monomial]) -> None:
        for monomial in monomials:
            if len(self._monomials) >= _PARAMETERS + len(self._parts):
                raise Unsolved("too many products of sizes")
            self._monomials.append(monomial)

    def _prepare(self) -> None:
        self._frame = Frame([" * ".join(map(str, monomial)) for monomial in self._monomials])
        self._affine = Affine(self._frame, self._monomials)
        self._functions = Functions(self.by_position)
        polys = [unknown(monomial) for monomial in self._monomials]
        self._algebra = Algebra(self._frame, polys, self._deadline, self._functions.resolve)
        self._functions.algebra = self._algebra
        self._evaluator = Evaluator(
            self._algebra, self._affine, self._functions, self._inputs, self._layouts, self._ranges
        )
        self._sizes = self._possible_sizes()

    def _possible_sizes(self) -> Any:
        """The sizes that satisfy the conditions, as far as they are affine (a set without dimensions)."""
        total = self._frame.universe(0)
        missing: dict[Monomial, None] = {}
        for condition in (*self._assumed, *self._bounds()):
            try:
                total = total.intersect(self._affine.condition(condition, ()))
            except NotAffine:
                continue
            except MissingUnknown as found:
                missing.update(dict.fromkeys(found.monomials))
        if missing:
            raise MissingUnknown(*missing)
        return total.coalesce()

    def _bounds(self) -> Iterator[Scalar]:
        for monomial in self._monomials:
            if len(monomial) == 1 and isinstance(monomial[0], Sym):
                if monomial[0].least is not None:
                    yield _at_least(monomial[0])
            elif all(isinstance(factor, Sym) and (factor.least or 0) >= 1 for factor in monomial):
                for factor in dict.fromkeys(monomial):
                    rest = list(monomial)
                    rest.remove(factor)
                    yield _raw(">=", apply("*", *monomial), factor)

    def _terms(self, number: int) -> tuple[Place, Sum]:
        """The normal form of the difference of one output."""
        variables = self._variables(number)
        place = self._evaluator.place(variables, self._sizes)
        one, other = self._pairs[number]
        if one is other:
            return place, ()
        left, right = self._evaluator.value(one, place), self._evaluator.value(other, place)
        for side in (left, right) if self.reflexive else ():
            if self._algebra.normal(side + negated(side)):
                raise Unsolved("a side differs from itself: a mistake in the prover")
        return place, self._algebra.normal(left + negated(right))

    def _variables(self, number: int) -> tuple[Iter, ...]:
        """The iterators of one output, with split ones as their parts."""
        out: list[Iter] = []
        for position in self._positions[number]:
            if isinstance(position, Iter):
                whole = self._parts.get(position, position)
                out.extend(sorted(whole.free, key=lambda it: it.name) if position in self._parts else [position])
        return tuple(it for it in out if it in self._ranges)

    def _verdict(self) -> Equal | Differs | Undecided:
        self._prepare()
        answers = [self._answer(number) for number in range(len(self._pairs))]
        for kind in (Differs, Undecided):
            for answer in answers:
                if isinstance(answer, kind):
                    return answer
        return Equal()

    def _all_equal(self, pointwise: bool) -> bool:
        """Whether all outputs are shown to be equal; where they differ is not asked. `pointwise`: functions of elements too."""
        self._prepare()
        for number in range(len(self._pairs)):
            place, terms = self._terms(number)
            opaque = any(each.opaque for term in terms for each in term.atoms)
            if terms and not (pointwise and opaque and vanishes(terms, place.domain, self._functions)):
                return False
        return True

    def _answer(self, number: int) -> Equal | Differs | Undecided:
        place, terms = self._terms(number)
        if not terms:
            return Equal()
        functions = [each for term in terms for each in term.atoms if each.opaque]
        if functions:
            if vanishes(terms, place.domain, self._functions):
                return Equal()
            names = dict.fromkeys(self._functions.name(each) for each in functions)
            return Undecided(f"the sides differ in how they use {', '.join(names)}, of which too little is known")
        if any(not isinstance(self._inputs[int(each.name[1:])].node, Input) for term in terms for each in term.atoms):
            return Undecided("the sides differ in the elements of a constant")
        if not self._told_apart({int(each.name[1:]) for term in terms for each in term.atoms}):
            return Undecided("the sides differ in positions in mixed radix, of which too little is known")
        for term in terms:
            found = self._sample(number, term)
            if found is not None:
                return found
        return Undecided("the sides differ, at no sizes that were found")

    def _told_apart(self, operands: set[int]) -> bool:
        """Whether different digits are different positions, wherever the operands are read."""
        for root in (root for pair in self._pairs for root in pair):
            for node in walk(root):
                if isinstance(node, Read) and node.operand in operands:
                    for axis, index in enumerate(node.index):
                        order = self._layouts[node.operand, axis]
                        if len(order) > 1 and not self._radix.in_range(digits(index, order), order):
                            return False
        return True

    # ---- counterexamples -------------------------------------------------------------------------------------------

    def _sample(self, number: int, term: Term) -> Differs | None:
        products = [k for k, monomial in enumerate(self._monomials) if len(monomial) > 1 or not isinstance(monomial[0], Sym)]
        for bound in _SMALL:
            small = term.map.intersect_params(self._small(bound))
            if small.is_empty():
                continue
            for candidate in self._candidates(small, bound) if products else (small,):
                point = self._frame.point(candidate)
                if point is None:
                    continue
                found = self._checked(number, term, *point)
                if found is not None:
                    return found
        return None

    def _small(self, bound: int) -> Any:
        total = self._frame.universe(0)
        for monomial in self._monomials:
            if len(monomial) == 1 and isinstance(monomial[0], Sym):
                total = total.intersect(self._affine.condition(_raw("<=", monomial[0], num(bound)), ()))
        return total.params()

    def _candidates(self, map: Any, bound: int) -> Iterator[Any]:
        """The map at fixed sizes, where some parameter stands for a product of them."""
        symbols = [m[0] for m in self._monomials if len(m) == 1 and isinstance(m[0], Sym)]
        for count, numbers in enumerate(product(range(1, bound + 1), repeat=len(symbols))):
            if count >= _ASSIGNMENTS:
                return
            at: dict[Scalar, int] = dict(zip(symbols, numbers, strict=True))
            where = self._frame.universe(0)
            for monomial in self._monomials:
                fixed = value(apply("*", num(1), *monomial), at)
                where = where.intersect(self._affine.condition(_raw("==", as_scalar_of(unknown(monomial)), num(fixed)), ()))
            yield map.intersect_params(where.params())

    def _checked(
        self, number: int, term: Term, parameters: Mapping[str, int], position: Sequence[int], reads: Sequence[int]
    ) -> Differs | None:
        """The counterexample at a point, if the conditions hold there and the coefficient does not vanish."""
        at: dict[Scalar, int] = {}
        for monomial, size in zip(self._monomials, parameters.values(), strict=True):
            if len(monomial) == 1 and isinstance(monomial[0], Sym):
                at[monomial[0]] = size
        try:
            for name, meaning in self._known.items():
                if isinstance(name, Sym):
                    at[name] = int(value(meaning, at))
            if not all(value(condition, at) for condition in self._all):
                return None
            coefficient = Fraction(_poly_at(term.coefficient.top, at), 1) / Fraction(_poly_at(term.coefficient.bottom, at), 1)
            if coefficient == 0:
                return None
            at.update(zip(self._variables(number), position, strict=True))
            whole: dict[Scalar, int] = {it: int(value(part, at)) for it, part in self._parts.items() if all(f in at for f in part.free)}
            at.update(whole)
            shown = tuple(int(value(each, at)) for each in self._positions[number])
        except (Unknown, ZeroDivisionError):
            return None
        sizes = {name.name: size for name, size in at.items() if isinstance(name, Sym) and " " not in name.name}
        return Differs(dict(sorted(sizes.items())), number, shown, self._monomial(term, reads, at))

    def _monomial(self, term: Term, reads: Sequence[int], at: Mapping[Scalar, int]) -> str:
        parts: list[str] = []
        start = 0
        for tensor in term.atoms:
            operand = int(tensor.name[1:])
            index = list(reads[start : start + tensor.arity])
            start += tensor.arity
            shown: list[int] = []
            axes = len([1 for place in self._layouts if place[0] == operand])
            for axis in range(axes):
                total = 0
                for stride in self._layouts[operand, axis]:
                    total += int(value(apply("*", num(1), *stride), at)) * index.pop(0)
                shown.append(total)
            node = self._inputs[operand].node
            name = node.name if isinstance(node, Input) else "constant"
            parts.append(f"{name}[{', '.join(map(str, shown))}]")
        return " * ".join(parts) or "1"

    # ---- regions ---------------------------------------------------------------------------------------------------

    def _region(self) -> Region:
        self._prepare()
        exact = all(len(m) == 1 and isinstance(m[0], Sym) for m in self._monomials)
        sets: list[Any] = []
        for number in range(len(self._pairs)):
            place, terms = self._terms(number)
            total = place.domain.subtract(place.domain)
            for term in terms:
                exact = exact and not any(each.opaque for each in term.atoms) and term.coefficient.number is not None
                total = total.union(term.map.domain())
            sets.append(total.coalesce())
        parts: dict[Scalar, Scalar] = dict(self._parts.items())
        return Region(
            tuple(sets),
            exact,
            tuple(as_scalar_of(unknown(monomial)) for monomial in self._monomials),
            tuple(self._variables(number) for number in range(len(sets))),
            tuple(tuple(rebuild(axis, parts.get) for axis in position) for position in self._positions),
            self._frame,
        )


def _raw(name: str, left: Scalar, right: Scalar) -> Scalar:
    return Apply._make((left, right), name)


def _at_least(size: Sym) -> Scalar:
    """A size's own lower bound, as a condition (the smart constructors know it and would drop it)."""
    return _raw(">=", size, num(size.least or 0))


def _poly_at(poly: Poly, at: Mapping[Scalar, int]) -> Any:
    total: Any = 0
    for monomial, coefficient in poly.terms:
        part: Any = coefficient
        for factor in monomial:
            part = part * value(factor, at)
        total = total + part
    return total

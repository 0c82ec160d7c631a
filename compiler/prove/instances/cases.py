"""One case of a rule at unknown sizes, and the next: what was chosen, what is assumed, which sizes are which expressions.

A rule is evaluated with unknown sizes again and again. Each evaluation follows a path of choices (ranks, axes, flags, whether two
sizes are equal or one of them is 1); the next one takes the last choice differently. An equation that has to hold is solved for
an unknown where possible, and the evaluation starts again with the solution in its place, so that equal sizes become equal
expressions and everything after it can be decided.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dslc.analysis.conditions import TRUE, Case, both, cases, unknowns
from dslc.analysis.poly import NotIntegral, Poly, atom, polynomial
from dslc.analysis.prove import nonnegative
from dslc.ir.dtype import DType
from dslc.ir.scalar import Apply, Num, Scalar, Sym, apply, dimension, num, replaced, scalars, walk
from dslc.semantics.env import Mismatch

_T = TypeVar("_T")


SOLVABLE = 12  #: names that are solved for in one case
TRIED = 6  #: parts of a case that are tried as the one that fails
FEW_CASES = 4  #: of more alternatives it is not asked whether all are empty: a case too many is only work


class Again(Exception):
    """An unknown was solved for: evaluate again."""


class Restart(Exception):
    """Something has to be a number that was unknown, or there are more numbers than there were: all paths are taken again."""


class TooMany(Exception):
    """More cases than the limit."""


@dataclass
class Path:
    """The choices of one evaluation: what was asked, which option was taken, how many there were."""

    most: int
    taken: dict[Hashable, tuple[int, int]] = field(default_factory=dict)
    solved: list[tuple[int, Sym, Scalar]] = field(default_factory=list)
    runs: int = 0
    #: what was solved for since the evaluation began
    stale: set[Sym] = field(default_factory=set)
    #: what expressions are with the solutions in place, as long as no solution comes or goes
    _values: dict[Scalar, Scalar] = field(default_factory=dict)
    _floors: tuple[Scalar, ...] | None = None

    def start(self) -> None:
        self.runs += 1
        self.stale = set()
        if self.runs > self.most:
            raise TooMany

    def pick(self, question: Hashable, options: Sequence[_T]) -> _T:
        """The option that this path takes; the same question has the same answer all along a path."""
        if not options:
            raise Mismatch("no value is left to choose")
        if len(options) == 1:
            return options[0]
        chosen, _ = self.taken.setdefault(question, (0, len(options)))
        return options[chosen]

    def advance(self) -> bool:
        """On to the next path; False after the last one."""
        while self.taken:
            question, (chosen, count) = self.taken.popitem()
            if chosen + 1 < count:
                # what was solved for after this choice may not hold any more
                kept = [each for each in self.solved if each[0] <= len(self.taken)]
                if len(kept) < len(self.solved):
                    self.solved = kept
                    self._changed()
                self.taken[question] = (chosen + 1, count)
                return True
        return False

    def solve(self, name: Sym, value: Scalar) -> None:
        """Notes a solution. The evaluation goes on until something depends on it.

        Raises:
            Again: where that is now, as it speaks of what was solved for a moment ago.
        """
        if any(node in self.stale for node in (name, *walk(value))):
            raise Again
        self.stale.add(name)
        self.solved.append((len(self.taken), name, value))
        self._changed()

    def _changed(self) -> None:
        self._values.clear()
        self._floors = None

    def floors(self) -> tuple[Scalar, ...]:
        """Conditions that solutions are no less than their unknowns may be."""
        if self._floors is None:
            known = [(name, value) for _, name, value in self.solved if name.least is not None]
            self._floors = tuple(apply(">=", self.value(value), num(name.least or 0)) for name, value in known)
        return self._floors

    def settle(self) -> None:
        """Raises Again where something was solved for since the evaluation began."""
        if self.stale:
            raise Again

    def value(self, scalar: Scalar) -> Scalar:
        """An expression with every unknown that was solved for replaced."""
        found = self._values.get(scalar)
        if not found:
            found = scalar
            for _, name, value in self.solved:
                found = replaced(found, name, value)
            self._values[scalar] = found
        return found


class AssumedCase:
    """Assumptions of one case. Implements `dslc.semantics.assuming.Assuming`.

    On the left side of a rule every condition is assumed: the rule is only used where its left side has a meaning. On the right
    side it should follow; `open` holds what is not proved to (and is assumed as well, as a rule is not used where its right side
    has no meaning).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.conditions: dict[Scalar, None] = {}
        self.open: dict[Scalar, None] = {}
        self.left = True
        #: unknown numbers, and unknown integers of attributes, by the names that they were drawn under
        self.reals: dict[Sym, str] = {}
        self.integers: dict[str, str] = {}
        self._fresh = 0
        self._quotients: dict[tuple[Scalar, Scalar], Scalar] = {}
        for floor in path.floors():
            self._add(floor)

    # ---- the interface that evaluation asks ----------------------------------------------------------------

    def require(self, condition: Scalar) -> bool:
        return self._all(condition, self._assumed if self.left else self._asked)

    def decide(self, condition: Scalar) -> bool:
        if isinstance(condition, Num):
            return bool(condition.value)
        negation = negated(condition)
        if condition in self.conditions:
            return True
        if negation in self.conditions:
            return False
        self.path.settle()
        holds = self.path.pick(("decide", condition), (True, False))
        self._assume(condition if holds else negation)
        return holds

    def one_of(self, conditions: Sequence[Scalar]) -> int:
        for k, condition in enumerate(conditions):
            if (isinstance(condition, Num) and condition.value is True) or condition in self.conditions:
                return k
        self.path.settle()
        # the same condition twice (a size that is 1, and one that is equal to 1) is one case
        possible = [
            k
            for k, c in enumerate(conditions)
            if c not in conditions[:k] and not (isinstance(c, Num) and c.value is False)
        ]
        if not possible:
            raise Mismatch("sizes that never go together")
        if not self.left:
            for k in possible:
                if self.implied(conditions[k]):
                    return k
            alternatives = (conditions[k] for k in possible)
            self.open[functools.reduce(lambda one, other: apply("or", one, other), alternatives)] = None
        chosen = self.path.pick(("one of", *conditions), possible)
        if not self._assume(conditions[chosen]):
            raise Mismatch("sizes that do not go together")
        return chosen

    def quotient(self, size: Scalar, divisor: Scalar) -> Scalar:
        whole = apply("//", size, divisor)
        if apply("*", whole, divisor) is size:
            return whole
        if self.left and self._unknowns(size):
            known = self._quotients.get((size, divisor))
            if known:
                return known
            first = str(self._unknowns(size)[0].name)
            part = dimension(f"{first}_{len(self.path.solved)}_{self._fresh}")
            self._fresh += 1
            self._quotients[size, divisor] = part
            self.require(apply("==", size, apply("*", divisor, part)))
            return part
        self.require(apply("==", size, apply("*", divisor, whole)))
        return whole

    def dtype_of(self, number: Scalar) -> DType:
        divided = any(node.name == "/" for node in scalars(Apply, number))
        return DType.I64 if number.integral and not self.has_real(number) and not divided else DType.F32

    # ---- assuming ------------------------------------------------------------------------------------------

    def _assume(self, condition: Scalar) -> bool:
        return self._all(condition, self._assumed)

    def _all(self, condition: Scalar, note: Callable[[Scalar], None]) -> bool:
        """Note the parts of a condition that are not known; False where one of them is."""
        if isinstance(condition, Num):
            return bool(condition.value)
        if condition in self.conditions:
            return True
        if condition.op == "and":
            return all(self._all(arg, note) for arg in condition.args)
        note(condition)
        return True

    def _assumed(self, condition: Scalar) -> None:
        if len(condition.args) == 2:
            if condition.op == "==":
                self._solve(*condition.args)
            if condition.op in {">=", ">", "<=", "<"}:
                self._bound(condition.op, *condition.args)
        self._add(condition)

    def _asked(self, condition: Scalar) -> None:
        self.path.settle()
        if not self.implied(condition):
            self.open[condition] = None
            self._add(condition)

    def _add(self, condition: Scalar) -> None:
        if isinstance(condition, Num):
            if not condition.value:
                raise Mismatch("sizes that never occur")
            return
        self.conditions[condition] = None

    def _bound(self, name: str, left: Scalar, right: Scalar) -> None:
        """`k >= 1` becomes the least value of the unknown k."""
        if name in {"<=", "<"}:
            name, left, right = {"<=": ">=", "<": ">"}[name], right, left
        if (
            not isinstance(left, Sym)
            or left in self.reals
            or not isinstance(right, Num)
            or not isinstance(right.value, int)
        ):
            return
        least = right.value + (name == ">")
        if left.least is None or left.least < least:
            self.path.solve(left, Sym._make(least, left.name))

    def _unknowns(self, scalar: Scalar) -> list[Sym]:
        return [node for node in scalars(Sym, scalar) if node not in self.reals]

    def _solve(self, left: Scalar, right: Scalar) -> None:
        """Replaces an unknown that the equation determines. Returns where it determines none."""
        for name, other in ((left, right), (right, left)):
            if (
                not isinstance(name, Sym)
                or name in set(walk(other))
                or (isinstance(other, Sym) and _least(other) < _least(name))
            ):
                continue
            if name in self.reals or not self.has_real(other):
                self.path.solve(name, other)
                return
        for a, b in ((left, right), (right, left)):
            real = self._real_factor(a, b)
            if real is not None:
                self.path.solve(*real)
                return
        try:
            poly = _cancelled(polynomial(apply("-", left, right)))
        except NotIntegral:
            return
        ones = _ones(poly)
        for name in ones:
            self.path.solve(name, num(1))
        if ones:
            return
        factors = _bilinear(poly)
        if factors is not None:
            self.path.settle()
        if factors is not None and not self.path.pick(("factor", left, right), (False, True)):
            poly = factors[0]
        elif factors is not None:
            poly = factors[1]
        found = [each for name in self._order(poly) if (each := _isolated(poly, name)) is not None]
        if found:
            self.path.solve(*min(found, key=lambda each: (str(each[1]).count("-"), len(str(each[1])))))

    def _order(self, poly: Poly) -> list[Sym]:
        names = [a for a in poly.atoms if isinstance(a, Sym) and a not in self.reals]
        return sorted(names, key=lambda name: name.name)[:SOLVABLE]

    def has_real(self, scalar: Scalar) -> bool:
        return any(node in self.reals for node in walk(scalar))

    def _real_factor(self, product: Scalar, other: Scalar) -> tuple[Sym, Scalar] | None:
        """`c * n == 1` for an unknown number c."""
        if product.op == "*" and not self.has_real(other):
            names = [f for f in product.args if f in self.reals]
            rest = [f for f in product.args if f not in self.reals]
            if len(names) == 1 and isinstance(names[0], Sym) and not any(self.has_real(f) for f in rest):
                return names[0], apply("/", other, apply("*", *rest))
        return None

    # ---- proving -------------------------------------------------------------------------------------------

    def implied(self, condition: Scalar) -> bool:
        """Return whether the facts that are connected with a condition on integers prove it."""
        if self.has_real(condition):
            return False
        return _implied(_connected(self._of_integers(), condition), condition)

    def _of_integers(self) -> tuple[Scalar, ...]:
        """The facts that speak of integers alone: 20 p == 3 has a solution among the numbers."""
        return (
            tuple(each for each in self.conditions if not self.has_real(each)) if self.reals else tuple(self.conditions)
        )

    def never(self) -> bool:
        """Return whether no sizes satisfy the facts: the case does not occur."""
        left = self._of_integers()
        while left:
            part = _connected(left, left[0])
            if _never(part):
                return True
            gone = {left[0], *part}
            left = tuple(each for each in left if each not in gone)
        return False


_unknown = functools.lru_cache(maxsize=1 << 16)(unknowns)


def _connected(facts: tuple[Scalar, ...], goal: Scalar) -> tuple[Scalar, ...]:
    """The facts that speak of the unknowns of `goal`, or of those that such facts speak of."""
    reached = set(_unknown(goal))
    found: dict[Scalar, None] = {}
    left = facts
    while True:
        near = [fact for fact in left if not reached.isdisjoint(_unknown(fact))]
        if not near:
            return tuple(fact for fact in facts if fact in found)
        found.update(dict.fromkeys(near))
        left = tuple(fact for fact in left if fact not in found)
        reached = reached.union(*(_unknown(fact) for fact in near))


@functools.lru_cache(maxsize=1 << 14)
def _known(facts: tuple[Scalar, ...], goal: Scalar | None = None) -> tuple[Case, ...]:
    """The facts, and the least values of the unknowns in them and in `goal`, as alternatives."""
    names = frozenset().union(*(_unknown(root) for root in (*facts, *((goal,) if goal else ()))))
    leasts = sorted((name for name in names if name.least is not None), key=lambda name: name.name)
    extra = Case(tuple(polynomial(name) - (name.least or 0) for name in leasts))
    return tuple(case & extra for case in both(*(cases(fact) for fact in facts)))


@functools.lru_cache(maxsize=1 << 16)
def _implied(facts: tuple[Scalar, ...], condition: Scalar) -> bool:
    """Return whether facts prove a condition. The same question comes along many paths."""
    wanted = cases(condition)
    if wanted == TRUE:
        return False
    known = _known(facts, condition)
    # what follows from the facts without alternatives needs no look at each of them
    certain = _known(tuple(fact for fact in facts if len(cases(fact)) == 1), condition) if len(known) > 1 else known
    shown: Callable[[Any, Case], bool]
    if condition.op == "or":
        goals: Sequence[Any] = cases(condition, False)
        shown = _empty
    elif len(wanted) == 1:
        goals = [*wanted[0].nonneg, *wanted[0].zero, *(-poly for poly in wanted[0].zero)]
        shown = _at_least_zero
    else:
        return False
    return all(
        all(shown(goal, case) for case in certain)
        or (known is not certain and all(shown(goal, case) for case in known))
        for goal in goals
    )


def _at_least_zero(goal: Poly, facts: Case) -> bool:
    return nonnegative(_scalar(goal), (), facts)


@functools.lru_cache(maxsize=1 << 14)
def _never(facts: tuple[Scalar, ...]) -> bool:
    known = _known(facts)
    return len(known) <= FEW_CASES and all(_empty(case, case) for case in known)


def _empty(case: Case, facts: Case) -> bool:
    """Return whether facts contradict a case: one of its parts is shown to fail where all else holds."""
    every = facts & case
    opposite = [-poly - 1 for poly in case.nonneg[:TRIED]]
    opposite += [side - 1 for poly in case.zero[:TRIED] for side in (poly, -poly)]
    return any(goal.constant >= 0 if goal.is_constant else nonnegative(_scalar(goal), (), every) for goal in opposite)


def negated(condition: Scalar) -> Scalar:
    """The opposite of a condition."""
    opposite = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
    if condition.op in opposite:
        return apply(opposite[condition.op], *condition.args)
    if condition.op == "not":
        return condition.args[0]
    return apply("not", condition)


def _least(name: Sym) -> float:
    return name.least if name.least is not None else -math.inf


def _cancelled(poly: Poly) -> Poly:
    """`poly == 0` without factors that are never 0."""
    for name in [a for a in poly.atoms if isinstance(a, Sym) and a.least is not None and a.least >= 1]:
        while poly.terms and all(name in monomial for monomial, _ in poly.terms):
            poly, _ = poly.split(name)
    return poly


def _ones(poly: Poly) -> list[Sym]:
    """`x * y == 1` for sizes: all of them are 1."""
    if len(poly.terms) != 2 or abs(poly.constant) != 1:
        return []
    (monomial, coefficient) = next((m, c) for m, c in poly.terms if m)
    names = [a for a in monomial if isinstance(a, Sym) and a.least is not None and a.least >= 0]
    return names if len(names) == len(monomial) and coefficient == -poly.constant else []


def _bilinear(poly: Poly) -> tuple[Poly, Poly] | None:
    """`(x + a) * (y + b)` where a polynomial is such a product."""
    top = [m for m, c in poly.terms if len(m) == 2 and m[0] is not m[1] and c == 1]
    if len(poly.terms) != 4 or len(top) != 1:
        return None
    x, y = top[0]
    first, second = poly.coefficients.get((y,)), poly.coefficients.get((x,))
    if first is None or second is None or poly.constant != first * second:
        return None
    return atom(x) + first, atom(y) + second


def _isolated(poly: Poly, name: Sym) -> tuple[Sym, Scalar] | None:
    """`poly == 0` solved for an unknown that occurs once, alone and with coefficient 1 or -1."""
    slope = poly.coefficients.get((name,))
    if slope is None or abs(slope) != 1 or sum(name in monomial for monomial, _ in poly.terms) != 1:
        return None
    rest = Poly(tuple((m, -slope * c) for m, c in poly.terms if m != (name,)))
    value = _scalar(rest)
    if any(node is name for node in walk(value)):
        return None
    return name, value


def _scalar(poly: Poly) -> Scalar:
    total: Scalar = num(0)
    for monomial, coefficient in poly.terms:
        total = apply("+", total, apply("*", num(coefficient), *monomial))
    return total

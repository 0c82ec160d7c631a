"""Proofs that an integer expression is never negative, for all sizes.

In order: interval rules for iterators, `//` and `%` with symbolic divisors (this covers ravel and unravel under equal
products), then isl on a linearization in which products of unknowns are unknowns of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from itertools import combinations_with_replacement, islice, starmap
from operator import mul

from dslc.analysis import isl
from dslc.analysis.conditions import Case, both, cases, split_atom, unknowns
from dslc.analysis.poly import ZERO, Monomial, NotIntegral, Poly, atom, polynomial, primitive
from dslc.analysis.reads import ReadLoop
from dslc.ir.scalar import Apply, Iter, Num, Scalar, Sym, replaced, walk

STEPS = 400  #: how often interval rules may branch before a proof is left to isl
SPLITS = 8  #: cases that a proof may be split into, one in the other
PRODUCTS = 300  #: products of facts that are added to them


def nonnegative(goal: Scalar, loops: tuple[ReadLoop, ...], facts: Case) -> bool:
    """Return whether `goal >= 0` is proved wherever the loops run and the facts hold."""
    ranges: list[Poly] = []
    for loop in loops:
        ranges.append(atom(loop.iterator))
        with suppress(NotIntegral):
            ranges.append(polynomial(loop.extent) - atom(loop.iterator) - 1)
    try:
        return _by_cases(polynomial(goal), facts & Case(tuple(ranges)), tuple(loop.iterator for loop in loops), SPLITS)
    except NotIntegral:
        return False


@lru_cache(maxsize=1 << 12)
def always(condition: Scalar, given: tuple[Scalar, ...] = ()) -> bool:
    """Return whether a condition on sizes is proved for all of them that meet the given ones, each at least what is known of it."""
    least = sorted((node for node in unknowns(condition, *given) if node.least is not None), key=str)
    sizes = Case(tuple(atom(node) - (node.least or 0) for node in least))
    facts = both((sizes,), *map(cases, given))
    try:
        return all(_refuted_case(each, case) for case in cases(condition, False) for each in facts)
    except NotIntegral:  # a case in which an end is infinite
        return False


def _refuted_case(sizes: Case, case: Case) -> bool:
    """Return whether nothing satisfies a case: one of its conditions is never met where the others are."""
    for k, poly in enumerate(case.nonneg):
        others = Case((*case.nonneg[:k], *case.nonneg[k + 1 :]), case.zero)
        if _by_cases(-poly - 1, sizes & others, (), SPLITS):
            return True
    return any(_by_cases(poly * sign - 1, sizes & case, (), SPLITS) for poly in case.zero for sign in (1, -1))


def _by_cases(goal: Poly, facts: Case, iterators: tuple[Scalar, ...], left: int) -> bool:
    """Splits min, max, abs and choices, first those of the goal, then those of the facts."""
    if left:
        for poly in (goal, *facts.zero, *facts.nonneg):
            node = _splittable(poly)
            if node:
                return all(
                    _by_cases(_rewrite(goal, node, value), _rewritten(facts & case, node, value), iterators, left - 1)
                    for alternatives, value in split_atom(node) or ()
                    for case in alternatives
                    if not _excluded(case, facts)
                )
    goal, facts = _solved(goal, facts)
    prover = _Prover(facts, iterators)
    return prover.interval(goal) or prover.linear(goal)


def _excluded(case: Case, facts: Case) -> bool:
    """Return whether a fact says the opposite of one of a case's conditions, so that there is nothing to prove in it."""
    return any(
        (total := condition + fact).is_constant and total.constant < 0
        for condition in case.nonneg
        for fact in facts.nonneg
        if condition.atoms == fact.atoms
    )


def _solved(goal: Poly, facts: Case) -> tuple[Poly, Case]:
    """Sizes that an equation gives (`step == 1`) are put in everywhere, so that products with them become linear."""
    for equation in facts.zero:
        for monomial, coefficient in equation.terms:
            if len(monomial) != 1 or abs(coefficient) != 1 or not isinstance(monomial[0], Sym):
                continue
            name = monomial[0]
            rest = (equation - atom(name) * coefficient) * -coefficient
            if name in equation.atoms - rest.atoms and rest.degree <= 1 and equation.degree_in(name) == 1:
                left = tuple(poly.substitute(name, rest) for poly in facts.zero if poly is not equation)
                case = Case(tuple(poly.substitute(name, rest) for poly in facts.nonneg), left)
                return _solved(goal.substitute(name, rest), case)
    return goal, facts


@lru_cache(maxsize=1 << 14)
def _splittable(poly: Poly) -> Scalar | None:
    for factor in sorted(poly.atoms, key=str):
        for node in walk(factor):
            if node.op in {"min", "max", "abs", "select"} and not node.reads:
                return node
    return None


def _rewrite(poly: Poly, node: Scalar, value: Scalar) -> Poly:
    if node not in _inside(poly):
        return poly
    total = ZERO
    for monomial, coefficient in poly.terms:
        product = Poly((((), coefficient),))
        for factor in monomial:
            product = product * polynomial(replaced(factor, node, value))
        total = total + product
    return total


def _rewritten(facts: Case, node: Scalar, value: Scalar) -> Case:
    def go(polys: tuple[Poly, ...]) -> tuple[Poly, ...]:
        out = []
        for poly in polys:
            with suppress(NotIntegral):  # a fact less is sound
                out.append(_rewrite(poly, node, value))
        return tuple(out)

    return Case(go(facts.nonneg), go(facts.zero))


class _Prover:
    """One conjunction of facts, without min, max, abs and choices."""

    def __init__(self, facts: Case, iterators: tuple[Scalar, ...]) -> None:
        self._nonneg = _with_factors(facts)
        self._zero = facts.zero
        self._bounds = _bounds(iterators, self._nonneg)
        self._steps = STEPS
        self._positive: dict[Scalar, bool] = {}
        self._linear: dict[Poly, bool] = {}

    # ---- interval rules --------------------------------------------------------------------------------------

    def interval(self, goal: Poly) -> bool:
        """The least value over the corners of the iterators' ranges (expressions are linear in each of them)."""
        self._steps -= 1
        if goal.is_constant:
            return goal.constant >= 0
        if self._steps < 0:
            return False
        for rule in (self._floor, self._corner):
            found = rule(goal)
            if found is not None:
                return found
        return self._sizes(goal)

    def _floor(self, goal: Poly) -> bool | None:
        """`rest - e // d >= 0` is `rest * d + d - 1 - e >= 0`; `rest + e // d >= 0` is `rest * d + e >= 0`."""
        for node in _nested_last(goal.atoms, "//"):
            slope, rest = goal.split(node)
            if not slope.is_constant or abs(slope.constant) != 1 or goal.degree_in(node) > 1:
                continue
            if not self.positive(node.args[1]):
                continue
            try:
                e, d = polynomial(node.args[0]), polynomial(node.args[1])
            except NotIntegral:
                continue
            return self.interval(rest * d + e if slope.constant == 1 else rest * d + d - 1 - e)
        return None

    def _corner(self, goal: Poly) -> bool | None:
        for node in _nested_last(goal.atoms, "%"):
            if goal.degree_in(node) == 1 and self.positive(node.args[1]):
                return self._ends(goal, node, ZERO, polynomial(node.args[1]) - 1)
        for iterator, low, high in self._bounds:
            if goal.degree_in(iterator) == 1:
                return self._ends(goal, iterator, low, high)
        return None

    def _ends(self, goal: Poly, variable: Scalar, low: Poly, high: Poly) -> bool:
        slope, rest = goal.split(variable)
        if self._sizes(slope):
            return self.interval(rest + slope * low)
        if self._sizes(-slope):
            return self.interval(rest + slope * high)
        return self.interval(rest + slope * low) and self.interval(rest + slope * high)

    def _sizes(self, goal: Poly) -> bool:
        """No iterator is left: every coefficient is >= 0 in sizes above their known least values, or isl decides."""
        if goal.is_constant:
            return goal.constant >= 0
        shifted = goal
        for factor in goal.atoms:
            least = self._least(factor)
            if least is None:
                return self.linear(goal)
            if least:
                shifted = shifted.substitute(factor, atom(factor) + least)
        return all(coefficient >= 0 for _, coefficient in shifted.terms) or self.linear(goal)

    def _least(self, factor: Scalar) -> int | None:
        found = [-fact.constant for fact in self._nonneg if fact.atoms == {factor} and _single(fact)]
        return max(found, default=None)

    def positive(self, divisor: Scalar) -> bool:
        """Return whether a divisor is known to be at least 1."""
        if isinstance(divisor, Num):
            return isinstance(divisor.value, int) and divisor.value > 0
        if divisor not in self._positive:
            self._positive[divisor] = False  # against circles
            try:
                self._positive[divisor] = self.interval(polynomial(divisor) - 1)
            except NotIntegral:
                return False
        return self._positive[divisor]

    # ---- isl ---------------------------------------------------------------------------------------------------

    def linear(self, goal: Poly) -> bool:
        """No integer point satisfies the facts and `goal < 0`, each product of unknowns taken as an unknown."""
        if goal.is_constant:
            return goal.constant >= 0
        if goal not in self._linear:
            self._linear[goal] = self._refuted(goal)
        return self._linear[goal]

    def _refuted(self, goal: Poly) -> bool:
        nonneg, zero = self._relevant(goal)
        nonneg, zero = self._definitions([-goal - 1, *nonneg], zero)
        nonneg = [*nonneg, *_products(nonneg)]
        monomials = dict.fromkeys(m for poly in (*nonneg, *zero) for m, _ in poly.terms if m)
        names = {monomial: f"v{k}" for k, monomial in enumerate(monomials)}
        constraints = [_constraint(poly, names, ">=") for poly in nonneg]
        constraints += [_constraint(poly, names, "==") for poly in zero]
        return isl.is_empty(tuple(names.values()), tuple(dict.fromkeys(constraints)))

    def _relevant(self, goal: Poly) -> tuple[list[Poly], list[Poly]]:
        """The facts that are connected with the goal by common unknowns."""
        reached, before = _inside(goal), frozenset[Scalar]()
        while reached != before:
            before = reached
            for poly in (*self._nonneg, *self._zero):
                reached |= _inside(poly) if _inside(poly) & reached else frozenset()
        nonneg, zero = ([poly for poly in polys if _inside(poly) & reached] for polys in (self._nonneg, self._zero))
        return nonneg, zero

    def _definitions(self, nonneg: list[Poly], zero: list[Poly]) -> tuple[list[Poly], list[Poly]]:
        """Adds `e == d * (e // d) + e % d` and `0 <= e % d < d` for every division that occurs, divisors known positive."""
        done: set[tuple[Scalar, Scalar]] = set()
        todo = _divisions(nonneg + zero)
        nonneg, zero = list(nonneg), list(zero)
        while todo:
            e, d = todo.pop().args
            if (e, d) in done:
                continue
            done.add((e, d))
            if not self.positive(d):
                continue
            try:
                top, divisor = polynomial(e), polynomial(d)
            except NotIntegral:
                continue
            quotient, rest = Apply._make((e, d), "//"), Apply._make((e, d), "%")
            zero.append(divisor * atom(quotient) + atom(rest) - top)
            nonneg += [atom(rest), divisor - atom(rest) - 1]
            todo += _divisions([top, divisor])
        return nonneg, zero


def _divisions(polys: Iterable[Poly]) -> list[Scalar]:
    """The quotients and remainders that occur, in an order that depends on nothing but them."""
    found = {node for poly in polys for node in poly.atoms if node.op in {"//", "%"}}
    return sorted(found, key=str)


@lru_cache(maxsize=1 << 14)
def _inside(poly: Poly) -> frozenset[Scalar]:
    return frozenset(part for factor in poly.atoms for part in walk(factor) if not isinstance(part, Num))


def _nested_last(atoms: Iterable[Scalar], name: str) -> list[Scalar]:
    found = [node for node in atoms if node.op == name]
    return sorted(found, key=lambda node: (-len(str(node)), str(node)))


def _bounds(iterators: tuple[Scalar, ...], nonneg: tuple[Poly, ...]) -> list[tuple[Scalar, Poly, Poly]]:
    """The iterators, innermost first, with their ranges."""
    out = []
    for k, iterator in reversed(list(enumerate(iterators))):
        later = {i for i in iterators[k:] if isinstance(i, Iter)}
        facts = (fact for fact in nonneg if fact.coefficients.get((iterator,)) == -1 and fact.degree_in(iterator) == 1)
        for slope, high in (fact.split(iterator) for fact in facts):
            if slope.is_constant and not any(later & part.free for part in high.atoms):
                out.append((iterator, ZERO, high))
                break
    return out


@lru_cache(maxsize=512)
def _with_factors(case: Case) -> tuple[Poly, ...]:
    """`x * y >= 1` with `x >= 0` gives `x >= 1` and `y >= 1`; an iterator's range, and an equal product, are not empty."""
    facts = list(dict.fromkeys(primitive(poly) for poly in case.nonneg))
    lower = {next(iter(f.atoms)) for f in facts if len(f.atoms) == 1 and f.constant <= 0 and _single(f)}
    for fact in list(facts):
        for iterator in sorted(fact.atoms & lower, key=str):  # an iterator below a product: the product is positive
            if fact.degree_in(iterator) == 1:
                slope, rest = fact.split(iterator)
                if slope.is_constant and slope.constant < 0:
                    facts.append(rest)
    _factors(facts, lower)
    one = {next(iter(f.atoms)) for f in facts if len(f.atoms) == 1 and f.constant < 0 and _single(f)}
    for equation in case.zero:
        for this, other in (equation.terms, equation.terms[::-1]) if len(equation.terms) == 2 else ():
            if this[1] == -other[1] and set(this[0]) <= one:
                facts.append(Poly(tuple(sorted({(): -1, other[0]: 1}.items(), key=lambda item: len(item[0])))))
    _factors(facts, lower)
    return tuple(dict.fromkeys(facts))


def _factors(facts: list[Poly], lower: set[Scalar]) -> None:
    for fact in list(facts):
        if len(fact.terms) == 2 and fact.constant <= -1:
            monomial = next(m for m, _ in fact.terms if m)
            if fact.coefficients[monomial] > 0 and sum(a not in lower for a in monomial) <= 1:
                facts.extend(atom(factor) - 1 for factor in monomial)


def _single(fact: Poly) -> bool:
    factor = next(iter(fact.atoms))
    return fact.coefficients.get((factor,), 0) == 1 and fact.degree_in(factor) == 1


def _products(nonneg: list[Poly]) -> list[Poly]:
    """Products of two facts whose monomials all occur already (McCormick's inequalities and the like)."""
    present = {monomial for poly in nonneg for monomial, _ in poly.terms if len(monomial) > 1}
    wanted = {factor for monomial in present for factor in monomial}
    usable = [poly for poly in nonneg if poly.atoms and poly.atoms <= wanted and len(poly.terms) <= 3]
    products = starmap(mul, combinations_with_replacement(usable, 2))
    there = (each for each in products if all(len(m) < 2 or m in present for m, _ in each.terms))
    return list(islice(there, PRODUCTS))


def _constraint(poly: Poly, names: dict[Monomial, str], kind: isl.Kind) -> isl.Constraint:
    terms = tuple((names[monomial], coefficient) for monomial, coefficient in poly.terms if monomial)
    return isl.Constraint(terms, poly.constant, kind)

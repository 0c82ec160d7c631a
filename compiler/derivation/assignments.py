"""Iterators of an expression for those of an operator: the one matcher of operators and calls (EinNet, section 5.1, Figure 8).

Iterators are given to the table's by where they stand. Those of windows are found by the coefficients with which they move along a
dimension, which say what strides and dilations are. `solving` makes operators of what is found, `cuda/matching` makes calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import gcd
from typing import Any

from dslc.analysis.iterators import coefficient_of
from dslc.analysis.numeric import DataDependent
from dslc.analysis.numeric import value as number_of
from dslc.analysis.poly import Poly
from dslc.derivation.pieces import Iters, Unfit
from dslc.derivation.tables import Group, OperatorPattern, Window, unknowns_in
from dslc.ir.scalar import Iter, Num, Read, Scalar, Sym, apply, num, rebuild
from dslc.ir.scopes import substitute
from dslc.records import record

SLOPES = 2  #: ways to match one window of a pattern


class Along(Enum):
    """The iterators that have to move along a dimension for a window."""

    WHOLE = "all that moves in the operator"
    FIRST = "its first iterator, as in a window of one position"
    EXACT = "what has several positions, and nothing else moves there"


@record
class MovedWindow:
    """A window of the pattern in the expression: the dimension of the read, `unit * (what the window computes) + rest`."""

    operand: int
    dim: int
    at: int
    unit: int
    rest: Scalar


@dataclass(frozen=True)
class Assignment:
    """Iterators of the expression for those of the pattern, and what is known of sizes and attributes."""

    given: Mapping[Iter, Iters]
    known: Mapping[Sym, Scalar] = field(default_factory=dict)
    moved: tuple[MovedWindow, ...] = ()

    @property
    def taken(self) -> set[Iter]:
        return {it for own in self.given.values() for it in own}


@record
class WindowSearch:
    """A pattern and what its windows are looked for in, along the last dimensions first where nothing else moves there.

    `factors`: what stands for each of the pattern's reads. `groups`: where the expression's iterators stand, by operands among
    `operands` (None: all of them).
    """

    pattern: OperatorPattern
    factors: Mapping[int, Scalar]
    groups: Mapping[Iter, Group]
    along: Along = Along.WHOLE
    operands: frozenset[int] | None = None

    def ways(self) -> Iterator[Assignment]:
        """Every way to find the pattern's windows in the expression's reads, in the order of dimensions."""
        return self._windows(Assignment({}), self.pattern.windows)

    def _group(self, it: Iter) -> Group:
        operands, result = self.pattern.group(it)
        return (operands if self.operands is None else operands & self.operands), result

    def _windows(self, way: Assignment, windows: Sequence[tuple[int, int, Window]]) -> Iterator[Assignment]:
        if not windows:
            yield way
            return
        (operand, dim, window), *rest = windows
        factor = self.factors[operand]
        if not isinstance(factor, Read):
            return
        used = max((each.at for each in way.moved if each.operand == operand), default=-1)
        places = list(enumerate(factor.index))[used + 1 :]
        for at, index in reversed(places) if self.along is Along.EXACT else places:
            if not index.free and self.along is not Along.EXACT:
                continue
            for given, known, unit in self._slopes(way, window.terms, index):
                chosen = [it for own in given.values() for it in own]
                if any(it in other.free for it in chosen for k, other in enumerate(factor.index) if k != at):
                    continue
                remainder = substitute(index, {it: num(0) for it in chosen})
                if self.along is Along.EXACT and not remainder.free.isdisjoint(self.groups):
                    continue
                moved = MovedWindow(operand, dim, at, unit, remainder)
                more = Assignment({**way.given, **given}, {**way.known, **known}, (*way.moved, moved))
                yield from self._windows(more, rest)

    def _slopes(
        self, way: Assignment, terms: Sequence[tuple[Iter, Poly]], index: Scalar
    ) -> list[tuple[dict[Iter, Iters], dict[Sym, Scalar], int]]:
        """Iterators for those of a window, with the coefficients that follow; those first that move it by the most."""
        own = [it for it in self.groups if it in index.free and it not in way.taken]
        options: list[list[Iter | None]] = []
        for it, _ in terms:
            if it in way.given:
                return []
            group = self._group(it)
            alike: list[Iter | None] = [each for each in own if self.groups[each] == group]
            if self.along is Along.EXACT:
                options.append(alike or [None])
            else:
                options.append(alike if self.along is Along.WHOLE or not options else [None])
        found: list[tuple[int, list[int], tuple[dict[Iter, Iters], dict[Sym, Scalar], int]]] = []
        for chosen in _distinct(options):
            solved = self._coefficients(terms, chosen, index)
            if solved is not None:
                known, unit = solved
                given = {it: tuple([each] if each else []) for (it, _), each in zip(terms, chosen, strict=True)}
                slopes = [coefficient_of(index, each) or 0 for each in chosen if each]
                found.append((abs(unit), slopes, (given, known, unit)))
        found.sort(key=lambda each: each[:2], reverse=True)
        return [each for _, _, each in found[:SLOPES]]

    def _coefficients(
        self, terms: Sequence[tuple[Iter, Poly]], chosen: Sequence[Iter | None], index: Scalar
    ) -> tuple[dict[Sym, Scalar], int] | None:
        slopes: list[tuple[Poly, int]] = []
        for (_, wanted), it in zip(terms, chosen, strict=True):
            if it:
                slope = coefficient_of(index, it)
                if not slope:
                    return None
                slopes.append((wanted, slope))
        fixed = [(wanted.constant, slope) for wanted, slope in slopes if wanted.is_constant]
        if self.along is Along.EXACT:
            unit = 1
        elif fixed:
            wanted_slope, slope = fixed[0]
            if slope % wanted_slope:
                return None
            unit = slope // wanted_slope
        else:
            unit = gcd(*(slope for _, slope in slopes)) * (-1 if all(slope < 0 for _, slope in slopes) else 1)
        known: dict[Sym, Scalar] = {}
        for wanted, slope in slopes:
            if wanted.is_constant:
                if wanted.constant * unit != slope:
                    return None
                continue
            names = [name for name in wanted.atoms if isinstance(name, Sym)]
            if slope % unit or slope // unit < 1 or wanted.terms != (((names[0],), 1),):
                return None
            if known.setdefault(names[0], num(slope // unit)) is not num(slope // unit):
                return None
        return known, unit


def _distinct(options: Sequence[Sequence[Iter | None]]) -> Iterator[tuple[Iter | None, ...]]:
    if not options:
        yield ()
        return
    for first in options[0]:
        for rest in _distinct(options[1:]):
            if not first or first not in rest:
                yield first, *rest


MOST = 1 << 16  #: attributes beyond which nothing is looked for


def put(node: Scalar, known: Mapping[Any, Scalar]) -> Scalar:
    """Sizes and attributes in the place of their names."""
    return rebuild(node, known.get) if known else node


def unknowns(node: Scalar, known: Mapping[Sym, Scalar]) -> list[Sym]:
    """Unknown sizes and attributes that are not known yet."""
    return unknowns_in(put(node, known))


def integer(node: Scalar) -> int:
    """The whole number of a size; raises Unfit where it is unknown."""
    if not isinstance(node, Num) or not isinstance(node.value, int):
        raise Unfit("an unknown size")
    return node.value


def solved_linear(equations: Sequence[tuple[Scalar, Scalar]], known: dict[Sym, Scalar]) -> bool:
    """Solves what is linear in one unknown, as often as that helps; False where something has no solution."""
    grew = True
    left_over = list(equations)
    while grew:
        grew = False
        equations, left_over = left_over, []
        for left, right in equations:
            now = put(left, known)
            names = unknowns_in(now)
            if len(names) != 1:
                if names:
                    left_over.append((now, right))
                continue
            (name,) = names
            if now is name:
                known[name] = right
            elif (slope := coefficient_of(now, name)) is None or not isinstance(right, Num):
                left_over.append((now, right))
                continue
            else:
                rest = apply("-", right, put(now, {name: num(0)}))
                if not isinstance(rest, Num) or not isinstance(rest.value, int) or rest.value % slope:
                    return False
                known[name] = num(rest.value // slope)
            grew = True
    return True


def solved_least(equation: tuple[Scalar, Scalar], name: Sym, known: dict[Sym, Scalar]) -> bool:
    """The least value of an unknown with which a size that grows with it is what is wanted."""
    left, right = put(equation[0], known), equation[1]
    if not isinstance(right, Num):
        return False

    def at(value: int) -> int:
        return int(number_of(left, {name: value}))

    try:
        low, high = 0, 1
        while at(high) < right.value and high < MOST:
            low, high = high, 2 * high
        if at(0) >= right.value:
            low = high = 0
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if at(middle) < right.value else (low, middle)
        if at(low) != right.value:
            return False
    except DataDependent:
        return False
    known[name] = num(low)
    return True

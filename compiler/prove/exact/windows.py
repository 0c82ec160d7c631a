"""Windows: positions that matter only as the place of a window are arbitrary integers, and their strides, dilations and pads vanish.

Where an output position `o` occurs in nothing but `c * o + e` (plus what is bound: `d * b`), with one `c` and one `e`, two programs
that are equal for every integer in the place of `c * o + e` are equal. Where moreover every element that is read there is the one at
`c * o + e + d * b`, with one `d > 0`, those elements are a tensor of their own, indexed by `b`; and the bounds `c * o + e + d * b >= r`
are `b >= ceil((r - c * o - e) / d)`, for arbitrary integers in the place of the right side. Both only ever make a claim stronger:
programs that are equal so are equal; what differs so may still be equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Literal

from dslc.analysis.poly import (
    COMPARISONS,
    NotIntegral,
    Poly,
    as_poly,
    atom,
    compared,
    is_integral,
    polynomial,
    scalar_of,
)
from dslc.ir.scalar import Apply, Iter, Read, Reduce, Scalar, apply, num, read, rebuild, reduce, scalars, sym
from dslc.prove.exact.coefficient import is_positive_poly
from dslc.prove.exact.radix import is_affine, sizes_only
from dslc.records import record

Kind = Literal["read", "least", "same"]


MOST_ASKED = 3  #: questions about sizes, of which each makes twice as many cases


@record
class _Use:
    """A use of iterators: an index of a tensor, or an integer that is at least 0, or (un)equal to 0."""

    kind: Kind
    poly: Poly
    place: tuple[int, int] = (-1, -1)


@record
class _Window:
    """`slope * at + offset` is the place.

    `step`: bounds on `b` take the place of comparisons with `place + step * b`; `own`: what is read there is a tensor of its own.
    """

    at: Iter
    slope: Poly
    offset: Poly
    uses: tuple[_Use, ...]
    step: Poly | None = None
    own: bool = False


@record
class Claim:
    """Expressions over arbitrary places of windows, and conditions on these that hold where the given ones do at all positions."""

    roots: list[Scalar]
    facts: list[tuple[Scalar, Scalar]]


def generalized(roots: Sequence[Scalar], extents: Mapping[Iter, Scalar]) -> Claim | None:
    """A stronger claim about fewer unknowns; None where there are no windows."""
    windows = list(_Uses(roots).windows())
    if not windows:
        return None
    writer = _Writer(windows)
    return Claim([writer.write(root) for root in roots], list(writer.facts(extents)))


def cases_of_sizes(
    roots: Sequence[Scalar], conditions: Sequence[Scalar], extents: Mapping[Iter, Scalar]
) -> list[tuple[list[Scalar], list[Scalar]]]:
    """The expressions in each case of what they ask of sizes alone and isl cannot tell, with that among the conditions."""
    choices = (node.args[0] for root in roots for node in scalars(Apply, root) if node.name == "select")
    asked = dict.fromkeys(each for each in choices if not (each.free or each.reads or is_affine(each)))
    free = {it for root in roots for it in root.free}
    found = [(list(roots), list(conditions))]
    for condition in asked if len(asked) <= MOST_ASKED else ():
        # where a range is 1, its iterator is 0
        alone: dict[Scalar, Scalar] = {
            it: num(0) for it in free if it in extents and apply("==", extents[it], num(1)) is condition
        }
        cases: list[tuple[dict[Scalar, Scalar], Scalar]] = [
            ({condition: num(True), **alone}, condition),
            ({condition: num(False)}, apply("not", condition)),
        ]
        found = [
            ([rebuild(root, put.get) for root in each], [*known, case]) for each, known in found for put, case in cases
        ]
    return found


# ---- uses ------------------------------------------------------------------------------------------------------------


class _Uses:
    """All uses of iterators in some expressions, and the iterators that occur otherwise too."""

    def __init__(self, roots: Sequence[Scalar]) -> None:
        self.positions = {it for root in roots for it in root.free}
        self.found: dict[_Use, None] = {}
        self.other: set[Scalar] = set()
        #: axes of operands that are read at what is no polynomial of positions
        self.unknown: set[tuple[int, int]] = set()
        self._seen: set[Scalar] = set()
        for root in roots:
            self._collect(root)
        for use in self.found:  # places of windows in two axes at once are left alone
            both = use.poly.atoms & self.positions
            self.other.update(both if len(both) > 1 else ())

    def _collect(self, node: Scalar) -> None:
        if node in self._seen:
            return
        self._seen.add(node)
        goal = _compared(node)
        if isinstance(node, Iter):
            self.other.add(node)
        elif isinstance(node, Read):
            for axis, index in enumerate(node.index):
                self._use(index, "read", (node.operand, axis))
            if node.other:
                self._collect(node.other)
        elif goal is not None:
            self._use(*goal)
        elif isinstance(node, Reduce):
            self.other.update(it for extent in node.extents for it in extent.free)
            for part in (node.body, *((node.where,) if node.where else ())):
                self._collect(part)
        else:
            for child in node.children:
                self._collect(child)

    def _use(self, node: Scalar, kind: Kind, place: tuple[int, int] = (-1, -1)) -> None:
        poly = None
        if not node.reads:
            with suppress(NotIntegral):
                poly = polynomial(node)
        if not poly:
            self.unknown.add(place)
            if node.reads:
                self._collect(node)
            else:
                self.other.update(node.free)
            return
        self.found[_Use(kind, poly, place)] = None
        for monomial, _ in poly.terms:
            bound = [factor for factor in monomial if factor.free]
            if len(bound) > 1 or any(not isinstance(factor, Iter) for factor in bound):
                self.other.update(it for factor in bound for it in factor.free)

    # ---- windows ---------------------------------------------------------------------------------------------------

    def windows(self) -> Iterator[_Window]:
        """The windows of output positions: one where one occurs in nothing else, else one for each unknown factor of it."""
        for it in sorted(self.positions, key=lambda it: it.name):
            groups: dict[Poly, list[_Use]] = {}
            whole = it not in self.other
            for use in self.found:
                slope, _ = use.poly.split(it)
                if it in slope.atoms or any(factor.free for factor in slope.atoms):
                    whole = False
                elif it in use.poly.atoms:
                    groups.setdefault(-slope if -slope in groups else slope, []).append(use)
            for mine in groups.values():
                first = next((use for use in mine if use.kind == "read"), mine[0])
                slope, rest = first.poly.split(it)
                if (whole and len(groups) == 1 and first.kind == "read") or not slope.is_constant:
                    window = _Window(it, slope, sizes_only(rest), tuple(mine))
                    step, own = self._step(window)
                    if own or slope != as_poly(1) or window.offset.terms:
                        yield replace(window, step=step, own=own)

    def _step(self, window: _Window) -> tuple[Poly | None, bool]:
        """The `d` of all `d * b`, where everything is at `place + d * b` (1 where nothing is bound), and whether all reads are."""
        places = {use.place for use in window.uses if use.kind == "read"}
        own = not places & self.unknown and all(use.place not in places or use in window.uses for use in self.found)
        steps: dict[Poly, None] = {}
        for use in window.uses:
            sign = _turned(use.poly, window.at, window.slope)
            if use.kind == "same" or sign is None:
                return None, False
            rest = use.poly.split(window.at)[1] * sign - window.offset
            own = own and not (use.kind == "read" and (sign < 0 or sizes_only(rest).terms))
            bound = {factor for factor in rest.atoms if factor.free}
            if len(bound) > 1 or bound & self.positions or not all(isinstance(factor, Iter) for factor in bound):
                return None, False  # also `b // 2`: what is read is no multiple of `d` away
            steps.update((rest.split(other)[0], None) for other in bound)
        if len(steps) > 1:
            return None, False
        step = next(iter(steps), as_poly(1))
        # with a number for the step comparisons are linear as they are, and say how places and elements go together
        return (step, own) if is_positive_poly(step) and (own or not step.is_constant) else (None, False)


def _compared(node: Scalar) -> tuple[Scalar, Kind] | None:
    """The integer of which a comparison says that it is at least 0, or (un)equal to 0."""
    if not (node.op in COMPARISONS and all(is_integral(arg) for arg in node.args)):
        return None
    return scalar_of(compared(node.op, *node.args)), "same" if node.op in {"==", "!="} else "least"


def _turned(poly: Poly, it: Iter, slope: Poly) -> int | None:
    """1 or -1, where the iterator is multiplied by `slope` or its opposite."""
    if poly.degree_in(it) != 1:
        return None
    found, _ = poly.split(it)
    return 1 if found == slope else -1 if found == -slope else None


# ---- the stronger claim ----------------------------------------------------------------------------------------------


class _Writer:
    def __init__(self, windows: Sequence[_Window]) -> None:
        self._windows = windows
        self._places = {(w.at, w.slope): atom(sym(f"place {k}")) for k, w in enumerate(windows)}
        self._bounds: dict[tuple[_Window, int, Poly], Poly] = {}
        self._along: dict[_Window, dict[Iter, None]] = {}
        self._memo: dict[Scalar, Scalar] = {}

    def write(self, node: Scalar) -> Scalar:
        return rebuild(node, self._leaf, self._memo)

    def _leaf(self, node: Scalar) -> Scalar | None:
        if isinstance(node, Read):
            index = tuple(self._index(part) if self._concerns(part) else self.write(part) for part in node.index)
            return read(node.operand, index, self.write(node.other) if node.other else None)
        if self._concerns(node) and (goal := _compared(node)) is not None:
            new = scalar_of(self._poly(polynomial(goal[0]), goal[1]))
            return apply(node.op if goal[1] == "same" else ">=", new, num(0))
        if isinstance(node, Reduce):
            where = self.write(node.where) if node.where else None
            return reduce(node.kind, node.iters, node.extents, self.write(node.body), where)
        return None

    def _index(self, node: Scalar) -> Scalar:
        with suppress(NotIntegral):
            return scalar_of(self._poly(polynomial(node), "read"))
        return node

    def _concerns(self, node: Scalar) -> bool:
        return not node.reads and any(w.at in node.free for w in self._windows)

    def _poly(self, poly: Poly, kind: Kind) -> Poly:
        for window in self._windows:
            if (sign := _turned(poly, window.at, window.slope)) is not None:
                poly = self._at(poly, window, sign, kind)
        return poly

    def _at(self, poly: Poly, window: _Window, sign: int, kind: Kind) -> Poly:
        rest = poly.split(window.at)[1] * sign - window.offset
        if not window.step or (kind == "read" and not window.own):
            return (self._places[window.at, window.slope] + rest) * sign
        sizes = sizes_only(rest)
        bound = next((factor for factor in rest.atoms if isinstance(factor, Iter)), None)
        along = atom(bound) if bound else as_poly(0)
        if bound:
            self._along.setdefault(window, {})[bound] = None
        if kind == "read":
            return along
        key = (window, sign, sizes)
        if key not in self._bounds:
            self._bounds[key] = atom(sym(f"bound {len(self._bounds)}"))
        # sign * (place + sizes + d * b) >= 0 is a bound on b, from below or from above
        return along * sign + self._bounds[key]

    def facts(self, extents: Mapping[Iter, Scalar]) -> Iterator[tuple[Scalar, Scalar]]:
        """Conditions on bounds and places that hold if something (the second of each pair) holds at all positions.

        That bounds let the first, the last, or (with step 1) some `b` through; that one bound is never before another one; that a
        place is one at which a comparison holds for the first, or the last, of what is bound.
        """
        for (window, sign, sizes), bound in self._bounds.items():
            assert window.step
            place = window.slope * atom(window.at) + window.offset + sizes
            yield _at_least_zero(bound), _at_least_zero(place * sign)
            for it in self._along.get(window, ()):
                last = polynomial(extents[it]) - 1
                yield _at_least_zero(bound + last * sign), _at_least_zero((place + window.step * last) * sign)
            for (other, opposite, more), above in self._bounds.items():
                if other is window and sign > 0 > opposite and window.step == as_poly(1):
                    yield _at_least_zero(bound + above), _at_least_zero(sizes - more)
                if other is window and sign == opposite and sizes != more:
                    yield _at_least_zero(bound - above), _at_least_zero((sizes - more) * sign)
        for window in self._windows:
            if not window.step:
                yield from self._of_place(window, extents)

    def _of_place(self, window: _Window, extents: Mapping[Iter, Scalar]) -> Iterator[tuple[Scalar, Scalar]]:
        found: dict[Poly, None] = {window.slope * atom(window.at): None}
        for quotient in polynomial(extents[window.at]).atoms:
            # as in `o < e // s + 1`: then `s * o <= e`
            if quotient.op == "//" and polynomial(quotient.args[1]) == window.slope:
                found[polynomial(quotient.args[0]) - window.slope * atom(window.at)] = None
        for use in window.uses:
            bound = sorted(
                (it for it in use.poly.atoms if isinstance(it, Iter) and it is not window.at), key=lambda it: it.name
            )
            if use.kind != "least" or any(
                it not in extents or extents[it].free or use.poly.degree_in(it) > 1 for it in bound
            ):
                continue
            for last in (False, True) if bound else (False,):
                corner = use.poly
                for it in bound:
                    corner = corner.substitute(it, polynomial(extents[it]) - 1 if last else as_poly(0))
                found[corner] = None
        for corner in found:
            sign = _turned(corner, window.at, window.slope)
            if sign is not None:
                yield _at_least_zero(self._at(corner, window, sign, "least")), _at_least_zero(corner)


def _at_least_zero(poly: Poly) -> Scalar:
    return apply(">=", scalar_of(poly), num(0))

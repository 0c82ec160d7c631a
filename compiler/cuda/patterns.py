"""Calls of vendors' functions, found in scopes: which iterators stand where decides, and the strides of the views say the arguments.

An iterator of both factors and the result is of the batch, one of the left factor and the result is a row, and so on, as the
lowering's expression has them. Several iterators are one index where they lie in memory as one; those of a batch may be missing in
a tensor, which is then read again at a stride of 0. What moves along dimensions (`o * u + r * v - w`) is found as for operators.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from math import prod

from dslc.analysis.poly import scalar_of
from dslc.cuda.arguments import Axis, CallPattern, FoundCall, PlacedPattern, called
from dslc.cuda.views import StridedView, address, inside, joined, slopes
from dslc.derivation.assignments import Along, Assignment, WindowSearch, put, solved_linear, unknowns
from dslc.derivation.tables import TOTAL, Group, Window, around, leaves_in
from dslc.ir.graph import Scope
from dslc.ir.normal import form_of
from dslc.ir.scalar import Iter, Num, Read, Scalar, num, scalars
from dslc.ir.scopes import substitute
from dslc.ir.sizes import sized

CALLS = 64  #: calls that are made where the strides of a batch are not those of one, at most


@dataclass(frozen=True, slots=True, eq=False)
class Summed:
    """A scope with one sum, taken apart, and where everything lies. Iterators of one position are no part of it.

    `body`: what is summed. `outer`: what is computed of the sum, which is `TOTAL` in it. `written`: strides of the result by iterator.
    """

    views: tuple[StridedView, ...]
    result: StridedView
    body: Scalar
    outer: Scalar
    extents: Mapping[Iter, int]
    written: Mapping[Iter, int]


def summed_of(scope: Scope, views: Sequence[StridedView], result: StridedView) -> Summed | None:
    """A scope with one sum; None for any other. `result` is where its elements are to be."""
    total, outer = around(scope.body)
    if (
        not total
        or total.kind != "sum"
        or total.where is not None
        or not all(isinstance(e, Num) for e in total.extents)
    ):
        return None
    every = (*scope.ranges, *total.ranges)
    extents = {it: int(str(extent)) for it, extent in every}
    if min(extents.values(), default=1) < 1:
        return None
    written: dict[Iter, int] = {}
    for step, dimension in zip(result.strides, scope.dimensions, strict=True):
        for it in reversed([scope.iters[k] for k in dimension]):
            written[it] = step
            step *= extents[it]
    single: dict[Iter, Scalar] = {it: num(0) for it, extent in extents.items() if extent == 1}
    outer = form_of(substitute(outer, single)) if outer else TOTAL
    several = {it: extent for it, extent in extents.items() if extent > 1}
    return Summed(tuple(views), result, substitute(total.body, single), outer, several, written)


#: what a pattern's numbers are, by name, and what stands for each of its reads
Leaves = tuple[Mapping[str, Scalar], Mapping[int, Read]]


def leaves_of(pattern: CallPattern, target: Summed) -> list[Leaves]:
    """Every way in which the same is computed as by a pattern, wherever the operands lie and whatever their indices are."""
    table, found = pattern.table, list[Leaves]()
    if len(pattern.numbers) > 1:
        return found
    constants = [num(1), *scalars(Num, target.outer)] if pattern.numbers else [num(1)]
    for constant in dict.fromkeys(constants):
        outer = form_of(put(table.outer or TOTAL, dict.fromkeys(pattern.numbers.values(), constant)))
        numbers = dict.fromkeys(pattern.numbers, constant)
        for others in leaves_in(outer, target.outer):
            for factors in leaves_in(table.body, target.body):
                reads = {
                    operand: node for operand, node in (*others.items(), *factors.items()) if isinstance(node, Read)
                }
                # a product without windows is no convolution
                ranked = all(len(reads[k].index) == len(table.dims[k]) for k, _, _ in table.windows if k in reads)
                if ranked and len(reads) == len(pattern.readings) - 1:
                    found.append((numbers, reads))
        if found:
            break
    return found


def found(pattern: CallPattern, target: Summed, ways: Sequence[Leaves] | None = None) -> Iterator[FoundCall]:
    """Every way in which a lowering's call computes a target; `ways` are those of `leaves_of`, where they are known."""
    table, factors = pattern.table, frozenset(pattern.factors)
    for numbers, reads in leaves_of(pattern, target) if ways is None else ways:
        groups: dict[Iter, Group] = {
            it: (frozenset(k for k in factors if it in reads[k].free), it in target.written) for it in target.extents
        }
        for way in WindowSearch(table, reads, groups, Along.EXACT, factors).ways():
            axes = _Axes(pattern, target, reads, way)
            coefficients = _coefficients(pattern, way) if axes.placed() else None
            if coefficients is not None:
                moved = {
                    pattern.readings[k].tensor: [each.at for each in way.moved if each.operand == k] for k in reads
                }
                operations = 2.0 * prod(target.extents.values())
                one = _fewest(PlacedPattern(pattern, axes.axes, axes.below, moved, coefficients, numbers, operations))
                if one:
                    yield one


def _fewest(placed: PlacedPattern) -> FoundCall | None:
    """As few calls as there can be: one for each position of the first axes of a batch, where all of them are not one."""
    batches = [name for name in placed.axes if name in placed.pattern.packs]
    if len(batches) != 1 or placed.pattern.windows:
        return called(placed)
    whole = placed.axes[batches[0]]
    for count in range(len(whole) + 1):
        if prod(axis.extent for axis in whole[:count]) > CALLS:
            return None
        one = called(replace(placed, axes={**placed.axes, batches[0]: whole[count:]}, outside=whole[:count]))
        if one:
            return one
    return None


def _coefficients(pattern: CallPattern, way: Assignment) -> dict[str, int | tuple[int, ...]] | None:
    """Coefficients of windows; None where the first position of a window is none of the pattern's."""
    table, known = pattern.table, dict(way.known)
    constants = []
    for each in way.moved:
        window = table.dims[each.operand][each.dim]
        assert isinstance(window, Window)
        # what has one position may move at any stride
        known.update({name: num(1) for _, slope in window.terms for name in unknowns(scalar_of(slope), known)})
        constants.append((scalar_of(window.constant), each.rest))
    if not solved_linear(constants, known) or any(put(constant, known) is not rest for constant, rest in constants):
        return None
    found = {name: sized(value, lambda part: put(part, known)) for name, value in table.attrs.items()}
    return {name: value for name, value in found.items() if not any(isinstance(part, Scalar) for part in _parts(value))}


def _parts(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)


class _Axes:
    """The axes of a pattern's indices, for one choice of what stands for its reads and of what moves along their dimensions."""

    def __init__(self, pattern: CallPattern, target: Summed, reads: Mapping[int, Read], way: Assignment) -> None:
        self.pattern, self.target, self.reads, self.way = pattern, target, reads, way
        self.output, self.factors = pattern.output.tensor, [pattern.readings[k].tensor for k in pattern.factors]
        self.plain = [name for name in pattern.iters if name not in pattern.windows]
        self.strides: dict[str, Mapping[Iter, int]] = {
            self.output: {it: target.written.get(it, 0) for it in target.extents}
        }
        #: where tensors begin, at the first position of every index and window
        self.below: dict[str, StridedView] = {self.output: target.result}
        self.axes: dict[str, tuple[Axis, ...]] = {}

    def placed(self) -> bool:
        """Return whether every iterator has its place."""
        own = self._given() if self._lie() else None
        if own is None:
            return False
        self.axes = {
            name: tuple(axis for group in groups if (axis := self._axis(group))) for name, groups in own.items()
        }
        names = {it: name for name, groups in own.items() for group in groups for it in group}
        others = [one for k, one in enumerate(self.pattern.readings[:-1]) if k not in self.pattern.factors]
        # what else is read depends on the indices only that its pattern has
        absent = [
            axis.strides[one.tensor]
            for one in others
            for name in self.axes.keys() - one.indices
            for axis in self.axes[name]
        ]
        return not any(absent) and all(self._apart(k, names) for k in {each.operand for each in self.way.moved})

    def _lie(self) -> bool:
        """Return whether strides are known for every tensor, and beside its elements is read what the pattern reads."""
        every = tuple(self.target.extents)
        within: dict[Scalar, tuple[int, int]] = {it: (0, extent - 1) for it, extent in self.target.extents.items()}
        for operand, node in self.reads.items():
            view, name = self.target.views[node.operand], self.pattern.readings[operand].tensor
            moved = {each.at: each.rest for each in self.way.moved if each.operand == operand}
            plain = [k for k in range(len(node.index)) if k not in moved]
            if node.other:
                zero = (
                    isinstance(node.other, Num)
                    and node.other.value == 0
                    and self.pattern.table.leaves[operand].other is not None
                )
                if (moved and not zero) or not inside(
                    [node.index[k] for k in plain], [view.shape[k] for k in plain], within
                ):
                    return False
            found = slopes(address(node.index, view), every)
            if found is None:
                return False
            *steps, start = found
            self.strides[name] = dict(zip(every, steps, strict=True))
            # where a window begins is an argument
            start -= sum(int(str(rest)) * view.strides[at] for at, rest in moved.items())
            self.below[name] = replace(view, offset=view.offset + start)
        return True

    def _given(self) -> dict[str, list[tuple[Iter, ...]]] | None:
        """The iterators of each index, of a pack those of each of its axes; None where one has no place."""
        packs, roles = self.pattern.packs, self.pattern.roles
        homes: dict[str, list[Iter]] = {}
        for it in [each for each in self.target.extents if each not in self.way.taken]:
            role = {name for name in self.strides if name in (*self.factors, self.output) and self.strides[name][it]}
            if it in self.target.written:
                role.add(self.output)
            name = next((n for n in self.plain if n not in packs and roles[n] == role), None) or self._wide(role)
            if name is None:
                return None
            homes.setdefault(name, []).append(it)
        own: dict[str, list[tuple[Iter, ...]]] = {name: [] if name in packs else [()] for name in self.plain}
        own |= {name: [self.way.given[it] for it in self.pattern.iters[name]] for name in self.pattern.windows}
        for name in [each for each in homes if each not in packs]:
            # as many as lie like one, the fastest ones
            iters = self._ordered(homes[name])
            first = next(k for k in range(len(iters)) if self._axis(iters[k:]))
            own[name] = [iters[first:]]
            wide = self._wide(roles[name])
            if first and wide is None:
                return None
            if wide is not None:
                homes.setdefault(wide, []).extend(iters[:first])
        return own | {name: [(it,) for it in self._ordered(iters)] for name, iters in homes.items() if name in packs}

    def _wide(self, role: AbstractSet[str]) -> str | None:
        """The index of a batch that iterators of a role may be of: it repeats the tensors in which they are missing."""
        packs, roles = self.pattern.packs, self.pattern.roles
        return next(
            (name for name in self.plain if name in packs and self.output in role and role <= roles[name]), None
        )

    def _ordered(self, iters: Sequence[Iter]) -> tuple[Iter, ...]:
        """The slowest one of the result, or else of what has them, first."""
        return tuple(
            sorted(iters, key=lambda it: tuple(-self.strides[name][it] for name in (self.output, *self.factors)))
        )

    def _axis(self, iters: tuple[Iter, ...]) -> Axis | None:
        """Iterators as one; None where they do not lie so in some tensor."""
        extents = self.target.extents
        found = {name: joined([(extents[it], steps[it]) for it in iters]) for name, steps in self.strides.items()}
        strides = {name: one[1] for name, one in found.items() if one is not None}
        return Axis(prod(extents[it] for it in iters), strides) if len(strides) == len(found) else None

    def _apart(self, operand: int, names: Mapping[Iter, str]) -> bool:
        """Return whether the dimensions of a tensor with windows are the pattern's: the groups of a batched product are no channels."""
        moved, dims = (
            {each.at for each in self.way.moved if each.operand == operand},
            self.pattern.readings[operand].dims,
        )
        plain = [at for k, at in enumerate(self.reads[operand].index) if k not in moved]
        homes = [{dim for dim in dims for it in at.free if names.get(it) in dim.indices} for at in plain]
        return all(len(own) <= 1 for own in homes) and len(set().union(*homes)) == sum(map(len, homes))

"""Layouts that are tried: other ones of operands, and the ways back from results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import prod

import numpy as np

from dslc.derivation.kinds import in_turns
from dslc.interpret.domain import Array, Redraw
from dslc.interpret.field import Field
from dslc.interpret.run import InterpretError, run_scopes
from dslc.ir.graph import Value
from dslc.ir.scopes import restrict
from dslc.mutate.cores import CoreNumbers
from dslc.mutate.layouts import Layout, Shape, gathered, layouts, repeated
from dslc.mutate.mutant import Operand
from dslc.mutate.problem import MutationProblem, shape_of

SHARED = 2048  #: positions of the region at which it is looked what some elements are needed for
WAYS = 12  #: other layouts of an operand that the first operators of a chain are tried with


@dataclass(slots=True)
class LayoutWays:
    """Layouts for a region at small sizes.

    `region` is its result in scopes, `feeds` what its inputs hold, `share` what may differ.
    """

    problem: MutationProblem
    numbers: CoreNumbers
    domain: Field
    region: Value
    feeds: Mapping[Value, Array]
    share: float
    #: ways back by the shape of the operator's result
    backs: dict[Shape, list[Layout]] = field(init=False, default_factory=dict)
    ties: dict[Shape, list[Layout]] = field(init=False, default_factory=dict)
    _others: dict[Shape, list[Layout]] = field(init=False, default_factory=dict)
    #: layouts of inputs that leave out little; the middle of the region, and the share of it that differs without some elements
    _enough: dict[int, list[Layout]] = field(init=False, default_factory=dict)
    _most: tuple[Value, Array] | None = field(init=False, default=None)
    _without: dict[tuple[int, bytes], float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for layout in layouts(self.wanted, self._factors(self.wanted)):
            lost = {d for dim in layout.source for d in dim if layout.sizes[d] > 1} - {
                d for dim in layout.result for d in dim
            }
            if not lost and not any(layout.shifts):
                self.backs.setdefault(layout.shape, []).append(layout)

    @property
    def wanted(self) -> Shape:
        return shape_of(self.region)

    def _factors(self, shape: Shape) -> list[list[int]]:
        own = set(self.numbers.factors)
        return [sorted({f for f in range(2, n + 1) if n % f == 0} | {f for f in own if f < n}) for n in shape]

    def of(self, shape: Shape) -> list[Layout]:
        """Other layouts of a tensor, those first that keep its rank, cut the last dimensions, and by numbers of attributes."""
        if shape not in self._others:
            found = [layout for layout in layouts(shape, self._factors(shape)) if not layout.identity]
            # as often as there are images, or rows of a batch
            found += repeated(shape, self.numbers.counts)
            found.sort(key=lambda each: self._far(each, shape))
            # windows slide over several dimensions, which are cut alike; others cut one, or move one as a whole: these take turns
            kinds: tuple[list[Layout], ...] = ([], [], [])
            for each in found:
                several = sum(size > 1 for size in each.sizes[len(shape) :]) > 1
                kinds[1 if several else 2 if each.moves_all else 0].append(each)
            self._others[shape] = [*in_turns(kinds)]
        return self._others[shape]

    def useful(self, operand: Operand) -> list[Layout]:
        """Other layouts of a tensor without those that leave out what too much of the region's result needs."""
        if operand.number >= len(self.problem.inputs):
            return self.of(operand.shape)
        found = self._enough.get(operand.number)
        if found is None:
            ways = self.of(operand.shape)
            found = self._enough[operand.number] = [
                way for way in ways if way.keeps(operand.shape) or self._is_enough(operand, way)
            ]
        return found

    def _is_enough(self, operand: Operand, way: Layout) -> bool:
        """Return whether the region gives most of its result without what a layout of one of its tensors leaves out."""
        kept = np.zeros(operand.array.size + 1, bool)
        kept[gathered(way, operand.shape)] = True
        key = (operand.number, kept[:-1].tobytes())
        if key not in self._without:
            value = self.problem.small.inputs[operand.number]
            less = np.where(kept[:-1].reshape(operand.shape), operand.array, 0)
            try:
                if self._most is None:
                    region = middle(self.region, SHARED)
                    self._most = region, run_scopes((region,), self.feeds, self.domain)[0]
                region, whole = self._most
                (result,) = run_scopes((region,), {**self.feeds, value: less}, self.domain)
                self._without[key] = float((result != whole).mean())
            except (InterpretError, Redraw):
                self._without[key] = 0.0
        return self._without[key] <= self.share

    def few(self, shape: Shape) -> list[Layout]:
        """Of the other layouts a few of each rank, those first that cut nothing."""
        ranks: dict[int, list[Layout]] = {}
        for each in sorted(self.of(shape), key=lambda way: sum(size > 1 for size in way.sizes)):
            ranks.setdefault(len(each.shape), []).append(each)
        return [*islice(in_turns(ranks.values()), WAYS)]

    def _far(self, layout: Layout, shape: Shape) -> tuple[int, ...]:
        ratio = prod(layout.shape) / prod(shape)
        # the numbers of attributes are what windows step by, and they slide along the last dimensions together
        sizes = [size for size in layout.sizes[len(shape) :] if size > 1]
        other = sum(not all(size in known for size in sizes) for known in (self.numbers.steps, self.numbers.factors))
        cuts = [axis for axis, dim in enumerate(layout.source) if len(dim) > 1]
        return (
            abs(len(layout.shape) - len(shape)),
            int(2 * max(ratio, 1 / ratio)),
            other,
            -min(cuts) if len(cuts) > 1 else 0,
        )

    def tied(self, shape: Shape) -> list[Layout]:
        """Layouts of a larger result of this shape that give the region's: parts of it, and diagonals."""
        if prod(shape) <= prod(self.wanted):
            return []
        if shape not in self.ties:
            every = layouts(shape, self._factors(shape), True, self.wanted)
            self.ties[shape] = [layout for layout in every if not any(layout.shifts)]
        return self.ties[shape]


def middle(value: Value, most: int) -> Value:
    """The middle of what a scope computes, of at most so many positions."""
    shape = shape_of(value)
    sizes = list(shape)
    while prod(sizes) > most:
        axis = sizes.index(max(sizes))
        sizes[axis] = -(-sizes[axis] // 2)
    boxes = {
        k: ((whole - size) // 2, size) for k, (whole, size) in enumerate(zip(shape, sizes, strict=True)) if size < whole
    }
    return restrict(value, boxes) if boxes else value

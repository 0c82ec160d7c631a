"""Vectorization: reads and writes of a stage, and the loop that is best spread over lanes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dslc.codegen.arithmetic import count
from dslc.codegen.group import Part
from dslc.codegen.packing import is_packed
from dslc.codegen.poly import Poly, Quotient, Ranges, Var, const, of, product
from dslc.codegen.stages import PlacedInStage, Stage, merged, places, positions_in, ragged, sizes
from dslc.codegen.text import Variant
from dslc.codegen.values import TensorPlace
from dslc.ir.graph import Value
from dslc.ir.scalar import Apply, Iter, Read, Reduce, scalars, walk
from dslc.records import record

GRAIN = 8192  #: elements of work that are worth a task


@record
class Pointer:
    """Memory that a stage uses: an input or output by number, a place in the scratch memory, or a buffer of its own."""

    kind: str
    type: str
    name: str
    at: str


@record
class GroupMemory:
    """Storage of a group's values: tensors visible to every stage, and their declarations."""

    tensors: dict[Value, TensorPlace]
    pointers: dict[Value, Pointer]
    #: values that are written to memory, by the tensors that they go to
    stores: dict[Value, list[tuple[TensorPlace, Pointer]]]

    def add(self, value: Value, tensor: TensorPlace, pointer: Pointer, stored: bool) -> None:
        """Note where a value lies; it is read at the first of several places."""
        self.tensors.setdefault(value, tensor)
        self.pointers.setdefault(value, pointer)
        if stored:
            self.stores.setdefault(value, []).append((tensor, pointer))


class StageLayout:
    """The positions of a stage, and estimates over them."""

    def __init__(self, stage: Stage, memory: GroupMemory, variant: Variant) -> None:
        self.stage, self.memory, self.variant = stage, memory, variant
        self.inside = stage.values
        self.groups = merged(stage.extents, self._uses)
        self.extents = [product(stage.extents[k] for k in group) for group in self.groups]

    # ---- what positions there are ------------------------------------------------------------------------------------------

    def _uses(self, at: list[Poly], ranges: Ranges) -> Iterable[Poly] | None:
        return [value for placed in self.stage.placed for value, _, _ in self.positions(placed, at, ranges)]

    def positions(self, placed: PlacedInStage, at: list[Poly], ranges: Ranges) -> Iterable[tuple[Poly, bool, float]]:
        """Every position that a part uses, for the positions of the outer loops."""
        part, extents = placed.part, sizes(placed.part)
        iters, volume = placed.at(at), placed.volume(16)
        for number in placed.inner:
            var = Var(f"inner{number}")
            ranges.extents[var] = extents[number]
            iters[part.scope.iters[number]] = of(var)
        out = list(
            positions_in(part.scope.body, iters, ranges, lambda node, index: self.address(part, node, index), volume)
        )
        if part.value in self.memory.stores:
            (tensor, _) = self.memory.stores[part.value][0]
            out.append((self.place(part, iters, tensor), True, volume))
        return out

    def address(self, part: Part, node: Read, index: list[Poly]) -> Poly | None:
        value = part.args[node.operand]
        if value in self.inside:
            return None
        return dot(index, self.memory.tensors[value].strides)

    @staticmethod
    def place(part: Part, iters: dict[Iter, Poly], tensor: TensorPlace) -> Poly:
        """Index of a part's element in a tensor that holds all of it."""
        extents, index = sizes(part), []
        for dimension in part.scope.dimensions:
            whole = const(0)
            for k in dimension:
                whole = whole * extents[k] + iters[part.scope.iters[k]]
            index.append(whole)
        return dot(index, tensor.strides)

    # ---- which loop has the lanes --------------------------------------------------------------------------------------------

    def lane(self) -> int | None:
        """The number of the outer loop that is spread over lanes; None where inner loops and reductions are."""
        return None if self.variant.width == 1 else self.best_lane()

    def best_lane(self) -> int | None:
        """The same, whatever the width is."""
        vars, ranges, at = self._outer()
        costs: dict[int | None, float] = {}
        for lane in (None, *range(len(vars))):
            if lane is not None and self._ragged(lane):
                continue
            costs[lane] = sum(
                self._cost(placed, at, ranges, None if lane is None else vars[lane]) for placed in self.stage.placed
            )
        if self.variant.lane is not None and self.variant.lane < len(costs):
            ordered = sorted(costs, key=lambda lane: (costs[lane], -1 if lane is None else -lane))
            return ordered[self.variant.lane]
        return min(reversed(costs), key=lambda lane: costs[lane])

    def _outer(self) -> tuple[list[Var], Ranges, list[Poly]]:
        """Return variables of the outer loops, with their ranges, and the positions that they make."""
        vars = [Var(f"outer{k}") for k in range(len(self.groups))]
        ranges = Ranges(dict(zip(vars, self.extents, strict=True)))
        return vars, ranges, places(self.stage.extents, self.groups, vars, ranges)

    def _ragged(self, lane: int) -> bool:
        return any(
            ragged(placed.part.scope.body, [placed.part.scope.iters[placed.outer[k]] for k in self.groups[lane]])
            for placed in self.stage.placed
        )

    def _cost(self, placed: PlacedInStage, at: list[Poly], ranges: Ranges, lane: Var | None) -> float:
        """Instructions per row, roughly, where a loop is spread over lanes."""
        width = float(self.variant.width)
        inner_lane: Var | None = lane
        part = placed.part
        if not lane and placed.inner:
            inner_lane = Var(f"inner{placed.inner[-1]}")
        used = 1.0
        extent = ranges.extents.get(inner_lane) if inner_lane else None
        if inner_lane and not extent:
            extent = sizes(part)[placed.inner[-1]]
        if extent is not None and extent.number is not None:
            used = max(extent.number, 1) / (-(-max(extent.number, 1) // width) * width)
        gain = width * used
        total = 0.0
        for value, element, times in self.positions(placed, at, ranges):
            if not element:
                continue
            best = self._beside(placed, value, times, lane, inner_lane)
            if not best:
                total += times
                continue
            step = self.stride_of(value, best)
            flat = step is not None and step.number in {0, 1}
            if not lane and best is not inner_lane:
                size = ranges.extents.get(best)
                short = size is not None and size.number is not None and size.number < width
                gain = 1.0 if short else width
            total += times / gain if flat else times * 1.3
        volume = placed.volume(16)
        operations = sum(1 for node in scalars(Apply, part.scope.body) if not node.integral)
        vector = lane is not None or bool(placed.inner)
        total += operations * volume / (gain if vector else 2.0 if part.scope.body.binds else 1.0)
        if not lane:
            # the lanes of a reduction are joined; one that needs no inner position is computed once a row
            own = {part.scope.iters[k] for k in placed.inner}
            total += sum(4.0 * (volume if node.free & own else 1.0) for node in scalars(Reduce, part.scope.body))
        return total

    @staticmethod
    def _beside(placed: PlacedInStage, value: Poly, times: float, lane: Var | None, inner: Var | None) -> Var | None:
        """The loop that a position's neighbouring lanes are along."""
        if not lane and times > 1 and not placed.inner:
            # a reduction has lanes of its own: its last iterator
            loops = [atom for atom in value.deep if isinstance(atom, Var) and "/" in atom.name]
            return max(loops, key=lambda var: int(var.name.split("/")[1]), default=None)
        return inner

    def spacing(self, lane: int | None, most: int) -> float:
        """Mean distance in memory of neighbours along a loop, or along inner loops (None).

        1 where they lie side by side or are the same, `most` at most.
        """
        vars, ranges, at = self._outer()
        own = None if lane is None else vars[lane]
        every = total = 0.0
        for placed in self.stage.placed:
            inner = Var(f"inner{placed.inner[-1]}") if not own and placed.inner else own
            for value, element, times in self.positions(placed, at, ranges):
                beside = self._beside(placed, value, times, own, inner) if element else None
                step = self.stride_of(value, beside) if beside else None
                if element:
                    known = 0 if not beside else step.number if step else most
                    every += times
                    total += times * min(most, max(1, abs(most if known is None else int(known))))
        return total / every if every else 1.0

    def stride_of(self, value: Poly, lane: Var) -> Poly | None:
        """Distance of elements along a loop, in pieces of it that are as long as vectors."""
        if not self.variant.panels:
            return value.coefficient(lane)
        pieces = [
            atom for atom in value.atoms
            if isinstance(atom, Quotient) and atom.top == of(lane) and (atom.bottom.number or 0) >= self.variant.width
        ]  # fmt: skip
        for atom in pieces:
            value = value.without(atom)
        return value.coefficient(lane)

    def packed(self, lane: int) -> bool:
        """Return whether a factor of a product is in panels along an outer loop."""
        return len(self.groups[lane]) == 1 and self.variant.panels and any(
            is_packed(placed.part.scope.body, placed.part.scope.iters[placed.outer[self.groups[lane][0]]], self.variant.panel)
            for placed in self.stage.placed
        )  # fmt: skip

    def shared(self, lane: int) -> bool:
        """Return whether a reduction is the same for all lanes: then they should be many."""
        for placed in self.stage.placed:
            own = {placed.part.scope.iters[placed.outer[k]] for k in self.groups[lane]}
            if any(isinstance(node, Reduce) and not node.free & own for node in walk(placed.part.scope.body)):
                return True
        return False

    def volume(self) -> float:
        """Evaluations of expressions per point of the outer loops."""
        total = 0.0
        for placed in self.stage.placed:
            first = next(scalars(Reduce, placed.part.scope.body), None)
            steps = max(1.0, count(first.extents)) if first else 1.0
            # a piece of a long reduction is a task
            total += GRAIN if placed.part.alone else placed.volume(64) * steps
        return total

    def has_products(self) -> bool:
        return any(placed.part.scope.body.binds for placed in self.stage.placed)


def dot(index: Sequence[Poly], strides: Sequence[Poly]) -> Poly:
    """The offset of an index: the sum of positions times strides."""
    return sum((at * stride for at, stride in zip(index, strides, strict=True)), const(0))

"""One stage as a launch: a thread for every few positions, or a team of threads for every row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

from dslc.codegen import arithmetic
from dslc.codegen.cuda.emit import CudaEmitter
from dslc.codegen.cuda.text import CudaVariant
from dslc.codegen.functions import computed, store_type
from dslc.codegen.nest import Block, Store
from dslc.codegen.poly import Atom, Poly, Quotient, Var, product
from dslc.codegen.stage_code import Blocked, OuterLoops, StageWriter
from dslc.codegen.stages import PlacedInStage, Stage, sizes
from dslc.codegen.text import NotGenerated, Reason, Variant
from dslc.codegen.values import TensorPlace, Val
from dslc.codegen.vectorize import GroupMemory, Pointer
from dslc.ir.dtype import Dim, DType
from dslc.ir.graph import Value
from dslc.ir.scalar import Num, Reduce, Sym, apply, as_scalar, walk
from dslc.records import record
from dslc.semantics.lists import plain

SHARED = 32 << 10  #: bytes of shared memory that rows of one block may take
WARP_STEPS = 512  #: steps of a row that are a warp's work, at most
GRID = 1 << 16  #: blocks of a launch, at most
THREADS = 512  #: threads that a multiprocessor is to hold, at least

#: single numbers that are fetched from memory at a time
SECTOR = 8


@dataclass(slots=True)
class Room:
    """Memory of a launch beside inputs and outputs: what is asked for gets a number."""

    #: unknown sizes
    names: dict[Sym, str]
    #: bytes of each scratch buffer
    scratch: list[Dim] = field(default_factory=list)

    def take(self, dtype: DType, elements: Poly) -> Pointer:
        """A scratch buffer for some elements."""
        at = len(self.scratch)
        self.scratch.append(dim_of(elements * dtype.bytes))
        return Pointer("scratch", store_type(dtype), f"scratch{at}", str(at))


@record
class Shared:
    """Shared memory: `count` elements for each team of a block."""

    type: str
    name: str
    count: int
    teams: int
    bytes: int


@record
class LaunchCode:
    """A stage's parts for the template and the launcher."""

    form: str
    block: int
    #: blocks that a multiprocessor is to hold at a time, at least: what registers are left for each thread
    blocks: int
    team: int
    body: Block
    grid: Dim
    pointers: tuple[Pointer, ...]
    written: frozenset[str]
    shared: tuple[Shared, ...]
    #: how far apart in memory is what neighbouring threads have, and how many elements a thread asks for at once
    apart: float = 1.0
    used: float = 1.0
    #: values of the stage that go through memory because they are too large for a block
    spread: frozenset[Value] = frozenset()


def dim_of(value: Poly) -> Dim:
    """A polynomial of sizes as an expression. Raises NotGenerated for one of anything else."""
    return plus(0, *(times(factor, *map(_size, monomial)) for monomial, factor in value.terms))


def _size(atom: Atom) -> Dim:
    if isinstance(atom, Quotient):
        return arithmetic.over(dim_of(atom.top), dim_of(atom.bottom))
    if isinstance(atom, Sym):
        return atom
    raise NotGenerated(Reason.SIZE, str(atom))


def plus(*sizes: Dim) -> Dim:
    """The sum of sizes: a number where it is one, as below."""
    total: Dim = plain(arithmetic.plus(*sizes))
    return total


def times(*sizes: Dim) -> Dim:
    """The product of sizes."""
    total: Dim = plain(arithmetic.times(*sizes))
    return total


def above(size: Dim, by: int) -> Dim:
    """A size divided by a number, rounded up."""
    found: Dim = size if by == 1 else plain(arithmetic.ceiling(size, by))
    return found


def least(size: Dim, limit: Dim) -> Dim:
    """The smaller one of two sizes."""
    found: Dim = plain(apply("min", as_scalar(size), as_scalar(limit)))
    return found


class CudaStage(StageWriter):
    """Writes one stage."""

    emitter: CudaEmitter

    def __init__(self, stage: Stage, memory: GroupMemory, variant: CudaVariant, room: Room) -> None:
        self.cuda = variant
        self.room = room
        width = variant.width or self._width(stage, memory)
        shape = Variant(width=width, unroll=1, vectors=1, block=variant.rows, lane=variant.lane, fuse=variant.fuse)
        super().__init__(stage, memory, room.names, shape)
        self.lanes = self.best_lane()
        self.team = 1 if self.lanes is not None else self._team()
        self.threads = max(variant.block, self.team) if self.team <= 32 else self.team
        self.emitter.team = self.team
        self.shared_memory: list[Shared] = []
        self.written: set[str] = set()

    @staticmethod
    def _width(stage: Stage, memory: GroupMemory) -> int:
        """As many elements as 16 bytes have of the widest type."""
        values = {value for placed in stage.placed for value in (placed.part.value, *placed.part.args)}
        widest = max(computed(value.type.dtype).bytes if value.type.rank else 1 for value in values)
        stored = max(value.type.dtype.bytes for value in values)
        return max(2, 16 // max(stored, widest // 2))

    def emits(self, names: dict[Sym, str]) -> CudaEmitter:
        return CudaEmitter(names, self.variant.width, 1)

    # ---- teams -------------------------------------------------------------------------------------------------------------

    def _team(self) -> int:
        """Threads that share a row: by the steps of its longest reduction or inner loop."""
        steps = self._steps()
        if steps == 1:
            return 1
        if self.cuda.team is not None:
            return self.cuda.team
        rows = product(self.extents).number
        if steps is None or steps > WARP_STEPS:
            return 256 if rows is None or rows >= 64 or (steps or 0) < 1 << 14 else 1024
        return 32

    def _steps(self) -> int | None:
        """The longest row that can be shared; 1 where there is none, None where its length is unknown."""
        most: int | None = 1
        for placed in self.stage.placed:
            scope = placed.part.scope
            own = {scope.iters[k] for k in placed.inner}
            lengths = [product(sizes(placed.part)[k] for k in placed.inner).number]
            for node in walk(scope.body):
                if isinstance(node, Reduce) and not (node.free & own):
                    numbers = [extent.value if isinstance(extent, Num) else 0 for extent in node.extents]
                    lengths.append(int(prod(numbers)) or None)
            for length in lengths:
                most = None if most is None or length is None else max(most, length)
        return most

    # ---- writing -----------------------------------------------------------------------------------------------------------

    def launch(self) -> LaunchCode:
        """The launch of the stage."""
        loops, body, _ = self.outer(self.lanes, self.variant.width)
        return self.code("points" if self.team == 1 else "rows", loops, body, self.threads // self.team)

    def blocked(self, lane: int | None, vars: Sequence[Var], at: list[Poly]) -> Blocked | None:
        return super().blocked(lane, vars, at) if self.cuda.rows > 1 and self.has_products() else None

    def row(self, at: list[Poly]) -> None:
        super().row(at)
        if self.shared_memory:
            # the next row is written where this one is read
            self.emitter.write(self._meet())

    def code(self, form: str, loops: OuterLoops, body: Block, teams: int = 1) -> LaunchCode:
        """Return the launch of some loops. Refuse a position that may be outside: a launch cannot report it."""
        self.rows(loops, body)
        grid = least(above(times(*(above(dim_of(extent), by or 1) for _, extent, by in loops)), teams), GRID)
        if self.emitter.asked:
            raise NotGenerated(Reason.FORM, "a position outside of a tensor at some sizes")
        for placed in self.stage.placed:
            self.written.update(pointer.name for _, pointer in self.memory.stores.get(placed.part.value, ()))
        pointers, written = tuple(self.sorted_pointers()), frozenset(self.written)
        blocks = 1 if form in {"products", "units"} else max(1, THREADS // self.threads)
        apart = self.spacing(self.lanes, SECTOR) if form in {"points", "rows"} else 1.0
        steps = self._steps() if form == "rows" else None
        busy = 1.0 if steps is None else min(1.0, -(-steps // self.variant.width) / self.team)
        used = busy * self.variant.width if form in {"points", "rows"} else 1.0
        shared = tuple(self.shared_memory)
        near = {each.name for each in shared}
        spread = frozenset(value for value, tensor in self.buffers.items() if tensor.pointer not in near)
        return LaunchCode(
            form,
            self.threads,
            blocks,
            self.team,
            self.emitter.root,
            grid,
            pointers,
            written,
            shared,
            apart,
            used,
            spread,
        )

    def _meet(self) -> Store:
        return Store(f"k_meet<{self.team}>", ())

    # ---- inner loops -------------------------------------------------------------------------------------------------------

    def inner_lanes(self, var: Var, extent: Poly, element: Callable[[], None]) -> None:
        full, tail, active = self.vectors(var, element, exact=True)
        self.emitter.write(self.emitter.spread_lanes(var, "0", self.emitter.text(extent), full, tail, active))

    def alone(self, vars: Sequence[Var], extents: Sequence[Poly], element: Callable[[], None]) -> None:
        if self.team == 1:
            super().alone(vars, extents, element)
            return
        with self.nest(vars[:-1], extents[:-1]), self.emitter.over_team(vars[-1], extents[-1]):
            element()

    def inner_loops(
        self, placed: PlacedInStage, spots: list[list[Poly]], values: list[dict[Value, Val]], lane: Var | None
    ) -> None:
        super().inner_loops(placed, spots, values, lane)
        if self.team > 1 and placed.part.value in self.buffers:
            self.emitter.write(self._meet())

    def buffer(self, placed: PlacedInStage, lanes: bool) -> TensorPlace:
        """Shared memory where a team has a row that fits there, else global memory for all of the value."""
        part = placed.part
        extents = sizes(part)
        dtype = computed(part.scope.dtype)
        row = product(extents[k] for k in placed.inner).number
        teams = self.threads // self.team
        used = sum(each.bytes for each in self.shared_memory)
        if self.team > 1 and row is not None and used + row * teams * dtype.bytes <= SHARED:
            name = self.emitter.name("row")
            self.shared_memory.append(Shared(store_type(dtype), name, row, teams, row * teams * dtype.bytes))
            strides, total = self.strides(extents, placed.inner)
            return TensorPlace(name, dtype, strides, total, extents, 1, part.scope, self.emitter.top)
        strides, total = self.strides(extents, tuple(range(len(extents))))
        pointer = self.room.take(dtype, total)
        self.pointers[pointer.name] = pointer
        self.written.add(pointer.name)
        return TensorPlace(pointer.name, dtype, strides, total, extents, 1, part.scope, self.emitter.top)

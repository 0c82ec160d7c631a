"""One stage as a launch: a thread for every few positions, or a team of threads for every row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dslc.codegen.cuda.emit import CudaEmitter
from dslc.codegen.cuda.text import CudaVariant
from dslc.codegen.emit import Emitter
from dslc.codegen.functions import computed, store_type
from dslc.codegen.nest import Block, Loop, Rows, Store
from dslc.codegen.poly import Poly, Quotient, Var, product
from dslc.codegen.stage_code import StageWriter
from dslc.codegen.stages import PlacedInStage, Stage, places, sizes
from dslc.codegen.text import NotGenerated, Reason, Variant
from dslc.codegen.values import TensorPlace, Val
from dslc.codegen.vectorize import GroupMemory, Pointer
from dslc.ir.dtype import Dim, DType
from dslc.ir.graph import Value
from dslc.ir.scalar import Num, Reduce, Scalar, Sym, apply, num, walk
from dslc.records import record

SHARED = 32 << 10  #: bytes of shared memory that rows of one block may take
WARP_STEPS = 512  #: steps of a row that are a warp's work, at most
GRID = 1 << 16  #: blocks of a launch, at most
THREADS = 512  #: threads that a multiprocessor is to hold, at least

#: single numbers that are fetched from memory at a time
SECTOR = 8


@dataclass(slots=True)
class Room:
    """Memory of a launch beside inputs and outputs: what is asked for gets a number."""

    names: dict[Sym, str]
    #: bytes of each scratch buffer
    scratch: list[Dim] = field(default_factory=list)

    def take(self, dtype: DType, elements: Poly) -> Pointer:
        """A scratch buffer for some elements."""
        at = len(self.scratch)
        self.scratch.append(bytes_of(dtype, elements))
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
    total: Scalar = num(0)
    for monomial, factor in value.terms:
        part: Scalar = num(factor)
        for atom in monomial:
            if isinstance(atom, Quotient):
                part = apply("*", part, apply("//", scalar(dim_of(atom.top)), scalar(dim_of(atom.bottom))))
            elif isinstance(atom, Sym):
                part = apply("*", part, atom)
            else:
                raise NotGenerated(Reason.SIZE, str(atom))
        total = apply("+", total, part)
    return plain(total)


def plain(size: Scalar) -> Dim:
    """A size as a number where it is one."""
    return int(size.value) if isinstance(size, Num) and isinstance(size.value, int) else size


def scalar(size: Dim) -> Scalar:
    """A size as an expression."""
    return num(size) if isinstance(size, int) else size


def times(*sizes: Dim) -> Dim:
    """The product of sizes."""
    total: Scalar = num(1)
    for size in sizes:
        total = apply("*", total, scalar(size))
    return plain(total)


def above(size: Dim, by: int) -> Dim:
    """A size divided by a number, rounded up."""
    if isinstance(size, int):
        return -(-size // by)
    return size if by == 1 else plain(apply("//", apply("+", size, num(by - 1)), num(by)))


def least(size: Dim, limit: int) -> Dim:
    """The smaller one of a size and a limit."""
    return min(size, limit) if isinstance(size, int) else plain(apply("min", size, num(limit)))


def bytes_of(dtype: DType, elements: Poly) -> Dim:
    """Bytes of so many elements."""
    return dim_of(elements * dtype.bytes)


class CudaStage(StageWriter):
    """Writes one stage."""

    def __init__(
        self, stage: Stage, memory: GroupMemory, names: dict[Sym, str], variant: CudaVariant, room: Room
    ) -> None:
        self.cuda = variant
        self.room = room
        width = variant.width or self._width(stage, memory)
        shape = Variant(width=width, unroll=1, vectors=1, block=variant.rows, lane=variant.lane, fuse=variant.fuse)
        super().__init__(stage, memory, names, shape)
        self.lanes = self.best_lane()
        self.team = 1 if self.lanes is not None else self._team()
        self.threads = max(variant.block, self.team) if self.team <= 32 else self.team
        self.own.team = self.team
        self.shared_memory: list[Shared] = []
        self.written: set[str] = set()

    @staticmethod
    def _width(stage: Stage, memory: GroupMemory) -> int:
        """As many elements as 16 bytes have of the widest type."""
        values = {value for placed in stage.placed for value in (placed.part.value, *placed.part.args)}
        widest = max(computed(value.type.dtype).bytes if value.type.rank else 1 for value in values)
        stored = max(value.type.dtype.bytes for value in values)
        return max(2, 16 // max(stored, widest // 2))

    def emits(self, names: dict[Sym, str]) -> Emitter:
        self.own = CudaEmitter(names, self.variant.width, 1)
        return self.own

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
                    counts = [extent.value if isinstance(extent, Num) else None for extent in node.extents]
                    whole = 1
                    for count in counts:
                        whole *= int(count) if isinstance(count, int) else 0
                    lengths.append(whole or None)
            for length in lengths:
                most = None if most is None or length is None else max(most, length)
        return most

    # ---- writing -----------------------------------------------------------------------------------------------------------

    def launch(self) -> LaunchCode:
        """The launch of the stage."""
        emitter, lane = self.emitter, self.lanes
        vars = [emitter.variable("o", extent) for extent in self.extents]
        at = places(self.stage.extents, self.groups, vars, emitter.ranges)
        body = Block()
        row_vars = [var for k, var in enumerate(vars) if k != lane]
        row_texts = [emitter.text(self.extents[k]) for k in range(len(vars)) if k != lane]
        row_sizes = [dim_of(self.extents[k]) for k in range(len(vars)) if k != lane]
        blocked = self.blocked(lane, vars, at) if self.cuda.rows > 1 and self.has_products() else None
        start = stop = ""
        if lane is not None:
            total, width = emitter.text(self.extents[lane]), self.variant.width
            piece = Var(emitter.name("c"))
            row_vars.append(piece)
            row_texts.append(f"(({total} + {width - 1}) / {width})")
            row_sizes.append(above(dim_of(self.extents[lane]), width))
            start, stop = f"{piece.name} * {width}", f"k_min64({total}, ({piece.name} + 1) * {width})"
        with emitter.level(body, *row_vars):
            if lane is None:
                self.row(at)
                if self.shared_memory:
                    # the next row is written where this one is read
                    body.statements.append(self._meet())
            elif blocked is not None:
                self.blocks(blocked, at, vars, lane, start, stop)
            else:
                self.pieces(vars[lane], start, stop, [at], 1)
        if blocked is not None:
            number = [k for k in range(len(vars)) if k != lane].index(blocked.loop)
            row_texts[number] = f"(({row_texts[number]} + {blocked.size - 1}) / {blocked.size})"
            row_sizes[number] = above(row_sizes[number], blocked.size)
        emitter.root.statements.append(Rows(tuple(var.name for var in row_vars), tuple(row_texts), body))
        grid = least(above(times(*row_sizes), self.threads // self.team), GRID)
        return self.code("points" if self.team == 1 else "rows", grid)

    def code(self, form: str, grid: Dim) -> LaunchCode:
        """Return the launch. Refuse a position that may be outside: a launch cannot report it."""
        if self.emitter.asked:
            raise NotGenerated(Reason.FORM, "a position outside of a tensor at some sizes")
        for placed in self.stage.placed:
            self.written.update(pointer.name for _, pointer in self.memory.stores.get(placed.part.value, ()))
        pointers = tuple(sorted(self.pointers.values(), key=lambda pointer: (pointer.kind, pointer.name)))
        written = frozenset(self.written)
        blocks = 1 if form in {"products", "units"} else max(1, THREADS // self.threads)
        apart = self.spacing(self.lanes, SECTOR) if form in {"points", "rows"} else 1.0
        steps = self._steps() if form == "rows" else None
        busy = 1.0 if steps is None else min(1.0, -(-steps // self.variant.width) / self.team)
        used = busy * self.variant.width if form in {"points", "rows"} else 1.0
        shared = tuple(self.shared_memory)
        near = {each.name for each in shared}
        spread = frozenset(value for value, tensor in self.buffers.items() if tensor.pointer not in near)
        root = self.emitter.root
        return LaunchCode(
            form, self.threads, blocks, self.team, root, grid, pointers, written, shared, apart, used, spread
        )

    def _meet(self) -> Store:
        return Store(f"k_meet<{self.team}>", ())

    # ---- inner loops -------------------------------------------------------------------------------------------------------

    def inner_lanes(self, var: Var, extent: Poly, element: Callable[[], None]) -> None:
        full, tail, active = self.vectors(var, element, exact=True)
        self.own.write(self.own.spread_lanes(var, "0", self.own.text(extent), full, tail, active))

    def alone(self, block: Block, vars: Sequence[Var], extents: Sequence[Poly], element: Callable[[], None]) -> None:
        emitter = self.own
        if self.team == 1:
            super().alone(block, vars, extents, element)
            return

        def innermost() -> None:
            inner = Block()
            with emitter.level(inner, vars[-1]), emitter.during(apart=True):
                element()
            emitter.write(Loop(vars[-1].name, "k_rank", emitter.text(extents[-1]), self.team, inner))

        self.nest(block, vars[:-1], extents[:-1], innermost)

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

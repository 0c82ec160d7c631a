"""Transposed operands through shared memory: read along one loop and used along another, both times by neighbouring threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dslc.codegen.cuda.emit import CudaEmitter
from dslc.codegen.cuda.stage import CudaStage, LaunchCode, Room, Shared
from dslc.codegen.cuda.text import CudaVariant
from dslc.codegen.functions import computed, store_type
from dslc.codegen.nest import Block, Branch, Let, Loop, Store
from dslc.codegen.poly import NotPolynomial, Poly, Var, of_scalar
from dslc.codegen.stages import PlacedInStage, Stage, places
from dslc.codegen.values import Val
from dslc.codegen.vectorize import GroupMemory, dot
from dslc.ir.dtype import DType
from dslc.ir.element import element_type
from dslc.ir.graph import Value
from dslc.ir.scalar import Iter, Read, Scalar, walk
from dslc.records import record

SIDE = 32  #: positions along a side of a square
THREADS = 256  #: threads of a block
OPERANDS = 4  #: operands that are turned, at most
SHORTEST = 16  #: steps of a loop; shorter ones are not worth a square


@record
class TurnedOperand:
    """`beside`: the outer loop along which results are neighbours; `below`: that of the operands. `reads`: by their part's number."""

    beside: int
    below: int
    reads: tuple[tuple[int, Read], ...]


class TurnedStage(CudaStage):
    """Writes a stage without reductions in squares of positions."""

    def __init__(self, stage: Stage, memory: GroupMemory, variant: CudaVariant, room: Room) -> None:
        super().__init__(stage, memory, variant, room)
        self.turn = self._turn()
        if self.turn:
            self.team = self.threads = THREADS
            self.emitter = CudaEmitter(room.names, 1, 1)

    def launch(self) -> LaunchCode:
        """As squares; in the usual form where nothing is to be turned."""
        turn, emitter = self.turn, self.emitter
        if not turn:
            return super().launch()
        vars = [emitter.variable("o", extent) for extent in self.extents]
        squares = {turn.below: Var(emitter.name("o")), turn.beside: Var(emitter.name("o"))}
        loops = [(vars[k], self.extents[k], 0) for k in range(len(vars)) if k not in squares]
        loops += [(var, self.extents[k], SIDE) for k, var in squares.items()]
        body = Block()
        with emitter.level(body, *(var for var, _, _ in loops)):
            tiles = self._load(turn, vars, squares)
            emitter.write(self._meet())
            self._compute(turn, vars, squares, tiles)
            emitter.write(self._meet())
        return self.code("turned", loops, body)

    # ---- what is turned ------------------------------------------------------------------------------------------------------

    def _turn(self) -> TurnedOperand | None:
        if any(placed.inner for placed in self.stage.placed) or self.has_products():
            return None
        ranges = self.emitter.ranges
        vars = [Var(f"turned{k}") for k in range(len(self.extents))]
        ranges.extents.update(zip(vars, self.extents, strict=True))
        at = places(self.stage.extents, self.groups, vars, ranges)
        last = self.stage.placed[-1]
        iters = last.at(at)
        (tensor, _) = self.memory.stores[last.part.value][0]
        beside = self._along(self.place(last.part, iters, tensor), vars)
        if beside is None:
            return None
        found: dict[int, list[tuple[int, Read]]] = {}
        for number, placed in enumerate(self.stage.placed):
            iters = placed.at(at)
            for node in walk(placed.part.scope.body):
                address = self._address_of(placed, node, iters) if isinstance(node, Read) else None
                below = self._along(address, vars)
                # what is the same for all neighbours needs no turning
                apart = address is not None and vars[beside] in address.deep
                if (
                    below is not None
                    and below != beside
                    and apart
                    and element_type(node, placed.part.dtypes) is not None
                ):
                    assert isinstance(node, Read)
                    found.setdefault(below, []).append((number, node))
        best = max(found, key=lambda k: len(found[k]), default=None)
        if (
            best is None
            or any((self.extents[k].number or SHORTEST) < SHORTEST for k in (beside, best))
            or len(found[best]) > OPERANDS
        ):
            return None
        return TurnedOperand(beside, best, tuple(found[best]))

    def _address_of(self, placed: PlacedInStage, node: Read, iters: dict[Iter, Poly]) -> Poly | None:
        value = placed.part.args[node.operand]
        if value in self.inside or any(part.reads for part in node.index):
            return None
        ranges = self.emitter.ranges
        try:
            index = [
                of_scalar(part, lambda each: iters.get(each) if isinstance(each, Iter) else None, ranges)
                for part in node.index
            ]
        except NotPolynomial:
            return None
        return dot(index, self.memory.tensors[value].strides)

    @staticmethod
    def _along(address: Poly | None, vars: list[Var]) -> int | None:
        """The loop along which elements are neighbours."""
        for k, var in enumerate(vars):
            step = address.coefficient(var) if address else None
            if step is not None and step.number == 1:
                return k
        return None

    # ---- squares -------------------------------------------------------------------------------------------------------------

    @contextmanager
    def _square(
        self, turn: TurnedOperand, vars: list[Var], squares: dict[int, Var], fast: int
    ) -> Iterator[tuple[list[Poly], str]]:
        """A loop over a square, neighbours along one side: the position of each outer loop, and the place in the square."""
        emitter = self.emitter
        each, loop, then = Var(emitter.name("e")), Block(), Block()
        names: dict[int, tuple[str, str]] = {}
        for k in (turn.below, turn.beside):
            own = f"{each.name} % {SIDE}" if k == fast else f"{each.name} / {SIDE}"
            names[k] = (emitter.name("q"), emitter.name("p"))
            loop.statements.append(Let("int64_t", names[k][0], own))
            loop.statements.append(Let("int64_t", names[k][1], f"{squares[k].name} * {SIDE} + {names[k][0]}"))
        spot = [*vars]
        for k, (_, name) in names.items():
            spot[k] = Var(name)
            emitter.ranges.extents[spot[k]] = self.extents[k]
        inside = " && ".join(f"{name} < {emitter.text(self.extents[k])}" for k, (_, name) in names.items())
        at = places(self.stage.extents, self.groups, spot, emitter.ranges)
        place = f"{names[turn.beside][0]}*{SIDE + 1} + {names[turn.below][0]}"
        with emitter.level(loop, each, spot[turn.below], spot[turn.beside]), emitter.level(then, fence=True):
            yield at, place
        loop.statements.append(Branch(inside, then, Block()))
        emitter.write(Loop(each.name, "k_rank", str(SIDE * SIDE), THREADS, loop))

    def _load(self, turn: TurnedOperand, vars: list[Var], squares: dict[int, Var]) -> list[tuple[Shared, DType]]:
        emitter = self.emitter
        tiles = []
        with self._square(turn, vars, squares, turn.below) as (at, place):
            for number, node in turn.reads:
                placed = self.stage.placed[number]
                dtype = computed(element_type(node, placed.part.dtypes) or DType.F32)
                count = SIDE * (SIDE + 1)
                shared = Shared(store_type(dtype), emitter.name("tile"), count, 1, count * dtype.bytes)
                self.shared_memory.append(shared)
                env = self._env(placed, at, {}, {})
                # a condition may be around it that is no part of it
                emitter.guarded += 1
                value = emitter.emit_as(node, env, dtype)
                emitter.guarded -= 1
                emitter.write(Store("k_store_one", (f"{shared.name} + {place}", value.text)))
                tiles.append((shared, dtype))
        return tiles

    def _compute(
        self, turn: TurnedOperand, vars: list[Var], squares: dict[int, Var], tiles: list[tuple[Shared, DType]]
    ) -> None:
        emitter = self.emitter
        with self._square(turn, vars, squares, turn.beside) as (at, place):
            values: dict[Value, Val] = {}
            for number, placed in enumerate(self.stage.placed):
                env = self._env(placed, at, values, {})
                emitter.envs.append(env)
                for (owner, node), (shared, dtype) in zip(turn.reads, tiles, strict=True):
                    if owner == number:
                        self._put(node, env, f"k_at({shared.name}, {place})", dtype)
                dtype = computed(placed.part.scope.dtype)
                value = emitter.emit_as(placed.part.scope.body, env, dtype)
                values[placed.part.value] = value
                self.put(env, value)

    def _put(self, node: Scalar, env: object, text: str, dtype: DType) -> None:
        """Emit an expression at a place of the square."""
        emitter = self.emitter
        value = emitter.let(("square", text), text, dtype, False, emitter.top)
        emitter.remember((node, id(env), None, False), value)

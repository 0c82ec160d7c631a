"""One stage as a loop nest: outer loops in rows, one loop spread over lanes, pieces in which conditions are constant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from dslc.codegen.emit import Emitter
from dslc.codegen.functions import computed, store_type
from dslc.codegen.nest import Block, Branch, Lanes, Let, Loop, Notes, Rows, Segments
from dslc.codegen.poly import Datum, Poly, Quotient, Ranges, Var, const, known, of, product, replaced
from dslc.codegen.stages import PlacedInStage, Stage, merged, places, positions_in, ragged, sizes
from dslc.codegen.text import Variant
from dslc.codegen.values import Env, Frozen, TensorPlace, UndecidedCondition, Val
from dslc.codegen.vectorize import GRAIN as LANES_GRAIN
from dslc.codegen.vectorize import GroupMemory, Pointer, StageLayout, dot
from dslc.ir.dtype import DType
from dslc.ir.graph import Value
from dslc.ir.scalar import Iter, Reduce, Scalar, Sym
from dslc.records import record

#: a loop's variable, its length, and how many of its positions are one step, where several are
OuterLoops = Sequence[tuple[Var, Poly, int]]

CHUNK = 8192  #: lanes that one task takes of a long loop
LEAVES = 12  #: branches of one loop


@dataclass(slots=True)
class StageCode:
    """A stage's parameters for the template."""

    rows: str
    work: str
    grain: str
    body: Block
    pointers: list[Pointer] = field(default_factory=list)
    #: what a template of its own writes instead of the body
    filtered: Any = None
    #: what must hold of sizes, and what says that a position was outside of a tensor
    asked: frozenset[str] = frozenset()
    failures: str = "0"
    #: the inputs that it depends on, where it need not run again as long as these are the same
    kept: tuple[int, ...] = ()


class StageWriter(StageLayout):
    """Writes one stage; a target that has other threads than the CPU's says otherwise where they differ."""

    def __init__(self, stage: Stage, memory: GroupMemory, names: dict[Sym, str], variant: Variant) -> None:
        super().__init__(stage, memory, variant)
        self.emitter = self.emits(names)
        self.pointers: dict[str, Pointer] = {}
        self.buffers: dict[Value, TensorPlace] = {}
        #: the loop inside a panel
        self.panel: Var | None = None

    def emits(self, names: dict[Sym, str]) -> Emitter:
        """Emitter of the expressions."""
        emitter, own = Emitter(names, self.variant.width, self.variant.unroll), self.variant
        emitter.plain = not (own.panels or own.windows or own.padded or own.filtered)
        return emitter

    # ---- writing ---------------------------------------------------------------------------------------------------------------

    def write(self) -> StageCode:
        emitter, lane, volume = self.emitter, self.lane(), max(1, int(self.volume()))
        chunk, packed = 0, lane is not None and self.packed(lane)
        if packed:
            chunk = self.variant.panel
        elif lane is not None:
            extent = self.extents[lane].number
            others = known([extent for k, extent in enumerate(self.extents) if k != lane])
            small = CHUNK if self.shared(lane) else max(self.variant.width * 4, CHUNK // volume)
            chunk = small if extent is None or (extent > small and (others is None or others < 64)) else 0
        loops, body, block = self.outer(lane, chunk, packed)
        count = " * ".join(f"(int64_t)({extent})" for extent in self.rows(loops, body)) or "1"
        work = f"(int64_t){volume}"
        if lane is not None:
            total = emitter.text(self.extents[lane])
            work = f"{work} * k_min64({total}, {chunk})" if chunk else f"{work} * ({total})"
            # no rows where the lanes' loop is empty
            count = count if chunk else f"{count} * (({total}) > 0)"
        if block:
            work = f"{work} * {block.size}"
        asked = frozenset(emitter.asked)
        code = StageCode(count, work, str(LANES_GRAIN), emitter.root, asked=asked, failures=emitter.failures())
        code.pointers = self.sorted_pointers()
        return code

    def sorted_pointers(self) -> list[Pointer]:
        """Pointers to the memory that was used."""
        return sorted(self.pointers.values(), key=lambda pointer: (pointer.kind, pointer.name))

    def outer(self, lane: int | None, chunk: int, packed: bool = False) -> tuple[OuterLoops, Block, Blocked | None]:
        """The outer loops, what is done in them, and the loop of which several positions are computed together.

        Args:
            chunk: positions of the lanes' loop in one row; 0: all of them.
            packed: whether a row is one panel.
        """
        emitter = self.emitter
        vars = [emitter.variable("o", extent) for extent in self.extents]
        at = places(self.stage.extents, self.groups, vars, emitter.ranges)
        loops = [(var, extent, 0) for k, (var, extent) in enumerate(zip(vars, self.extents, strict=True)) if k != lane]
        body, block = Block(), self.blocked(lane, vars, at)
        start, stop = "0", "" if lane is None else emitter.text(self.extents[lane])
        if lane is not None and chunk:
            piece = Var(emitter.name("c"))
            # a panel meets every block of rows while it is in a cache
            place = block.loop - (block.loop > lane) if packed and block else len(loops)
            loops.insert(place, (piece, self.extents[lane], chunk))
            if packed:
                stop = f"k_min64({stop} - {piece.name} * {chunk}, {chunk})"
                at, vars[lane] = self._inside(at, vars[lane], piece, self.vectors_at_once(lane))
            else:
                start, stop = f"{piece.name} * {chunk}", f"k_min64({stop}, ({piece.name} + 1) * {chunk})"
        with emitter.level(body, *(var for var, _, _ in loops)):
            if lane is None:
                self.row(at)
            elif block:
                self.blocks(block, at, vars, lane, start, stop)
            else:
                self.pieces(vars[lane], start, stop, [at], self.vectors_at_once(lane))
        if block:
            own = vars[block.loop]
            loops = [(var, extent, block.size if var == own else by) for var, extent, by in loops]
        return loops, body, block

    def rows(self, loops: OuterLoops, body: Block) -> list[str]:
        """Write the outer loops, and return how long each is."""
        texts = []
        for _, extent, by in loops:
            text = self.emitter.text(extent)
            texts.append(f"(({text} + {by - 1}) / {by})" if by else text)
        self.emitter.root.statements.append(Rows(tuple(var.name for var, _, _ in loops), tuple(texts), body))
        return texts

    def _inside(self, at: list[Poly], lane: Var, piece: Var, vectors: int) -> tuple[list[Poly], Var]:
        """The places for a loop inside one panel."""
        emitter = self.emitter
        # as far as the first of its vectors goes: the panel of the others is the same
        var = emitter.variable("l", const(self.variant.panel - (vectors - 1) * self.variant.width))
        self.panel = var
        whole = of(piece) * self.variant.panel + of(var)
        return [replaced(place, {lane: whole}, emitter.ranges) for place in at], var

    def blocked(self, lane: int | None, vars: Sequence[Var], at: list[Poly]) -> Blocked | None:
        """The outer loop of which several positions are computed together.

        One that some reads of a reduction do not depend on, or one along which elements are neighbours that are apart
        along the lanes.
        """
        if lane is None or any(placed.inner for placed in self.stage.placed):
            return None
        ranges = Ranges(dict(zip(vars, self.extents, strict=True)))
        if not self.has_products():
            return self._turned(lane, vars, at, ranges)
        if self.variant.block <= 1:
            return None
        best, most = None, 0.0
        for k, var in enumerate(vars):
            if k == lane or (self.extents[k].number or 64) < 2 or self._ragged(k):
                continue
            shared = sum(
                _shared(value, var, vars[lane])
                for placed in self.stage.placed
                for value, element, times in self.positions(placed, at, ranges)
                if element and times > 1
            )
            if shared > most:
                best, most = k, shared
        return None if best is None else Blocked(best, self.variant.block, False)

    def _turned(self, lane: int, vars: Sequence[Var], at: list[Poly], ranges: Ranges) -> Blocked | None:
        """The loop along which a transposed operand is contiguous."""
        if self.variant.width < 4:
            return None
        for k, var in enumerate(vars):
            if k == lane or (self.extents[k].number or self.variant.width) < self.variant.width:
                continue
            for placed in self.stage.placed:
                for value, element, _ in self.positions(placed, at, ranges):
                    step, beside = value.coefficient(vars[lane]), value.coefficient(var)
                    apart = step is not None and step.number not in {0, 1}
                    if element and apart and beside and beside.number == 1:
                        return Blocked(k, self.variant.width, True)
        return None

    def vectors_at_once(self, lane: int) -> int:
        """Vectors at a time."""
        most, length = self.variant.vectors, self.extents[lane].number
        if any(placed.inner for placed in self.stage.placed):
            return 1
        return most if length is None else max(1, min(most, length // self.variant.width))

    def blocks(self, block: Blocked, at: list[Poly], vars: Sequence[Var], lane: int, start: str, stop: str) -> None:
        """Rows of one outer loop by the block, the last ones one by one."""
        emitter, size = self.emitter, block.size
        var = vars[block.loop]
        extent = self.extents[block.loop]
        step = 1 if block.turned else self.vectors_at_once(lane)
        first = emitter.define("int64_t", "b", f"{var.name} * {size}")

        def moved(at_first: Poly, by: int) -> list[Poly]:
            return [replaced(place, {var: at_first + by}, emitter.ranges) for place in at]

        emitter.ranges.extents[Var(first)] = extent - (size - 1)
        full, rest, one = Block(), Block(), Block()
        if extent.number is None or extent.number >= size:
            with emitter.level(full, fence=True):
                emitter.tile = Var(first) if block.turned else None
                self.pieces(vars[lane], start, stop, [moved(of(Var(first)), u) for u in range(size)], step)
                emitter.tile = None
        number = None if extent.number is None or block.turned else extent.number % size
        if number:
            # as many as there are left
            with emitter.level(rest, fence=True):
                last = extent - number
                self.pieces(vars[lane], start, stop, [moved(last, u) for u in range(number)], step)
        elif number is None:
            each = emitter.variable("b", extent)
            with emitter.level(rest, fence=True), emitter.level(one, each):
                self.pieces(vars[lane], start, stop, [moved(of(each), 0)], step)
            rest.statements.append(Loop(each.name, first, emitter.text(extent), 1, one))
        emitter.write(Branch(f"{first} + {size} <= {emitter.text(extent)}", full, rest))

    # ---- lanes on an outer loop --------------------------------------------------------------------------------------------------

    def pieces(self, lane: Var, start: str, stop: str, rows: list[list[Poly]], vectors: int) -> None:
        """The lanes' loop, in pieces where conditions or quotients change on the way."""
        self._in_pieces(lane, start, stop, lambda block, at: self._lanes(block, lane, at, rows, vectors))

    def _cut(self, condition: Poly, lane: Var) -> str | None:
        step = condition.coefficient(lane)
        if not step or not step.number:
            return None
        rest = self.emitter.wide(condition.without(lane))
        if step.number > 0:
            return f"k_ceildiv(-{rest}, (int64_t){step.number})"
        return f"k_floordiv({rest}, (int64_t){-step.number}) + 1"

    def _boundary(self, quotient: Quotient, datum: Datum, lane: Var) -> str:
        step = quotient.top.coefficient(lane)
        assert step and step.number
        rest, bottom = self.emitter.wide(quotient.top.without(lane)), self.emitter.wide(quotient.bottom)
        if step.number > 0:
            return f"k_ceildiv(({datum.name} + 1) * {bottom} - {rest}, (int64_t){step.number})"
        return f"k_floordiv({rest} - {datum.name} * {bottom}, (int64_t){-step.number}) + 1"

    def _split(self, block: Block, notes: Notes, build: Callable[[Block, tuple[str, str]], None], lane: Var) -> None:
        """Code for one piece; where it needs a condition that is constant in it, a branch with a piece for either case."""
        emitter, inner = self.emitter, Block()
        try:
            with emitter.level(inner, fence=True):
                build(inner, (f"{lane.name}_at", f"{lane.name}_to"))
            block.statements.append(inner)
        except UndecidedCondition as found:
            condition = found.condition
            notes.conditions.append(condition)
            notes.leaves -= 1
            branch = Branch(f"{emitter.wide(condition)} >= 0", Block(), Block())
            for target, fact in ((branch.then, condition), (branch.other, condition * -1 - 1)):
                emitter.splitting = notes.leaves > 0
                with emitter.during(facts=[*emitter.facts, fact]), emitter.level(target, fence=True):
                    self._split(target, notes, build, lane)
            notes.branches[id(branch)] = condition
            block.statements.append(branch)

    def _lanes(self, block: Block, lane: Var, piece: tuple[str, str], rows: list[list[Poly]], vectors: int) -> None:
        """One loop over vectors."""
        emitter, width = self.emitter, self.variant.width
        extent = emitter.ranges.extents[lane].number if lane != self.panel else None
        active = emitter.name("n")
        full = self._body(lane, rows, vectors, None) if extent is None or extent >= vectors * width else None
        half = self._body(lane, rows, 1, None) if vectors > 1 else None
        tail = self._body(lane, rows, 1, active)
        block.statements.append(Lanes(lane.name, *piece, vectors * width, full, half, width, tail, active))

    def _body(self, lane: Var, rows: list[list[Poly]], vectors: int, active: str | None) -> Block:
        ranges = self.emitter.ranges
        whole = ranges.extents[lane]
        if vectors > 1 and lane != self.panel:
            # the first of several vectors ends before the others
            ranges.extents[lane] = whole - (vectors - 1) * self.variant.width
        try:
            return self.emitter.in_lanes(lane, active, lambda: self._parts(rows, lane, vectors))
        finally:
            ranges.extents[lane] = whole

    def _parts(self, rows: list[list[Poly]], lane: Var | None, vectors: int) -> None:
        """Every part of the stage for some positions of the outer loops."""
        width, ranges = self.variant.width, self.emitter.ranges
        spots = [
            [replaced(place, {lane: of(lane) + w * width}, ranges) for place in row] if w and lane else row
            for row in rows
            for w in range(vectors)
        ]
        known_values: list[dict[Value, Val]] = [{} for _ in spots]
        for placed in self.stage.placed:
            if placed.inner:
                self.inner_loops(placed, spots, known_values, lane)
            else:
                self._point(placed, spots, known_values)

    def _env(self, placed: PlacedInStage, spot: list[Poly], values: dict[Value, Val], inner: dict[Iter, Poly]) -> Env:
        tensors = {arg: self.tensor(arg) for arg in placed.part.args if arg in self.buffers or arg not in values}
        return Env(placed.part, placed.at(spot) | inner, values, tensors)

    def tensor(self, value: Value) -> TensorPlace:
        """The place of an operand, whose pointer is used then."""
        if value in self.buffers:
            return self.buffers[value]
        pointer = self.memory.pointers[value]
        self.pointers[pointer.name] = pointer
        return self.memory.tensors[value]

    def _point(self, placed: PlacedInStage, spots: list[list[Poly]], values: list[dict[Value, Val]]) -> None:
        """A part that has one element per position of the outer loops."""
        part = placed.part
        dtype = computed(part.scope.dtype)
        envs = [self._env(placed, spot, each, {}) for spot, each in zip(spots, values, strict=True)]
        self._together(part.scope.body, envs, dtype)
        for k, (env, each) in enumerate(zip(envs, values, strict=True)):
            self.emitter.instance = k
            each[part.value] = self.emitter.emit_as(part.scope.body, env, dtype)
            self.put(env, each[part.value])

    def put(self, env: Env, value: Val) -> None:
        """Store a part's value where it goes in memory."""
        for tensor, pointer in self.memory.stores.get(env.part.value, ()):
            self.pointers[pointer.name] = pointer
            self.emitter.store(tensor, self.place(env.part, env.iters, tensor), value)

    def _together(self, body: Scalar, envs: list[Env], dtype: DType) -> None:
        """The reductions of a part for several positions in one loop: what they share is loaded once."""
        stack, seen = [body] if len(envs) > 1 else [], set()
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if isinstance(node, Reduce):
                found = envs[0].type_of(node)
                want = computed(found) if found is not None else dtype
                vals = self.emitter.reductions([(node, env) for env in envs], want)
                for env, val in zip(envs, vals, strict=True):
                    self.emitter.remember_part(node, env, want, val)
            else:
                stack.extend(node.children)

    def inner_loops(
        self, placed: PlacedInStage, spots: list[list[Poly]], values: list[dict[Value, Val]], lane: Var | None
    ) -> None:
        """A part with loops of its own: a row, that is kept where later parts of the stage read it."""
        emitter, part = self.emitter, placed.part
        (spot,) = spots
        own = [part.scope.iters[k] for k in placed.inner]
        extents = [sizes(part)[k] for k in placed.inner]

        def uses(at: list[Poly], ranges: Ranges) -> Iterable[Poly]:
            iters = placed.at(spot) | dict(zip(own, at, strict=True))
            ranges.extents = emitter.ranges.extents | ranges.extents
            found = positions_in(part.scope.body, iters, ranges, lambda node, index: self.address(part, node, index))
            stored = [self.place(part, iters, tensor) for tensor, _ in self.memory.stores.get(part.value, ())]
            return [*(value for value, _, _ in found), *stored]

        groups = merged(extents, uses)
        whole = [product(extents[k] for k in group) for group in groups]
        vars = [emitter.variable("p", extent) for extent in whole]
        inner = dict(zip(own, places(extents, groups, vars, emitter.ranges), strict=True))
        kept = any(part.value in other.part.args for other in self.stage.placed)
        buffer = self.buffer(placed, lane is not None) if kept else None
        env = self._env(placed, spot, values[0], inner)

        def element() -> None:
            value = emitter.emit_as(part.scope.body, env, computed(part.scope.dtype))
            if buffer:
                emitter.store(buffer, dot([env.iters[it] for it in part.scope.iters], buffer.strides), value)
            self.put(env, value)

        if lane or self.variant.width == 1 or ragged(part.scope.body, [own[k] for k in groups[-1]]):
            self.alone(vars, whole, element)
        else:
            with self.nest(vars[:-1], whole[:-1]):
                self.inner_lanes(vars[-1], whole[-1], element)
        if buffer:
            self.buffers[part.value] = buffer

    def alone(self, vars: Sequence[Var], extents: Sequence[Poly], element: Callable[[], None]) -> None:
        """Inner loops without lanes."""
        with self.nest(vars, extents):
            element()

    def nest(self, vars: Sequence[Var], extents: Sequence[Poly]) -> AbstractContextManager[None]:
        """Inside, code is written into some loops; into a block of its own where there are none."""
        return self.emitter.loops(vars, extents) if vars else self.emitter.inside()

    def inner_lanes(self, var: Var, extent: Poly, element: Callable[[], None]) -> None:
        def build(target: Block, piece: tuple[str, str]) -> None:
            full, tail, active = self.vectors(var, element)
            width = self.variant.width
            target.statements.append(Lanes(var.name, *piece, width, full, None, width, tail, active))

        self._in_pieces(var, "0", self.emitter.text(extent), build)

    def _in_pieces(self, lane: Var, start: str, stop: str, build: Callable[[Block, tuple[str, str]], None]) -> None:
        """A loop of lanes in pieces, in each of which quotients are constant and conditions decided."""
        emitter = self.emitter
        frozen: dict[Quotient, Datum] = {}
        while True:
            body, notes = Block(), Notes([], frozen, LEAVES)
            try:
                with emitter.during(frozen=dict(frozen), splitting=True), emitter.level(body):
                    emitter.bound.update((datum.name, emitter.top) for datum in frozen.values())
                    self._split(body, notes, build, lane)
                break
            except Frozen as found:
                frozen[found.quotient] = Datum(emitter.name("q"), False)
        end, known_pieces = f"{lane.name}_to", notes.pieces(lane, start, stop)
        for first, last in known_pieces:
            emitter.write(Segments(lane.name, str(first), str(last), end, (), (), notes.taken(body, lane, first)))
        if not known_pieces:
            lets, cuts = [], []
            for quotient, datum in frozen.items():
                top, bottom = emitter.wide(quotient.top), emitter.wide(quotient.bottom)
                lets.append(Let("int64_t", datum.name, f"k_floordiv({top}, {bottom})"))
                cuts.append(self._boundary(quotient, datum, lane))
            cuts.extend(cut for condition in notes.conditions if (cut := self._cut(condition, lane)) is not None)
            emitter.write(Segments(lane.name, start, stop, end, tuple(lets), tuple(dict.fromkeys(cuts)), body))

    def vectors(
        self, var: Var, element: Callable[[], None], exact: bool = False
    ) -> tuple[Block | None, Block | None, str]:
        """The bodies of a loop over vectors: of whole ones, and of the last one with the name of its count.

        None where there is none. `exact`: there is no last one where the size says so.
        """
        width, active, size = self.variant.width, self.emitter.name("n"), self.emitter.ranges.extents[var].number
        full = self.emitter.in_lanes(var, None, element) if size is None or size >= width else None
        tail = self.emitter.in_lanes(var, active, element) if not exact or size is None or size % width > 0 else None
        return full, tail, active

    def buffer(self, placed: PlacedInStage, lanes: bool) -> TensorPlace:
        """Memory for the inner positions of a part: a row of it, for each lane where an outer loop has the lanes."""
        part, extents, spread = placed.part, sizes(placed.part), self.variant.width if lanes else 1
        strides, total = self.strides(extents, placed.inner)
        name, dtype = self.emitter.name("row"), computed(part.scope.dtype)
        size = f"({self.emitter.text(total)}) * {spread} + {self.variant.width}"
        self.pointers[name] = Pointer("row", store_type(dtype), name, size)
        return TensorPlace(name, dtype, strides, total, extents, spread, part.scope, self.emitter.top)

    @staticmethod
    def strides(extents: Sequence[Poly], kept: Sequence[int]) -> tuple[tuple[Poly, ...], Poly]:
        """Return strides and elements of a buffer of some of a part's dimensions."""
        strides: list[Poly] = [const(0)] * len(extents)
        total = const(1)
        for k in reversed(kept):
            strides[k] = total
            total = total * extents[k]
        return tuple(strides), total

    def row(self, at: list[Poly]) -> None:
        """A row whose own loops have the lanes."""
        with self.emitter.inside():
            self._parts([at], None, 1)


def _shared(value: Poly, var: Var, lane: Var) -> float:
    """The part of a read that the positions along a loop share: all of it, or all but the lanes' offset."""
    if var not in value.deep:
        return 1.0
    step, beside = value.coefficient(lane), value.coefficient(var)
    return 0.5 if step and beside and step.number == beside.number == 1 else 0.0


@record
class Blocked:
    """A loop, by number, of which `size` positions are computed together; `turned`: squares of an operand are transposed."""

    loop: int
    size: int
    turned: bool

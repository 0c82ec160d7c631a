"""Products as tiles: a block loads what its results share into shared memory, a thread has some of the results in registers.

Any reduction over plain ranges is one whose operands are shared by different positions of the result: `A[i, k] * B[k, j]`, but a
convolution too, where `X[n, c, h + r, w + s]` is shared by all channels of the result, and `W[f, c, r, s]` by all its pixels.
"""

from __future__ import annotations

from itertools import combinations

from dslc.codegen.cuda.emit import CudaEmitter
from dslc.codegen.cuda.stage import CudaStage, LaunchCode, Room, Shared
from dslc.codegen.cuda.text import CudaVariant, Tile
from dslc.codegen.functions import COMPARISONS, c_type, computed, store_type
from dslc.codegen.group import Part
from dslc.codegen.nest import Block, Branch, Lanes, Loop, Store
from dslc.codegen.poly import NotPolynomial, Poly, Ranges, Var, const, known, of, of_scalar, product, replaced
from dslc.codegen.stages import Stage, sizes, split_up
from dslc.codegen.values import Env, Val
from dslc.codegen.vectorize import GroupMemory, dot
from dslc.ir.dtype import DType
from dslc.ir.element import element_type
from dslc.ir.scalar import Iter, Read, Reduce, Scalar, Table, scalars, walk
from dslc.records import record

#: elements by which a row of shared memory is longer than it must be: neighbouring threads use other banks, and
#: vectors stay aligned
APART = 4
UNKNOWN = 1024  #: what an unknown size is taken to be, where one of two loops is chosen
STEPS = 8  #: steps from which on tiles are worth it
SIDE = 16  #: results along a side from which on tiles are worth it
SHARED = 40 << 10  #: bytes of shared memory that tiles may take

_CONDITIONS = COMPARISONS | {"and", "or", "not"}


@record
class Product:
    """A part whose reduction is done in tiles.

    `down` and `right`: numbers of its iterators along the two sides of a tile. `shared`: for each side what is loaded for it.
    """

    node: Reduce
    down: tuple[int, ...]
    right: tuple[int, ...]
    shared: tuple[tuple[Scalar, ...], tuple[Scalar, ...]]


def product_of(part: Part) -> Product | None:
    """Plan a part as tiles; None where it has nothing to share."""
    scope = part.scope
    node = _only_reduction(scope.body)
    if not node or any(extent.free for extent in node.extents):
        return None
    roots = (node.body, node.where) if node.where else (node.body,)
    reads = [each for root in roots for each in scalars(Read, root)]
    extents = sizes(part)
    try:
        steps = known(of_scalar(extent, lambda each: None, Ranges({})) for extent in node.extents)
    except NotPolynomial:
        return None
    if steps is not None and steps < STEPS:
        return None
    classes: dict[frozenset[int], list[int]] = {}
    for k, it in enumerate(scope.iters):
        users = frozenset(at for at, each in enumerate(reads) if it in each.free)
        if extents[k].number != 1 and users and len(users) < len(reads):
            classes.setdefault(users, []).append(k)
    lengths = {users: product(extents[k] for k in found).number or UNKNOWN for users, found in classes.items()}
    pairs = [(a, b) for a, b in combinations(classes, 2) if not a & b and min(lengths[a], lengths[b]) >= SIDE]
    if not pairs:
        return None
    first, second = max(pairs, key=lambda pair: min(lengths[pair[0]], lengths[pair[1]]))
    # neighbours along the right side are neighbours in the result
    if max(classes[first]) > max(classes[second]):
        first, second = second, first
    down, right = ({scope.iters[k] for k in classes[side]} for side in (first, second))
    found: tuple[dict[Scalar, None], dict[Scalar, None]] = ({}, {})
    if not all(_shares(root, down, right, part.dtypes, found) for root in roots) or not all(found):
        return None
    return Product(node, tuple(classes[first]), tuple(classes[second]), (tuple(found[0]), tuple(found[1])))


def _only_reduction(body: Scalar) -> Reduce | None:
    """The reduction of an expression that has one, and no other inside."""
    found = list(scalars(Reduce, body))
    return found[0] if len(found) == 1 else None


def _shares(
    node: Scalar, down: set[Iter], right: set[Iter], dtypes: tuple[DType, ...],
    found: tuple[dict[Scalar, None], dict[Scalar, None]],
) -> bool:  # fmt: skip
    """Finds the largest parts of an expression that need one side of a tile only; whether that is all that it reads."""
    if isinstance(node, Table):
        return False
    with_down, with_right = bool(node.free & down), bool(node.free & right)
    if node.reads:
        tables = any(isinstance(each, Table) for each in walk(node))
        taken = not (with_down and with_right) and element_type(node, dtypes) is not None and not tables
    else:
        # a condition on positions is found once as well, not in the innermost loop
        taken = with_down != with_right and node.op in _CONDITIONS
    if taken:
        side = found[1] if with_right else found[0]
        side[node] = None
        return True
    return not isinstance(node, Read) and all(_shares(child, down, right, dtypes, found) for child in node.children)


def fits(part: Part, found: Product, tile: Tile) -> bool:
    """Return whether what a tile needs has room in shared memory."""
    sides = zip((tile.rows + APART, tile.columns + APART), found.shared, strict=True)
    return (
        sum(count * tile.depth * _kind(node, part.dtypes).bytes for count, nodes in sides for node in nodes) <= SHARED
    )


def _kind(node: Scalar, dtypes: tuple[DType, ...]) -> DType:
    """The type that shared memory has for an expression."""
    if node.op in _CONDITIONS:
        return DType.BOOL
    return computed(element_type(node, dtypes) or DType.F32)


class ProductStage(CudaStage):
    """Writes a stage that is one product."""

    form = "products"

    def __init__(self, stage: Stage, memory: GroupMemory, variant: CudaVariant, room: Room, found: Product) -> None:
        super().__init__(stage, memory, variant, room)
        self.found, self.tile = found, self.sides()
        self.part = stage.placed[0].part
        self.team = self.threads = self.tile.threads
        # the lanes of a thread are the results that it has side by side
        self.emitter = CudaEmitter(room.names, self.tile.right, 1)
        extents = sizes(self.part)
        self.height, self.width = (product(extents[k] for k in side) for side in (found.down, found.right))
        self.batch: dict[Iter, Poly] = {}

    def sides(self) -> Tile:
        """The sides of a tile, and what one thread has of it."""
        assert self.cuda.tile
        return self.cuda.tile

    def launch(self) -> LaunchCode:
        emitter, found, extents = self.emitter, self.found, sizes(self.part)
        batch = [k for k, extent in enumerate(extents) if extent.number != 1 and k not in (*found.down, *found.right)]
        vars = [emitter.variable("o", extents[k]) for k in batch]
        below, beside = Var(emitter.name("o")), Var(emitter.name("o"))
        self.batch = {self.part.scope.iters[k]: of(var) for k, var in zip(batch, vars, strict=True)}
        body = Block()
        with emitter.level(body, *vars, below, beside):
            self.write_tile(below, beside)
        loops = [(var, extents[k], 0) for k, var in zip(batch, vars, strict=True)]
        sides = [(below, self.height, self.tile.rows), (beside, self.width, self.tile.columns)]
        return self.code(self.form, [*loops, *sides], body)

    # ---- one tile ------------------------------------------------------------------------------------------------------------

    def write_tile(self, below: Var, beside: Var) -> None:
        emitter, tile, node = self.emitter, self.tile, self.found.node
        home = emitter.top
        across = tile.columns // tile.right
        first = (self._let("m", f"{below.name} * {tile.rows}"), self._let("n", f"{beside.name} * {tile.columns}"))
        own = (self._let("y", f"k_rank / {across} * {tile.down}"), self._let("x", f"k_rank % {across} * {tile.right}"))
        down = self._let("m", f"{first[0].name} + {own[0].name}", self.height)
        right = self._let("n", f"{first[1].name} + {own[1].name}", self.width)
        dtype = emitter.reduced_type(node, self._at(), computed(self.part.scope.dtype))
        results = [emitter.accumulator(node.kind, dtype, True) for _ in range(tile.down)]
        self._sum(first, own, down, right, dtype, results)
        for k, name in enumerate(results):
            self._result(down, k, right, Val(name, dtype, True, home))

    def _sum(
        self, first: tuple[Var, Var], own: tuple[Var, Var], down: Var, right: Var, dtype: DType, results: list[str]
    ) -> None:
        """The loop over the steps of the sum, `depth` of them at a time."""
        emitter, depth, node = self.emitter, self.tile.depth, self.found.node
        length = product(emitter.poly(extent, self._at()) for extent in node.extents)
        at = emitter.variable("k", length)
        inner = Block()
        with emitter.level(inner, at):
            tiles = [self._shared(side, first[side], at, length) for side in (0, 1)]
            inner.statements.append(self._meet())
            whole, rest = Block(), Block()
            count = f"{emitter.text(length)} - {at.name}"
            for body, stop in ((whole, str(depth)), (rest, count)):
                step = Block()
                q = Var(emitter.name("q"))
                with emitter.level(body, fence=True), emitter.level(step, q):
                    self._step(q, at, tiles, own, down, right, dtype, results, length)
                body.statements.append(Loop(q.name, "0", stop, 1, step, unrolled=body is whole))
            if length.number is not None and length.number % depth == 0:
                inner.statements.append(whole)
            else:
                inner.statements.append(Branch(f"{count} >= {depth}", whole, rest))
            inner.statements.append(self._meet())
        emitter.write(Loop(at.name, "0", emitter.text(length), depth, inner))

    def _step(
        self, q: Var, at: Var, tiles: list[list[tuple[Scalar, Shared, DType]]], own: tuple[Var, Var], down: Var, right: Var,
        dtype: DType, results: list[str], length: Poly,
    ) -> None:  # fmt: skip
        """One step of the sum for all results of a thread."""
        emitter, tile = self.emitter, self.tile
        step = self._let("k", f"{at.name} + {q.name}", length)
        sides = []
        for side, count in ((0, tile.down), (1, tile.right)):
            vectors = []
            for node, memory, kind in tiles[side]:
                place = f"{memory.name} + {q.name}*{self._stride(side)} + {own[side].name}"
                name = emitter.define(c_type(kind, count), "t", f"k_take<{memory.type}, {count}>({place})")
                vectors.append((node, name, kind))
            sides.append(vectors)
        emitter.lane = right
        for k, name in enumerate(results):
            env = self._at(down, k, right, step)
            for node, vector, kind in sides[0]:
                text = f"{vector}.lane[{k}]" if kind is not DType.BOOL else f"({vector}.lane[{k}] != 0)"
                emitter.remember_part(node, env, kind, Val(text, kind, False, emitter.top))
            for node, vector, kind in sides[1]:
                emitter.remember_part(node, env, kind, Val(vector, kind, True, emitter.top))
            emitter.take(
                self.found.node.kind, name, emitter.spread(emitter.term(self.found.node, env, dtype)), dtype, True
            )
        emitter.lane = None

    def _result(self, down: Var, k: int, right: Var, value: Val) -> None:
        """One row of a thread's results: what is done with the sum, and where it goes."""
        emitter, part, width, then = self.emitter, self.part, self.tile.right, Block()
        lane, active = emitter.variable("n", self.width), emitter.name("n")
        exact = self.width.number is not None and self.width.number % width == 0

        def element() -> None:
            env = self._at(down, k, lane)
            emitter.remember_part(self.found.node, env, value.dtype, value)
            self.put(env, emitter.emit_as(part.scope.body, env, computed(part.scope.dtype)))

        with emitter.level(then, fence=True):
            full = emitter.in_lanes(lane, None, element)
            tail = None if exact else emitter.in_lanes(lane, active, element)
            stop = f"k_min64({emitter.text(self.width)}, {right.name} + {width})"
            emitter.write(Lanes(lane.name, right.name, stop, width, full, None, width, tail, active))
        emitter.write(Branch(f"{down.name} + {k} < {emitter.text(self.height)}", then, Block()))

    # ---- shared memory -------------------------------------------------------------------------------------------------------

    def _stride(self, side: int) -> int:
        return (self.tile.columns if side else self.tile.rows) + APART

    def _shared(self, side: int, first: Var, at: Var, length: Poly) -> list[tuple[Scalar, Shared, DType]]:
        """Loads what one side of the tile needs: neighbouring threads load neighbours in memory. What lies outside is not written."""
        emitter, tile = self.emitter, self.tile
        size, extent = (tile.columns, self.width) if side else (tile.rows, self.height)
        out = []
        for node in self.found.shared[side]:
            dtype = self.kept(node)
            count = self.places(side)
            shared = Shared(store_type(dtype), emitter.name("tile"), count, 1, count * dtype.bytes)
            self.shared_memory.append(shared)
            each, load, then = Var(emitter.name("e")), Block(), Block()
            with emitter.level(load, each):
                deep = self._neighbours(node, side, extent, length)
                q = self._let("q", self._part_of(each, deep, tile.depth, size))
                p = self._let("p", self._part_of(each, not deep, size, tile.depth))
                place = self._let("m", f"{first.name} + {p.name}", extent)
                step = self._let("k", f"{at.name} + {q.name}", length)
                with emitter.level(then, fence=True):
                    env = self._at(right=place, step=step) if side else self._at(place, step=step)
                    # a condition may be around it that is no part of it
                    emitter.guarded += 1
                    value = emitter.emit_as(node, env, computed(dtype))
                    emitter.guarded -= 1
                    target = f"{shared.name} + {self.spot(side, q, p)}"
                    then.statements.append(Store("k_store_one", (target, value.text)))
                inside = f"{place.name} < {emitter.text(extent)} && {step.name} < {emitter.text(length)}"
                load.statements.append(Branch(inside, then, self.outside(f"{shared.name} + {self.spot(side, q, p)}")))
            emitter.write(Loop(each.name, "k_rank", str(size * tile.depth), self.threads, load))
            out.append((node, shared, dtype))
        return out

    def kept(self, node: Scalar) -> DType:
        """The type that shared memory has for an expression."""
        return _kind(node, self.part.dtypes)

    def places(self, side: int) -> int:
        """Number of elements that one side of a tile has room for."""
        return self._stride(side) * self.tile.depth

    def spot(self, side: int, q: Var, p: Var) -> str:
        """Coordinates of an element: the step of the sum, and the position along the side."""
        return f"{q.name}*{self._stride(side)} + {p.name}"

    def outside(self, target: str) -> Block:
        """Emit the value of an element that lies outside."""
        return Block()

    @staticmethod
    def _part_of(each: Var, fast: bool, size: int, other: int) -> str:
        return f"{each.name} % {size}" if fast else f"{each.name} / {other}"

    def _neighbours(self, node: Scalar, side: int, extent: Poly, length: Poly) -> bool:
        """Return whether elements along the sum are neighbours in memory, not those along the side."""
        emitter = self.emitter
        place, step = emitter.variable("probe", extent), emitter.variable("probe", length)
        env = self._at(right=place, step=step) if side else self._at(place, step=step)
        # a computed position, as at an edge, is computed in place
        with emitter.level(Block(), place, step, fence=True):
            for each in walk(node):
                if isinstance(each, Read) and not any(part.reads for part in each.index):
                    index = [emitter.poly(part, env) for part in each.index]
                    address = dot(index, env.tensors[self.part.args[each.operand]].strides)
                    along, beside = (self._gap(address, var) for var in (step, place))
                    return along == 1 or (beside != 1 and along is not None and beside is None)
        return False

    def _gap(self, address: Poly, var: Var) -> int | None:
        """Distance of the first neighbours along a loop."""
        rest = replaced(address, {var: const(0)}, self.emitter.ranges)
        return (replaced(address, {var: const(1)}, self.emitter.ranges) - rest).number

    # ---- positions -----------------------------------------------------------------------------------------------------------

    def _let(self, name: str, text: str, extent: Poly | None = None) -> Var:
        """A position that is computed here."""
        var = Var(self.emitter.define("int64_t", name, text))
        if extent:
            self.emitter.ranges.extents[var] = extent
        return var

    def _at(self, down: Var | None = None, by: int = 0, right: Var | None = None, step: Var | None = None) -> Env:
        """The part at a place of the result, and at a step of the sum; sides that are not given are at their start."""
        part, ranges, node = self.part, self.emitter.ranges, self.found.node
        extents = sizes(part)
        iters: dict[Iter, Poly] = {it: const(0) for it in (*part.scope.iters, *node.iters)}
        iters.update(self.batch)
        for side, var, plus in ((self.found.down, down, by), (self.found.right, right, 0)):
            if var:
                found = split_up(var, [extents[k] for k in side], ranges)
                moved = [replaced(place, {var: of(var) + plus}, ranges) for place in found] if plus else found
                iters.update(zip((part.scope.iters[k] for k in side), moved, strict=True))
        if step:
            lengths = [of_scalar(extent, lambda each: None, ranges) for extent in node.extents]
            iters.update(zip(node.iters, split_up(step, lengths, ranges), strict=True))
        env = Env(part, iters, {}, {arg: self.tensor(arg) for arg in part.args})
        self.emitter.envs.append(env)
        return env

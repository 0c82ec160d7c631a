"""Products on tensor cores: a warp has pieces of 16 x 8 results, whose operands come from shared memory as its threads want them.

As data this is one more way to write a product: `CudaVariant(units=Units())`. Operands of half precision go in as they are stored, sums
are of single precision, as everywhere.
"""

from __future__ import annotations

from dslc.codegen.cuda.stage import Room
from dslc.codegen.cuda.text import CudaVariant, Tile, Units
from dslc.codegen.cuda.tiles import Product, ProductStage
from dslc.codegen.functions import computed, store_type
from dslc.codegen.group import Part
from dslc.codegen.nest import Block, Let, Loop, Store
from dslc.codegen.poly import Var, product
from dslc.codegen.stages import Stage
from dslc.codegen.values import Val
from dslc.codegen.vectorize import GroupMemory
from dslc.ir.dtype import DType
from dslc.ir.element import element_type
from dslc.ir.scalar import Read, Scalar

#: results of a piece, and the two neighbours of them that a thread has
_ROWS, _COLUMNS, _BESIDE = 16, 8, 2


APART = 16  #: bytes by which a row of shared memory is longer than it must be
SHARED = 40 << 10  #: bytes of shared memory that tiles may take


def takes(part: Part, found: Product, units: Units) -> bool:
    """Return whether tensor cores compute a product: plain sums of products of two elements, of a type that they have."""
    node = found.node
    sides = [side[0] for side in found.shared if len(side) == 1]
    if node.kind != "sum" or node.where or len(sides) != 2 or not all(isinstance(one, Read) for one in sides):
        return False
    body = node.body
    if not (body.op == "*" and set(body.args) == set(sides)):
        return False
    types = {element_type(one, part.dtypes) for one in sides}
    wanted = {DType.F32} if units.rounded else {DType.F16, DType.BF16}
    if len(types) != 1 or not types <= wanted:
        return False
    (type,) = types
    assert type is not None
    return _bytes(units, type) <= SHARED


def _bytes(units: Units, type: DType) -> int:
    return (units.rows + units.columns) * (units.depth * type.bytes + APART)


class UnitStage(ProductStage):
    """Writes a stage that is one product on tensor cores."""

    form = "units"

    def __init__(self, stage: Stage, memory: GroupMemory, variant: CudaVariant, room: Room, found: Product) -> None:
        super().__init__(stage, memory, variant, room, found)
        self.team = self.threads = self.units.threads
        kind = self.kept(found.shared[0][0])
        self.stored, self.apart = store_type(kind), self.units.depth + APART // kind.bytes

    @property
    def units(self) -> Units:
        assert self.cuda.units
        return self.cuda.units

    def sides(self) -> Tile:
        # a thread has two neighbours at a time
        return Tile(self.units.rows, self.units.columns, self.units.depth, 1, _BESIDE)

    def kept(self, node: Scalar) -> DType:
        found = element_type(node, self.part.dtypes)
        assert found is not None
        return found

    def places(self, side: int) -> int:
        return (self.units.columns if side else self.units.rows) * self.apart

    def spot(self, side: int, q: Var, p: Var) -> str:
        # neighbours along the sum are one register
        return f"{p.name}*{self.apart} + {q.name}"

    def outside(self, target: str) -> Block:
        """Fill missing elements with zero."""
        return Block([Store("k_store_one", (target, "0.0f"))])

    def write_tile(self, below: Var, beside: Var) -> None:
        emitter, units, node = self.emitter, self.units, self.found.node
        home = emitter.top
        across = units.columns // (_COLUMNS * units.right)
        first = (self._let("m", f"{below.name} * {units.rows}"), self._let("n", f"{beside.name} * {units.columns}"))
        warp = (
            self._let("y", f"k_rank / 32 / {across} * {_ROWS * units.down}"),
            self._let("x", f"k_rank / 32 % {across} * {_COLUMNS * units.right}"),
        )
        group, place = self._let("y", "k_rank % 32 / 4"), self._let("x", f"k_rank % 4 * {_BESIDE}")
        down = self._let("m", f"{first[0].name} + {warp[0].name} + {group.name}", self.height)
        dtype = emitter.reduced_type(node, self._at(), computed(self.part.scope.dtype))
        results = [
            [[emitter.accumulator("sum", dtype, True) for _ in range(2)] for _ in range(units.right)]
            for _ in range(units.down)
        ]
        self._loop(first, warp, results)
        for j in range(units.right):
            right = self._let("n", f"{first[1].name} + {warp[1].name} + {j * _COLUMNS} + {place.name}", self.width)
            for i in range(units.down):
                for half in range(2):
                    by = i * _ROWS + half * _ROWS // 2
                    self._result(down, by, right, Val(results[i][j][half], dtype, True, home))

    def _loop(self, first: tuple[Var, Var], warp: tuple[Var, Var], results: list[list[list[str]]]) -> None:
        """The loop over the steps of the sum, `depth` of them at a time."""
        emitter, units, node = self.emitter, self.units, self.found.node
        length = product(emitter.poly(extent, self._at()) for extent in node.extents)
        at = emitter.variable("k", length)
        inner = Block()
        with emitter.level(inner, at):
            (left,), (right,) = (self._shared(side, first[side], at, length) for side in (0, 1))
            inner.statements.append(self._meet())
            q, step = Var(emitter.name("q")), Block()
            with emitter.level(step, q):
                pieces = []
                for side, tile, count, size in ((0, left, units.down, _ROWS), (1, right, units.right, _COLUMNS)):
                    names = []
                    for k in range(count):
                        name = emitter.name("t")
                        start = f"{tile[1].name} + ({warp[side].name} + {k * size})*{self.apart} + {q.name}"
                        text = f"k_{'ba'[side == 0]}_piece<{self.apart}>({start})"
                        step.statements.append(Let(f"k_piece<{4 if side == 0 else 2}>", name, text))
                        names.append(name)
                    pieces.append(names)
                for i, a in enumerate(pieces[0]):
                    for j, b in enumerate(pieces[1]):
                        step.statements.append(Store(f"k_units<{self.stored}>", (*results[i][j], a, b)))
            deep = 32 // self.kept(self.found.shared[0][0]).bytes
            inner.statements.append(Loop(q.name, "0", str(units.depth), deep, step, unrolled=True))
            inner.statements.append(self._meet())
        emitter.write(Loop(at.name, "0", emitter.text(length), units.depth, inner))

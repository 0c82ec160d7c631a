"""Elements and reductions in CUDA: where a team of threads shares a row, the loops of its reductions are spread over them."""

from __future__ import annotations

from collections.abc import Iterable

from dslc.codegen.emit import Emitter
from dslc.codegen.functions import c_type, neutral, store_type
from dslc.codegen.nest import Block, Lanes, Let, Loop, Store, Variable
from dslc.codegen.poly import Poly, Ranges, Var, product
from dslc.codegen.stages import merged, places, positions_in, ragged
from dslc.codegen.values import Env, TensorPlace, Val, literal
from dslc.codegen.vectorize import dot
from dslc.ir.dtype import DType
from dslc.ir.scalar import Iter, Read, Reduce, Sym

FEW = 64  #: steps of a loop; with fewer it is not spread over threads where a longer one is beside it


class CudaEmitter(Emitter):
    """The code of one launch. `team`: threads that compute a row together, all of them in step; 1: each thread for itself."""

    own_rows = False

    def __init__(self, sizes: dict[Sym, str], width: int, team: int) -> None:
        super().__init__(sizes, width, 1)
        self.team = team
        #: whether what is written now is done by one thread of the team, not by all of them
        self.apart = False

    def one(self, tensor: TensorPlace, address: Poly) -> str:
        return f"k_at({tensor.pointer}, {self.text(address)})"

    def store(self, tensor: TensorPlace, address: Poly, value: Val) -> None:
        if self.team == 1 or self.apart or (self.lane is not None and self.varies(self.thawed(address))):
            super().store(tensor, address, value)
            return
        assert not value.lanes
        pointer = f"{tensor.pointer} + {self.text(self.thawed(address))}"
        self.levels[-1].block.statements.append(Store("k_store_once", ("k_rank", pointer, value.text)))

    def _tell(self, outside: Val) -> None:
        """Do nothing: a launch has no way to report a position outside of a tensor."""

    # ---- reductions --------------------------------------------------------------------------------------------------------

    def loops_of(self, node: Reduce, env: Env) -> tuple[list[Var], list[Poly], dict[Iter, Poly]]:
        """Loops over neighbouring iterators are one where every position stays linear: its steps are spread evenly then."""
        if self.team == 1 or self.apart or self.lane is not None or ragged(node, node.iters) or len(node.iters) < 2:
            return super().loops_of(node, env)
        extents = [self.poly(extent, env) for extent in node.extents]

        def uses(at: list[Poly], ranges: Ranges) -> Iterable[Poly]:
            iters = {**env.iters, **dict(zip(node.iters, at, strict=True))}
            ranges.extents.update(
                {var: extent for var, extent in self.ranges.extents.items() if var not in ranges.extents}
            )
            addresses = positions_in(node.body, iters, ranges, lambda read, index: self._address(env, read, index))
            found = [value for value, _, _ in addresses]
            if node.where is not None:
                found.extend(value for value, _, _ in positions_in(node.where, iters, ranges, lambda read, index: None))
            return found

        groups = merged(extents, uses)
        whole = [product(extents[k] for k in group) for group in groups]
        vars = [self.variable("r", extent) for extent in whole]
        return vars, whole, dict(zip(node.iters, places(extents, groups, vars, self.ranges), strict=True))

    def _address(self, env: Env, node: Read, index: list[Poly]) -> Poly | None:
        tensor = env.tensors.get(env.part.args[node.operand])
        return None if tensor is None or tensor.scope is not None else dot(index, tensor.strides)

    def across(
        self, places: list[tuple[Reduce, Env]], dtypes: list[DType], vars: list[Var], extents: list[Poly]
    ) -> list[Val]:
        if self.team == 1 or self.apart or not vars:
            return self.nested(places, dtypes, vars, extents)
        free = not any(_depends(node) for node, _ in places)
        at = len(vars) - 1
        last = extents[at].number
        if free and last is not None and last < FEW:
            at = max(range(len(vars)), key=lambda k: (extents[k].number or FEW, k))
        uneven = any(ragged(node, node.iters) for node, _ in places)
        narrow = uneven or (extents[at].number or FEW) < 2 * self.width
        order = [*(k for k in range(len(vars)) if k != at), at]
        vars, extents = [vars[k] for k in order], [extents[k] for k in order]
        return (
            self._one_by_one(places, dtypes, vars, extents)
            if narrow
            else self._in_vectors(places, dtypes, vars, extents)
        )

    def _one_by_one(
        self, places: list[tuple[Reduce, Env]], dtypes: list[DType], vars: list[Var], extents: list[Poly]
    ) -> list[Val]:
        """Each thread takes single steps of the last loop."""
        home = self.top
        names = [self.name("acc") for _ in places]
        for (node, _), dtype, name in zip(places, dtypes, names, strict=True):
            start = literal(neutral(node.kind, dtype), dtype)
            self.levels[home].block.statements.append(Variable(c_type(dtype, 0), name, start.text))
        blocks = [Block() for _ in vars[:-1]]
        with self.loops(vars[:-1], extents[:-1], blocks):
            inner = Block()
            stop = self.text(extents[-1])
            outer = self.levels[-1].block
            with self.level(inner, vars[-1]):
                self.apart = True
                try:
                    for (node, env), dtype, name in zip(places, dtypes, names, strict=True):
                        self.take(node.kind, name, self.term(node, env, dtype), dtype, False)
                finally:
                    self.apart = False
            outer.statements.append(Loop(vars[-1].name, "k_rank", stop, self.team, inner))
        self.levels[home].block.statements.extend(blocks[:1])
        return [
            self._joined(node.kind, dtype, name, home)
            for (node, _), dtype, name in zip(places, dtypes, names, strict=True)
        ]

    def _in_vectors(
        self, places: list[tuple[Reduce, Env]], dtypes: list[DType], vars: list[Var], extents: list[Poly]
    ) -> list[Val]:
        """Each thread takes vectors of the last loop."""
        home, lane = self.top, vars[-1]
        names = [self.name("acc") for _ in places]
        for (node, _), dtype, name in zip(places, dtypes, names, strict=True):
            start = literal(neutral(node.kind, dtype), dtype)
            self.levels[home].block.statements.append(
                Variable(c_type(dtype, self.width), name, self.spread_text(start))
            )

        def body(block: Block, active: str | None) -> None:
            with self.level(block, lane):
                self.lane, self.active = lane, active
                for (node, env), dtype, name in zip(places, dtypes, names, strict=True):
                    value = self.spread(self.term(node, env, dtype))
                    if active is not None:
                        empty = self.spread(literal(neutral(node.kind, dtype), dtype))
                        rest = Val(f"k_first<{self.width}>({active})", DType.BOOL, True, self.top)
                        value = self.apply("select", (rest, value, empty), dtype)
                    self.take(node.kind, name, value, dtype, True)
                self.lane, self.active = None, None

        blocks = [Block() for _ in vars[:-1]]
        with self.loops(vars[:-1], extents[:-1], blocks):
            last = extents[-1].number
            full, tail, active = Block(), Block(), self.name("n")
            body(full, None)
            exact = last is not None and last % self.width == 0
            if not exact:
                body(tail, active)
            stop = self.text(extents[-1])
            self.levels[-1].block.statements.append(
                self.spread_lanes(lane, "0", stop, full, None if exact else tail, active)
            )
        self.levels[home].block.statements.extend(blocks[:1])
        out = []
        for (node, _), dtype, name in zip(places, dtypes, names, strict=True):
            whole = self.name("acc")
            text = f"k_lanes<k_join_{node.kind}, {self.width}>({name})"
            if dtype is DType.BOOL:
                text = f"({text} != 0)"
            self.levels[home].block.statements.append(Let(c_type(dtype, 0), whole, text))
            out.append(self._joined(node.kind, dtype, whole, home))
        return out

    def spread_lanes(
        self, lane: Var, start: str, stop: str, full: Block | None, tail: Block | None, active: str
    ) -> Lanes:
        """A loop whose vectors go to the threads of the team, one after the other."""
        first = f"{start} + k_rank*{self.width}" if start != "0" else f"(int64_t)k_rank*{self.width}"
        return Lanes(lane.name, first, stop, self.team * self.width, full, None, self.width, tail, active)

    def _joined(self, kind: str, dtype: DType, name: str, home: int) -> Val:
        """Reduce the partial results of a team of threads to one value that all of them have."""
        out = self.name("acc")
        stored = "bool" if dtype is DType.BOOL else store_type(dtype)
        text = f"k_joined<k_join_{kind}, {self.team}, {stored}>({name})"
        self.levels[home].block.statements.append(Let(c_type(dtype, 0), out, text))
        self.bound[out] = home
        return Val(out, dtype, False, home)


def _depends(node: Reduce) -> bool:
    """Return whether a range of a reduction depends on an iterator of its own."""
    return any(extent.free & set(node.iters) for extent in node.extents)

"""Elements and reductions in CUDA: where a team of threads shares a row, the loops of its reductions are spread over them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from dslc.codegen.emit import Emitter, Reductions
from dslc.codegen.functions import c_type
from dslc.codegen.nest import Block, Lanes, Loop, Store
from dslc.codegen.poly import Poly, Ranges, Var, product
from dslc.codegen.stages import merged, places, positions_in, ragged
from dslc.codegen.values import Env, TensorPlace, Val
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
        if self.team == 1 or self.apart or (self.lane and self.varies(self.thawed(address))):
            super().store(tensor, address, value)
            return
        assert not value.lanes
        pointer = f"{tensor.pointer} + {self.text(self.thawed(address))}"
        self.write(Store("k_store_once", ("k_rank", pointer, value.text)))

    def _tell(self, outside: Val) -> None:
        """Do nothing: a launch has no way to report a position outside of a tensor."""

    # ---- reductions --------------------------------------------------------------------------------------------------------

    def loops_of(self, node: Reduce, env: Env) -> tuple[list[Var], list[Poly], dict[Iter, Poly]]:
        """Loops over neighbouring iterators are one where every position stays linear: its steps are spread evenly then."""
        if self.team == 1 or self.apart or self.lane or ragged(node, node.iters) or len(node.iters) < 2:
            return super().loops_of(node, env)
        extents = [self.poly(extent, env) for extent in node.extents]

        def uses(at: list[Poly], ranges: Ranges) -> Iterable[Poly]:
            iters = {**env.iters, **dict(zip(node.iters, at, strict=True))}
            ranges.extents = self.ranges.extents | ranges.extents
            addresses = positions_in(node.body, iters, ranges, lambda read, index: self._address(env, read, index))
            found = [value for value, _, _ in addresses]
            if node.where:
                found.extend(value for value, _, _ in positions_in(node.where, iters, ranges, lambda read, index: None))
            return found

        groups = merged(extents, uses)
        whole = [product(extents[k] for k in group) for group in groups]
        vars = [self.variable("r", extent) for extent in whole]
        return vars, whole, dict(zip(node.iters, places(extents, groups, vars, self.ranges), strict=True))

    def _address(self, env: Env, node: Read, index: list[Poly]) -> Poly | None:
        tensor = env.tensors.get(env.part.args[node.operand])
        return None if tensor is None or tensor.scope is not None else dot(index, tensor.strides)

    def across(self, places: Reductions, vars: list[Var], extents: list[Poly]) -> list[Val]:
        if self.team == 1 or self.apart or not vars:
            return self.nested(places, vars, extents)
        at = len(vars) - 1
        last = extents[at].number
        depends = any(extent.free & set(node.iters) for node, _, _ in places for extent in node.extents)
        if not depends and last is not None and last < FEW:
            at = max(range(len(vars)), key=lambda k: (extents[k].number or FEW, k))
        uneven = any(ragged(node, node.iters) for node, _, _ in places)
        narrow = uneven or (extents[at].number or FEW) < 2 * self.width
        outer = [k for k in range(len(vars)) if k != at]
        names = [self.accumulator(node.kind, dtype, not narrow) for node, _, dtype in places]
        with self.loops([vars[k] for k in outer], [extents[k] for k in outer]):
            (self._one_by_one if narrow else self._in_vectors)(places, names, vars[at], extents[at])
        out = []
        for (node, _, dtype), name in zip(places, names, strict=True):
            if not narrow:
                text = f"k_lanes<k_join_{node.kind}, {self.width}>({name})"
                name = self.joined(f"({text} != 0)" if dtype is DType.BOOL else text, dtype).text
            out.append(self.joined(f"k_joined<k_join_{node.kind}, {self.team}, {c_type(dtype, 0)}>({name})", dtype))
        return out

    @contextmanager
    def over_team(self, var: Var, extent: Poly) -> Iterator[None]:
        """Inside, code is written into a loop whose steps go to the threads of the team."""
        inner = Block()
        with self.level(inner, var), self.during(apart=True):
            yield
        self.write(Loop(var.name, "k_rank", self.text(extent), self.team, inner))

    def _one_by_one(self, places: Reductions, names: Sequence[str], var: Var, extent: Poly) -> None:
        """Each thread takes single steps of the last loop."""
        with self.over_team(var, extent):
            for (node, env, dtype), name in zip(places, names, strict=True):
                self.take(node.kind, name, self.term(node, env, dtype), dtype, False)

    def _in_vectors(self, places: Reductions, names: Sequence[str], lane: Var, extent: Poly) -> None:
        """Each thread takes vectors of the last loop."""

        def body(active: str | None) -> Block:
            def step() -> None:
                for (node, env, dtype), name in zip(places, names, strict=True):
                    self.take(node.kind, name, self.lanes_of(node, env, dtype, active), dtype, True)

            return self.in_lanes(lane, active, step)

        active, full = self.name("n"), body(None)
        tail = None if extent.number is not None and extent.number % self.width == 0 else body(active)
        self.write(self.spread_lanes(lane, "0", self.text(extent), full, tail, active))

    def spread_lanes(
        self, lane: Var, start: str, stop: str, full: Block | None, tail: Block | None, active: str
    ) -> Lanes:
        """A loop whose vectors go to the threads of the team, one after the other."""
        first = f"{start} + k_rank*{self.width}" if start != "0" else f"(int64_t)k_rank*{self.width}"
        return Lanes(lane.name, first, stop, self.team * self.width, full, None, self.width, tail, active)

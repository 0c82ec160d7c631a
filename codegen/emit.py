"""Elements and reductions in C++: each is computed at the outermost loop that binds all that it depends on, and once.

One loop variable may be spread over the lanes of vectors; a value that depends on it is a vector, any other one is a scalar.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from dslc.codegen.expressions import Expressions
from dslc.codegen.functions import c_type, computed, function_text, neutral, store_type
from dslc.codegen.nest import Assign, Block, Lanes, Let, Store, Variable
from dslc.codegen.poly import Datum, Poly, Var, const, of
from dslc.codegen.stages import ragged
from dslc.codegen.text import NotGenerated, Reason
from dslc.codegen.values import Env, TensorPlace, Val, is_whole, literal, strides_of
from dslc.ir.dtype import DType, TensorType
from dslc.ir.scalar import Iter, Read, Reduce, Scalar, Sym, Table, flat, raw_apply, read, walk
from dslc.ir.scopes import inside, positions

#: what joins the values of a reduction
_JOINED = {"sum": "+", "prod": "*", "max": "max", "min": "min", "any": "or", "all": "and"}


#: reductions that run in the same loops: each with its place, and the type of its result
Reductions = list[tuple[Reduce, Env, DType]]


class Emitter(Expressions):
    """The code of one stage."""

    #: whether a row's buffer is one thread's own, with room for a vector more behind it
    own_rows = True

    def __init__(self, sizes: dict[Sym, str], width: int, unroll: int) -> None:
        super().__init__(sizes, width, unroll)
        #: what must hold of sizes, and what says whether a position was outside, by whether it has lanes
        self.asked: set[str] = set()
        self.outside: dict[bool, str] = {}
        #: whether loops end where tensors do: panels have room behind them
        self.plain = True
        #: whether what is read beyond a tensor is another value
        self.padding = False

    # ---- elements of tensors -----------------------------------------------------------------------------------------------

    def element(self, node: Read, env: Env) -> Val:
        if node.other:
            return self._padded(node, env)
        value = env.part.args[node.operand]
        known = env.known.get(value)
        if known:
            return known
        tensor = env.tensors[value]
        parts = node.index
        if tensor.scope:
            at_iters = positions(tensor.scope, node.index)
            parts = tuple(at_iters[it] for it in tensor.scope.iters)
        index = [
            self.place(part, env) if stride.terms else const(0)
            for part, stride in zip(parts, tensor.strides, strict=True)
        ]
        return self._at(tensor, index, [_is_data(part) for part in parts])

    def _at(self, tensor: TensorPlace, index: Sequence[Poly], data: Sequence[bool]) -> Val:
        """The element at some positions, each of which stays in the tensor whatever it is."""
        address = const(0)
        for at, size, stride, told in zip(index, tensor.shape, tensor.strides, data, strict=True):
            if stride.terms:
                address = address + self._inside(at, size, told) * stride
        return self.load(tensor, self.thawed(address))

    def _inside(self, at: Poly, size: Poly, told: bool) -> Poly:
        """A position in an axis. One that may be outside as data says, or at some size, is moved into it, or asked for before a run."""
        if not _of_data(at):
            gaps = (at, size - 1 - at)
            if self.guarded or all(self.decided(gap) for gap in gaps):
                return at
            told = not any(isinstance(atom, Var) for gap in gaps for atom in gap.deep)
            if not (self.facts and told):
                self._ask(gaps)
                return at
        number, last = self.number(self.thawed(at), DType.I64), self.number(size - 1, DType.I64)
        low = self.apply("min", (number, last), DType.I64)
        found = self.apply("max", (low, literal(0, DType.I64)), DType.I64)
        if told and not self.padding:
            self._tell(self.apply("!=", (number, found), DType.I64))
        return of(Datum(found.text, found.lanes))

    def _ask(self, gaps: Sequence[Poly]) -> None:
        """Add the conditions on sizes under which positions are inside to the size check."""
        for gap in gaps:
            least = None if self.facts or self.decided(gap) else self._least(gap)
            if not least or self.ranges.positive(least):
                continue
            if least.number is None:
                self.asked.add(f"{self.text(least)} >= 0")
            elif self.plain or gap.number is not None:
                raise NotGenerated(Reason.FORM, "a position outside of a tensor")

    def _least(self, gap: Poly) -> Poly | None:
        """The least that a linear position is over all loops, at sizes at which each has a step; None for other ones."""
        while vars := [atom for atom in gap.deep if isinstance(atom, Var)]:
            # the innermost first: its extent may depend on the others
            var = max(vars, key=lambda each: (self.bound.get(each.name, 0), each.name))
            step, extent = gap.coefficient(var), self.ranges.extents.get(var)
            if step is None or step.number is None or extent is None:
                return None
            gap = gap.without(var) + (step * (extent - 1) if step.number < 0 else const(0))
        return gap if all(isinstance(atom, Sym) for atom in gap.deep) else None

    def _tell(self, outside: Val) -> None:
        """Notes that a position of an active lane was outside."""
        level = max(outside.level, self.fence)
        name = self.outside.get(outside.lanes)
        if name is None:
            name = self.outside[outside.lanes] = self.name("outside")
            kind = c_type(DType.BOOL, self.width if outside.lanes else 0)
            self.root.statements.insert(0, Variable(kind, name, "{}"))
        text = (
            f"{outside.text} & k_first<{self.width}>({self.active})" if outside.lanes and self.active else outside.text
        )
        key = ("outside", text)
        if not self.recall(key):
            self.levels[level].memo[key] = outside
            self.levels[level].block.statements.append(Assign(name, f"{name} | ({text})"))

    def failures(self) -> str:
        """C++ expression: 1 where a position was outside."""
        each = [f"k_join_any<k_bool, {self.width}>({name})" if lanes else name for lanes, name in self.outside.items()]
        return " | ".join(each) or "0"

    def _padded(self, node: Read, env: Env) -> Val:
        assert node.other
        shape = env.part.args[node.operand].type.shape
        whole = raw_apply("select", inside(node.index, shape), read(node.operand, node.index), node.other)
        with self.during(padding=True):
            return self.emit(whole, env, computed(env.part.args[node.operand].type.dtype))

    def _mask(self, tensor: TensorPlace) -> str:
        """Number of lanes that may touch a tensor, as C++; empty where all may.

        What is written into the room behind a row is written again or not looked at: a store under a mask would keep the load that
        follows waiting.
        """
        return "" if tensor.scope and self.own_rows else self.active or ""

    def load(self, tensor: TensorPlace, address: Poly) -> Val:
        """The element at a position, for each lane."""
        dtype = computed(tensor.dtype)
        stored, width = store_type(tensor.dtype), self.width
        guarded = self.guarded > 0 and not self.ranges.within(address, tensor.elements)
        level = max(self.level_of(address), self.fence, tensor.level)
        if self.lane and tensor.spread > 1:
            if self.varies(address):
                places = self.apply("*", (self.lane_numbers(address), literal(width, DType.I64)), DType.I64)
                text = f"k_gather<{stored}, {width}>({tensor.pointer}, {places.text} + k_iota<int64_t, {width}>(0, 1), {width})"
                return self.let(("load", tensor.pointer, address), text, dtype, True, max(level, places.level))
            text = f"k_load<{stored}, {width}>({tensor.pointer} + ({self.text(address)}) * {width})"
            return self.let(("load", tensor.pointer, address), text, dtype, True, level)
        if not self.varies(address):
            if guarded:
                text = f"k_load_safe({tensor.pointer}, {self.text(address)}, {self.text(tensor.elements)})"
            else:
                text = self.one(tensor, address)
            return self.let(("load", tensor.pointer, address, guarded), text, dtype, False, level)
        step = self.step(address)
        count = f", {mask}" if (mask := self._mask(tensor)) else ""
        key = ("load", tensor.pointer, address, guarded, self.active)
        total = self.text(tensor.elements)
        if step and step.number == 1 and guarded:
            text = (
                f"k_load_in<{stored}, {width}>({tensor.pointer}, {self.text(address)}, {total}, {self.active or width})"
            )
        elif step and step.number == 1:
            text = f"k_load<{stored}, {width}>({tensor.pointer} + {self.text(address)}{count})"
        elif step and not guarded:
            call = f"{tensor.pointer} + {self.text(address)}, {self.text(step)}, {self.active or width}"
            text = self._from_tile(tensor, address, step) or f"k_load_step<{stored}, {width}>({call})"
        else:
            places = self.lane_numbers(address)
            safe = (
                f"k_within<{width}>({places.text}, {total}), {self.active or width}, {total}"
                if guarded
                else f"{places.text}, {self.active or width}"
            )
            text, level = f"k_gather<{stored}, {width}>({tensor.pointer}, {safe})", max(level, places.level)
        return self.let(key, text, dtype, True, level)

    def one(self, tensor: TensorPlace, address: Poly) -> str:
        """The text of one element."""
        return f"k_load_one({tensor.pointer}[{self.text(address)}])"

    def _from_tile(self, tensor: TensorPlace, address: Poly, step: Poly) -> str | None:
        """Of a square of elements, read row by row and turned in registers, the column of this position of the tile's loop."""
        if not self.tile or store_type(tensor.dtype) not in {"float", "int32_t", "uint32_t"}:
            return None
        beside = address.coefficient(self.tile)
        if not beside or beside.number != 1:
            return None
        first = address - self.instance
        stored = store_type(tensor.dtype)
        key = ("tile", tensor.pointer, first, self.active)
        found = self.recall(key)
        if not found:
            total = self.text(tensor.elements)
            call = f"{tensor.pointer}, {self.text(first)}, {total}, {self.text(step)}, {self.active or self.width}"
            text = f"k_load_tile<{stored}, {self.width}>({call})"
            name = self.name("tile")
            self.write(Let(f"k_tile<{stored}, {self.width}>", name, text))
            self.levels[-1].memo[key] = found = Val(name, tensor.dtype, True, self.top)
        return f"{found.text}.column[{self.instance}]"

    def store(self, tensor: TensorPlace, address: Poly, value: Val) -> None:
        """The element at a position of this loop; must be the innermost one that is open."""
        stored, width = store_type(tensor.dtype), self.width
        address = self.thawed(address)
        block = self.levels[-1].block.statements
        if self.lane and tensor.spread > 1:
            row = f"{tensor.pointer} + ({self.text(address)}) * {width}"
            block.append(Store(f"k_store<{stored}, {width}>", (row, self.spread(value).text)))
            return
        pointer = f"{tensor.pointer} + {self.text(address)}"
        if not self.lane or not self.varies(address):
            assert not value.lanes
            block.append(Store("k_store_one", (pointer, value.text)))
            return
        step = self.step(address)
        value = self.spread(value)
        active = (mask,) if (mask := self._mask(tensor)) else ()
        if step and step.number == 1:
            block.append(Store(f"k_store<{stored}, {width}>", (pointer, value.text, *active)))
        elif step:
            count = self.active or str(width)
            block.append(Store(f"k_store_step<{stored}, {width}>", (pointer, value.text, self.text(step), count)))
        else:
            places, count = self.lane_numbers(address), self.active or str(width)
            block.append(Store(f"k_scatter<{stored}, {width}>", (tensor.pointer, value.text, places.text, count)))

    def table(self, node: Table, env: Env, want: DType) -> Val:
        items = list(flat(node.values))
        dtype = want if want.is_float or all(isinstance(item, int) for item in items) else DType.F64
        if dtype is DType.BOOL:
            dtype = DType.I64
        shape: list[int] = []
        values: Any = node.values
        while isinstance(values, tuple):
            shape.append(len(values))
            values = values[0] if values else 0
        numbers = ", ".join(literal(item, dtype).text for item in items)
        name = self.tables.get((numbers, dtype))
        if name is None:
            name = self.tables[numbers, dtype] = self.name("table")
            self.root.statements.insert(0, Let(f"static {store_type(dtype)}", f"{name}[]", f"{{{numbers}}}"))
        tensor = TensorPlace(name, dtype, *strides_of(TensorType(dtype, tuple(shape))))
        return self._at(tensor, [self.place(part, env) for part in node.index], [_is_data(part) for part in node.index])

    # ---- reductions --------------------------------------------------------------------------------------------------------

    def reductions(self, wanted: Sequence[tuple[Reduce, Env]], want: DType) -> list[Val]:
        """A reduction at several places: in one loop nest where it is equally long at all of them."""
        lengths = [Emitter.loops_of(self, *one)[1] for one in wanted] if len(wanted) > 1 else []
        if any(each != lengths[0] for each in lengths):
            return [self.reductions([one], want)[0] for one in wanted]
        vars, extents, iters = self.loops_of(*wanted[0])
        places = [(node, place.inside(dict(zip(node.iters, iters.values(), strict=True)))) for node, place in wanted]
        level = max([self.fence, *(self._depth(node, place) for node, place in wanted)])
        typed = [(node, place, self.reduced_type(node, place, want)) for node, place in places]
        with self.at(min(level, self.top)):
            if self.lane and self.bound.get(self.lane.name, 0) <= self.top:
                return self.nested(typed, vars, extents)
            # the lanes' loop is further inside: this is computed before it, with lanes of its own
            with self.during(lane=None, active=None, splitting=False, frozen={}):
                return self.across(typed, vars, extents)

    def loops_of(self, node: Reduce, env: Env) -> tuple[list[Var], list[Poly], dict[Iter, Poly]]:
        """The loops of a reduction, and what its iterators are in them."""
        extents: list[Poly] = []
        iters: dict[Iter, Poly] = {}
        vars: list[Var] = []
        # an extent may use the iterators before it
        for it, extent in node.ranges:
            size = self.poly(extent, env.inside(iters))
            var = self.variable("r", size)
            extents.append(size)
            vars.append(var)
            iters[it] = of(var)
        return vars, extents, iters

    def reduced_type(self, node: Reduce, env: Env, want: DType) -> DType:
        if node.kind in {"any", "all"}:
            return DType.BOOL
        found = env.type_of(node.body)
        if found is None:
            found = DType.I64 if is_whole(node.body) or not want.is_float else want
        return computed(found)

    def _depth(self, node: Scalar, env: Env) -> int:
        """The loop at which all is known that an expression depends on."""
        level = max((self.level_of(env.iters[it]) for it in node.free), default=0)
        for each in walk(node):
            if isinstance(each, Read):
                value = env.part.args[each.operand]
                if value in env.known:
                    level = max(level, env.known[value].level)
                else:
                    level = max(level, env.tensors[value].level)
        for quotient, datum in self.frozen.items():
            if any(quotient in env.iters[it].deep for it in node.free):
                level = max(level, self.bound[datum.name])
        return level

    def nested(self, places: Reductions, vars: list[Var], extents: list[Poly]) -> list[Val]:
        """Plain loops inside the loop of the lanes, or without any lanes."""
        home, lanes = self.top, self.lane is not None
        names = [self.accumulator(node.kind, dtype, lanes) for node, _, dtype in places]
        with self.loops(vars, extents):
            for (node, env, dtype), name in zip(places, names, strict=True):
                value = self.term(node, env, dtype)
                self.take(node.kind, name, self.spread(value) if lanes else value, dtype, lanes)
        self.bound.update(dict.fromkeys(names, home))
        return [Val(name, dtype, lanes, home) for name, (_, _, dtype) in zip(names, places, strict=True)]

    def accumulator(self, kind: str, dtype: DType, lanes: bool) -> str:
        """Declare the variable of a reduction with its neutral element, and return its name."""
        start, name = literal(neutral(kind, dtype), dtype), self.name("acc")
        text = self.spread_text(start) if lanes else start.text
        self.write(Variable(c_type(dtype, self.width if lanes else 0), name, text))
        return name

    def joined(self, text: str, dtype: DType) -> Val:
        """Return the number that a reduction's variable is joined to."""
        return Val(self.define(c_type(dtype, 0), "acc", text), dtype, False, self.top)

    def spread_text(self, value: Val) -> str:
        kind = "int32_t" if value.dtype is DType.BOOL else store_type(value.dtype)
        text = value.text if value.dtype is not DType.BOOL else {"true": "-1", "false": "0"}[value.text]
        return f"k_all<{kind}, {self.width}>({text})"

    def term(self, node: Reduce, env: Env, dtype: DType) -> Val:
        """Emit the element that a reduction takes at one place; the neutral element where its condition does not hold."""
        if not node.where:
            return self.emit_as(node.body, env, dtype)
        condition = self.emit_as(node.where, env, DType.BOOL)
        empty = literal(neutral(node.kind, dtype), dtype)
        if condition.literal:
            return self.emit_as(node.body, env, dtype) if condition.number else empty
        with self.during(guarded=self.guarded + 1, splitting=False):
            value = self.emit_as(node.body, env, dtype)
        return self.apply("select", (condition, value, empty), dtype)

    def lanes_of(self, node: Reduce, env: Env, dtype: DType, active: str | None) -> Val:
        """Return a term in lanes, of which those that are not active are neutral."""
        value = self.spread(self.term(node, env, dtype))
        if active is None:
            return value
        empty = self.spread(literal(neutral(node.kind, dtype), dtype))
        return self.apply(
            "select", (Val(f"k_first<{self.width}>({active})", DType.BOOL, True, self.top), value, empty), dtype
        )

    def take(self, kind: str, name: str, value: Val, dtype: DType, lanes: bool) -> None:
        function = _JOINED[kind]
        # what is asked whether it is NaN first is the new value: that does not wait for the ones before it
        order = [value.text, name] if function in {"max", "min"} else [name, value.text]
        text = function_text(function, order, dtype, lanes)
        assert text is not None
        self.write(Assign(name, text))

    def across(self, places: Reductions, vars: list[Var], extents: list[Poly]) -> list[Val]:
        """A reduction in a scalar place: lanes run along its innermost iterator, their results are joined at the end."""
        last = extents[-1].number if extents else 0
        uneven = any(ragged(node, node.iters[-1:]) for node, _, _ in places)
        if not vars or self.width == 1 or uneven or (last is not None and last < self.width // 2):
            return self.nested(places, vars, extents)
        unroll = self.unroll if last is None or last >= self.unroll * self.width else 1
        accumulators = [[self.accumulator(node.kind, dtype, True) for _ in range(unroll)] for node, _, dtype in places]
        lane = vars[-1]

        def step(count: int, active: str | None) -> None:
            # the first of several vectors ends before the others
            self.ranges.extents[lane] = extents[-1] - (count - 1) * self.width
            for u in range(count):
                for (node, env, dtype), names in zip(places, accumulators, strict=True):
                    it = node.iters[-1]
                    moved = env if u == 0 else env.inside({it: env.iters[it] + u * self.width})
                    self.take(node.kind, names[u], self.lanes_of(node, moved, dtype, active), dtype, True)
            self.ranges.extents[lane] = extents[-1]

        def body(count: int, active: str | None) -> Block:
            return self.in_lanes(lane, active, partial(step, count, active))

        with self.loops(vars[:-1], extents[:-1]):
            full, half = body(unroll, None), body(1, None) if unroll > 1 else None
            active = self.name("n")
            tail = None if last is not None and last % self.width == 0 else body(1, active)
            stop = self.text(extents[-1])
            self.write(Lanes(lane.name, "0", stop, unroll * self.width, full, half, self.width, tail, active))
        out = []
        for (node, _, dtype), names in zip(places, accumulators, strict=True):
            whole = names[0]
            for name in names[1:]:
                whole = function_text(_JOINED[node.kind], [whole, name], dtype, True) or whole
            out.append(self.joined(f"k_join_{node.kind}<{store_type(dtype)}, {self.width}>({whole})", dtype))
        return out


def _is_data(position: Scalar) -> bool:
    """True for a position that is read from data, not computed from iterators and sizes."""
    return any(isinstance(each, Read | Table) for each in walk(position))


def _of_data(position: Poly) -> bool:
    return any(isinstance(atom, Datum) and not atom.name.startswith("q") for atom in position.deep)

"""Positions in C++: addresses, which of them differ between lanes, and conditions on them that code may branch on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dslc.codegen.functions import c_type
from dslc.codegen.nest import Block, Let, Loop, Statement
from dslc.codegen.poly import (
    Atom,
    Datum,
    NotPolynomial,
    Poly,
    Quotient,
    Ranges,
    Var,
    const,
    of,
    of_scalar,
    product,
    replaced,
)
from dslc.codegen.values import Env, Frozen, LoopLevel, UndecidedCondition, Val, literal
from dslc.ir.dtype import DType
from dslc.ir.scalar import Apply, Iter, Num, Read, Scalar, Sym

#: functions of positions that stay positions
POSITIONS = frozenset({"+", "*", "//", "%", "floor", "ceil"})


class Positions(ABC):
    """The loops that are open, and positions in them."""

    def __init__(self, sizes: dict[Sym, str], width: int, unroll: int) -> None:
        self.sizes = sizes
        self.width = width
        #: vectors at a time in a reduction
        self.unroll = unroll
        self.envs: list[Env] = []
        #: constant tables by their numbers
        self.tables: dict[tuple[str, DType], str] = {}
        self.ranges = Ranges({})
        self.root = Block()
        self.levels: list[LoopLevel] = [LoopLevel(self.root)]
        #: the loop, by number, that binds a variable
        self.bound: dict[str, int] = {}
        self.lane: Var | None = None
        #: how many lanes are active, where that is not all of them
        self.active: str | None = None
        #: conditions that hold in the piece that is being written
        self.facts: list[Poly] = []
        #: whether a condition on positions may still become a branch
        self.splitting = False
        self.frozen: dict[Quotient, Datum] = {}
        self.guarded = 0
        #: the loop of which as many positions as lanes are computed together, and the one that is being written
        self.tile: Var | None = None
        self.instance = 0
        self._names = 0

    @abstractmethod
    def emit(self, node: Scalar, env: Env, want: DType) -> Val:
        """An expression; bare numbers take the type that is wanted."""

    @abstractmethod
    def cast(self, value: Val, dtype: DType) -> Val:
        """A value as one of another type; what cannot be held is undefined for floats, and modulo 2^bits for integers."""

    @abstractmethod
    def apply(self, name: str, args: Sequence[Val], dtype: DType) -> Val:
        """A function of values of one type; a select has a condition first."""

    # ---- names and levels ------------------------------------------------------------------------------------------

    def name(self, prefix: str = "t") -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def write(self, statement: Statement) -> None:
        """Add a statement to the innermost loop."""
        self.levels[-1].block.statements.append(statement)

    @contextmanager
    def during(self, **values: Any) -> Iterator[None]:
        """Give attributes other values meanwhile."""
        before = {name: getattr(self, name) for name in values}
        vars(self).update(values)
        try:
            yield
        finally:
            vars(self).update(before)

    def variable(self, prefix: str, extent: Poly) -> Var:
        """A new loop variable, not bound yet."""
        var = Var(self.name(prefix))
        self.ranges.extents[var] = extent
        return var

    @contextmanager
    def level(self, block: Block, *vars: Var, fence: bool = False) -> Iterator[None]:
        """Inside, code is written into a block in which some variables are bound."""
        depth = len(self.levels)
        self.levels.append(LoopLevel(block, fence=fence))
        for var in vars:
            self.bound[var.name] = depth
        try:
            yield
        finally:
            # a piece that is written again leaves at once
            del self.levels[depth:]

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Inside, code is written into a block of its own."""
        block = Block()
        with self.level(block):
            yield
        self.write(block)

    @contextmanager
    def loops(self, vars: Sequence[Var], extents: Sequence[Poly]) -> Iterator[None]:
        """Inside, code is written into the innermost of some loops."""
        if not vars:
            yield
            return
        inner = Block()
        with self.level(inner, vars[0]), self.loops(vars[1:], extents[1:]):
            yield
        self.write(Block([Loop(vars[0].name, "0", self.text(extents[0]), 1, inner)]))

    def in_lanes(self, lane: Var, active: str | None, element: Callable[[], None]) -> Block:
        """Return what an element needs, in lanes along a loop."""
        block = Block()
        with self.level(block, lane), self.during(lane=lane, active=active):
            element()
        return block

    @contextmanager
    def at(self, level: int) -> Iterator[None]:
        """Inside, code is written at an outer loop, after what is there."""
        hidden = self.levels[level + 1 :]
        del self.levels[level + 1 :]
        try:
            yield
        finally:
            del self.levels[level + 1 :]
            self.levels.extend(hidden)

    @property
    def top(self) -> int:
        return len(self.levels) - 1

    @property
    def fence(self) -> int:
        return max((k for k, level in enumerate(self.levels) if level.fence), default=0)

    def level_of(self, value: Poly) -> int:
        return max((self.bound.get(atom.name, 0) for atom in value.deep if isinstance(atom, Var | Datum)), default=0)

    def let(self, key: Any, text: str, dtype: DType, lanes: bool, level: int) -> Val:
        """A constant at a loop, or the one that is there for the same key."""
        found = self.recall(key, self.levels[: level + 1])
        if not found:
            name = self.name()
            self.levels[level].block.statements.append(Let(c_type(dtype, self.width if lanes else 0), name, text))
            found = self.levels[level].memo[key] = Val(name, dtype, lanes, level)
            self.bound[name] = level
        return found

    def define(self, type: str, prefix: str, text: str) -> str:
        """The name of a new constant of the innermost loop."""
        name = self.name(prefix)
        self.write(Let(type, name, text))
        self.bound[name] = self.top
        return name

    def remember(self, key: Any, value: Val) -> Val:
        # in a branch a value may be what it is in that branch only
        self.levels[max(value.level, self.fence)].memo[key] = value
        return value

    def recall(self, key: Any, levels: Sequence[LoopLevel] | None = None) -> Val | None:
        """The value of a key in the loops that are open, or in some of them."""
        found = (each.memo[key] for each in reversed(levels or self.levels) if key in each.memo)
        return next(found, None)

    # ---- positions ---------------------------------------------------------------------------------------------------

    def poly(self, node: Scalar, env: Env) -> Poly:
        """An integer expression; what is no polynomial is computed first."""
        return self.thawed(self.place(node, env))

    def place(self, node: Scalar, env: Env) -> Poly:
        """The same as a part of a position: quotients in it may vanish when all of it is added up."""

        def leaf(each: Scalar) -> Poly | None:
            if isinstance(each, Iter):
                return env.iters[each]
            if isinstance(each, Num | Sym):
                return None
            if each.op in POSITIONS and self.is_polynomial(each, env):
                return None
            return self._datum(each, env)

        return of_scalar(node, leaf, self.ranges)

    def is_polynomial(self, node: Scalar, env: Env) -> bool:
        """Return whether an expression is one of positions; else it is computed."""
        key = ("polynomial", node, id(env))
        found = self.recall(key)
        if found:
            return bool(found.number)
        try:
            of_scalar(
                node,
                lambda each: env.iters.get(each) if isinstance(each, Iter) else self._tentative(each, env),
                self.ranges,
            )
            held = True
        except NotPolynomial:
            held = False
        self.levels[-1].memo[key] = Val("", DType.BOOL, False, 0, held)
        return held

    def _tentative(self, node: Scalar, env: Env) -> Poly | None:
        integral = isinstance(node, Read) or node.op in {"select", "min", "max"}
        if integral and not (env.type_of(node) or DType.I64).is_float:
            return of(Datum("?", True))
        return None

    def _datum(self, node: Scalar, env: Env) -> Poly:
        value = self.cast(self.emit(node, env, DType.I64), DType.I64)
        if value.literal:
            return const(int(value.number or 0))
        return of(Datum(value.text, value.lanes))

    def thawed(self, value: Poly) -> Poly:
        """A position with what is constant in this piece as such."""
        if not self.lane:
            return value
        if self.frozen and value.deep & self.frozen.keys():
            value = replaced(value, {quotient: of(datum) for quotient, datum in self.frozen.items()}, self.ranges)
        if self.splitting:
            for atom in value.deep:
                if isinstance(atom, Quotient) and self.lane in atom.top.deep and self._freezes(atom):
                    raise Frozen(atom)
        return value

    def _freezes(self, quotient: Quotient) -> bool:
        """Return whether a quotient is constant for many lanes at a time."""
        assert self.lane
        step = quotient.top.coefficient(self.lane)
        if not step or not step.number or self.lane in quotient.bottom.deep:
            return False
        if self.level_of(quotient.top) > self.bound[self.lane.name]:
            return False
        size = quotient.bottom.number
        return size is None or size // abs(step.number) * 2 >= self.width

    def text(self, value: Poly) -> str:
        """A position in C++; the lanes' variable is that of the first lane."""
        if not value.terms:
            return "0"
        parts = []
        for monomial, factor in value.terms:
            factors = "*".join(map(self._atom, monomial))
            parts.append({1: "", -1: "-"}.get(factor, f"{factor}L*") + factors if factors else f"{factor}L")
        # the largest part last: what varies least is added first
        joined = " + ".join(reversed(parts))
        return joined if joined.isidentifier() or joined.isalnum() else f"({joined})"

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Sym):
            return self.sizes[atom]
        if isinstance(atom, Quotient):
            return f"k_floordiv({self.wide(atom.top)}, {self.wide(atom.bottom)})"
        return atom.name

    def wide(self, value: Poly) -> str:
        return f"(int64_t)({self.text(value)})"

    def varies(self, value: Poly) -> bool:
        """Return whether a position differs between lanes."""
        return self.lane is not None and any(
            atom == self.lane or (isinstance(atom, Datum) and atom.lanes) for atom in value.deep
        )

    def step(self, value: Poly) -> Poly | None:
        """Distance between lanes of a position; None where it is not one number for all of them."""
        if not self.lane or not self.varies(value):
            return const(0)
        if any(isinstance(atom, Datum) and atom.lanes for atom in value.deep):
            return None
        found = value.coefficient(self.lane)
        return None if not found or self.varies(found) else found

    def number(self, value: Poly, dtype: DType) -> Val:
        """A position as a number of an element type."""
        if value.number is not None:
            return literal(value.number, dtype)
        if self.varies(value):
            whole = self.lane_numbers(value)
        else:
            whole = self.let(("at", value), self.text(value), DType.I64, False, self.level_of(value))
        return self.cast(whole, dtype)

    def lane_numbers(self, value: Poly) -> Val:
        """A position as a vector of int64."""
        step, level = self.step(value), self.level_of(value)
        if step:
            text = f"k_iota<int64_t, {self.width}>({self.text(value)}, {self.text(step)})"
            return self.let(("lanes", value, self.active), text, DType.I64, True, level)
        total: Val | None = None
        for monomial, factor in value.terms:
            part: Val | None = None
            rest: list[Atom] = []
            for atom in monomial:
                if not self.varies(of(atom)):
                    rest.append(atom)
                    continue
                if isinstance(atom, Quotient):
                    a, b = self.number(atom.top, DType.I64), self.number(atom.bottom, DType.I64)
                    each = self.apply("//", (a, b), DType.I64)
                elif isinstance(atom, Datum):
                    each = Val(atom.name, DType.I64, True, self.bound[atom.name])
                else:
                    each = self.lane_numbers(of(atom))
                part = self.apply("*", (part, each), DType.I64) if part else each
            scale = self.number(product(of(atom) for atom in rest) * factor, DType.I64)
            part = scale if not part else part if scale.text == "1L" else self.apply("*", (scale, part), DType.I64)
            total = self.apply("+", (total, part), DType.I64) if total else part
        assert total
        return total

    # ---- conditions on positions ---------------------------------------------------------------------------------------

    def decided(self, condition: Poly) -> bool | None:
        """Return whether `condition >= 0`, where that is known here."""
        number = condition.number
        if number is not None:
            return number >= 0
        for fact in (const(0), *self.facts):
            if self.ranges.at_least(condition - fact, 0):
                return True
            if self.ranges.at_least(-condition - 1 - fact, 0):
                return False
        return None

    def condition(self, condition: Poly) -> Val:
        """`condition >= 0`. Raises Undecided where the code is to branch on it."""
        known = self.decided(condition)
        if known is not None:
            return literal(known, DType.BOOL)
        if self.splitting and self._splits(condition):
            raise UndecidedCondition(condition)
        step, level = self.step(condition), self.level_of(condition)
        if not self.varies(condition):
            return self.let(("holds", condition), f"{self.wide(condition)} >= 0", DType.BOOL, False, level)
        if step is not None and step.number is not None:
            text = f"k_from<{self.width}>({self.text(condition)}, {step.number})"
            return self.let(("holds", condition, self.active), text, DType.BOOL, True, level)
        return self.apply(">=", (self.lane_numbers(condition), literal(0, DType.I64)), DType.I64)

    def _splits(self, condition: Poly) -> bool:
        if not self.lane:
            return False
        if any(isinstance(atom, Datum) and (atom.lanes or not atom.name.startswith("q")) for atom in condition.deep):
            return False
        if self.level_of(condition) > self.bound[self.lane.name]:
            return False
        if not self.varies(condition):
            return True
        step = self.step(condition)
        return step is not None and step.number is not None

    def compare(self, node: Scalar, env: Env) -> Val | None:
        """A comparison of positions; None for other ones."""
        a, b = node.args
        if not (self._index(a, env) and self._index(b, env)):
            return None
        gap = self.thawed(self.place(a, env) - self.place(b, env))
        one = {">=": gap, ">": gap - 1, "<=": -gap, "<": -gap - 1}.get(node.op)
        if one:
            return self.condition(one)
        up, down = self.condition(gap), self.condition(-gap)
        both = self.logic("and", up, down)
        return both if node.op == "==" else self.apply("not", (both,), DType.BOOL)

    def _index(self, node: Scalar, env: Env) -> bool:
        return node.integral and (not isinstance(node, Apply) or self.is_polynomial(node, env))

    def logic(self, name: str, a: Val, b: Val) -> Val:
        for one, other in ((a, b), (b, a)):
            if one.literal:
                return other if one.number == (name == "and") else one
        return self.apply(name, (a, b), DType.BOOL)

"""Expressions as C++: each element of an equation becomes constants of the loop in which it first is known.

A value is computed at the outermost loop that binds all that it depends on, and once: equal expressions are one variable. One loop
variable may be spread over the lanes of vectors; a value that depends on it is a vector, any other one is a scalar.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dslc.codegen.functions import COMPARISONS, c_type, computed, function_text, literal_text, neutral, store_type
from dslc.codegen.nest import Assign, Block, Lanes, Let, Loop, Store, Variable
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
    of_size,
    product,
)
from dslc.codegen.text import NotGenerated, Reason
from dslc.ir.dtype import DType, TensorType, integer_range
from dslc.ir.element import element_type
from dslc.ir.graph import Scope, Value
from dslc.ir.scalar import Apply, Iter, Num, Number, Read, Reduce, Scalar, Sym, Table, apply, num, raw_apply, read, walk
from dslc.ir.scopes import inside, positions

if TYPE_CHECKING:
    from dslc.codegen.group import Part


@dataclass(frozen=True, slots=True)
class Val:
    """A value of the generated code; `dtype` is what it is computed with (f16 and bf16 are f32 then)."""

    text: str
    dtype: DType
    lanes: bool
    level: int
    #: what it is where that is a number, written in the code
    number: bool | int | float | None = None

    @property
    def literal(self) -> bool:
        return self.number is not None


def literal(value: Number, dtype: DType) -> Val:
    """A number of an element type."""
    dtype = computed(dtype)
    number: bool | int | float = float(value) if dtype.is_float else bool(value) if dtype is DType.BOOL else 0
    if dtype.is_integer:
        number = int(value) if not isinstance(value, float) or (value == value and abs(value) != float("inf")) else 0
    return Val(literal_text(value, dtype), dtype, False, 0, number)


@dataclass(slots=True)
class Tensor:
    """Where elements are: a pointer and a stride per position of the index. `rows`: it has only the inner positions of a part."""

    pointer: str
    dtype: DType
    strides: tuple[Poly, ...]
    elements: Poly
    shape: tuple[Poly, ...]
    #: how many elements lie side by side for one position: the lanes of a row's buffer
    spread: int = 1
    #: for a row's buffer, whose strides and sizes are those of the iterators of the part
    scope: Scope | None = None
    #: the loop in which it is written
    level: int = 0


@dataclass(eq=False, slots=True)
class Env:
    """A part at a place: what its iterators are, and where its operands."""

    part: Part
    iters: dict[Iter, Poly]
    #: values of other parts at this place, by the part's value: computed already, in registers
    known: dict[Value, Val]
    tensors: dict[Value, Tensor]
    types: dict[Scalar, Any] = field(default_factory=dict)

    def inside(self, iters: dict[Iter, Poly]) -> Env:
        """The same with iterators of a reduction."""
        return Env(self.part, {**self.iters, **iters}, self.known, self.tensors, self.types)

    def type_of(self, node: Scalar) -> DType | None:
        return element_type(node, self.part.dtypes, self.types)


class Undecided(Exception):
    """A condition on positions that is constant inside pieces of a loop: the code branches there and is written again."""

    def __init__(self, condition: Poly) -> None:
        super().__init__()
        self.condition = condition


class Frozen(Exception):
    """A quotient of the lanes' variable that is constant inside pieces of a loop."""

    def __init__(self, quotient: Quotient) -> None:
        super().__init__()
        self.quotient = quotient


@dataclass(slots=True)
class Level:
    """One loop that is open, its statements and what is known in it."""

    block: Block
    memo: dict[Any, Val] = field(default_factory=dict)
    #: reads may not move out of it: it is inside a condition
    fence: bool = False


#: functions of positions that stay positions
_POSITIONS = frozenset({"+", "*", "//", "%", "floor", "ceil"})


class Emitter:
    """The code of one stage."""

    def __init__(self, sizes: dict[Sym, str], width: int, unroll: int) -> None:
        self.sizes = sizes
        self.width = width
        #: vectors at a time in a reduction
        self.unroll = unroll
        self._envs: list[Env] = []
        #: constant tables by their numbers
        self.tables: dict[tuple[str, DType], str] = {}
        self.ranges = Ranges({})
        self.root = Block()
        self.levels: list[Level] = [Level(self.root)]
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
        self._names = 0

    # ---- names and levels ------------------------------------------------------------------------------------------

    def name(self, prefix: str = "t") -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def variable(self, prefix: str, extent: Poly) -> Var:
        """A new loop variable, not bound yet."""
        var = Var(self.name(prefix))
        self.ranges.extents[var] = extent
        return var

    @contextmanager
    def level(self, block: Block, *vars: Var, fence: bool = False) -> Iterator[None]:
        """Inside, code is written into a block in which some variables are bound."""
        depth = len(self.levels)
        self.levels.append(Level(block, fence=fence))
        for var in vars:
            self.bound[var.name] = depth
        try:
            yield
        finally:
            # a piece that is written again leaves at once
            del self.levels[depth:]

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
        for each in self.levels[: level + 1]:
            found = each.memo.get(key)
            if found is not None:
                return found
        name = self.name()
        self.levels[level].block.statements.append(Let(c_type(dtype, self.width if lanes else 0), name, text))
        out = Val(name, dtype, lanes, level)
        self.levels[level].memo[key] = out
        self.bound[name] = level
        return out

    def _remember(self, key: Any, value: Val) -> Val:
        # in a branch a value may be what it is in that branch only
        self.levels[max(value.level, self.fence)].memo[key] = value
        return value

    def _recall(self, key: Any) -> Val | None:
        for each in reversed(self.levels):
            found = each.memo.get(key)
            if found is not None:
                return found
        return None

    # ---- positions ---------------------------------------------------------------------------------------------------

    def poly(self, node: Scalar, env: Env) -> Poly:
        """An integer expression; what is no polynomial is computed first."""

        def leaf(each: Scalar) -> Poly | None:
            if isinstance(each, Iter):
                return env.iters[each]
            if isinstance(each, Num | Sym):
                return None
            if isinstance(each, Apply) and each.name in _POSITIONS and self._polynomial(each, env):
                return None
            return self._datum(each, env)

        return self.thawed(of_scalar(node, leaf, self.ranges))

    def _polynomial(self, node: Apply, env: Env) -> bool:
        """Whether an expression is one of positions; else it is computed."""
        key = ("polynomial", node, id(env))
        found = self._recall(key)
        if found is not None:
            return bool(found.number)
        try:
            of_scalar(node, lambda each: env.iters.get(each) if isinstance(each, Iter) else self._tentative(each, env), self.ranges)
            held = True
        except NotPolynomial:
            held = False
        self.levels[-1].memo[key] = Val("", DType.BOOL, False, 0, held)
        return held

    def _tentative(self, node: Scalar, env: Env) -> Poly | None:
        integral = isinstance(node, Read) or (isinstance(node, Apply) and node.name in {"select", "min", "max"})
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
        if self.lane is None:
            return value
        from dslc.codegen.poly import replaced

        if self.frozen and value.deep & self.frozen.keys():
            value = replaced(value, {quotient: of(datum) for quotient, datum in self.frozen.items()}, self.ranges)
        if self.splitting:
            for atom in value.deep:
                if isinstance(atom, Quotient) and self.lane in atom.top.deep and self._freezes(atom):
                    raise Frozen(atom)
        return value

    def _freezes(self, quotient: Quotient) -> bool:
        """Whether a quotient is constant for many lanes at a time."""
        assert self.lane is not None
        step = quotient.top.coefficient(self.lane)
        if step is None or not step.number or self.lane in quotient.bottom.deep or self.level_of(quotient.top) > self.bound[self.lane.name]:
            return False
        size = quotient.bottom.number
        return size is None or size // abs(step.number) * 2 >= self.width

    def text(self, value: Poly) -> str:
        """A position in C++; the lanes' variable is that of the first lane."""
        if not value.terms:
            return "0"
        parts = []
        for monomial, factor in value.terms:
            factors = [self._atom(atom) for atom in monomial]
            if not factors:
                parts.append(f"{factor}" if abs(factor) < 1 << 31 else f"{factor}L")
            elif factor == 1:
                parts.append("*".join(factors))
            elif factor == -1:
                parts.append("-" + "*".join(factors))
            else:
                parts.append(f"{factor}*" + "*".join(factors))
        # the largest part last: what varies least is added first
        parts.reverse()
        return " + ".join(parts) if len(parts) == 1 else "(" + " + ".join(parts) + ")"

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Sym):
            return self.sizes[atom]
        if isinstance(atom, Quotient):
            return f"k_floordiv({self._wide(atom.top)}, {self._wide(atom.bottom)})"
        return atom.name

    def _wide(self, value: Poly) -> str:
        return f"(int64_t)({self.text(value)})"

    def varies(self, value: Poly) -> bool:
        """Whether a position differs between lanes."""
        return self.lane is not None and any(
            atom == self.lane or (isinstance(atom, Datum) and atom.lanes) for atom in value.deep
        )

    def step(self, value: Poly) -> Poly | None:
        """How far a position moves from lane to lane; None where that is not one number for all of them."""
        if self.lane is None or not self.varies(value):
            return const(0)
        if any(isinstance(atom, Datum) and atom.lanes for atom in value.deep):
            return None
        found = value.coefficient(self.lane)
        return None if found is None or self.varies(found) else found

    def number(self, value: Poly, dtype: DType) -> Val:
        """A position as a number of an element type."""
        if value.number is not None:
            return literal(value.number, dtype)
        if not self.varies(value):
            level = self.level_of(value)
            whole = self.let(("at", value), self.text(value), DType.I64, False, level)
            return self.cast(whole, dtype)
        whole = self.lane_numbers(value)
        return self.cast(whole, dtype)

    def lane_numbers(self, value: Poly) -> Val:
        """A position as a vector of int64."""
        step, level = self.step(value), self.level_of(value)
        if step is not None:
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
                part = each if part is None else self.apply("*", (part, each), DType.I64)
            scale = self.number(product(of(atom) for atom in rest) * factor, DType.I64)
            part = scale if part is None else part if scale.text == "1L" else self.apply("*", (scale, part), DType.I64)
            total = part if total is None else self.apply("+", (total, part), DType.I64)
        assert total is not None
        return total

    # ---- conditions on positions ---------------------------------------------------------------------------------------

    def decided(self, condition: Poly) -> bool | None:
        """Whether `condition >= 0`, where that is known here."""
        number = condition.number
        if number is not None:
            return number >= 0
        if self.ranges.at_least(condition, 0):
            return True
        if self.ranges.at_least(condition * -1, 1):
            return False
        for fact in self.facts:
            if self.ranges.at_least(condition - fact, 0):
                return True
            if self.ranges.at_least(condition * -1 - 1 - fact, 0):
                return False
        return None

    def condition(self, condition: Poly) -> Val:
        """`condition >= 0`. Raises Undecided where the code is to branch on it."""
        known = self.decided(condition)
        if known is not None:
            return literal(known, DType.BOOL)
        if self.splitting and self._splits(condition):
            raise Undecided(condition)
        step = self.step(condition)
        if not self.varies(condition):
            return self.let(("holds", condition), f"{self._wide(condition)} >= 0", DType.BOOL, False, self.level_of(condition))
        level = self.level_of(condition)
        if step is not None and step.number is not None:
            text = f"k_from<{self.width}>({self.text(condition)}, {step.number})"
            return self.let(("holds", condition, self.active), text, DType.BOOL, True, level)
        return self.apply(">=", (self.lane_numbers(condition), literal(0, DType.I64)), DType.I64)

    def _splits(self, condition: Poly) -> bool:
        if self.lane is None:
            return False
        if any(isinstance(atom, Datum) and (atom.lanes or not atom.name.startswith("q")) for atom in condition.deep):
            return False
        if self.level_of(condition) > self.bound[self.lane.name]:
            return False
        if not self.varies(condition):
            return True
        step = self.step(condition)
        return step is not None and step.number is not None

    def _compare(self, node: Apply, env: Env) -> Val | None:
        """A comparison of positions; None for other ones."""
        a, b = node.args
        if not (self._index(a, env) and self._index(b, env)):
            return None
        left, right = self.poly(a, env), self.poly(b, env)
        gap = left - right
        if node.name == ">=":
            return self.condition(gap)
        if node.name == ">":
            return self.condition(gap - 1)
        if node.name == "<=":
            return self.condition(gap * -1)
        if node.name == "<":
            return self.condition(gap * -1 - 1)
        up, down = self.condition(gap), self.condition(gap * -1)
        both = self.logic("and", up, down)
        return both if node.name == "==" else self.apply("not", (both,), DType.BOOL)

    def _index(self, node: Scalar, env: Env) -> bool:
        if node.integral:
            return not isinstance(node, Apply) or self._polynomial(node, env)
        return False

    def logic(self, name: str, a: Val, b: Val) -> Val:
        for one, other in ((a, b), (b, a)):
            if one.literal:
                return other if one.number == (name == "and") else one
        return self.apply(name, (a, b), DType.BOOL)

    # ---- values ----------------------------------------------------------------------------------------------------------

    def emit_as(self, node: Scalar, env: Env, dtype: DType) -> Val:
        """An expression as a value of an element type."""
        return self.cast(self.emit(node, env, dtype), dtype)

    def emit(self, node: Scalar, env: Env, want: DType) -> Val:
        """An expression; bare numbers take the type that is wanted."""
        if isinstance(node, Num):
            value = node.value
            if isinstance(value, bool):
                return literal(value, DType.BOOL)
            if isinstance(value, int) and not want.is_float:
                return literal(value, want if want is not DType.BOOL else DType.I64)
            return literal(value, want if want.is_float or isinstance(value, float) else DType.F64)
        free = None if env.type_of(node) is not None else want
        key = (node, id(env), free, self.guarded > 0)
        found = self._recall(key) or self._recall((node, id(env), free, False))
        if found is not None:
            return found
        value = self._fresh(node, env, want)
        # kept alive, so that its identity stays its own
        self._envs.append(env)
        return self._remember(key, value)

    def remember_reduction(self, node: Reduce, env: Env, want: DType, value: Val) -> None:
        """A reduction that was computed together with others."""
        free = None if env.type_of(node) is not None else want
        self._envs.append(env)
        self._remember((node, id(env), free, False), value)

    def _fresh(self, node: Scalar, env: Env, want: DType) -> Val:
        if node.integral and (not isinstance(node, Apply) or (node.name in _POSITIONS and self._polynomial(node, env))):
            return self.number(self.poly(node, env), want if want is not DType.BOOL else DType.I64)
        if isinstance(node, Read):
            return self._read(node, env)
        if isinstance(node, Table):
            return self._table(node, env, want)
        if isinstance(node, Reduce):
            return self.reductions([(node, env)], want)[0]
        assert isinstance(node, Apply)
        return self._apply(node, env, want)

    def _apply(self, node: Apply, env: Env, want: DType) -> Val:
        name = node.name
        if name == "select":
            return self._select(node, env, want)
        if name.startswith("convert:"):
            return self._convert(node, env)
        if name in {"and", "or"}:
            out = self.emit_as(node.args[0], env, DType.BOOL)
            for arg in node.args[1:]:
                if out.literal and out.number != (name == "and"):
                    return out
                out = self.logic(name, out, self.emit_as(arg, env, DType.BOOL))
            return out
        if name in COMPARISONS:
            found = self._compare(node, env)
            if found is not None:
                return found
            dtype = element_type(raw_apply("+", *node.args), env.part.dtypes, env.types)
            dtype = dtype or (DType.I64 if all(arg.integral for arg in node.args) else DType.F64)
            dtype = self._wide_enough(node, env, dtype)
            return self.apply(name, tuple(self.emit_as(arg, env, computed(dtype)) for arg in node.args), computed(dtype))
        if name in {"floor", "ceil", "trunc"} and isinstance(node.args[0], Apply) and node.args[0].name == "/":
            inner = node.args[0]
            dtype = env.type_of(inner)
            if (dtype is not None and not dtype.is_float) or all(arg.integral for arg in inner.args):
                function = "truncdiv" if dtype is not None else {"floor": "//", "ceil": "ceildiv", "trunc": "truncdiv"}[name]
                dtype = dtype or DType.I64
                return self.apply(function, tuple(self.emit_as(arg, env, dtype) for arg in inner.args), dtype)
        dtype = env.type_of(node)
        if name in {"isnan", "isinf", "not"}:
            dtype = DType.BOOL if name == "not" else env.type_of(node.args[0])
        if dtype is None:
            # positions and fractions: exactly where they are integers, else in double precision
            if name in {"floor", "ceil"} and self._polynomial(node, env):
                return self.number(self.poly(node, env), want if want is not DType.BOOL else DType.I64)
            whole = name in {"+", "*", "min", "max", "abs", "sign", "//", "%", "^"} and all(_whole(arg) for arg in node.args)
            dtype = DType.I64 if whole else DType.F64
        dtype = computed(dtype)
        if name == "^":
            return self._power(node, env, dtype)
        if name == "/" and not dtype.is_float:
            return self.apply("truncdiv", tuple(self.emit_as(arg, env, dtype) for arg in node.args), dtype)
        if name == "log" and isinstance(node.args[0], Apply) and node.args[0].name == "+" and dtype.is_float:
            # log(1 + x) loses digits where x is small
            rest = list(node.args[0].args)
            for k, arg in enumerate(rest):
                if isinstance(arg, Num) and arg.value == 1 and len(rest) == 2:
                    return self.apply("log1p", (self.emit_as(rest[1 - k], env, dtype),), dtype)
        if name == "max" and len(node.args) == 2 and dtype.is_float:
            a, b = node.args
            if apply("*", num(-1), a) is b or apply("*", num(-1), b) is a:
                return self.apply("abs", (self.emit_as(a, env, dtype),), dtype)
        if name in {"//", "%", "min", "max"}:
            dtype = self._wide_enough(node, env, dtype)
        args = [self.emit_as(arg, env, dtype) for arg in node.args]
        if name in {"floor", "ceil", "round", "trunc"} and not dtype.is_float:
            return args[0]
        if name in {"+", "*", "min", "max"}:
            return self._folded(name, args, dtype)
        if name == "/":
            return self._divide(args[0], args[1], dtype)
        return self.apply(name, tuple(args), dtype)

    @staticmethod
    def _wide_enough(node: Apply, env: Env, dtype: DType) -> DType:
        """The type for a function that is not one modulo 2^bits: bare numbers may be larger than the elements that they meet."""
        if not dtype.is_integer or dtype.bytes == 8:
            return dtype
        low, high = integer_range(dtype)
        for arg in node.args:
            if env.type_of(arg) is None and not (isinstance(arg, Num) and low <= arg.value <= high):
                return DType.I64
        return dtype

    def _folded(self, name: str, args: list[Val], dtype: DType) -> Val:
        """What does not vary first: it is computed outside. In a sum last: x - m - n is small where x and m are large and near."""
        ordered = sorted(args, key=lambda arg: (arg.lanes, arg.level), reverse=name == "+" and dtype.is_float)
        out = ordered[0]
        for arg in ordered[1:]:
            out = self.apply(name, (out, arg), dtype)
        return out

    def _divide(self, a: Val, b: Val, dtype: DType) -> Val:
        if b.number is not None and 1e-30 < abs(b.number) < 1e30:
            return self.apply("*", (a, literal(1.0 / b.number, dtype)), dtype)
        if (a.lanes and not b.lanes) or a.level > b.level:
            # one quotient outside, products inside
            return self.apply("*", (a, self.apply("/", (literal(1, dtype), b), dtype)), dtype)
        return self.apply("/", (a, b), dtype)

    def _power(self, node: Apply, env: Env, dtype: DType) -> Val:
        base = self.emit_as(node.args[0], env, dtype)
        exponent = node.args[1]
        if isinstance(exponent, Num):
            value = exponent.value
            if value == Fraction(1, 2) and dtype.is_float:
                return self.apply("sqrt", (base,), dtype)
            if value == Fraction(-1, 2) and dtype.is_float:
                return self.apply("/", (literal(1, dtype), self.apply("sqrt", (base,), dtype)), dtype)
            if not isinstance(value, bool) and value == int(value) and abs(int(value)) <= 16 and (dtype.is_float or value >= 0):
                return self._integer_power(base, int(value), dtype)
        kind = env.type_of(exponent)
        other = self.emit(exponent, env, dtype if kind is None else kind)
        if dtype.is_float:
            return self.apply("^", (base, self.cast(other, dtype)), dtype)
        if other.dtype.is_float:
            return self.cast(self.apply("^", (self.cast(base, DType.F64), self.cast(other, DType.F64)), DType.F64), dtype)
        return self.apply("^", (base, self.cast(other, dtype)), dtype)

    def _integer_power(self, base: Val, exponent: int, dtype: DType) -> Val:
        if exponent == 0:
            return literal(1, dtype)
        if exponent < 0:
            return self.apply("/", (literal(1, dtype), self._integer_power(base, -exponent, dtype)), dtype)
        out: Val | None = None
        while exponent:
            if exponent & 1:
                out = base if out is None else self.apply("*", (out, base), dtype)
            exponent >>= 1
            if exponent:
                base = self.apply("*", (base, base), dtype)
        assert out is not None
        return out

    def _convert(self, node: Apply, env: Env) -> Val:
        target = DType(node.name.split(":")[1])
        source = env.type_of(node.args[0])
        value = self.emit(node.args[0], env, source or target)
        out = self.cast(value, computed(target))
        if target in {DType.F16, DType.BF16} and source is not target:
            return self.apply(f"round_{target}", (out,), DType.F32)
        return out

    def _select(self, node: Apply, env: Env, want: DType) -> Val:
        condition = self.emit_as(node.args[0], env, DType.BOOL)
        dtype = computed(env.type_of(node) or (want if want is not DType.BOOL else DType.I64))
        if env.type_of(node) is None and not all(_whole(arg) for arg in node.args[1:]) and not want.is_float:
            dtype = DType.F64
        if condition.literal:
            return self.emit_as(node.args[1] if condition.number else node.args[2], env, dtype)
        self.guarded += 1
        splitting, self.splitting = self.splitting, False
        try:
            then, other = (self.emit_as(arg, env, dtype) for arg in node.args[1:])
        finally:
            self.splitting = splitting
            self.guarded -= 1
        return self.apply("select", (condition, then, other), dtype)

    def cast(self, value: Val, dtype: DType) -> Val:
        """A value as one of another type; what cannot be held is undefined for floats, and modulo 2^bits for integers."""
        dtype = computed(dtype)
        if value.dtype is dtype:
            return value
        if value.number is not None and (dtype.is_float or value.dtype is not DType.F32):
            return literal(value.number, dtype)
        width = self.width if value.lanes else 0
        target = "k_bool" if dtype is DType.BOOL else store_type(dtype)
        if value.lanes:
            source = "bool" if value.dtype is DType.BOOL else ""
            kind = {("", "bool"): "k_truth", ("bool", target): "k_count"}.get((source, target), "k_to")
            text = f"k_truth<{width}>({value.text})" if kind == "k_truth" else f"{kind}<{target}, {width}>({value.text})"
        else:
            text = f"k_to_one<{target}>({value.text})"
        return self.let(("cast", value.text, dtype), text, dtype, value.lanes, value.level)

    def spread(self, value: Val) -> Val:
        """A scalar in every lane."""
        if value.lanes:
            return value
        kind = "int32_t" if value.dtype is DType.BOOL else store_type(value.dtype)
        number = f"-(int32_t){value.text}" if value.dtype is DType.BOOL else value.text
        text = f"k_all<{kind}, {self.width}>({number})"
        return self.let(("spread", value.text, value.dtype), text, value.dtype, True, value.level)

    def apply(self, name: str, args: Sequence[Val], dtype: DType) -> Val:
        """A function of values of one type; a select has a condition first."""
        lanes = any(arg.lanes for arg in args)
        if lanes:
            args = [self.spread(arg) for arg in args]
        level = max((arg.level for arg in args), default=0)
        result = DType.BOOL if name in COMPARISONS or name in {"isnan", "isinf", "and", "or", "not"} else dtype
        text = function_text(name, [arg.text for arg in args], dtype, lanes)
        if text is None:
            raise NotGenerated(Reason.FUNCTION, name)
        return self.let(("apply", name, dtype, tuple(arg.text for arg in args)), text, result, lanes, level)

    # ---- elements of tensors -----------------------------------------------------------------------------------------------

    def _read(self, node: Read, env: Env) -> Val:
        if node.other is not None:
            return self._padded(node, env)
        value = env.part.args[node.operand]
        known = env.known.get(value)
        if known is not None:
            return known
        tensor = env.tensors[value]
        parts = node.index
        if tensor.scope is not None:
            at_iters = positions(tensor.scope, node.index)
            parts = tuple(at_iters[it] for it in tensor.scope.iters)
        index = [self.poly(part, env) if stride.terms else const(0) for part, stride in zip(parts, tensor.strides, strict=True)]
        # data that is used as a position stays in the tensor whatever it is
        index = [
            self._clamped(at, size) if any(isinstance(atom, Datum) and not atom.name.startswith("q") for atom in at.deep) else at
            for at, size in zip(index, tensor.shape, strict=True)
        ]
        address = const(0)
        for at, stride in zip(index, tensor.strides, strict=True):
            address = address + at * stride
        return self.load(tensor, self.thawed(address))

    def _clamped(self, at: Poly, size: Poly) -> Poly:
        number, last = self.number(at, DType.I64), self.number(size - 1, DType.I64)
        low = self.apply("min", (number, last), DType.I64)
        found = self.apply("max", (low, literal(0, DType.I64)), DType.I64)
        return of(Datum(found.text, found.lanes))

    def _padded(self, node: Read, env: Env) -> Val:
        assert node.other is not None
        shape = env.part.args[node.operand].type.shape
        whole = raw_apply("select", inside(node.index, shape), read(node.operand, node.index), node.other)
        return self.emit(whole, env, computed(env.part.args[node.operand].type.dtype))

    def load(self, tensor: Tensor, address: Poly) -> Val:
        """The element at a position, for each lane."""
        dtype = computed(tensor.dtype)
        stored, width = store_type(tensor.dtype), self.width
        guarded = self.guarded > 0 and not self.ranges.within(address, tensor.elements)
        level = max(self.level_of(address), self.fence, tensor.level)
        if self.lane is not None and tensor.spread > 1:
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
                text = f"k_load_one({tensor.pointer}[{self.text(address)}])"
            return self.let(("load", tensor.pointer, address, guarded), text, dtype, False, level)
        step = self.step(address)
        count = f", {self.active}" if self.active else ""
        key = ("load", tensor.pointer, address, guarded, self.active)
        total = self.text(tensor.elements)
        if step is not None:
            if step.number == 1:
                if guarded:
                    text = f"k_load_in<{stored}, {width}>({tensor.pointer}, {self.text(address)}, {total}, {self.active or width})"
                else:
                    text = f"k_load<{stored}, {width}>({tensor.pointer} + {self.text(address)}{count})"
                return self.let(key, text, dtype, True, level)
            if not guarded:
                text = f"k_load_step<{stored}, {width}>({tensor.pointer} + {self.text(address)}, {self.text(step)}, {self.active or width})"
                return self.let(key, text, dtype, True, level)
        places = self.lane_numbers(address)
        safe = f"k_within<{width}>({places.text}, {total})" if guarded else places.text
        text = f"k_gather<{stored}, {width}>({tensor.pointer}, {safe}, {self.active or width}{', ' + total if guarded else ''})"
        return self.let(key, text, dtype, True, max(level, places.level))

    def store(self, tensor: Tensor, address: Poly, value: Val) -> None:
        """The element at a position of this loop; must be the innermost one that is open."""
        stored, width = store_type(tensor.dtype), self.width
        address = self.thawed(address)
        block = self.levels[-1].block.statements
        if self.lane is not None and tensor.spread > 1:
            block.append(Store(f"k_store<{stored}, {width}>", (f"{tensor.pointer} + ({self.text(address)}) * {width}", self.spread(value).text)))
            return
        pointer = f"{tensor.pointer} + {self.text(address)}"
        if self.lane is None or not self.varies(address):
            assert not value.lanes
            block.append(Store("k_store_one", (pointer, value.text)))
            return
        step = self.step(address)
        value = self.spread(value)
        active = (self.active,) if self.active else ()
        if step is not None and step.number == 1:
            block.append(Store(f"k_store<{stored}, {width}>", (pointer, value.text, *active)))
        elif step is not None:
            block.append(
                Store(f"k_store_step<{stored}, {width}>", (pointer, value.text, self.text(step), self.active or str(width)))
            )
        else:
            places = self.lane_numbers(address)
            block.append(Store(f"k_scatter<{stored}, {width}>", (tensor.pointer, value.text, places.text, self.active or str(width))))

    def _table(self, node: Table, env: Env, want: DType) -> Val:
        flat = list(_flat(node.values))
        dtype = want if want.is_float or all(isinstance(item, int) for item in flat) else DType.F64
        if dtype is DType.BOOL:
            dtype = DType.I64
        shape: list[int] = []
        values: Any = node.values
        while isinstance(values, tuple):
            shape.append(len(values))
            values = values[0] if values else 0
        numbers = ", ".join(literal(item, dtype).text for item in flat)
        name = self.tables.get((numbers, dtype))
        if name is None:
            name = self.tables[numbers, dtype] = self.name("table")
            self.root.statements.insert(0, Let(f"static {store_type(dtype)}", f"{name}[]", f"{{{numbers}}}"))
        strides, at = [], 1
        for size in reversed(shape):
            strides.insert(0, const(at))
            at *= size
        tensor = Tensor(name, dtype, tuple(strides), const(at), tuple(const(size) for size in shape))
        address = const(0)
        for part, stride in zip(node.index, strides, strict=True):
            address = address + self.poly(part, env) * stride
        return self.load(tensor, self.thawed(address))

    # ---- reductions --------------------------------------------------------------------------------------------------------

    def reductions(self, wanted: Sequence[tuple[Reduce, Env]], want: DType) -> list[Val]:
        """Reductions over the same ranges, in one loop nest."""
        first, env = wanted[0]
        extents = []
        iters: dict[Iter, Poly] = {}
        vars: list[Var] = []
        # an extent may use the iterators before it
        for it, extent in zip(first.iters, first.extents, strict=True):
            size = self.poly(extent, env.inside(iters))
            var = self.variable("r", size)
            extents.append(size)
            vars.append(var)
            iters[it] = of(var)
        places = [(node, place.inside(dict(zip(node.iters, iters.values(), strict=True)))) for node, place in wanted]
        level = max([self.fence, *(self._depth(node, place) for node, place in wanted)])
        dtypes = [self._reduced_type(node, place, want) for node, place in wanted]
        with self.at(min(level, self.top)):
            return self._accumulate(places, dtypes, vars, extents)

    def _reduced_type(self, node: Reduce, env: Env, want: DType) -> DType:
        if node.kind in {"any", "all"}:
            return DType.BOOL
        found = env.type_of(node.body)
        if found is None:
            found = DType.I64 if _whole(node.body) or not want.is_float else want
        return computed(found)

    def _depth(self, node: Scalar, env: Env) -> int:
        """The loop at which all is known that an expression depends on."""
        key = ("depth", node, id(env))
        found = self._recall(key)
        if found is not None:
            return found.level
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

    def _accumulate(self, places: list[tuple[Reduce, Env]], dtypes: list[DType], vars: list[Var], extents: list[Poly]) -> list[Val]:
        home = self.top
        lanes_free = self.lane is not None and self.bound.get(self.lane.name, 0) <= home
        if not lanes_free:
            # the lanes' loop is further inside: this is computed before it, with lanes of its own
            lane, active, splitting, frozen = self.lane, self.active, self.splitting, self.frozen
            self.lane, self.active, self.splitting, self.frozen = None, None, False, {}
            try:
                return self._across(places, dtypes, vars, extents)
            finally:
                self.lane, self.active, self.splitting, self.frozen = lane, active, splitting, frozen
        return self._nested(places, dtypes, vars, extents)

    def _nested(self, places: list[tuple[Reduce, Env]], dtypes: list[DType], vars: list[Var], extents: list[Poly]) -> list[Val]:
        """Plain loops inside the loop of the lanes, or without any lanes."""
        home = self.top
        lanes = self.lane is not None
        names = []
        for (node, _), dtype in zip(places, dtypes, strict=True):
            start = literal(neutral(node.kind, dtype), dtype)
            names.append(self.name("acc"))
            kind = c_type(dtype, self.width if lanes else 0)
            self.levels[home].block.statements.append(Variable(kind, names[-1], self._spread_text(start) if lanes else start.text))
        blocks = [Block() for _ in vars]
        with self._loops(vars, extents, blocks):
            for (node, env), dtype, name in zip(places, dtypes, names, strict=True):
                value = self._term(node, env, dtype)
                if lanes:
                    value = self.spread(value)
                self._take(node.kind, name, value, dtype, lanes)
        self.levels[home].block.statements.append(blocks[0])
        for name in names:
            self.bound[name] = home
        return [Val(name, dtype, lanes, home) for name, dtype in zip(names, dtypes, strict=True)]

    def _spread_text(self, value: Val) -> str:
        kind = "int32_t" if value.dtype is DType.BOOL else store_type(value.dtype)
        text = value.text if value.dtype is not DType.BOOL else {"true": "-1", "false": "0"}[value.text]
        return f"k_all<{kind}, {self.width}>({text})"

    @contextmanager
    def _loops(self, vars: list[Var], extents: list[Poly], blocks: list[Block]) -> Iterator[None]:
        """Open loops; each block holds one loop."""
        if not vars:
            yield
            return
        inner = Block()
        stop = self.text(extents[0])
        with self.level(inner, vars[0]), self._loops(vars[1:], extents[1:], blocks[1:]):
            yield
        if len(vars) > 1:
            inner.statements.append(blocks[1])
        blocks[0].statements.append(Loop(vars[0].name, "0", stop, 1, inner))

    def _term(self, node: Reduce, env: Env, dtype: DType) -> Val:
        """What a reduction takes at one place; the neutral element where its condition does not hold."""
        body_type = dtype
        if node.where is None:
            return self.emit_as(node.body, env, body_type)
        condition = self.emit_as(node.where, env, DType.BOOL)
        empty = literal(neutral(node.kind, dtype), dtype)
        if condition.literal:
            return self.emit_as(node.body, env, body_type) if condition.number else empty
        self.guarded += 1
        splitting, self.splitting = self.splitting, False
        try:
            value = self.emit_as(node.body, env, body_type)
        finally:
            self.splitting = splitting
            self.guarded -= 1
        return self.apply("select", (condition, value, empty), dtype)

    def _take(self, kind: str, name: str, value: Val, dtype: DType, lanes: bool) -> None:
        function = {"sum": "+", "prod": "*", "max": "max", "min": "min", "any": "or", "all": "and"}[kind]
        text = function_text(function, [name, value.text], dtype, lanes)
        assert text is not None
        self.levels[-1].block.statements.append(Assign(name, text))

    def _across(self, places: list[tuple[Reduce, Env]], dtypes: list[DType], vars: list[Var], extents: list[Poly]) -> list[Val]:
        """A reduction in a scalar place: lanes run along its innermost iterator, their results are joined at the end."""
        last = extents[-1].number if extents else 0
        if not vars or self.width == 1 or (last is not None and last < self.width // 2):
            return self._nested(places, dtypes, vars, extents)
        home = self.top
        unroll = self.unroll if last is None or last >= self.unroll * self.width else 1
        accumulators: list[list[str]] = []
        for (node, _), dtype in zip(places, dtypes, strict=True):
            start = literal(neutral(node.kind, dtype), dtype)
            names = [self.name("acc") for _ in range(unroll)]
            for name in names:
                self.levels[home].block.statements.append(Variable(c_type(dtype, self.width), name, self._spread_text(start)))
            accumulators.append(names)
        outer, outer_extents = vars[:-1], extents[:-1]
        blocks = [Block() for _ in outer]
        lane = vars[-1]

        def body(block: Block, count: int, active: str | None) -> None:
            with self.level(block, lane):
                self.lane, self.active = lane, active
                for u in range(count):
                    for (node, env), dtype, names in zip(places, dtypes, accumulators, strict=True):
                        it = node.iters[-1]
                        moved = env if u == 0 else env.inside({it: env.iters[it] + u * self.width})
                        value = self.spread(self._term(node, moved, dtype))
                        if active is not None:
                            empty = self.spread(literal(neutral(node.kind, dtype), dtype))
                            rest = Val(f"k_first<{self.width}>({active})", DType.BOOL, True, self.top)
                            value = self.apply("select", (rest, value, empty), dtype)
                        self._take(node.kind, names[u], value, dtype, True)
                self.lane, self.active = None, None

        with self._loops(outer, outer_extents, blocks):
            full, half, tail = Block(), Block(), Block()
            body(full, unroll, None)
            if unroll > 1:
                body(half, 1, None)
            active = self.name("n")
            exact = last is not None and last % self.width == 0
            if not exact:
                body(tail, 1, active)
            self.levels[-1].block.statements.append(
                Lanes(
                    lane.name, "0", self.text(extents[-1]), unroll * self.width, full,
                    half if unroll > 1 else None, self.width, None if exact else tail, active,
                )
            )  # fmt: skip
            inner = self.levels[-1].block
        del inner
        if outer:
            self.levels[home].block.statements.append(blocks[0])
        out = []
        for (node, _), dtype, names in zip(places, dtypes, accumulators, strict=True):
            function = {"sum": "+", "prod": "*", "max": "max", "min": "min", "any": "or", "all": "and"}[node.kind]
            whole = names[0]
            for name in names[1:]:
                whole = function_text(function, [whole, name], dtype, True) or whole
            kind = "k_bool" if dtype is DType.BOOL else store_type(dtype)
            joined = self.name("acc")
            self.levels[home].block.statements.append(Let(c_type(dtype, 0), joined, f"k_join_{node.kind}<{kind}, {self.width}>({whole})"))
            self.bound[joined] = home
            out.append(Val(joined, dtype, False, home))
        return out

def _whole(node: Scalar) -> bool:
    """Whether a bare expression is made of integers."""
    if isinstance(node, Num):
        return isinstance(node.value, int)
    if isinstance(node, Apply):
        return node.name not in {"/"} and (node.integral or all(_whole(arg) for arg in node.args) or node.name in {"floor", "ceil", "round", "trunc", "//"})
    if isinstance(node, Table):
        return all(isinstance(item, int) for item in _flat(node.values))
    return node.integral or isinstance(node, Reduce)


def _flat(values: Any) -> Iterator[Any]:
    if isinstance(values, tuple):
        for item in values:
            yield from _flat(item)
    else:
        yield values


def strides_of(type: TensorType) -> tuple[tuple[Poly, ...], Poly, tuple[Poly, ...]]:
    """Strides, number of elements and sizes of a tensor in row-major order."""
    sizes = tuple(of_size(size) for size in type.shape)
    strides: list[Poly] = []
    total = const(1)
    for size in reversed(sizes):
        strides.insert(0, total)
        total = total * size
    return tuple(strides), total, sizes


__all__ = ["Emitter", "Env", "Frozen", "Tensor", "Undecided", "Val", "literal", "strides_of"]

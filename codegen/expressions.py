"""Expressions in C++: functions, conversions and choices, each in the type that the language gives it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction

from dslc.codegen.functions import COMPARISONS, computed, function_text, store_type
from dslc.codegen.positions import POSITIONS, Positions
from dslc.codegen.text import NotGenerated, Reason
from dslc.codegen.values import Env, Val, is_whole, literal
from dslc.ir.constants import holds
from dslc.ir.dtype import DType, integer_range
from dslc.ir.element import element_type
from dslc.ir.scalar import Apply, Num, Number, Read, Reduce, Scalar, Table, raw_apply


class Expressions(Positions):
    """Emitter of expressions over elements."""

    @abstractmethod
    def element(self, node: Read, env: Env) -> Val:
        """An element of an operand."""

    @abstractmethod
    def table(self, node: Table, env: Env, want: DType) -> Val:
        """A number of a table that is written in the rules."""

    @abstractmethod
    def reductions(self, wanted: Sequence[tuple[Reduce, Env]], want: DType) -> list[Val]:
        """A reduction at several places."""

    # ---- values ----------------------------------------------------------------------------------------------------------

    def emit_as(self, node: Scalar, env: Env, dtype: DType) -> Val:
        """An expression as a value of an element type."""
        return self.cast(self.emit(node, env, dtype), dtype)

    def emit(self, node: Scalar, env: Env, want: DType) -> Val:
        """An expression; bare numbers take the type that is wanted."""
        if isinstance(node, Num):
            number = node.value
            if isinstance(number, bool):
                return literal(number, DType.BOOL)
            if isinstance(number, int) and not want.is_float:
                return literal(number, want if want is not DType.BOOL else DType.I64)
            return self.constant(number, want if want.is_float or isinstance(number, float) else DType.F64)
        free = None if env.type_of(node) is not None else want
        key = (node, id(env), free, self.guarded > 0)
        found = self.recall(key) or self.recall((node, id(env), free, False))
        if found:
            return found
        value = self._fresh(node, env, want)
        # kept alive, so that its identity stays its own
        self.envs.append(env)
        return self.remember(key, value)

    def remember_part(self, node: Scalar, env: Env, want: DType, value: Val) -> None:
        """A part of an expression that was computed before: a reduction together with others, or what shared memory has."""
        free = None if env.type_of(node) is not None else want
        self.envs.append(env)
        self.remember((node, id(env), free, False), value)

    def _fresh(self, node: Scalar, env: Env, want: DType) -> Val:
        if node.integral and (
            not isinstance(node, Apply) or (node.name in POSITIONS and self.is_polynomial(node, env))
        ):
            return self.number(self.poly(node, env), want if want is not DType.BOOL else DType.I64)
        if isinstance(node, Read):
            return self.element(node, env)
        if isinstance(node, Table):
            return self.table(node, env, want)
        if isinstance(node, Reduce):
            return self.reductions([(node, env)], want)[0]
        return self._apply(node, env, want)

    def _apply(self, node: Scalar, env: Env, want: DType) -> Val:
        name = node.op
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
            found = self.compare(node, env)
            if found:
                return found
            dtype = element_type(raw_apply("+", *node.args), env.part.dtypes, env.types)
            dtype = dtype or (DType.I64 if all(arg.integral for arg in node.args) else DType.F64)
            dtype = self._wide_enough(node, env, dtype)
            return self._call(name, node.args, env, computed(dtype))
        if name in {"floor", "ceil", "trunc"} and node.args[0].op == "/":
            inner = node.args[0]
            dtype = env.type_of(inner)
            if (dtype is not None and not dtype.is_float) or all(arg.integral for arg in inner.args):
                function = (
                    "truncdiv" if dtype is not None else {"floor": "//", "ceil": "ceildiv", "trunc": "truncdiv"}[name]
                )
                dtype = dtype or DType.I64
                return self._call(function, inner.args, env, dtype)
        dtype = env.type_of(node)
        if name in {"isnan", "isinf", "not"}:
            dtype = DType.BOOL if name == "not" else env.type_of(node.args[0])
        if dtype is None:
            # positions and fractions: exactly where they are integers, else in double precision
            if name in {"floor", "ceil"} and self.is_polynomial(node, env):
                return self.number(self.poly(node, env), want if want is not DType.BOOL else DType.I64)
            whole = name in {"+", "*", "min", "max", "abs", "sign", "//", "%", "^"} and all(
                is_whole(arg) for arg in node.args
            )
            dtype = DType.I64 if whole else DType.F64
        dtype = computed(dtype)
        if name == "^":
            return self._power(node, env, dtype)
        if name == "/" and not dtype.is_float:
            return self._call("truncdiv", node.args, env, dtype)
        if name in {"//", "%", "min", "max"}:
            dtype = self._wide_enough(node, env, dtype)
        if name == "*" and dtype.is_float and (divisor := _divisor(node.args[0])) is not None:
            dividend = node.args[1] if len(node.args) == 2 else raw_apply("*", *node.args[1:])
            return self.apply("/", (self.emit_as(dividend, env, dtype), self.constant(divisor, dtype)), dtype)
        args = [self.emit_as(arg, env, dtype) for arg in node.args]
        if name in {"floor", "ceil", "round", "trunc"} and not dtype.is_float:
            return args[0]
        if name in {"+", "*", "min", "max"}:
            return self._folded(name, args, dtype)
        return self.apply(name, tuple(args), dtype)

    def _call(self, name: str, args: Sequence[Scalar], env: Env, dtype: DType) -> Val:
        """A function of expressions as values of one type."""
        return self.apply(name, [self.emit_as(arg, env, dtype) for arg in args], dtype)

    @staticmethod
    def constant(number: Number, dtype: DType) -> Val:
        """A number of an expression. One that was put together of others may be beyond its type where none of them is."""
        if not holds(computed(dtype), number, exact=True):
            raise NotGenerated(Reason.FORM, f"a number that {dtype} does not hold")
        return literal(number, dtype)

    @staticmethod
    def _wide_enough(node: Scalar, env: Env, dtype: DType) -> DType:
        """The type for a function that is not one modulo 2^bits: bare numbers may be larger than the elements that they meet."""
        if not dtype.is_integer or dtype.bytes == 8:
            return dtype
        low, high = integer_range(dtype)
        for arg in node.args:
            if env.type_of(arg) is None and not (isinstance(arg, Num) and low <= arg.value <= high):
                return DType.I64
        return dtype

    def _folded(self, name: str, args: list[Val], dtype: DType) -> Val:
        """Split off the operands that do not vary, computed outside the loop.

        In a sum they come last: x - m - n is small where x and m are large and near.
        """
        ordered = sorted(args, key=lambda arg: (arg.lanes, arg.level), reverse=name == "+" and dtype.is_float)
        out = ordered[0]
        for arg in ordered[1:]:
            out = self.apply(name, (out, arg), dtype)
        return out

    def _power(self, node: Scalar, env: Env, dtype: DType) -> Val:
        base = self.emit_as(node.args[0], env, dtype)
        exponent = node.args[1]
        if isinstance(exponent, Num):
            value = exponent.value
            if value == Fraction(1, 2) and dtype.is_float:
                return self.apply("sqrt", (base,), dtype)
            if (
                not isinstance(value, bool)
                and value == int(value)
                and abs(int(value)) <= 16
                and (dtype.is_float or value >= 0)
            ):
                return self._integer_power(base, int(value), dtype)
        kind = env.type_of(exponent)
        other = self.emit(exponent, env, dtype if kind is None else kind)
        # a whole number to the power of a fraction
        wide = DType.F64 if other.dtype.is_float and not dtype.is_float else dtype
        return self.cast(self.apply("^", (self.cast(base, wide), self.cast(other, wide)), wide), dtype)

    def _integer_power(self, base: Val, exponent: int, dtype: DType) -> Val:
        if exponent == 0:
            return literal(1, dtype)
        if exponent < 0:
            # the reciprocal first: a power may leave the range where its reciprocal does not
            base, exponent = self.apply("/", (literal(1, dtype), base), dtype), -exponent
        out: Val | None = None
        while exponent:
            if exponent & 1:
                out = self.apply("*", (out, base), dtype) if out else base
            exponent >>= 1
            if exponent:
                base = self.apply("*", (base, base), dtype)
        assert out
        return out

    def _convert(self, node: Scalar, env: Env) -> Val:
        target = DType(node.op.split(":")[1])
        source = env.type_of(node.args[0])
        value = self.emit(node.args[0], env, source or target)
        out = self.cast(value, computed(target))
        if target in {DType.F16, DType.BF16} and source is not target:
            return self.apply(f"round_{target}", (out,), DType.F32)
        return out

    def _select(self, node: Scalar, env: Env, want: DType) -> Val:
        condition = self.emit_as(node.args[0], env, DType.BOOL)
        dtype = computed(env.type_of(node) or (want if want is not DType.BOOL else DType.I64))
        if env.type_of(node) is None and not all(is_whole(arg) for arg in node.args[1:]) and not want.is_float:
            dtype = DType.F64
        if condition.literal:
            return self.emit_as(node.args[1] if condition.number else node.args[2], env, dtype)
        with self.during(guarded=self.guarded + 1, splitting=False):
            then, other = (self.emit_as(arg, env, dtype) for arg in node.args[1:])
        return self.apply("select", (condition, then, other), dtype)

    def cast(self, value: Val, dtype: DType) -> Val:
        """A value as one of another type; what cannot be held is undefined for floats, and modulo 2^bits for integers."""
        dtype = computed(dtype)
        if value.dtype is dtype:
            return value
        if value.number is not None and (dtype.is_float or value.dtype is not DType.F32):
            return literal(value.number, dtype)
        width, target = self.width, store_type(dtype)
        if not value.lanes:
            text = f"k_to_one<{target}>({value.text})"
        elif dtype is DType.BOOL:
            text = f"k_truth<{width}>({value.text})"
        elif value.dtype is DType.BOOL:
            text = f"k_count<{target}, {width}>({value.text})"
        else:
            text = f"k_to<{target}, {width}>({value.text})"
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


def _divisor(node: Scalar) -> Fraction | None:
    """By which number a coefficient divides: 2/7 by 7/2, as its nodes do; None for one that floats hold, or that is rounded."""
    if not isinstance(node, Num) or not isinstance(node.value, Fraction):
        return None
    above, below = abs(node.value.numerator), node.value.denominator
    exact = below & (below - 1) and not above & (above - 1) and below < 1 << 24
    return 1 / node.value if exact else None

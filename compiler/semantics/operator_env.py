"""The environment in which an operator's statements are evaluated, for given arguments and attributes."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from dslc.errors import Span
from dslc.ir.constants import clamped, fill, holds
from dslc.ir.dtype import DTYPES, DType, TensorType
from dslc.ir.graph import Value
from dslc.ir.scalar import Number, Scalar
from dslc.semantics.definitions import OperatorDef
from dslc.semantics.env import Closure, Env, Mismatch, Thunk, fail
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import Rules
from dslc.semantics.lists import axes_of, plain
from dslc.semantics.scopes import Ranges, build_scope, declared_by_places, ranges_of_places, ranges_of_reads
from dslc.semantics.types import shape_of, solve
from dslc.semantics.walk import conditions_in, dims_of, pack_name
from dslc.syntax import tree as t

MOST_ENTRIES = 10_000  #: numbers in an attribute of a declared length

Argument = Value | Number | None


def operator_env(rules: Rules, op: OperatorDef, args: Sequence[Argument], attrs: Mapping[str, Any]) -> Env:
    """Binds parameters, attributes, sizes and `let`s, and checks every `where`.

    Args:
        args: one per parameter; None (or missing at the end) for a parameter with a default; a number is a rank-0 tensor.
        attrs: values as written; those that are missing take their declared defaults.

    Raises:
        Mismatch: types, sizes or guards that do not fit.
        EvalError: an attribute of the wrong type, a missing argument.
    """
    env = Env(op.module, rules)
    params = op.params
    if len(args) > len(params):
        raise Mismatch(f"{len(args)} tensors for {len(params)} parameters")
    given = [*args, *([None] * (len(params) - len(args)))]
    declare(op, env)
    bind_attributes(op, attrs, given, env)
    bind_statements(op, env)
    pairs: list[tuple[t.TypeExpr, TensorType]] = []
    numbers: list[tuple[t.Param, Number]] = []
    absent: list[t.Param] = []
    for param, arg in zip(params, given, strict=True):
        if isinstance(arg, Value):
            env.bind(param.name, arg)
            if not arg.known:
                raise Mismatch(f"the type of `{param.name}` is unknown")
            if param.type:
                pairs.append((param.type, arg.type))
        elif arg is None:
            if not param.default:
                raise Mismatch(f"`{param.name}` is missing")
            absent.append(param)
        else:
            numbers.append((param, arg))
    _free_packs(absent, pairs, env)
    for param, number in numbers:
        type = _number_type(param, number, pairs)
        if not holds(type.dtype, number):
            raise Mismatch(f"`{param.name}` is {number}, which {type.dtype} does not hold")
        env.bind(param.name, fill(number, type))
        if param.type:
            pairs.append((param.type, type))
    for param in absent:
        env.bind(param.name, _default(param, env))
    conditions = conditions_in(op.statements)
    solve(pairs, conditions, env)
    return env


def declare(op: OperatorDef, env: Env) -> None:
    """The declared dimensions of the operator's tensors, and what its indices range over."""
    decls, ranges = _declared(op)
    env.decls = dict(decls)
    env.ranges = ranges


@functools.lru_cache(maxsize=1024)
def _declared(op: OperatorDef) -> tuple[dict[str, tuple[t.Expr, ...]], Ranges]:
    decls: dict[str, tuple[t.Expr, ...]] = {}
    for param in (*op.params, *op.outputs):
        if param.type is not None and param.type.dims is not None:
            decls[param.name] = param.type.dims
    equations = [s for s in op.statements if isinstance(s, t.Equation | t.Let)]
    ranges = ranges_of_reads(tuple(equations), decls)
    for statement in equations:
        for name, found in ranges_of_places(statement.target.places or (), decls.get(statement.target.name)).items():
            ranges.setdefault(name, found)
    for statement in equations:
        target = statement.target
        if isinstance(statement, t.Let) and target.places is not None:
            own = {**ranges, **ranges_of_reads(statement.value, decls), **ranges_of_places(target.places, None)}
            dims = declared_by_places(target.places, own)
            if dims is not None:
                decls[target.name] = dims
    return decls, ranges


def bind_statements(op: OperatorDef, env: Env) -> None:
    """Functions, `let`s and equations, each computed on first use."""
    outputs = {output.name: output for output in op.outputs}
    for statement in op.statements:
        if isinstance(statement, t.Function):
            env.bind(statement.name, Closure(statement, env))
        elif isinstance(statement, t.Let | t.Equation):
            target = statement.target
            output = outputs.get(target.name) if isinstance(statement, t.Equation) else None
            env.bind(target.name, _target(target, statement.value, output, env))
        elif isinstance(statement, t.LetMany | t.EquationMany):
            _bind_many(statement.names, statement.value, env)


def _own_read(target: t.Defined, value: t.Expr) -> Span:
    """Find a read of a value's own target, also by way of others."""
    for node in t.walk(value):
        base = node.base if isinstance(node, t.Subscript) else node
        if base.bare == target.name:
            return node.span
    return target.span


def _target(target: t.Defined, value: t.Expr, output: t.Param | None, env: Env) -> Thunk:
    running = False

    def compute() -> Any:
        nonlocal running
        if running:
            hint = "recurrences have no meaning yet"
            raise fail("E0318", f"`{target.name}` reads itself", _own_read(target, value), hint=hint)
        running = True
        try:
            if target.places is None:
                return evaluate(value, env)
            type = output.type if output else None
            # the declared element type, where there is one
            dtype = None if type is None else shape_of(t.TypeExpr(type.name, (), span=type.span), env).dtype
            return build_scope(target.places, value, None, env, dtype, None if type is None else type.dims)
        finally:
            running = False

    return Thunk(compute)


def _bind_many(names: tuple[str, ...], value: t.Expr, env: Env) -> None:
    def compute() -> Any:
        found = evaluate(value, env)
        if not isinstance(found, tuple) or len(found) != len(names):
            count = len(found) if isinstance(found, tuple) else 1
            raise fail("E0325", f"{len(names)} names for {count} results", value)
        return found

    shared = functools.cache(compute)
    for k, name in enumerate(names):
        env.bind(name, Thunk(lambda k=k: shared()[k]))  # type: ignore[misc]


def _free_packs(absent: list[t.Param], pairs: list[tuple[t.TypeExpr, TensorType]], env: Env) -> None:
    """Packs that occur only in parameters that were left out are empty."""
    used = {pack_name(element) for pattern, _ in pairs for element in pattern.dims or ()}
    for param in absent:
        for element in dims_of(param.type):
            name = pack_name(element)
            if name is not None and name not in used:
                env.bind(name, ())


def _number_type(param: t.Param, number: Number, pairs: list[tuple[t.TypeExpr, TensorType]]) -> TensorType:
    name = param.type.name if param.type else ""
    for pattern, actual in pairs:
        if pattern.name == name:
            return TensorType(actual.dtype, ())
    if name in DTYPES:
        return TensorType(DTYPES[name], ())
    return TensorType(
        DType.BOOL if isinstance(number, bool) else DType.I64 if isinstance(number, int) else DType.F32, ()
    )


def _default(param: t.Param, env: Env) -> Thunk:
    def compute() -> Any:
        assert param.default
        number = evaluate(param.default, env)
        if isinstance(number, Value):
            return number
        if not isinstance(number, bool | int | float | Fraction):
            raise fail("E0326", f"the default of `{param.name}` is no number", param)
        type = shape_of(param.type, env) if param.type else TensorType(DType.F32, ())
        return fill(clamped(number, type.dtype), type)

    return Thunk(compute)


# ---- attributes ----------------------------------------------------------------------------------------------


def bind_attributes(op: OperatorDef, attrs: Mapping[str, Any], args: Sequence[Argument], env: Env) -> None:
    """Attributes as given or by default, normalised on first use.

    Raises:
        EvalError: E0302 for an attribute that the operator does not have.
    """
    declared = {attr.name for attr in op.attrs}
    for name in [name for name in attrs if name not in declared]:
        raise fail("E0302", f"`{op.short}` has no attribute `{name}`", None)
    rank = next((arg.type.rank for arg in args if isinstance(arg, Value) and arg.known), 0)
    for attr in op.attrs:
        env.bind(attr.name, _attribute(attr, attrs, rank, env))


def _attribute(attr: t.Attr, attrs: Mapping[str, Any], rank: int, env: Env) -> Thunk:
    def compute() -> Any:
        if attr.name in attrs:
            raw = attrs[attr.name]
        elif attr.default:
            raw = evaluate(attr.default, env)
        else:
            raise fail("E0303", f"the attribute `{attr.name}` is missing", None)
        return normalise(attr, raw, rank, env)

    return Thunk(compute)


def normalise(attr: t.Attr, raw: Any, rank: int, env: Env) -> Any:
    """An attribute in the form that the operator's equations see.

    Lists are tuples, one number stands for every entry, negative axes count from the end of the first tensor's rank, floats are exact
    fractions of their shortest decimal form.

    Raises:
        EvalError: E0304 where the value is not of the declared type.
    """
    type = attr.type
    kind = type.name
    said = "a list" if isinstance(raw, tuple) else f'"{raw}"' if isinstance(raw, str) else str(raw)
    wrong = fail("E0304", f"the attribute `{attr.name}` is `{type.span.text}`, and this is {said}", None)
    if kind in {"ints", "floats", "axes", "permutation"} or type.dims is not None:
        values = raw if isinstance(raw, tuple) else None
        if type.dims is not None:
            count = entries(type, env)
            values = values if values is not None else (raw,) * count
            # `int[2]`: two numbers as declared, any count where the operator is used with more results (semantics 20)
            any_length = len(type.dims) == 1 and isinstance(type.dims[0], t.Int)
            if len(values) != count and not any_length:
                raise Mismatch(f"`{attr.name}` has {len(values)} entries where {count} are expected")
        elif values is None:
            values = (raw,)
        element = "float" if kind in {"floats", "float"} else "int"
        out = tuple(_one(element, value, wrong) for value in values)
        if kind == "axes":
            return tuple(sorted(axes_of(out, rank)))
        if kind == "permutation":
            return axes_of(out, rank)
        return out
    if kind == "axis":
        position = _one("int", raw, wrong)
        return position + rank if isinstance(position, int) and position < 0 else position
    return _one(kind, raw, wrong)


def entries(type: t.TypeExpr, env: Env) -> int:
    """Number of entries of an attribute of a type such as `int[rank(D)]`.

    Raises:
        EvalError: E0327 where they are more than any operator has use for.
    """
    assert type.dims is not None
    count = int(plain(evaluate(type.dims[0], env)))
    if count > MOST_ENTRIES:
        raise fail("E0327", f"an attribute of more than {MOST_ENTRIES} numbers", type)
    return count


def _one(kind: str, value: Any, wrong: Exception) -> Any:
    value = plain(value)
    fits = False
    if kind == "bool":
        fits = isinstance(value, bool) or value in (0, 1)
        value = bool(value) if fits else value
    elif kind == "int":
        infinite = isinstance(value, float) and math.isinf(value)
        if isinstance(value, Fraction | float) and not infinite and value == int(value):
            value = int(value)
        fits = not isinstance(value, bool) and (infinite or isinstance(value, int | Scalar))
    elif kind == "float":
        fits = not isinstance(value, bool | str | tuple | DType)
        if isinstance(value, float) and math.isfinite(value):
            value = plain(Fraction(repr(value)))
    elif kind in {"dtype", "string"}:
        fits = isinstance(value, DType if kind == "dtype" else str)
    if not fits:
        raise wrong
    return value


def outward(attr: t.Attr, value: Any) -> Any:
    """A normalised attribute as it is stored in a Call: floats as floats."""
    if attr.type.name not in {"float", "floats"} or isinstance(value, Scalar):
        return value
    return tuple(outward(attr, one) for one in value) if isinstance(value, tuple) else float(value)

"""Applying operators: types inferred and checked, attributes completed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from dslc.ir.constants import array_value, number_of
from dslc.ir.dtype import DTYPES, DType, TensorType
from dslc.ir.graph import Attrs, Call, Scope, Value, Values, call, scope_value
from dslc.ir.scalar import Scalar, exactly
from dslc.semantics.definitions import OperatorDef
from dslc.semantics.env import AttrSet, Env, Mismatch, Outputs, Unbound, Undecided, fail, unbound
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import Rules, rules_cache
from dslc.semantics.lists import compare
from dslc.semantics.nary import in_pairs, other_parts, part_by_part, stands_for_pairs, takes_many
from dslc.semantics.operator_env import Argument, operator_env, outward
from dslc.semantics.types import shape_of
from dslc.syntax import tree as t

# per Rules object: (operator, argument types, attributes) -> (complete attributes, output types, values of parameters left out)
_Cached = tuple[Attrs, tuple[TensorType, ...], tuple[Value | None, ...]]


def apply(
    rules: Rules, op: OperatorDef | str, args: Sequence[Argument], attrs: Mapping[str, Any] | None = None
) -> Values:
    """An operator on tensors.

    Args:
        args: values; None for a parameter that takes its default; a number is a rank-0 tensor. An operator that `is associative` takes
            two or more.
        attrs: what is not named takes its declared default.

    Returns:
        One value per output. An operator that `is inverse` of an associative one gives as many as its list attribute has entries.

    Raises:
        Mismatch: types, sizes or guards that do not fit.
        EvalError: an unknown attribute, an attribute of the wrong type.
    """
    definition = rules.operator(op) if isinstance(op, str) else op
    given = dict(attrs or {})
    if stands_for_pairs(rules, definition, len(args)):
        return _many(rules, definition, args, given)
    if len(args) == 1 and isinstance(args[0], Value) and takes_many(rules, definition):
        return (args[0],)
    parts = other_parts(rules, definition, given)
    if parts is not None:
        return _in_parts(rules, definition, args, given, parts)
    return _plain(rules, definition, args, given)


def _plain(rules: Rules, op: OperatorDef, args: Sequence[Argument], attrs: dict[str, Any]) -> Values:
    key = (op.name, tuple(_key(arg) for arg in args), tuple((k, exactly(attrs[k])) for k in sorted(attrs)))
    cache: dict[Any, _Cached | Mismatch] = rules_cache(rules, "apply")
    found = cache.get(key)
    if found is None:
        try:
            found = _infer(rules, op, args, attrs)
        except Mismatch as problem:
            found = problem
        cache[key] = found
    if isinstance(found, Mismatch):
        raise found.again()
    complete, types, defaults = found
    given = [*args, *([None] * (len(defaults) - len(args)))]
    values: Any = tuple([arg if default is None else default for arg, default in zip(given, defaults, strict=True)])
    return call(op.name, values, complete, types)


def _key(arg: Argument) -> Any:
    if isinstance(arg, Value):
        return arg.type if arg.known else None
    return ("number", exactly(arg))


def _infer(rules: Rules, op: OperatorDef, args: Sequence[Argument], attrs: dict[str, Any]) -> _Cached:
    env = operator_env(rules, op, args, attrs)
    try:
        complete = tuple((attr.name, outward(attr, env.get(attr.name))) for attr in op.attrs)
        types = tuple(_output_type(output, env) for output in op.outputs)
        _sizes_exist(types, env)
        given = [isinstance(arg, Value) for arg in args] + [False] * (len(op.params) - len(args))
        defaults = [None if known else env.get(param.name) for known, param in zip(given, op.params, strict=True)]
    except Unbound as unknown:
        raise unbound(unknown) from None
    return complete, types, tuple(defaults)


def _sizes_exist(types: tuple[TensorType, ...], env: Env) -> None:
    """No size is negative, unknown ones included."""
    for size in (size for type in types for size in type.shape):
        condition = compare(">=", size, 0)
        if isinstance(condition, Scalar) and env.rules.assuming and not env.rules.assuming.require(condition):
            raise Mismatch(f"a size of {size}")


def _output_type(output: t.Param, env: Env) -> TensorType:
    if output.type:
        return shape_of(output.type, env)
    value = env.get(output.name)
    if not isinstance(value, Value):
        raise fail("E0326", f"the output `{output.name}` is no tensor", output)
    return value.type


# ---- any number of arguments or results ------------------------------------------------------------------------


def _many(rules: Rules, op: OperatorDef, args: Sequence[Argument], attrs: dict[str, Any]) -> Values:
    total = in_pairs(args, lambda total, arg: _plain(rules, op, (total, arg), attrs)[0])
    assert isinstance(total, Value) and isinstance(total.node, Call)
    complete = total.node.attrs
    values = []
    for arg in args:
        if not isinstance(arg, Value):
            (pair,) = _plain(rules, op, (total, arg), attrs)
            arg = pair.node.args[1]
        values.append(arg)
    return call(op.name, tuple(values), complete, (total.type,))


def _in_parts(rules: Rules, op: OperatorDef, args: Sequence[Argument], attrs: dict[str, Any], parts: str) -> Values:
    steps = inverse_steps(rules, op, args, attrs, parts)
    if not steps:
        (only,) = args
        assert isinstance(only, Value)
        return (only,)
    types = (*(step[0].type for step in steps), steps[-1][1].type)
    complete = dict(steps[0][0].node.attrs)  # type: ignore[attr-defined]
    complete[parts] = tuple(attrs[parts])
    first = steps[0][0].node.args
    return call(op.name, first, tuple(complete.items()), types)


def inverse_steps(
    rules: Rules, op: OperatorDef, args: Sequence[Argument], attrs: Mapping[str, Any], parts: str
) -> list[Values]:
    """`split` into n as n - 1 splits into two: the first part, and the rest."""

    def split(whole: Sequence[Argument], sizes: tuple[Any, Any]) -> Values:
        return _plain(rules, op, whole, {**attrs, parts: sizes})

    return part_by_part(tuple(attrs[parts]), args, split)


# ---- calls in expressions --------------------------------------------------------------------------------------


def operator_call(op: OperatorDef, expr: t.Call, env: Env, given: tuple[Any, ...]) -> Any:
    """The results of an operator that is called in an expression, on the values of the arguments."""
    tensors: list[Any] = []
    for position, arg in enumerate(given):
        if isinstance(arg, Outputs):
            raise fail("E0325", "this call has several results; take one with `.NAME`", expr)
        if isinstance(arg, tuple):
            tensors.append(_matrix(arg, expr))
        elif isinstance(arg, Scalar):
            if not env.rules.assuming:
                raise Undecided("an unknown size where a tensor is expected", expr.span)
            dtype = _number_type(op, position, given, env.rules.assuming.dtype_of(arg))
            tensors.append(scope_value(Scope((), arg, dtype), ()))
        elif arg is None or isinstance(arg, Value | bool | int | float | Fraction):
            tensors.append(arg)
        else:
            raise fail("E0326", "this is no tensor", expr)
    declared = {attr.name for attr in op.attrs}
    attrs: dict[str, Any] = {}
    if expr.rest is not None:
        rest = env.get(expr.rest, expr.span)
        if not isinstance(rest, AttrSet):
            raise fail("E0326", f"`{expr.rest}` is no set of attributes", expr)
        attrs |= {name: value for name, value in rest.values.items() if name in declared}
    for keyword in expr.kwargs:
        if keyword.name not in declared:
            raise fail("E0302", f"`{op.short}` has no attribute `{keyword.name}`", keyword)
        attrs[keyword.name] = _attribute_value(evaluate(keyword.value, env))
    try:
        values = apply(env.rules, op, tensors, attrs)
    except Mismatch as problem:
        raise problem.again(expr.span, within=op.short, hint=f"it is declared as `{op.signature}`") from None
    if len(values) == 1:
        return values[0]
    names = tuple(output.name for output in op.outputs)
    return Outputs(values, names if len(names) == len(values) else tuple(f"_{k}" for k in range(len(values))))


def _attribute_value(value: Any) -> Any:
    if not isinstance(value, Value):
        return value
    number = number_of(value)
    if number is None or value.type.rank:
        raise Mismatch("a tensor where an attribute is expected")
    return number


def _number_type(op: OperatorDef, position: int, given: Sequence[Any], dtype: DType) -> DType:
    """The element type of an unknown number as an operand: as for a known one, that of the operand declared to have the same."""
    params = op.params
    names = [param.type.name if param.type else "" for param in params]
    own = names[min(position, len(params) - 1)]
    if own in DTYPES:
        return DTYPES[own] if DTYPES[own].is_float else dtype
    others = (arg.type.dtype for name, arg in zip(names, given, strict=False) if name == own and isinstance(arg, Value))
    other = next(others, dtype)
    return other if other.is_float or dtype is other else dtype


def _matrix(values: tuple[Any, ...], expr: t.Call) -> Value:
    """A nested list of numbers as a constant tensor: int64 where all are integers, else f32."""

    def flat(value: Any) -> Any:
        if isinstance(value, tuple):
            return [flat(x) for x in value]
        if isinstance(value, Scalar):
            raise Undecided("an unknown size where a tensor is expected", expr.span)
        return value if isinstance(value, bool | int) else float(value)

    try:
        array = np.array(flat(values))
    except ValueError:
        raise fail("E0326", "the rows of this matrix differ in length", expr) from None
    if array.dtype.kind == "f":
        array = array.astype(np.float32)
    return array_value(array)

"""Applying operators: types inferred and checked, attributes completed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dslc.ir.dtype import TensorType
from dslc.ir.graph import Attrs, Call, Value, call
from dslc.ir.scalar import Scalar, exactly
from dslc.semantics.definitions import OperatorDef
from dslc.semantics.env import Env, Mismatch, Unbound, fail, unbound
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
) -> tuple[Value, ...]:
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


def _plain(rules: Rules, op: OperatorDef, args: Sequence[Argument], attrs: dict[str, Any]) -> tuple[Value, ...]:
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
    values = []
    for k, default in enumerate(defaults):
        arg = args[k] if k < len(args) else None
        if isinstance(arg, Value):
            values.append(arg)
        else:
            assert default is not None
            values.append(default)
    return call(op.name, tuple(values), complete, types)


def _key(arg: Argument) -> Any:
    if isinstance(arg, Value):
        return arg.type if arg.known else None
    return ("number", exactly(arg))


def _infer(rules: Rules, op: OperatorDef, args: Sequence[Argument], attrs: dict[str, Any]) -> _Cached:
    env = operator_env(rules, op, args, attrs)
    try:
        complete = tuple((attr.name, outward(attr, env.get(attr.name))) for attr in op.attrs)
        types = tuple(_output_type(output, env) for output in op.syntax.outputs)
        _sizes_exist(types, env)
        defaults: list[Value | None] = []
        for k, param in enumerate(op.syntax.params):
            given = k < len(args) and isinstance(args[k], Value)
            defaults.append(None if given else env.get(param.name))
    except Unbound as unknown:
        raise unbound(unknown) from None
    return complete, types, tuple(defaults)


def _sizes_exist(types: tuple[TensorType, ...], env: Env) -> None:
    """No size is negative, unknown ones included."""
    for size in (size for type in types for size in type.shape):
        condition = compare(">=", size, 0)
        if (
            isinstance(condition, Scalar)
            and env.rules.assuming is not None
            and not env.rules.assuming.require(condition)
        ):
            raise Mismatch(f"a size of {size}")


def _output_type(output: t.Param, env: Env) -> TensorType:
    if output.type is not None:
        return shape_of(output.type, env)
    value = env.get(output.name)
    if not isinstance(value, Value):
        raise fail("E0326", f"the output `{output.name}` is no tensor", output)
    return value.type


# ---- any number of arguments or results ------------------------------------------------------------------------


def _many(rules: Rules, op: OperatorDef, args: Sequence[Argument], attrs: dict[str, Any]) -> tuple[Value, ...]:
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


def _in_parts(
    rules: Rules, op: OperatorDef, args: Sequence[Argument], attrs: dict[str, Any], parts: str
) -> tuple[Value, ...]:
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
) -> list[tuple[Value, ...]]:
    """`split` into n as n - 1 splits into two: the first part, and the rest."""

    def split(whole: Sequence[Argument], sizes: tuple[Any, Any]) -> tuple[Value, ...]:
        return _plain(rules, op, whole, {**attrs, parts: sizes})

    return part_by_part(tuple(attrs[parts]), args, split)

"""Elaboration: an operator at given types and attributes as a graph of scopes over its parameters."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from dslc.ir.dtype import TensorType
from dslc.ir.graph import Attrs, Call, Kernel, Node, Value, Values, input_value, rebuild, replace, unfolded, with_args
from dslc.ir.scalar import exactly
from dslc.records import record
from dslc.semantics.apply import apply, inverse_steps
from dslc.semantics.definitions import OperatorDef
from dslc.semantics.env import Unbound, fail, unbound
from dslc.semantics.library import Rules, rules_cache
from dslc.semantics.nary import in_pairs, other_parts, stands_for_pairs
from dslc.semantics.operator_env import operator_env


@record
class Instance:
    """`params` are inputs named `p0`, `p1`, ...; `outputs` are built from them: scopes, and calls where the operator is a composite."""

    params: Values
    outputs: Values

    def over(self, args: Values) -> Values:
        """The outputs with arguments in the place of the parameters."""
        return replace(self.outputs, dict(zip(self.params, args, strict=True)))


def elaborate(rules: Rules, op: OperatorDef | str, arg_types: tuple[TensorType, ...], attrs: Attrs) -> Instance:
    """The meaning of one application.

    Raises:
        Mismatch: types, sizes or guards that do not fit.
        EvalError: an equation that has no meaning.
    """
    definition = rules.operator(op) if isinstance(op, str) else op
    cache = rules_cache(rules, "elaborate")
    key = (definition.name, arg_types, tuple((name, exactly(value)) for name, value in attrs))
    found = cache.get(key)
    if found is None:
        with _once(rules, ("elaborate", key), definition):
            found = cache[key] = _elaborate(rules, definition, arg_types, attrs)
    assert isinstance(found, Instance)
    return found


@contextmanager
def _once(rules: Rules, key: Hashable, op: OperatorDef) -> Iterator[None]:
    """While the meaning of an operator is looked for, it must not be needed itself.

    Raises:
        EvalError: E0317 where it is, or where one needs another without end.
    """
    open_ones = rules_cache(rules, "elaborating")
    if key in open_ones:
        raise fail("E0317", f"`{op.short}` needs itself", op.syntax)
    outermost = not open_ones
    open_ones[key] = op
    try:
        yield
    except RecursionError:
        if not outermost:
            raise
        raise fail("E0317", f"`{op.short}` is expanded without end", op.syntax) from None
    finally:
        del open_ones[key]


def _elaborate(rules: Rules, op: OperatorDef, arg_types: tuple[TensorType, ...], attrs: Attrs) -> Instance:
    params = tuple(input_value(f"p{k}", type) for k, type in enumerate(arg_types))
    given = dict(attrs)
    if stands_for_pairs(rules, op, len(params)):
        return Instance(params, (in_pairs(params, lambda total, param: apply(rules, op, (total, param), given)[0]),))
    parts = other_parts(rules, op, given)
    if parts is not None:
        steps = inverse_steps(rules, op, params, given, parts)
        return Instance(params, (*(step[0] for step in steps), steps[-1][1]))
    env = operator_env(rules, op, params, given)
    outputs: list[Value] = []
    for output in op.outputs:
        try:
            value = env.get(output.name)
        except Unbound as unknown:
            if unknown.name == output.name:
                raise fail("E0308", f"no equation defines the output `{output.name}`", output) from None
            raise unbound(unknown) from None
        if not isinstance(value, Value):
            raise fail("E0326", f"the output `{output.name}` is no tensor", output)
        outputs.append(value)
    return Instance(params, tuple(outputs))


def expanded(rules: Rules, op: str, arg_types: tuple[TensorType, ...], attrs: Attrs) -> Instance:
    """As `elaborate`, with every call inside expanded too: only parameters, constants and scopes are left."""
    cache = rules_cache(rules, "expanded")
    key = (op, arg_types, tuple((name, exactly(value)) for name, value in attrs))
    found = cache.get(key)
    if found is None:
        with _once(rules, ("expanded", key), rules.operator(op)):
            instance = elaborate(rules, op, arg_types, attrs)
            found = cache[key] = Instance(instance.params, expand(rules, instance.outputs))
    assert isinstance(found, Instance)
    return found


def expand(rules: Rules, outputs: Values) -> Values:
    """Every call replaced by its meaning: only inputs, constants, scopes and opaque nodes are left.

    Raises:
        Mismatch, EvalError
    """
    return rebuild(outputs, lambda node, args: expand_node(rules, node, args))


def expand_node(rules: Rules, node: Node, args: Values) -> Values:
    """The values of one node over expanded arguments."""
    if isinstance(node, Kernel):
        return expand(rules, unfolded(node, args))
    if not isinstance(node, Call):
        return with_args(node, args)
    instance = expanded(rules, node.op, tuple(arg.type for arg in node.args), node.attrs)
    return instance.over(args)

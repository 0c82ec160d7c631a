"""Writing an operator's application as one ONNX node, through the operator's own `onnx` clause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
from onnx import AttributeProto, NodeProto

from dslc.ir.constants import number_of
from dslc.ir.dtype import DType
from dslc.ir.graph import Call, Value, Values
from dslc.ir.scalar import Num, Scalar
from dslc.onnx.broadcasting import Symbols, symbolic
from dslc.onnx.clauses import (
    COPYING,
    NO_FIT,
    active,
    active_at,
    declared_default,
    equal,
    is_literal,
    node_view,
    outputs_of,
    read_node,
)
from dslc.onnx.constant_propagation import KnownValues
from dslc.onnx.context import ValuesByPlace
from dslc.onnx.protos import ELEM_TYPES, attribute_value, make_attribute, schema_of, small_constant, type_name
from dslc.semantics.definitions import OnnxClause, OperatorDef
from dslc.semantics.env import Env
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import Rules, rules_cache
from dslc.semantics.nary import stands_for_pairs
from dslc.semantics.operator_env import operator_env
from dslc.syntax import tree as t

#: operators with inputs for starts, ends, axes and steps
AXES = frozenset({"Slice"})
#: single numbers among the inputs that ONNX wants as a list of one
_LISTS_OF_ONE = {("TopK", 1)}


@dataclass(frozen=True, eq=False)
class Spec:
    """One node to be written: `proto` without inputs and outputs, what it reads (None: left out) and gives."""

    proto: NodeProto
    inputs: ValuesByPlace
    outputs: ValuesByPlace
    captured: tuple[tuple[str, Value], ...] = ()

    @property
    def reads(self) -> Values:
        return tuple(v for v in self.inputs if v) + tuple(v for _, v in self.captured)

    @property
    def gives(self) -> Values:
        return tuple(value for value in self.outputs if value)


class NotWritable(Exception):
    """The clause cannot express this application."""


def own_clauses(rules: Rules, operator: str, opset: int) -> tuple[OnnxClause, ...]:
    """The clauses at an opset that write an operator."""
    cache = rules_cache(rules, "own_clauses")
    if opset not in cache:
        table: dict[str, list[OnnxClause]] = {}
        for clause in active_at(rules, opset):
            if not clause.value and clause.operator:
                table.setdefault(clause.operator.name, []).append(clause)
        cache[opset] = table
    return tuple(cache[opset].get(operator, ()))


def split_op(op: str) -> tuple[str, str]:
    """Operator type and domain of a clause's name (`com.microsoft.FusedConv`)."""
    domain, _, name = op.rpartition(".")
    return name, domain


def write_call(rules: Rules, node: Call, opset: int, symbols: Symbols | None = None) -> tuple[Spec, ...] | None:
    """Nodes that compute an application (several where a chain of binary ones must stand for an n-ary one), or None.

    Each node was read back through the clauses and gave the same application.
    """
    for clause in own_clauses(rules, node.op, opset):
        if symbols and clause.op in COPYING and symbolic(node.attrs):
            inferred = _inferred(rules, clause, node, opset, symbols.mixed)
            if inferred:
                return (inferred,)
        try:
            spec = _write(rules, clause, node, opset, symbols)
        except (NotWritable, *NO_FIT):
            continue
        if symbols and symbolic(node.attrs):
            # what is computed at run time cannot be read back
            if _copies(spec, node):
                continue
            return (spec,)
        if reads_back(rules, spec, node, opset):
            return (spec,)
    if stands_for_pairs(rules, rules.operator(node.op), len(node.args)):
        return _chain(rules, node, opset, symbols)
    return None


def _inferred(rules: Rules, clause: OnnxClause, node: Call, opset: int, mixed: bool) -> Spec | None:
    """A node whose list of sizes says -1 for the only unknown one, or 0 for each that the operand has at the same place.

    Both only where `mixed`: a -1 beside an operand's size of 0 is an error where the sizes alone are none.
    """
    own = node.args[0].type.shape
    listed = (
        (name, value)
        for name, value in node.attrs
        if isinstance(value, tuple) and any(isinstance(v, Scalar) for v in value)
    )
    name, wanted = next(listed, ("", ()))
    if not wanted or 0 in wanted:
        return None
    unknown = [k for k, size in enumerate(wanted) if isinstance(size, Scalar)]
    others = [k for k in unknown if k >= len(own) or own[k] != wanted[k]]
    if len(unknown) == 1:
        others = unknown
    elif len(others) > mixed:
        return None
    sizes = tuple(-1 if k in others else 0 if k in unknown else size for k, size in enumerate(wanted))
    try:
        spec = _write(rules, clause, node, opset, None, {name: sizes})
    except (NotWritable, *NO_FIT):
        return None
    return spec if reads_back(rules, spec, node, opset) else None


def _copies(spec: Spec, node: Call) -> bool:
    """Return whether a size that is 0 would be taken for a size of the operand."""
    allowed = any(attribute.name == "allowzero" and attribute.i for attribute in spec.proto.attribute)
    lists = (value for _, value in node.attrs if isinstance(value, tuple))
    return (
        spec.proto.op_type in COPYING
        and not allowed
        and any(type(size) is int and not size for one in lists for size in one)
    )


def _chain(rules: Rules, node: Call, opset: int, symbols: Symbols | None) -> tuple[Spec, ...] | None:
    from dslc.semantics.apply import apply

    out: list[Spec] = []
    total = node.args[0]
    for k, arg in enumerate(node.args[1:]):
        (value,) = apply(rules, node.op, (total, arg), dict(node.attrs))
        last = k == len(node.args) - 2
        assert isinstance(value.node, Call)
        written = write_call(rules, value.node, opset, symbols)
        if written is None or len(written) != 1:
            return None
        out.append(Spec(written[0].proto, written[0].inputs, node.values) if last else written[0])
        total = value
    return tuple(out)


def meaning(rules: Rules, spec: Spec, opset: int) -> ValuesByPlace | None:
    """The values as which clauses read a written node; None where none reads it."""
    name, domain = spec.proto.op_type, spec.proto.domain
    op = f"{domain}.{name}" if domain else name
    used = tuple(value is not None for value in spec.outputs)
    view = node_view(spec.proto, op, schema_of(name, domain, opset), spec.inputs, used, KnownValues(rules).get)
    return read_node(rules, active(rules, op, opset if not domain else 1), view)


def reads_back(rules: Rules, spec: Spec, node: Call, opset: int) -> bool:
    """Return whether the written node means the application it was written for (its attributes up to 32-bit floats)."""
    values = meaning(rules, spec, opset)
    if values is None:
        return False
    for wanted, found in zip(spec.outputs, values, strict=True):
        if not wanted or wanted is found or wanted == found:
            continue
        if not found or not isinstance(found.node, Call) or found.index != wanted.index:
            return False
        other = found.node
        if other.op != node.op or other.args != node.args or other.types != node.types:
            return False
        if not all(_close(a, b) for (_, a), (_, b) in zip(other.attrs, node.attrs, strict=True)):
            return False
    return True


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(_close(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return bool(np.float32(a) == np.float32(b))
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _write(
    rules: Rules,
    clause: OnnxClause,
    node: Call,
    opset: int,
    symbols: Symbols | None,
    stated: Mapping[str, Any] = MappingProxyType({}),
) -> Spec:
    """The node that a clause says; `stated` is what it says in the place of attributes' own values."""
    op = clause.operator
    assert op
    op_type, domain = split_op(clause.op)
    schema = schema_of(op_type, domain, opset) if not domain else None
    params = {param.name: k for k, param in enumerate(op.params)}
    variadic = any(isinstance(p, t.Param) and p.star for p in clause.inputs)
    if len(node.args) != len(params) and not variadic:
        raise NotWritable
    env = _environment(rules, op, node)
    own = {**dict(node.attrs), **stated}
    inputs: list[Value | None] = []
    named: set[str] = set()
    lists = _lists(clause, own, env) if clause.op in AXES else {}
    for k, pattern in enumerate(clause.inputs):
        if k in lists:
            inputs.append(listed(lists[k], op_type, k, schema, symbols))
        elif isinstance(pattern, t.ListExpr):
            inputs.append(listed(evaluate(pattern, _needed(env)), op_type, k, schema, symbols))
        elif pattern.star:
            inputs.extend(node.args)
            named.update(params)
        elif pattern.name == "_":
            # a tensor without elements where ONNX wants one
            formal = None if schema is None or k >= len(schema.inputs) else schema.inputs[k]
            empty = formal is not None and not _may_lack(schema, k) and "tensor(float)" in formal.types
            inputs.append(small_constant(np.zeros(0, np.float32)) if empty else None)
        elif pattern.name in params:
            named.add(pattern.name)
            place = params[pattern.name]
            value = node.args[place]
            known = schema is not None and k < len(schema.inputs)
            left_out = _is_default(rules, op, place, value) and (not known or _may_lack(schema, k))
            inputs.append(None if left_out else value)
        else:
            value = own[pattern.name] if pattern.name in own else _needed(env).get(pattern.name)
            inputs.append(listed(value, op_type, k, schema, symbols))
    for name, k in params.items():
        if name not in named and not _is_default(rules, op, k, node.args[k]):
            raise NotWritable
    attributes = (_attribute(rules, entry, op, node, env, schema) for entry in clause.attrs)
    return spec_of(clause, schema, inputs, attributes, outputs_of(clause, op, node.values))


def spec_of(
    clause: OnnxClause, schema: Any, inputs: list[Value | None], attributes: Iterable[AttributeProto | None],
    outputs: ValuesByPlace,
) -> Spec:  # fmt: skip
    """A node of a clause, without the last inputs where they are left out; raises NotWritable where the schema does not take them."""
    while inputs and not inputs[-1]:
        inputs.pop()
    check_types(inputs, schema)
    op_type, domain = split_op(clause.op)
    kept = [attribute for attribute in attributes if attribute is not None]
    return Spec(NodeProto(op_type=op_type, domain=domain, attribute=kept), tuple(inputs), outputs)


def _may_lack(schema: Any, position: int) -> bool:
    option = schema.inputs[position].option
    return bool(option == type(option).Optional)


def _lists(clause: OnnxClause, own: Mapping[str, Any], env: Env | None) -> dict[int, tuple[Any, ...]]:
    """Starts, ends, axes and steps by their places, without the axes of which all is taken, where sizes are unknown."""
    values = {
        k: own[p.name] if p.name in own else _needed(env).get(p.name)
        for k, p in enumerate(clause.inputs) if k and isinstance(p, t.Param)
    }  # fmt: skip
    if sorted(values) != [1, 2, 3, 4] or not all(isinstance(value, tuple) for value in values.values()):
        return {}
    starts, ends, axes, steps = (values[k] for k in range(1, 5))
    shape = _needed(env).get(clause.inputs[0].name).type.shape if isinstance(clause.inputs[0], t.Param) else ()
    if not any(isinstance(end, Scalar) for end in ends):
        return {}
    kept = [k for k, axis in enumerate(axes) if starts[k] != 0 or steps[k] != 1 or ends[k] != shape[axis]]
    return {place: tuple(value[k] for k in kept) for place, value in values.items()} if kept else {}


def _environment(rules: Rules, op: OperatorDef, node: Call) -> Env | None:
    """The environment of the operator's names; None where it is applied to more tensors, or gives more, than it declares."""
    if len(node.args) != len(op.params) or len(node.types) != len(op.outputs):
        return None
    return operator_env(rules, op, node.args, dict(node.attrs))


def _needed(env: Env | None) -> Env:
    if not env:
        raise NotWritable
    return env


def _is_default(rules: Rules, op: OperatorDef, index: int, value: Value) -> bool:
    """Return whether an argument is the number that the parameter has when it is left out."""
    default = declared_default(rules, op, op.params[index])
    number = None if default is None else number_of(value)
    return number is not None and not isinstance(number, bool) and bool(number == default)


def listed(value: Any, op_type: str, position: int, schema: Any, symbols: Symbols | None) -> Value:
    """An attribute that ONNX wants as an input: numbers as a constant, symbolic sizes as a computation."""
    if isinstance(value, Value):
        return value
    as_list = isinstance(value, tuple) or (op_type, position) in _LISTS_OF_ONE
    items = value if isinstance(value, tuple) else (value,)
    items = tuple(item.value if isinstance(item, Num) else item for item in items)
    if any(isinstance(item, Scalar) for item in items):
        if not symbols:
            raise NotWritable
        return symbols.tensor(items, as_list)
    if all(isinstance(item, bool) for item in items) and items:
        dtype: Any = np.bool_
    elif all(isinstance(item, int) for item in items):
        dtype = np.int64
    elif all(isinstance(item, int | float | Fraction) for item in items):
        dtype = np.float32
    else:
        raise NotWritable
    if schema is not None and position < len(schema.inputs):
        allowed = set(schema.inputs[position].types)
        if dtype is np.int64 and "tensor(int64)" not in allowed and "tensor(float)" in allowed:
            dtype = np.float32
    array = np.array([float(i) if dtype is np.float32 else i for i in items], dtype)
    return small_constant(array if as_list else array.reshape(()))


def check_types(inputs: Sequence[Value | None], schema: Any) -> None:
    """Raise NotWritable for inputs that a schema does not take."""
    if schema is None:
        return
    if len(inputs) > schema.max_input:
        raise NotWritable
    for k, value in enumerate(inputs):
        place = min(k, len(schema.inputs) - 1)
        types = schema.inputs[place].types
        if not value:
            if not _may_lack(schema, place):
                raise NotWritable
        elif value.known and types and type_name(value.type.dtype) not in types:
            raise NotWritable


def _attribute(
    rules: Rules, entry: t.Entry, op: OperatorDef, node: Call, env: Env | None, schema: Any
) -> AttributeProto | None:
    expr = entry.value
    own = dict(node.attrs)
    if expr.bare in own:
        value: Any = own[expr.bare]
    else:
        value = evaluate(expr, env or Env(op.module, rules))
    if schema is not None and entry.name not in schema.attributes:
        # an attribute that this opset does not have yet may be at the operator's default
        names = [attr for attr in op.attrs if expr.bare == attr.name]
        default = declared_default(rules, op, names[0]) if names else None
        values = value if isinstance(value, tuple) else (value,)
        if is_literal(expr) or (default is not None and all(equal(each, default) for each in values)):
            return None
        raise NotWritable
    return attribute_proto(entry.name, value, schema)


def attribute_proto(name: str, value: Any, schema: Any) -> AttributeProto | None:
    """An attribute of a node; None where it is ONNX's default, raises NotWritable where it is no value."""
    if isinstance(value, DType):
        value = ELEM_TYPES[value]
    if isinstance(value, Value):
        value = number_of(value)
    if value is None or symbolic([(name, value)]):
        raise NotWritable
    if schema is None:
        if value == ():
            return None
    else:
        default = schema.attributes[name].default_value
        if default.type and equal(attribute_value(default), value):
            return None
    if isinstance(value, tuple):
        value = tuple(float(each) if isinstance(each, Fraction) else each for each in value)
    return make_attribute(name, float(value) if isinstance(value, Fraction) else value, schema)

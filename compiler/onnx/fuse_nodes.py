"""Import-only clauses read backwards: one ONNX node for what import had split into several operators.

`onnx Conv(X, K, B) = add(conv(X, K, ...), per_channel(B, ...))` says what a Conv with a bias means. Here its right side is matched
against a graph, the node's attributes are guessed from those of the calls, and the guess is read back through the clauses: only a
node that gives the very same value is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import AttributeProto

from dslc.ir.constants import array_value
from dslc.ir.dtype import TensorType
from dslc.ir.graph import Call, Value, Values, constant_value, replace
from dslc.onnx.clauses import NO_FIT, active_at, names_in_types
from dslc.onnx.emit import NotWritable, Spec, attribute_proto, listed, meaning, spec_of, split_op
from dslc.onnx.protos import schema_of
from dslc.prove.evidence.dependencies import proved_traits
from dslc.semantics.apply import apply
from dslc.semantics.definitions import FunctionDef, OnnxClause, OperatorDef
from dslc.semantics.env import Env
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import Rules, rules_cache
from dslc.semantics.types import shape_of, solve
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import ATTRIBUTE_TYPES

#: the elements of a constant value
Elements = Callable[[Value], Any]


@dataclass(frozen=True, eq=False)
class Reshaped:
    """The elements of a constant expression in another shape, computed when they are asked for."""

    source: Value
    type: TensorType
    elements: Elements

    @property
    def key(self) -> str:
        return f"reshaped:{id(self)}"

    def load(self) -> Any:
        return self.elements(self.source).reshape(self.type.sizes)


class _Fails(Exception):
    """The pattern does not match."""


def patterns(rules: Rules, operator: str, opset: int) -> tuple[tuple[OnnxClause, int], ...]:
    """Import-only clauses whose right side is an application of an operator, and how many applications it has."""
    cache = rules_cache(rules, "fused nodes")
    if opset not in cache:
        table: dict[str, list[tuple[OnnxClause, int]]] = {}
        for clause in active_at(rules, opset):
            starred = any(isinstance(p, t.Param) and p.star for p in clause.inputs)
            root, count = _shape(clause, clause.value)
            if root is not None and not starred and clause.outputs is None:
                table.setdefault(root, []).append((clause, count))
        cache[opset] = table
    return tuple(cache[opset].get(operator, ()))


def _shape(clause: OnnxClause, expr: t.Expr | None) -> tuple[str | None, int]:
    """The operator at the root of an expression, and how many applications are written in it."""
    if not isinstance(expr, t.Call):
        return None, 0
    found = clause.module.lookup(expr.function)
    if not isinstance(found, OperatorDef):
        return None, 0
    count = 1
    for arg in expr.args:
        inner = clause.module.lookup(arg.function) if isinstance(arg, t.Call) else None
        if isinstance(inner, FunctionDef):
            count += 1
        elif inner:
            count += _shape(clause, arg)[1]
    return found.name, count


def fuse_node(
    rules: Rules, node: Call, opset: int, users: Counter[Value], elements: Elements, *, single: bool = False
) -> Spec | None:
    """One ONNX node for an application and those below it that nothing else reads.

    Args:
        single: allow clauses that stand for one application, too (for operators without a clause of their own).
    """
    if len(node.types) != 1:
        return None
    for clause, count in patterns(rules, node.op, opset):
        if (count > 1) is single and not single:
            continue
        for order in _orders(rules, node):
            try:
                spec = _Backwards(rules, clause, opset, users, elements).read(node, order)
            except (_Fails, NotWritable, *NO_FIT):
                continue
            if spec:
                return spec
    return None


def _orders(rules: Rules, node: Call) -> Iterator[Values]:
    yield node.args
    if len(node.args) == 2 and proved_traits(rules, node.op).commutative:
        yield (node.args[1], node.args[0])


@dataclass(eq=False)
class _Backwards:
    rules: Rules
    clause: OnnxClause
    opset: int
    users: Counter[Value]
    elements: Elements
    tensors: dict[str, Value] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    pending: list[tuple[t.Expr, Any]] = field(default_factory=list)
    reshaped: list[tuple[t.Call, Value]] = field(default_factory=list)
    stands_for: dict[Value, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sizes = names_in_types(self.clause)
        self.params = {p.name: p for p in self.clause.inputs if isinstance(p, t.Param)}

    def read(self, node: Call, order: Values) -> Spec | None:
        assert isinstance(self.clause.value, t.Call)
        self._call(self.clause.value, node, order, {})
        for expr, value in self.pending:
            self._guess(expr, value)
        for pattern, constant in self.reshaped:
            self._reshape(pattern, constant)
        spec = self._node(node)
        return spec if self._same(spec, node) else None

    # ---- matching --------------------------------------------------------------------------------------------

    def _expr(self, expr: t.Expr, value: Value, local: dict[str, t.Expr]) -> None:
        if isinstance(expr, t.Name):
            if expr.id in local:
                self._expr(local[expr.id], value, {})
                return
            if expr.id not in self.params:
                raise _Fails
            if self.tensors.setdefault(expr.id, value) != value:
                raise _Fails
            return
        if not isinstance(expr, t.Call):
            raise _Fails
        found = self.clause.module.lookup(expr.function)
        if isinstance(found, FunctionDef):
            inner = dict(zip(found.syntax.params, expr.args, strict=True))
            bound = dict(self.tensors)
            try:
                self._foreign(found, inner, value)
            except _Fails:
                self.tensors = bound
                if local or not value.constant:
                    raise
                self.reshaped.append((expr, value))
            return
        if not isinstance(value.node, Call) or (self.users[value] > 1 and not value.constant):
            raise _Fails
        self._call(expr, value.node, value.node.args, local)

    def _foreign(self, function: FunctionDef, local: dict[str, t.Expr], value: Value) -> None:
        body = function.syntax.body
        if not isinstance(body, t.Call) or not isinstance(value.node, Call):
            raise _Fails
        found = function.module.lookup(body.function)
        if not isinstance(found, OperatorDef) or found.name != value.node.op:
            raise _Fails
        for arg, operand in zip(body.args, value.node.args, strict=False):
            self._expr(arg, operand, local)

    def _call(self, expr: t.Call, node: Call, args: Values, local: dict[str, t.Expr]) -> None:
        found = self.clause.module.lookup(expr.function)
        if not isinstance(found, OperatorDef) or found.name != node.op or len(expr.args) > len(args):
            raise _Fails
        for pattern, arg in zip(expr.args, args, strict=False):
            self._expr(pattern, arg, local)
        own = dict(node.attrs)
        for keyword in expr.kwargs:
            self.pending.append((keyword.value, own[keyword.name]))

    def _reshape(self, expr: t.Call, value: Value) -> None:
        """A constant where the clause has one tensor in another shape: that tensor is the constant, reshaped back."""
        names = [a.bare for a in expr.args if a.bare in self.params and a.bare not in self.tensors]
        env = Env(self.clause.module, self.rules)
        pairs = [
            (param.type, self.tensors[name].type)
            for name, param in self.params.items()
            if name in self.tensors and param.type
        ]
        for name, tensor in self.tensors.items():
            env.bind(name, tensor)
        solve(pairs, (), env)
        if len(names) != 1 or not value.type.is_static:
            raise _Fails
        declared = self.params[names[0]].type
        if not declared:
            raise _Fails
        type = TensorType(value.type.dtype, shape_of(declared, env).shape)
        if not type.is_static or type.elements != value.type.elements or type.elements >= 1 << 24:
            raise _Fails
        count = type.elements
        places = np.arange(count, dtype=np.float32).reshape(type.sizes)
        env.bind(names[0], array_value(places))
        shown = evaluate(expr, env)
        if shown.type.shape != value.type.shape or not (self.elements(shown).reshape(-1) == np.arange(count)).all():
            raise _Fails
        tensor = constant_value(Reshaped(value, type, self.elements), type)
        env.bind(names[0], tensor)
        self.tensors[names[0]] = tensor
        self.stands_for[evaluate(expr, env)] = value

    # ---- attributes ------------------------------------------------------------------------------------------

    def _guess(self, expr: t.Expr, value: Any) -> None:
        """Values for the attributes that an expression is made of: the first free name has the value itself."""
        if isinstance(expr, t.Name):
            if expr.id not in self.sizes:
                self.attrs.setdefault(expr.id, value)
        elif isinstance(expr, t.Call):
            for arg in expr.args:
                if isinstance(arg, t.Name) and self._is_free(arg.id) and not isinstance(self._default(arg.id), str):
                    self.attrs[arg.id] = value
                    return
        elif isinstance(expr, t.Compare) and isinstance(expr.operands[0], t.Name) and isinstance(value, bool):
            self.attrs.setdefault(expr.operands[0].id, int(value))

    def _is_free(self, name: str) -> bool:
        if name in self.attrs or name in self.sizes:
            return False
        return name in self.params or any(
            part.bare == name for entry in self.clause.attrs for part in t.walk(entry.value)
        )

    def _default(self, name: str) -> Any:
        for entry in self.clause.attrs:
            value = entry.value
            if isinstance(value, t.Binary) and value.left.bare == name:
                return evaluate(value.right, Env(self.clause.module, self.rules))
        return None

    # ---- the node --------------------------------------------------------------------------------------------

    def _node(self, node: Call) -> Spec:
        op_type, domain = split_op(self.clause.op)
        schema = schema_of(op_type, domain, self.opset) if not domain else None
        inputs: list[Value | None] = []
        for k, pattern in enumerate(self.clause.inputs):
            if not isinstance(pattern, t.Param):
                raise _Fails
            if pattern.type and pattern.type.name in ATTRIBUTE_TYPES and pattern.name in self.attrs:
                inputs.append(listed(self.attrs[pattern.name], op_type, k, schema, None))
            elif pattern.name in self.tensors:
                inputs.append(self.tensors[pattern.name])
            elif pattern.default or pattern.name == "_":
                inputs.append(None)
            else:
                raise _Fails
        attributes = (self._attribute(entry, schema) for entry in self.clause.attrs)
        return spec_of(self.clause, schema, inputs, attributes, node.values)

    def _attribute(self, entry: t.Entry, schema: Any) -> AttributeProto | None:
        expr = entry.value.left if isinstance(entry.value, t.Binary) and entry.value.op == "or" else entry.value
        if schema is not None and entry.name not in schema.attributes:
            return None
        if expr.bare in self.attrs:
            return attribute_proto(entry.name, self.attrs[expr.bare], schema)
        if isinstance(expr, t.Str | t.Int | t.Float):
            return attribute_proto(entry.name, evaluate(expr, Env(self.clause.module, self.rules)), schema)
        return None

    def _same(self, spec: Spec, node: Call) -> bool:
        values = meaning(self.rules, spec, self.opset)
        if values is None or values[0] is None:
            return False
        (found,) = replace((values[0],), self.stands_for)
        return found == Value(node) or _flipped(self.rules, found) == Value(node)


def _flipped(rules: Rules, value: Value) -> Value | None:
    """A commutative application with its operands exchanged."""
    node = value.node
    if isinstance(node, Call) and len(node.args) == 2 and proved_traits(rules, node.op).commutative:
        return apply(rules, node.op, (node.args[1], node.args[0]), dict(node.attrs))[0]
    return None

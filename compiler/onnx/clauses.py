"""Reading ONNX nodes through the `onnx` clauses of the loaded libraries (language.md, semantics 19)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from onnx import NodeProto

from dslc.errors import DslcError
from dslc.ir.constants import clamped, fill
from dslc.ir.dtype import DType
from dslc.ir.graph import Value, Values
from dslc.ir.scalar import Scalar
from dslc.onnx.context import ValuesByPlace
from dslc.onnx.protos import DTYPES, attribute_value
from dslc.semantics.apply import apply
from dslc.semantics.definitions import OnnxClause, OperatorDef
from dslc.semantics.env import Closure, Env, Mismatch, Thunk, Unbound
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import Rules
from dslc.semantics.lists import axes_of, same
from dslc.semantics.operator_env import operator_env
from dslc.semantics.types import shape_of, solve
from dslc.semantics.walk import conditions_in
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import ATTRIBUTE_TYPES

#: what a clause cannot be used for; the next one is tried
NO_FIT = (Mismatch, Unbound, DslcError, ArithmeticError, ValueError, TypeError, KeyError, IndexError, RecursionError)


class Skip(Exception):
    """The clause does not hold for this node."""


@dataclass(frozen=True)
class NodeView:
    """A node as clauses read it.

    `attrs` are those of the file, `defaults` ONNX's; `known` gives the elements of a value that is known when the model is read;
    `used`: outputs that are read.
    """

    op: str
    inputs: ValuesByPlace
    attrs: Mapping[str, Any]
    defaults: Mapping[str, Any]
    declared: frozenset[str] | None
    used: tuple[bool, ...]
    known: Callable[[Value], tuple[Any, ...] | None] = field(repr=False)

    def attribute(self, name: str) -> tuple[bool, Any]:
        """Return whether the attribute has a value (in the file, or ONNX's default), and the value."""
        for values in (self.attrs, self.defaults):
            if name in values:
                return True, values[name]
        return False, None

    def exists(self, name: str) -> bool:
        """Return whether the operator has such an attribute at this opset (unknown operators may have any)."""
        return self.declared is None or name in self.declared


def node_view(
    node: NodeProto,
    op: str,
    schema: Any,
    inputs: ValuesByPlace,
    used: tuple[bool, ...],
    known: Callable[[Value], tuple[Any, ...] | None],
) -> NodeView:
    """The view of a node for its clauses."""
    own = {} if schema is None else {name: attribute.default_value for name, attribute in schema.attributes.items()}
    defaults = {name: attribute_value(default) for name, default in own.items() if default.type}
    attrs = {attribute.name: attribute_value(attribute) for attribute in node.attribute}
    return NodeView(op, inputs, attrs, defaults, None if schema is None else frozenset(own), used, known)


def active(rules: Rules, op: str, opset: int) -> tuple[OnnxClause, ...]:
    """The clauses that hold for an ONNX operator at an opset: those with the largest `since` that is not above it."""
    valid = [c for c in rules.onnx.get(op, ()) if c.since <= opset and (c.until is None or c.until > opset)]
    newest = max((c.since for c in valid), default=0)
    return tuple(c for c in valid if c.since == newest)


def active_at(rules: Rules, opset: int) -> Iterator[OnnxClause]:
    """The clauses that hold at an opset, for all operators."""
    return (clause for op in rules.onnx for clause in active(rules, op, opset if "." not in op else 1))


def read_node(rules: Rules, clauses: Sequence[OnnxClause], view: NodeView) -> ValuesByPlace | None:
    """The values that a node computes, by the first clause that matches; None where none does.

    None stands for an output that is not read and that no clause gives.
    """
    for clause in clauses:
        try:
            values = _import_only(rules, clause, view) if clause.value else _own(rules, clause, view)
        except (Skip, *NO_FIT):
            continue
        if values is not None:
            return values
    return None


# ---- inputs --------------------------------------------------------------------------------------------------


def number_list(view: NodeView, value: Value) -> tuple[Any, ...]:
    """The elements of a value that is known; raises Skip for any other."""
    items = view.known(value)
    if items is None:
        raise Skip
    return tuple(map(exact, items))


def exact(item: Any) -> Any:
    """A floating point number as the exact fraction of its shortest decimal; whole numbers as integers."""
    if isinstance(item, float) and math.isfinite(item):
        fraction = Fraction(str(np.float32(item))) if np.float32(item) == item else Fraction(repr(item))
        return int(fraction) if fraction.denominator == 1 else fraction
    return item


def _paired(clause: OnnxClause, view: NodeView, bind: Callable[[str, Any], None]) -> Iterator[tuple[t.Param, Any]]:
    """The parameters among a clause's inputs with their values, None where one is absent; a starred one takes the rest.

    `bind` gets the names in lists.
    """
    for k, pattern in enumerate(clause.inputs):
        value = view.inputs[k] if k < len(view.inputs) else None
        if isinstance(pattern, t.ListExpr):
            if not value:
                raise Skip
            _split_list(pattern, number_list(view, value), bind)
        elif pattern.star:
            if not all(view.inputs[k:]):
                raise Skip
            yield pattern, view.inputs[k:]
            return
        elif pattern.name != "_":
            yield pattern, value
        # an input is left out, or given as a tensor without elements (how old exporters leave one out)
        elif value and not (value.known and 0 in value.type.shape):
            raise Skip
    if any(view.inputs[len(clause.inputs) :]):
        raise Skip


def _split_list(pattern: t.ListExpr, values: tuple[Any, ...], bind: Callable[[str, Any], None]) -> None:
    """`[*before, *after]` against a list: equally long packs, single names for single entries."""
    packs = [e for e in pattern.elements if isinstance(e, t.Pack)]
    singles = len(pattern.elements) - len(packs)
    rest = len(values) - singles
    if rest < 0 or (packs and rest % len(packs)) or (not packs and rest):
        raise Skip
    width = rest // len(packs) if packs else 0
    at = 0
    for element in pattern.elements:
        inner = element.value if isinstance(element, t.Pack) else element
        if not isinstance(inner, t.Name):
            raise Skip
        if isinstance(element, t.Pack):
            bind(inner.id, values[at : at + width])
            at += width
        else:
            bind(inner.id, values[at])
            at += 1


# ---- attributes ----------------------------------------------------------------------------------------------


def is_literal(expr: t.Expr) -> bool:
    """Return whether an expression is a constant of the text."""
    return isinstance(expr, t.Str | t.Int | t.Float | t.Inf) or (isinstance(expr, t.Unary) and is_literal(expr.operand))


def equal(a: Any, b: Any) -> bool:
    """Return whether an attribute of a node and a value of the language are equal; a list of one number everywhere equals it."""
    if isinstance(b, DType):
        return bool(DTYPES.get(a) is b) if isinstance(a, int) else a is b
    if isinstance(a, tuple) and not isinstance(b, tuple):
        return bool(a) and all(equal(x, b) for x in a)
    if isinstance(b, tuple) and not isinstance(a, tuple):
        return bool(b) and all(equal(a, y) for y in b)
    if isinstance(a, float) and isinstance(b, int | float | Fraction):
        return bool(np.float32(a) == np.float32(float(b)))
    if isinstance(a, str) or isinstance(b, str):
        return bool(a == b)
    return same(a, b) is True


#: in a list of sizes of these a 0 stands for the operand's size, unless they are told to allow it
COPYING = frozenset({"Reshape"})


def check_unnamed(clause: OnnxClause, view: NodeView) -> None:
    """Raises Skip where an attribute that the clause does not name is off ONNX's default."""
    named = {entry.name for entry in clause.attrs}
    for name, value in view.attrs.items():
        if name not in named and not (name in view.defaults and equal(value, view.defaults[name])):
            raise Skip


# ---- an operator's own clause ----------------------------------------------------------------------------------


def _own(rules: Rules, clause: OnnxClause, view: NodeView) -> ValuesByPlace | None:
    op = clause.operator
    assert op
    check_unnamed(clause, view)
    tensors = {param.name: k for k, param in enumerate(op.params)}
    declared = {attr.name: attr for attr in op.attrs}
    args: list[Any] = [None] * len(tensors)
    attrs: dict[str, Any] = {}
    later: list[tuple[t.Expr, Any]] = []

    def bind(name: str, value: Any) -> None:
        if name not in declared:
            raise Skip
        attrs[name] = _typed(declared[name], value)

    for pattern, value in _paired(clause, view, bind):
        if pattern.star:
            args = list(value)
        elif pattern.name in tensors:
            args[tensors[pattern.name]] = value
        elif value is None:
            continue
        elif pattern.name in declared:
            items = number_list(view, value)
            if 0 in items and clause.op in COPYING and not view.attribute("allowzero")[1]:
                # another clause says what a 0 stands for
                raise Skip
            bind(pattern.name, _list_or_number(declared[pattern.name].type, items))
        else:
            later.append((t.Name(pattern.name, span=pattern.span), number_list(view, value)))

    def named(expr: t.Expr, present: bool, value: Any) -> bool:
        if expr.bare not in declared:
            return False
        default = declared_default(rules, op, declared[expr.bare]) if isinstance(value, float) else None
        # a default may be written with more digits than a 32-bit float of the file has
        usual = isinstance(default, int | float | Fraction) and np.float32(float(default)) == np.float32(value)
        if present and not usual:
            bind(expr.bare, value)
        return True

    _bind_entries(clause, view, Env(op.module, rules), later, named, bind)
    values = apply(rules, op, args, attrs)
    if later:
        _agree(later, operator_env(rules, op, args, attrs))
    return _outputs(clause, op, values, view)


def _agree(later: Iterable[tuple[t.Expr, Any]], env: Env) -> None:
    """Raises Skip where an expression has another value than the node."""
    if not all(equal(expected, evaluate(expr, env)) for expr, expected in later):
        raise Skip


def _bind_entries(
    clause: OnnxClause, view: NodeView, env: Env, later: list[tuple[t.Expr, Any]],
    named: Callable[[t.Expr, bool, Any], bool], bind: Callable[[str, Any], None],
) -> None:  # fmt: skip
    """Binds what the attribute map names, first by `named`; what it compares goes to `later`, or is a literal."""
    for entry in clause.attrs:
        present, value = view.attribute(entry.name)
        expr = entry.value
        if is_literal(expr):
            if not (equal(value, evaluate(expr, env)) if present else not view.exists(entry.name)):
                raise Skip
        elif named(expr, present, value):
            continue
        elif isinstance(expr, t.ListExpr) and isinstance(value, tuple):
            _split_list(expr, value, bind)
        elif entry.name in view.attrs:
            later.append((expr, value))


def declared_default(rules: Rules, op: OperatorDef, declared: t.Attr | t.Param) -> Any:
    """The value of an attribute or a parameter that is left out; None where it has none."""
    try:
        return evaluate(declared.default, Env(op.module, rules)) if declared.default else None
    except NO_FIT:
        return None


def _typed(attr: t.Attr, value: Any) -> Any:
    """An attribute of a file as the declared kind: element types by number."""
    if attr.type.name == "dtype" and isinstance(value, int):
        if value not in DTYPES:
            raise Skip
        return DTYPES[value]
    if not isinstance(value, int | float | Fraction | str | tuple | Scalar | DType):
        raise Skip
    return value


def _list_or_number(type: t.TypeExpr, items: tuple[Any, ...]) -> Any:
    if type.dims is not None or type.name in {"ints", "floats", "axes", "permutation"}:
        return items
    if len(items) != 1:
        raise Skip
    return bool(items[0]) if type.name == "bool" else items[0]


def starred(clause: OnnxClause) -> t.Param | None:
    """The output of a clause that stands for all of a node's."""
    return clause.outputs[0] if clause.outputs and len(clause.outputs) == 1 and clause.outputs[0].star else None


def outputs_of(clause: OnnxClause, op: OperatorDef, values: Values) -> ValuesByPlace:
    """An operator's results in the order in which its clause has them."""
    if clause.outputs is None or starred(clause):
        return values
    names = [output.name for output in op.syntax.outputs]
    return tuple(None if o.name == "_" else values[names.index(o.name)] for o in clause.outputs)


def _outputs(clause: OnnxClause, op: OperatorDef | None, values: Values, view: NodeView) -> ValuesByPlace | None:
    """The values by output position of the node."""
    count = len(view.used)
    if starred(clause):
        return values if len(values) == count else None
    given = outputs_of(clause, op, values) if op else values
    padded = (*given, *([None] * (count - len(given))))[:count]
    if any(used and value is None for used, value in zip(view.used, padded, strict=True)):
        return None
    return padded


# ---- import-only clauses ---------------------------------------------------------------------------------------


def names_in_types(clause: OnnxClause) -> frozenset[str]:
    """Sizes, packs and element types that the types of the clause's inputs bind."""
    types = [param.type for param in clause.inputs if isinstance(param, t.Param) and param.type]
    own = [type for type in types if type.name not in ATTRIBUTE_TYPES]
    dims = (part for type in own for dim in type.dims or () for part in t.walk(dim))
    return frozenset(type.name for type in own) | {part.bare for part in dims if part.bare}


def _import_only(rules: Rules, clause: OnnxClause, view: NodeView) -> ValuesByPlace | None:
    assert clause.value
    check_unnamed(clause, view)
    env = Env(clause.module, rules)
    later: list[tuple[t.Expr, Any]] = []
    pairs = _bind_inputs(clause, view, env)
    _bind_entries(clause, view, env, later, _named_in(clause, env), env.bind)
    if every := starred(clause):
        env.bind(every.name, (0,) * len(view.used))
    for statement in clause.statements:
        if isinstance(statement, t.Function):
            env.bind(statement.name, Closure(statement, env))
        elif isinstance(statement, t.Let):
            env.bind(statement.target.name, Thunk(lambda e=statement.value: evaluate(e, env)))  # type: ignore[misc]
        elif isinstance(statement, t.LetMany):
            for k, name in enumerate(statement.names):
                env.bind(name, Thunk(lambda e=statement.value, k=k: evaluate(e, env)[k]))  # type: ignore[misc]
    solve(pairs, conditions_in(clause.statements), env)
    _agree(later, env)
    result = evaluate(clause.value, env)
    values = result if isinstance(result, tuple) else (result,)
    if not values or not all(isinstance(value, Value) for value in values):
        raise Skip
    return _outputs(clause, None, values, view)


def _bind_inputs(clause: OnnxClause, view: NodeView, env: Env) -> list[Any]:
    pairs: list[Any] = []
    rank = next((v.type.rank for v in view.inputs if v and v.known), 0)
    for pattern, value in _paired(clause, view, env.bind):
        if pattern.star:
            env.bind(pattern.name, tuple(value))
        elif pattern.type and pattern.type.name in ATTRIBUTE_TYPES:
            _bind_attribute_input(pattern, value, rank, view, env)
        elif value is None:
            if not pattern.default:
                raise Skip
            env.bind(pattern.name, Thunk(lambda p=pattern: _default_tensor(p, env)))  # type: ignore[misc]
        else:
            if not value.known:
                raise Skip
            env.bind(pattern.name, value)
            if pattern.type:
                pairs.append((pattern.type, value.type))
                if pattern.type.dims is not None:
                    env.decls = {**env.decls, pattern.name: pattern.type.dims}
    return pairs


def _default_tensor(param: t.Param, env: Env) -> Any:
    assert param.default
    number = evaluate(param.default, env)
    if not param.type or isinstance(number, Value):
        return number
    type = shape_of(param.type, env)
    return fill(clamped(number, type.dtype), type)


def _bind_attribute_input(param: t.Param, value: Value | None, rank: int, view: NodeView, env: Env) -> None:
    assert param.type
    if not value:
        if not param.default:
            raise Skip
        env.bind(param.name, Thunk(lambda: _default_attribute(param, env)))
        return
    found = _list_or_number(param.type, number_list(view, value))
    if param.type.name == "axes":
        found = axes_of(found, rank)  # their order belongs to other lists
    elif param.type.name == "axis" and isinstance(found, int) and found < 0:
        found += rank
    env.bind(param.name, found)


def _default_attribute(param: t.Param, env: Env) -> Any:
    """A default; one number for a list stands for every entry."""
    assert param.type and param.default
    value = evaluate(param.default, env)
    if param.type.dims and not isinstance(value, tuple):
        return (value,) * int(evaluate(param.type.dims[0], env))
    return value


def _named_in(clause: OnnxClause, env: Env) -> Callable[[t.Expr, bool, Any], bool]:
    """Binds a name, or one with another value where the attribute is missing (`or`); it must be there else."""
    sizes = names_in_types(clause)

    def named(expr: t.Expr, present: bool, value: Any) -> bool:
        if isinstance(expr, t.Binary) and expr.op == "or" and isinstance(expr.left, t.Name):
            env.bind(expr.left.id, value if present else Thunk(lambda: evaluate(expr.right, env)))
            return True
        if not isinstance(expr, t.Name) or expr.id in sizes or env.has(expr.id) or expr.id in {"true", "false"}:
            return False
        if not present:
            raise Skip
        env.bind(expr.id, value)
        return True

    return named

"""What an operator is for every shape, read off its equation's text."""

from __future__ import annotations

from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import ScopeNode, input_value
from dslc.ir.scalar import Apply, Read, Reduce, Scalar, walk
from dslc.semantics.apply import apply, rules_cache
from dslc.semantics.definitions import OperatorDef
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules
from dslc.semantics.walk import walk_expr
from dslc.syntax import tree as t


def is_pointwise(op: OperatorDef, rules: Rules) -> bool:
    """Whether each element of the one result depends on the same (or broadcast) element of every tensor."""
    cache = rules_cache(rules, "pointwise")
    if op.name not in cache:
        cache[op.name] = _pointwise(op)
    return bool(cache[op.name])


def _pointwise(op: OperatorDef) -> bool:
    if len(op.syntax.outputs) != 1 or not op.syntax.params:
        return False
    for param in op.syntax.params:
        dims = param.type.dims if param.type is not None else None
        if dims is None or len(dims) > 1 or not all(isinstance(element, t.Pack) for element in dims):
            return False
    if not _keeps_shape(op):
        return False
    equations = [s for s in op.syntax.statements if isinstance(s, t.Equation)]
    if len(equations) != 1 or equations[0].target.places is None or len(equations[0].target.places) != 1:
        return False
    place = equations[0].target.places[0]
    if not isinstance(place, t.Binder) or not place.star:
        return False
    names = {param.name for param in op.syntax.params}
    for statement in op.syntax.statements:
        if not isinstance(statement, t.Equation | t.Let | t.Function):
            continue
        body = statement.body if isinstance(statement, t.Function) else statement.value
        for node in walk_expr(body):
            if isinstance(node, t.Reduction | t.Nested):
                return False
            read = isinstance(node, t.Subscript) and isinstance(node.base, t.Name) and node.base.id in names
            if read and isinstance(node, t.Subscript) and not _same_place(node.subs, place.name):
                return False
    return True


def _keeps_shape(op: OperatorDef) -> bool:
    """The result's shape is a parameter's, or the broadcast of several: no attribute changes it."""
    packs = {
        element.value.id
        for param in op.syntax.params
        for element in (param.type.dims or () if param.type is not None else ())
        if isinstance(element, t.Pack) and isinstance(element.value, t.Name)
    }
    type = op.syntax.outputs[0].type
    if type is None or type.dims is None or len(type.dims) != 1 or not isinstance(type.dims[0], t.Pack):
        return False
    shape = type.dims[0].value
    parts = shape.args if isinstance(shape, t.Call) and shape.function == "broadcast" else (shape,)
    return all(isinstance(part, t.Name) and part.id in packs for part in parts)


def _same_place(subs: tuple[t.Expr, ...], index: str) -> bool:
    if not subs:
        return True
    if len(subs) != 1 or not isinstance(subs[0], t.Pack):
        return False
    value = subs[0].value
    if isinstance(value, t.Call) and value.function == "fit":
        value = value.args[0]
    return isinstance(value, t.Name) and value.id == index


def is_linear(op: OperatorDef, rules: Rules) -> bool:
    """Whether the one result is jointly linear in all tensors, at sample shapes and default attributes."""
    cache = rules_cache(rules, "linear")
    if op.name not in cache:
        cache[op.name] = _linear(op, rules)
    return bool(cache[op.name])


def _linear(op: OperatorDef, rules: Rules) -> bool:
    from dslc.semantics.elaborate import expand

    tried = 0
    for rank in (2, 3, 4):
        sample = TensorType(DType.F32, (4,) * rank)
        args = tuple(input_value(f"p{k}", sample) for k in range(len(op.syntax.params)))
        try:
            outputs = expand(rules, apply(rules, op, args))
        except (Mismatch, EvalError):
            continue
        node = outputs[0].node
        flat = isinstance(node, ScopeNode) and not any(isinstance(arg.node, ScopeNode) for arg in node.args)
        if not flat or not isinstance(node, ScopeNode) or _degree(node.scope.body) != 1:
            return False
        tried += 1
    return tried > 0


def _degree(node: Scalar) -> int | None:
    """0 without reads, 1 where homogeneous linear in the reads, None otherwise."""
    if isinstance(node, Read):
        return 1 if all(_degree(part) == 0 for part in node.index) else None
    if isinstance(node, Reduce):
        return _degree(node.body) if node.kind == "sum" else (None if _reads(node) else 0)
    if isinstance(node, Apply) and _reads(node):
        parts = [_degree(arg) for arg in node.args]
        if node.name == "+":
            return 1 if all(part == 1 for part in parts) else None
        if node.name == "*":
            return 1 if sorted(-1 if p is None else p for p in parts) == [0] * (len(parts) - 1) + [1] else None
        if node.name == "select" and parts[0] == 0:
            zero = [part == 1 or _is_zero(arg) for part, arg in zip(parts[1:], node.args[1:], strict=True)]
            return 1 if all(zero) else None
        if node.name == "/" and parts[1] == 0:
            return parts[0]
        return None
    return 0


def _is_zero(node: Scalar) -> bool:
    return str(node) == "0"


def _reads(node: Scalar) -> bool:
    return any(isinstance(part, Read) for part in walk(node))

"""Properties of operators that hold for every shape, read off an equation's text."""

from __future__ import annotations

from typing import Any

from dslc.semantics.definitions import FunctionDef, Module, OperatorDef
from dslc.semantics.library import Rules, rules_cache
from dslc.semantics.walk import dims_of, nodes, pack_name
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import FUNCTIONS_1


def is_pointwise(op: OperatorDef, rules: Rules) -> bool:
    """Return whether each element of the one result is a function of the same (or broadcast) element of every tensor.

    One function of elements and attributes for all positions, ranks and sizes.
    """
    cache = rules_cache(rules, "pointwise")
    if op.name not in cache:
        cache[op.name] = False  # of what calls itself nothing is known
        cache[op.name] = _pointwise(op, rules)
    return bool(cache[op.name])


def _pointwise(op: OperatorDef, rules: Rules) -> bool:
    if len(op.outputs) != 1 or not op.params:
        return False
    for param in op.params:
        dims = param.type.dims if param.type else None
        if dims is None or len(dims) > 1 or not all(isinstance(element, t.Pack) for element in dims):
            return False
    if not _keeps_shape(op):
        return False
    equations = [s for s in op.statements if isinstance(s, t.Equation)]
    if len(equations) != 1 or equations[0].target.places is None or len(equations[0].target.places) != 1:
        return False
    place = equations[0].target.places[0]
    if not isinstance(place, t.Binder) or not place.star:
        return False
    scalars = {param.name for param in op.params if param.type and param.type.dims == ()}
    tensors = {param.name for param in op.params} - scalars
    sizes = {node.id for param in op.params for node in nodes(t.Name, param.type)}
    # what an element may not depend on: its position, ranks and sizes, and other elements
    elsewhere = {place.name} | sizes | tensors
    bodies: list[Any] = []
    for statement in op.statements:
        if isinstance(statement, t.Equation | t.Let):
            bodies.append(statement.value)
        elif isinstance(statement, t.LetMany):
            return False
        elif isinstance(statement, t.Function):
            bodies.append(statement.body)
        elif isinstance(statement, t.Attr) and statement.default:
            bodies.append(statement.default)
    bodies += [param.default for param in op.params if param.default]
    return all(_of_elements(body, elsewhere, tensors, place.name, op.module, rules) for body in bodies)


def _of_elements(node: Any, elsewhere: set[str], tensors: set[str], index: str, module: Module, rules: Rules) -> bool:
    """Return whether a piece of an operator's text depends on nothing but elements at the place `index` and on attributes."""
    if isinstance(node, tuple):
        return all(_of_elements(part, elsewhere, tensors, index, module, rules) for part in node)
    if not isinstance(node, t.Node):
        return True
    if isinstance(node, t.Reduction | t.Nested | t.Traversal):
        return False
    if isinstance(node, t.Subscript) and node.base.bare in tensors:
        # outside of its tensor a read's `other=` would show where the element is
        return node.other is None and _same_place(node.subs, index)
    if isinstance(node, t.Name):
        return node.id.partition(".")[0] not in elsewhere
    if isinstance(node, t.Call):
        # in an equation the scalar function is meant where an operator has its name
        called = None if node.function in FUNCTIONS_1 | {"min", "max"} else module.lookup(node.function)
        if isinstance(called, OperatorDef) and not is_pointwise(called, rules):
            return False
        if isinstance(called, FunctionDef) and not _of_elements(
            called.syntax.body, set(), set(), "", called.module, rules
        ):
            return False
    return all(_of_elements(part, elsewhere, tensors, index, module, rules) for part in t.children(node))


def _keeps_shape(op: OperatorDef) -> bool:
    """The result's shape is a parameter's, or the broadcast of several: no attribute changes it."""
    packs = {pack_name(element) for param in op.params for element in dims_of(param.type)}
    type = op.outputs[0].type
    if type is None or type.dims is None or len(type.dims) != 1 or not isinstance(type.dims[0], t.Pack):
        return False
    shape = type.dims[0].value
    parts = shape.args if isinstance(shape, t.Call) and shape.function == "broadcast" else (shape,)
    return all(part.bare in packs for part in parts)


def _same_place(subs: tuple[t.Expr, ...], index: str) -> bool:
    if not subs:
        return True
    if len(subs) != 1 or not isinstance(subs[0], t.Pack):
        return False
    value = subs[0].value
    if isinstance(value, t.Call) and value.function == "fit":
        value = value.args[0]
    return value.bare == index

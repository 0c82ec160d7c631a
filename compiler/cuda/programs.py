"""Programs as they are looked at by plans: as one scope, as a view of memory, with weights as arguments."""

from __future__ import annotations

from collections.abc import Mapping

from dslc.cuda.views import StridedView, looked_at
from dslc.errors import DslcError
from dslc.fuse.groups import NodeGroup
from dslc.fuse.kernels import fold_of
from dslc.ir.constants import number_of
from dslc.ir.dtype import Dim
from dslc.ir.graph import (
    Constant,
    Graph,
    Kernel,
    Node,
    Scope,
    ScopeNode,
    Value,
    Values,
    input_value,
    kernel_value,
    replace,
    scope_value,
)
from dslc.ir.scalar import Num, Read, Reduce, Scalar, apply, as_scalar, num, read, rebuild, traversal, walk
from dslc.ir.scopes import inline
from dslc.semantics.elaborate import expand, expand_node
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules, rules_cache

DEEPEST = 64  #: scopes that are put into each other at most

OneScope = tuple[Scope, Values]


def as_kernel(node: Node) -> Kernel:
    """A node as a kernel of its own."""
    return node if isinstance(node, Kernel) else fold_of(NodeGroup((node,), node.values)).kernel


def lifted(kernel: Kernel) -> Kernel:
    """A kernel with tensors that are one number everywhere as arguments: to a vendor's function they are weights as others are."""
    inner = [Value(one) for one in kernel.group.nodes() if isinstance(one, Constant)]
    weights = [one for one in inner if one.type.is_static and one.type.elements > 1]
    if not weights:
        return kernel
    holes = {value: input_value(f"w{k}", value.type) for k, value in enumerate(weights)}
    program = Graph((*kernel.group.inputs, *holes.values()), replace(kernel.group.outputs, holes))
    found = kernel_value(program, (*kernel.args, *weights))[0].node
    assert isinstance(found, Kernel)
    return found


def one_scope(rules: Rules, program: Graph) -> OneScope | None:
    """A program of one result as one scope over its holes; None where it is more than that."""
    known: dict[Graph, OneScope | None] = rules_cache(rules, "programs as one scope")
    if program not in known:
        known[program] = _one_scope(rules, program)
    return known[program]


def _one_scope(rules: Rules, program: Graph) -> OneScope | None:
    if len(program.outputs) != 1:
        return None
    try:
        (value,) = expand(rules, program.outputs)
    except (Mismatch, DslcError):
        return None
    for _ in range(DEEPEST):
        if not isinstance(value.node, ScopeNode):
            return None
        value = _with_numbers(value)
        node = value.node
        assert isinstance(node, ScopeNode)
        below = next((k for k, arg in enumerate(node.args) if isinstance(arg.node, ScopeNode)), None)
        if below is None:
            return (_split(node.scope), node.args) if set(node.args) <= set(program.inputs) else None
        try:
            value = inline(value, below)
        except TypeError:
            return None
    return None


def _split(scope: Scope) -> Scope:
    """A scope in which an iterator of which quotients and remainders are taken is two.

    A merged dimension, that was one when what is computed of it was put around it.
    """
    by: dict[Scalar, int] = {}
    extents: dict[Scalar, Dim] = dict(scope.ranges)
    for node in walk(scope.body):
        if node.op in {"//", "%"} and isinstance(node.args[1], Num) and node.args[0] in extents:
            size, part = extents[node.args[0]], node.args[1].value
            if not isinstance(size, int) or not isinstance(part, int) or part < 1 or size % part:
                return scope
            if by.setdefault(node.args[0], part) != part:
                return scope
    if not by or scope.groups is not None:
        return scope
    new: dict[Scalar, Scalar] = {}
    sizes: list[Dim] = []
    for it in scope.iters:
        lower, at = by.get(it), len(sizes)
        if lower is None:
            new[it] = traversal(at)
            sizes.append(extents[it])
            continue
        sizes += [int(str(extents[it])) // lower, lower]
        high, low = traversal(at), traversal(at + 1)
        new[apply("//", it, num(lower))], new[apply("%", it, num(lower))] = high, low
        new[it] = apply("+", apply("*", num(lower), high), low)
    groups = tuple(2 if it in by else 1 for it in scope.iters)
    return Scope(tuple(sizes), rebuild(scope.body, new.get), scope.dtype, groups)


def _with_numbers(value: Value) -> Value:
    """A scope with its operands that are one number everywhere as that number."""
    node = value.node
    assert isinstance(node, ScopeNode)
    numbers = {k: number_of(arg) for k, arg in enumerate(node.args) if arg.constant}
    if all(found is None for found in numbers.values()):
        return value
    kept = [k for k in range(len(node.args)) if numbers.get(k) is None]
    place = {k: at for at, k in enumerate(kept)}

    def leaf(one: Scalar) -> Scalar | None:
        if not isinstance(one, Read):
            return None
        number = numbers.get(one.operand)
        # outside of its bounds it may be another one
        if number is not None and (one.other is None or one.other is as_scalar(number)):
            return as_scalar(number)
        if one.operand not in place:
            return None
        # where it reads, and what it is outside, may be read as well
        index = tuple(rebuild(each, leaf) for each in one.index)
        return read(place[one.operand], index, rebuild(one.other, leaf) if one.other else None)

    if any(isinstance(one, Read) and one.operand not in place and leaf(one) is None for one in walk(node.scope.body)):
        return value
    scope = Scope(node.scope.extents, rebuild(node.scope.body, leaf), node.scope.dtype, node.scope.groups)
    return scope_value(scope, tuple(node.args[k] for k in kept))


def scopes_of(rules: Rules, node: Node) -> list[ScopeNode]:
    """The scopes that a node is made of; none where it has none."""
    try:
        values = expand_node(rules, node, tuple(input_value(f"h{k}", arg.type) for k, arg in enumerate(node.args)))
    except (Mismatch, DslcError):
        return []
    return [one for one in Graph((), values).nodes() if isinstance(one, ScopeNode)]


def looks_only(rules: Rules, node: Node) -> bool:
    """Return whether a node computes nothing: every element of its result is one of an argument's, and its position says which one."""
    scopes = scopes_of(rules, node)
    bodies = [one.scope.body for one in scopes]
    return bool(bodies) and all(
        isinstance(one, Read) and one.other is None and not any(at.reads for at in one.index) for one in bodies
    )


def sums_products(rules: Rules, node: Node) -> bool:
    """Return whether a node sums products of two reads somewhere."""
    return any(
        isinstance(one, Reduce) and one.kind == "sum" and sum(isinstance(each, Read) for each in walk(one.body)) == 2
        for scope in scopes_of(rules, node)
        for one in walk(scope.scope.body)
    )


def view_of_node(rules: Rules, node: Node, views: Mapping[Value, StridedView]) -> StridedView | None:
    """A node's result as a view of one of its arguments, where it is one."""
    if isinstance(node, Kernel) or len(node.types) != 1 or not node.args:
        return None
    holes = {arg: input_value(f"h{k}", arg.type) for k, arg in enumerate(node.args)}
    try:
        (value,) = expand_node(rules, node, tuple(holes[arg] for arg in node.args))
    except (Mismatch, DslcError):
        return None
    chain: list[ScopeNode] = []
    while isinstance(value.node, ScopeNode):
        # a value outside, or an index that is data, makes more of it than a view
        if len(value.node.args) != 1 or not isinstance(value.node.scope.body, Read):
            return None
        chain.append(value.node)
        value = value.node.args[0]
    arg = next((arg for arg, hole in holes.items() if hole == value), None)
    view = views.get(arg) if arg else None
    for one in reversed(chain):
        view = looked_at(one.scope, view) if view else None
    return view

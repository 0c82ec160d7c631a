"""Programs with other sizes in the place of unknown ones, in types, attributes and expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dslc.ir.constants import FillRef, fill
from dslc.ir.dtype import TensorType
from dslc.ir.graph import (
    Call,
    Constant,
    Graph,
    Input,
    Kernel,
    Node,
    Opaque,
    Scope,
    ScopeNode,
    Value,
    Values,
    call,
    kernel_value,
    opaque,
    rebuild,
    retyped,
    scope_value,
    with_args,
)
from dslc.ir.scalar import Apply, Num, Scalar, Sym, scalars

#: what an expression of sizes becomes
Put = Callable[[Scalar], Scalar]


def sized(item: Any, put: Put) -> Any:
    """A size, a shape or an attribute with its expressions mapped; everything else as it is."""
    if isinstance(item, tuple):
        return tuple(sized(each, put) for each in item)
    if not isinstance(item, Scalar):
        return item
    found = put(item)
    return found.value if isinstance(found, Num) else found


def type_at(type: TensorType, put: Put) -> TensorType:
    """A type with the sizes of its shape mapped."""
    return TensorType(type.dtype, sized(type.shape, put))


def with_sizes(outputs: Iterable[Value], put: Put, body: Put | None = None) -> Values:
    """Values with every size mapped by `put`, and what scopes compute by `body` (by `put` where it is not given).

    Before: `X: f32[N]`, `{[i0: N] $0[i0] * N}(X)`. After, with `N -> 4`: `X: f32[4]`, `{[i0: 4] $0[i0] * 4}(X)`.
    """
    return rebuild(outputs, lambda node, args: node_at(node, args, put, body or put))


def node_at(node: Node, args: Values, put: Put, body: Put) -> Values:
    """One node over arguments whose sizes were mapped already."""
    if isinstance(node, ScopeNode):
        scope = node.scope
        return (scope_value(Scope(sized(scope.extents, put), body(scope.body), scope.dtype, scope.groups), args),)
    if isinstance(node, Kernel):
        inside = with_sizes((*node.group.inputs, *node.group.outputs), put, body)
        count = len(node.group.inputs)
        return kernel_value(Graph(inside[:count], inside[count:]), args)
    types = tuple([type_at(type, put) if type else None for type in node.types])
    if isinstance(node, Input):
        return (retyped(node, types[0]),)
    if isinstance(node, Call):
        attrs = tuple((name, sized(value, put)) for name, value in node.attrs)
        return call(node.op, args, attrs, tuple(type for type in types if type))
    if isinstance(node, Opaque):
        return opaque(node.key, node.label, node.payload, args, types)
    if isinstance(node, Constant) and isinstance(node.data, FillRef) and types != node.types and types[0]:
        return (fill(node.data.value, types[0]),)
    return with_args(node, args)


def expressions(item: Any) -> Iterator[Scalar]:
    """The expressions in a program, a node, a type, an attribute, or several of them: sizes, and what scopes compute."""
    match item:
        case Scalar():
            yield item
        case Graph():
            yield from expressions([*(value.type for value in item.inputs), *item.nodes()])
        case ScopeNode(scope=scope):
            yield from expressions((*scope.extents, scope.body))
        case Kernel():
            yield from expressions(item.group)
        case Call():
            yield from expressions((item.types, item.attrs))
        case Node(types=parts) | TensorType(shape=parts) | tuple(parts) | list(parts):
            for each in parts:
                yield from expressions(each)


def unknowns(item: Any) -> dict[Sym, None]:
    """The unknown sizes in what `expressions` takes, in their order."""
    return dict.fromkeys(part for each in expressions(item) for part in scalars(Sym, each))


def multiple(size: Any) -> tuple[Sym, int] | None:
    """The unknown size that a size is so many times: `4 * N` is 4 times `N`. None for all others."""
    if isinstance(size, Sym):
        return size, 1
    if not isinstance(size, Apply) or size.name != "*" or len(size.args) != 2:
        return None
    factors = [
        part.value for part in size.args if isinstance(part, Num) and isinstance(part.value, int) and part.value > 0
    ]
    symbols = [part for part in size.args if isinstance(part, Sym)]
    return (symbols[0], factors[0]) if len(factors) == len(symbols) == 1 else None

"""Expressions of operators: which are sums of products, and how they are read."""

from __future__ import annotations

from dataclasses import replace

from dslc.analysis.iterators import coefficient_of
from dslc.errors import DslcError
from dslc.ir.graph import Call, Graph, Node, ScopeNode, Value, nodes_of, scope_value
from dslc.ir.holes import abstracted, leaves_of
from dslc.ir.scalar import Num, Read, Reduce, Scalar, apply, num, rebuild, scalars, walk
from dslc.ir.scopes import inline
from dslc.semantics.elaborate import expand
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules


def expanded(rules: Rules, program: Graph) -> Value | None:
    """The expression of a program with one result; None where it has none."""
    try:
        (value,) = expand(rules, program.outputs)
    except (Mismatch, EvalError, DslcError):
        return None
    return value


def as_one(value: Value) -> Value:
    """A scope with all that it reads of scopes without reductions in it, as far as that is one expression."""
    while isinstance(value.node, ScopeNode):
        below = (
            k for k, arg in enumerate(value.node.args) if isinstance(arg.node, ScopeNode) and not _reduces(arg.node)
        )
        k = next(below, None)
        if k is None:
            break
        value = inline(value, k)
    node = value.node
    if not isinstance(node, ScopeNode):
        return value
    body = rebuild(node.scope.body, _squared)
    return value if body is node.scope.body else scope_value(replace(node.scope, body=body), node.args)


def reductions(rules: Rules, program: Graph) -> int | None:
    """The number of reductions of a program; None where it is no expression."""
    try:
        below = nodes_of(expand(rules, program.outputs))
    except (Mismatch, EvalError, DslcError):
        return None
    return sum(
        isinstance(part, Reduce) for node in below if isinstance(node, ScopeNode) for part in walk(node.scope.body)
    )


def is_moved(rules: Rules, node: Call) -> bool:
    """Return whether an operator computes nothing: its elements are those of one operand, at static places, or constants."""
    program, _ = abstracted(node.values, leaves_of((node,)))
    value = expanded(rules, program)
    one = as_one(value).node if value else None
    body = one.scope.body if isinstance(one, ScopeNode) else None
    return isinstance(body, Read) and sum(isinstance(part, Read) for part in walk(body)) == 1


def factors(rules: Rules, program: Graph) -> int:
    """The number of tensors over whose elements a program is one sum; 0 where it is none."""
    found = _sum(rules, program)
    if found is None:
        return 0
    node, total = found
    operands = {node.args[part.operand] for part in scalars(Read, total.body)}
    return sum(one.type.rank > 0 for one in operands)


def windows(rules: Rules, program: Graph) -> tuple[int, ...]:
    """Lengths of the sum of a program along each window that moves over an operand by one position.

    As `r` in `X[h + 2 * r]`: how many positions, from the first to the last.
    """
    found = _sum(rules, program)
    if found is None:
        return ()
    node, total = found
    sizes = dict(total.ranges)
    around = frozenset(node.scope.iters)
    spans: list[int] = []
    for index in (index for part in scalars(Read, total.body) for index in part.index):
        summed = [it for it in total.iters if it in index.free]
        moved = [it for it in around if it in index.free]
        steps = [coefficient_of(index, it) for it in moved]
        size = sizes[summed[0]] if len(summed) == 1 else None
        if steps == [1] and size is not None and isinstance(size, Num) and isinstance(size.value, int):
            spans.append((size.value - 1) * abs(coefficient_of(index, summed[0]) or 0) + 1)
    return tuple(spans)


def is_sized(node: Node) -> bool:
    """Return whether all types of a node are known."""
    return all(type is not None for type in (*node.types, *(arg.type_or_none for arg in node.args)))


def is_static(node: Node) -> bool:
    """Return whether all sizes of a node are known."""
    return is_sized(node) and all(value.type.is_static for value in (*node.values, *node.args))


def same(found: Value, old: Value) -> bool:
    """Return whether a program is the operator that it was derived of."""
    a, b = found.node, old.node
    return isinstance(a, Call) and isinstance(b, Call) and (a.op, a.tag) == (b.op, b.tag)


def _sum(rules: Rules, program: Graph) -> tuple[ScopeNode, Reduce] | None:
    """The only sum of a program, and the scope that it is in."""
    value = expanded(rules, program)
    below = Graph(program.inputs, (as_one(value),)).nodes() if value else []
    sums = [
        (node, part) for node in below if isinstance(node, ScopeNode)
        for part in scalars(Reduce, node.scope.body) if part.kind == "sum"
    ]  # fmt: skip
    return sums[0] if len(sums) == 1 else None


def _squared(part: Scalar) -> Scalar | None:
    """`f * f` as `f ^ 2`, where `f` is more than an element: so rules are written."""
    if part.op == "*" and len(part.args) == 2 and part.args[0] is part.args[1]:
        return None if isinstance(part.args[0], Read) else apply("^", part.args[0], num(2))
    return None


def _reduces(node: ScopeNode) -> bool:
    return any(isinstance(part, Reduce) for part in walk(node.scope.body))

"""Occurrences of a program over holes in a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dslc.ir.graph import Call, Graph, Kernel, Node, ScopeNode, Value, Values


def places_of(program: Graph, graph: Graph) -> Iterator[tuple[Values, Values]]:
    """Each place of a program in a graph: what its holes stand for, and the values that are its results.

    `relu(conv(h0, h1))` in `add(relu(conv(X, W)), Y)` → `X, W` and `relu(conv(X, W))`. Nodes are terms: a hole that occurs twice stands
    for one value, and so does every constant of the program, which is part of it. In the order of the graph.
    """
    by_kind: dict[Any, list[Node]] = {}
    for node in graph.nodes():
        by_kind.setdefault(_kind(node), []).append(node)
    holes = frozenset(program.inputs)
    for known in _placed(program.outputs, {}, by_kind, holes):
        if all(hole in known for hole in program.inputs):
            yield tuple(known[hole] for hole in program.inputs), tuple(known[value] for value in program.outputs)


def _placed(
    roots: Sequence[Value], known: Mapping[Value, Value], by_kind: Mapping[Any, Sequence[Node]], holes: frozenset[Value]
) -> Iterator[dict[Value, Value]]:
    """Extend a binding by the values of a program at which all of these results are found."""
    if not roots:
        yield {**known}
        return
    root, rest = roots[0], roots[1:]
    if root in known:
        yield from _placed(rest, known, by_kind, holes)
        return
    for node in by_kind.get(_kind(root.node), ()):
        found = _matched(root, node.values[root.index], known, holes)
        if found is not None:
            yield from _placed(rest, found, by_kind, holes)


def _matched(
    pattern: Value, value: Value, known: Mapping[Value, Value], holes: frozenset[Value]
) -> dict[Value, Value] | None:
    """Bind the values below a value of a program to those of a graph; None where they differ."""
    found = {**known}
    stack = [(pattern, value)]
    while stack:
        one, other = stack.pop()
        if one in found:
            if found[one] != other:
                return None
            continue
        if one in holes:
            if one.type_or_none != other.type_or_none:
                return None
        else:
            if one != other and (one.index != other.index or not _alike(one.node, other.node)):
                return None
            # also where both are one value: a graph may have the holes of the program
            stack += zip(one.node.args, other.node.args, strict=True)
        found[one] = other
    return found


def _alike(pattern: Node, node: Node) -> bool:
    """Return whether two nodes are the same but for their arguments."""
    return (
        isinstance(pattern, Call | ScopeNode | Kernel)
        and _kind(pattern) == _kind(node)
        and len(pattern.args) == len(node.args)
    )


def _kind(node: Node) -> Any:
    """Equal for nodes that may be alike."""
    if isinstance(node, Call):
        return node.head
    if isinstance(node, Kernel):
        return node.group.inputs, node.group.outputs
    return node.scope if isinstance(node, ScopeNode) else type(node)

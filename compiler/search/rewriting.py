"""Several replacements in one graph at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dslc.ir.graph import Graph, Value, with_args


def rewritten(graph: Graph, new: Mapping[Value, Value]) -> Graph:
    """The graph with every value in `new` replaced, also inside the replacements of others.

    A replacement that holds the value that it replaces keeps it there as it was. All values are equal to what they replace, so
    the result is right in whatever order they are taken; terms have no cycles, so neither has the result.
    """
    done: dict[Value, Value] = {}
    opened: set[Value] = set()
    stack = list(graph.outputs)
    while stack:
        value = stack[-1]
        if value in done:
            stack.pop()
            continue
        target = new.get(value)
        if target is None and value.node.constant:
            done[value] = value
            continue
        needs = value.node.args if target is None else (target,)
        if value not in opened:
            opened.add(value)
            pending = [need for need in needs if need not in done and need not in opened]
            if pending:
                stack.extend(pending)
                continue
        # what is still open contains this value: it stays as it was
        if target is not None:
            done[value] = done.get(target, target)
        else:
            done[value] = with_args(value.node, tuple(done.get(arg, arg) for arg in needs))[value.index]
        opened.discard(value)
        stack.pop()
    return Graph(graph.inputs, tuple(done[value] for value in graph.outputs))


def disjoint(chosen: Sequence[Mapping[Value, Value]]) -> dict[Value, Value]:
    """All replacements in one mapping; of two for one value the earlier one stands."""
    out: dict[Value, Value] = {}
    for one in chosen:
        for old, value in one.items():
            out.setdefault(old, value)
    return out

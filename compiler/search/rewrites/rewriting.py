"""Several replacements in one graph at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dslc.ir.graph import Graph, Value, with_args


@dataclass(frozen=True, slots=True, eq=False)
class Rewritten(Graph):
    """A graph with the one that it was made of, and the replacements: what a validation of the result proves again."""

    origin: Graph
    new: Mapping[Value, Value]


def rewritings(graph: Graph, start: Graph) -> Iterator[Rewritten] | None:
    """The rewritings from `start` to `graph`, the last one first; None where the graph was made in other ways."""
    found: list[Rewritten] = []
    at = graph
    while at is not start:
        if not isinstance(at, Rewritten):
            return None
        found.append(at)
        at = at.origin
    return iter(found)


def rewritten(graph: Graph, new: Mapping[Value, Value]) -> Rewritten:
    """The graph with every value in `new` replaced, also inside the replacements of others.

    A replacement that holds the value that it replaces keeps it there as it was. All values are equal to what they replace, so
    the result is right in whatever order they are taken; terms have no cycles, so neither has the result.
    """
    return imaged(graph, new)[0]


def imaged(graph: Graph, new: Mapping[Value, Value]) -> tuple[Rewritten, Mapping[Value, Value]]:
    """As `rewritten`, and for each value that the graph had what stands for it now.

    `ir.rebuild` takes replacements as they are; here they are looked into, some hold what they replace, and constants are passed by.
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
    return Rewritten(graph.inputs, tuple(done[value] for value in graph.outputs), graph, dict(new)), done


def disjoint(chosen: Sequence[Mapping[Value, Value]]) -> dict[Value, Value]:
    """All replacements in one mapping; of two for one value the earlier one stands."""
    out: dict[Value, Value] = {}
    for one in chosen:
        for old, value in one.items():
            out.setdefault(old, value)
    return out

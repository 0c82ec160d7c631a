"""Applying a match: the right side is built, and the terms above the replaced values are built again."""

from __future__ import annotations

from dslc.ir.graph import Graph, Value, replace
from dslc.match.associative import unwrap
from dslc.match.index import GraphIndex
from dslc.match.matcher import Match
from dslc.match.recipe import Refused


def apply_match(match: Match, graph: Graph) -> Graph | None:
    """The graph with the match's results replaced, or None.

    None where the replacement would depend on what it replaces (a cycle), where it cannot be built or has another type, where a guard
    of the right side fails, and where nothing would change. Other users of intermediates keep them.
    """
    try:
        return replaced(match, graph)
    except Refused:
        return None


def replaced(match: Match, graph: Graph) -> Graph:
    """As `apply_match`.

    Raises:
        Refused: with the reason.
    """
    index = match.index
    if not isinstance(index, GraphIndex) or index.graph is not graph:
        index = GraphIndex(graph)
        if any(value.node not in index.position for _, value in match.roots):
            raise Refused("the graph does not hold what was matched")
    new = replacements(match)
    changed = {old: value for old, value in new.items() if old != value}
    if not changed:
        raise Refused("the replacement is what stands there already")
    if len(match.roots) > 1 and index.depends(changed.values(), changed):
        raise Refused("the replacement would depend on a result that it replaces: a cycle")
    outputs = replace(graph.outputs, changed)
    if outputs == graph.outputs:
        raise Refused("nothing that the graph computes would change")
    return Graph(graph.inputs, outputs)


def replacements(match: Match) -> dict[Value, Value]:
    """The new value of every replaced one.

    Raises:
        Refused: the right side has no value here, or one of another type.
    """
    built = match.cases.replacement(match.order, match.ways, match.index, match.leaves, match.case, match.number)
    if not any(way.state.wraps for way in match.ways):
        return dict(zip(match.replaced, built, strict=True))
    rules, wraps = match.rule.rules, match.state.wraps
    out: dict[Value, Value] = {}
    for (name, old), (_, pattern), found in zip(match.roots, match.rule.left.roots, built, strict=True):
        wrap = wraps.get(pattern.site)
        if not wrap:
            out[old] = found
            continue
        longer = unwrap(rules, wrap, found)
        if not longer or longer.type != old.type:
            raise Refused(f"`{name}` does not go back into the longer `{wrap.node.op}`")
        out[old] = longer
    return out

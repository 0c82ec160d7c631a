"""Rules that enable another one: one or two applications make its left side appear."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from dslc.ir.graph import Graph, Values
from dslc.match.apply import apply_match
from dslc.match.index import GraphIndex
from dslc.match.matcher import find_matches
from dslc.match.rule import CompiledRule
from dslc.records import record
from dslc.semantics.definitions import OperatorDef
from dslc.syntax import tree as t

STEPS = 2  #: rules of which one after the other is tried
PLACES = 3  #: places of one rule that are tried
GRAPHS = 300  #: graphs that are looked at in all


@record
class Before:
    """Rules by their names, in the order in which they are applied, and the graph that they give, to which the wanted one applies."""

    rules: tuple[str, ...]
    graph: Graph


def before(wanted: CompiledRule, graph: Graph, others: Sequence[CompiledRule], steps: int = STEPS) -> Before | None:
    """The fewest applications of other rules, at most `steps`, after which `wanted` applies; None where none of those tried does.

    A last step brings an operator that the wanted left side has; a step before it one that some such rule has on its left. Neither
    direction of the wanted rule is a step, nor one that the wanted rule only takes back.
    """
    own = wanted.definition.name
    needed = [wanted.left.operators]
    makers: list[list[CompiledRule]] = []
    for _ in range(steps):
        # a rule that opens a term may become anything
        makers.append([rule for rule in others if rule.definition.name != own and _made(rule) & needed[-1]])
        needed.append(needed[-1].union(*(rule.left.operators for rule in makers[-1])))
    seen = {graph.outputs}
    level = [Before((), graph)]
    for depth in range(steps):
        following: list[Before] = []
        for at in level:
            for reached in _after(at, makers[steps - 1 - depth] if depth < steps - 1 else makers[0]):
                if reached.graph.outputs in seen:
                    continue
                seen.add(reached.graph.outputs)
                if _applies(wanted, reached.graph, (graph.outputs, at.graph.outputs)):
                    return reached
                following.append(reached)
                if len(seen) > GRAPHS:
                    return None
        level = following
    return None


def _after(at: Before, rules: Sequence[CompiledRule]) -> Iterator[Before]:
    index = GraphIndex(at.graph)
    for rule in rules:
        for match in find_matches(rule, index, limit=PLACES):
            graph = apply_match(match, at.graph)
            if graph:
                yield Before((*at.rules, rule.name), graph)


def _applies(rule: CompiledRule, graph: Graph, seen: Container[Values]) -> bool:
    matches = find_matches(rule, GraphIndex(graph), limit=PLACES)
    return any((found := apply_match(match, graph)) is not None and found.outputs not in seen for match in matches)


def _made(rule: CompiledRule) -> set[str]:
    """The operators on the right side of a compiled rule, and those that the definitions of these abbreviate."""
    found: set[str] = set()
    stack = [(rule.definition.module, node) for node in t.walk(rule.right)]
    while stack:
        module, node = stack.pop()
        op = module.called(node)
        if isinstance(op, OperatorDef) and op.name not in found:
            found.add(op.name)
            # what an operator spells out stands in the graph as that
            bodies = [s.value for s in op.statements if isinstance(s, t.Equation) and s.target.places is None]
            stack += [(op.module, below) for below in t.walk(tuple(bodies))]
    return found

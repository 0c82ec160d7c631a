"""Sources of equivalents: each yields facts for a graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from dslc.ir.constants import number_of
from dslc.ir.facts import Fact, fact_of
from dslc.ir.graph import Graph, Value
from dslc.match import CompiledRule, GraphIndex, Match, Refused, find_matches, replacements


class Source(Protocol):
    """Finds equivalents of parts of a graph, whatever they are used for: moves of a search, unions of an e-graph, proofs."""

    @property
    def rules(self) -> tuple[CompiledRule, ...]:
        """The substitutions that it consists of, none for a source of another kind."""

    def facts(self, graph: Graph) -> Iterator[tuple[Fact, tuple[Value, ...]]]:
        """Facts about regions of a graph, each with what its holes stand for there; lazily, in an order that repeats.

        `replace(fact.old.outputs, holes -> values)` are values of the graph, and `fact.new` over the same values may stand for them.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Substitutions:
    """The rules' left sides where they match, and their right sides."""

    rules: tuple[CompiledRule, ...]

    def facts(self, graph: Graph) -> Iterator[tuple[Fact, tuple[Value, ...]]]:
        index = GraphIndex(graph)
        for rule in self.rules:
            for match in find_matches(rule, index):
                try:
                    new = replacements(match)
                except Refused:
                    continue
                changed = {old: value for old, value in new.items() if old != value}
                if changed:
                    leaves = _leaves(match, index, changed.values())
                    yield fact_of(rule.name, tuple(changed), tuple(changed.values()), leaves)


def _leaves(match: Match, index: GraphIndex, new: Iterable[Value]) -> set[Value]:
    """What matched nodes and replacements read of the graph: anything may stand there but for numbers, which a rule may ask about."""
    matched = {*match.state.nodes.values(), *(value.node for _, value in match.roots)}
    read = {arg for node in matched for arg in node.args if arg.node not in matched}
    stack, seen = list(new), set[Value]()
    while stack:
        value = stack.pop()
        if value in seen or value in read:
            continue
        seen.add(value)
        if value.node in index.position and value.node not in matched:
            read.add(value)
        else:
            stack.extend(value.node.args)
    return {value for value in read if number_of(value) is None}

"""Derivation of a program: the rules that it rests on, one after the other, and the programs that each made possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from dslc.egraph.explain import fact, used
from dslc.egraph.extract.incremental import IncrementalExtraction
from dslc.egraph.extract.program import program_of
from dslc.egraph.extract.table import Extraction, Price
from dslc.egraph.graph import EGraph
from dslc.egraph.rewrite import AppliedMatch, Stated, placed, state
from dslc.ir.facts import Fact
from dslc.ir.graph import Graph, Value, with_args
from dslc.records import record


@record
class StoryTurn:
    """One rule at some places, and the best program by then: the one before where the rule only made others possible."""

    rule: str
    places: int
    facts: tuple[Fact, ...]
    graph: Graph


def story(egraph: EGraph, extraction: Extraction, graph: Graph, price: Price) -> Iterator[StoryTurn]:
    """The way from the graph that an e-graph was made of to an extraction, whose program is the last turn's."""
    again = PartialReplay(egraph, graph)
    growing = IncrementalExtraction(again.egraph, price)
    at = graph
    first = growing.best()
    least = first.cost if first else float("inf")
    for number, group in enumerate(groups := _grouped(used(egraph, extraction))):
        facts = again.take(group)
        best = growing.best()
        if number == len(groups) - 1:
            at = program_of(egraph, extraction)
        elif best and best.cost < least:
            at, least = program_of(again.egraph, best), best.cost
        yield StoryTurn(group[0].name, len(group), tuple(dict.fromkeys(facts)), at)


def kept(egraph: EGraph, extraction: Extraction, graph: Graph) -> EGraph:
    """An e-graph of the same graph with what an extraction rests on and nothing else: it holds both programs."""
    again = PartialReplay(egraph, graph)
    again.take(used(egraph, extraction))
    return again.egraph


class PartialReplay:
    """The e-graph of the same graph as another one, with some of its facts."""

    def __init__(self, egraph: EGraph, graph: Graph) -> None:
        self.egraph = EGraph.of(graph)
        self._from = egraph
        self._term = _Terms(egraph)

    def take(self, applied: Sequence[AppliedMatch | Stated]) -> list[Fact]:
        """Takes over what was applied there."""
        facts: list[Fact] = []
        for one in applied:
            told, stand = fact(one)
            facts.append(told)
            state(self.egraph, told, placed(self.egraph, [self._term(self._from.number(value)) for value in stand]))
        self.egraph.rebuild()
        return facts


def _grouped(rests: Sequence[AppliedMatch | Stated]) -> list[list[AppliedMatch | Stated]]:
    """Group consecutive applications of the same rule."""
    return [list(own) for _, own in groupby(rests, attrgetter("name"))]


class _Terms:
    """The terms that numbers came from, down to inputs and weights."""

    def __init__(self, egraph: EGraph) -> None:
        self._egraph = egraph
        self._known: dict[int, Value] = {}

    def __call__(self, number: int) -> Value:
        known = self._known
        stack = [number]
        while stack:
            at = stack[-1]
            if at in known:
                stack.pop()
                continue
            made = self._egraph.made[at]
            if made is None:
                # what turned out to depend on weights only: as it was before
                before = next(edge.other for edge in self._egraph.unions if edge.one == at)
                if before in known:
                    known[at] = known[before]
                else:
                    stack.append(before)
                continue
            node, index = made
            args = [self._egraph.number(arg) for arg in node.args]
            missing = [arg for arg in args if arg not in known]
            if missing:
                stack += missing
                continue
            known[at] = with_args(node, tuple([known[arg] for arg in args]))[index] if args else Value(node, index)
        return known[number]

"""How a program came about: what it rests on, one rule after the other, and what each of them made possible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dslc.egraph.explain import fact, used
from dslc.egraph.extract.growing import Growing
from dslc.egraph.extract.program import program_of
from dslc.egraph.extract.table import Extraction, Price
from dslc.egraph.graph import EGraph
from dslc.egraph.rewrite import Applied
from dslc.ir.facts import Fact
from dslc.ir.graph import Graph, Value, replace, with_args


@dataclass(frozen=True, slots=True)
class Turn:
    """One rule at some places, and the best program by then: the one before where the rule only made others possible."""

    rule: str
    places: int
    facts: tuple[Fact, ...]
    graph: Graph


def story(egraph: EGraph, extraction: Extraction, graph: Graph, price: Price) -> Iterator[Turn]:
    """The way from the graph that an e-graph was made of to an extraction, whose program is the last turn's."""
    rests = used(egraph, extraction)
    again = EGraph.of(graph)
    growing = Growing(again, price)
    term = _Terms(egraph)
    at = graph
    first = growing.best()
    least = first.cost if first is not None else float("inf")
    for number, group in enumerate(groups := _grouped(rests)):
        facts: list[Fact] = []
        for one in group:
            told, stand = fact(one)
            facts.append(told)
            leaves = [term(egraph.number(value)) for value in stand]
            for old, new in zip(told.old.outputs, told.new.outputs, strict=True):
                sides = replace((old, new), dict(zip(told.old.inputs, leaves, strict=True)))
                left, right = (again.number(again.add(term.inside(again, side))) for side in sides)
                again.union(left, right, one)
            again.rebuild()
        best = growing.best()
        if number == len(groups) - 1:
            at = program_of(egraph, extraction)
        elif best is not None and best.cost < least:
            at, least = program_of(again, best), best.cost
        yield Turn(group[0].rule.name, len(group), tuple(dict.fromkeys(facts)), at)


def _grouped(rests: tuple[Applied, ...]) -> list[list[Applied]]:
    """What the same rule does one after the other, together."""
    out: list[list[Applied]] = []
    for one in rests:
        if out and out[-1][0].rule.name == one.rule.name:
            out[-1].append(one)
        else:
            out.append([one])
    return out


class _Terms:
    """The terms that numbers came from, down to inputs and weights."""

    def __init__(self, egraph: EGraph) -> None:
        self._egraph = egraph
        self._made = list(egraph.made)
        self._known: dict[int, Value] = {}
        self._inputs: dict[Value, Value] | None = None

    def __call__(self, number: int) -> Value:
        known = self._known
        stack = [number]
        while stack:
            at = stack[-1]
            if at in known:
                stack.pop()
                continue
            made = self._made[at]
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

    def inside(self, again: EGraph, value: Value) -> Value:
        """A term over the inputs as one over the classes of another e-graph of the same graph."""
        if self._inputs is None:
            entries = [(one, again.memo.get(one.node)) for one in again.inputs]
            self._inputs = {one: again.value(entry.outs[0]) for one, entry in entries if entry is not None}
        return replace((value,), self._inputs)[0]


__all__ = ["Turn", "story"]

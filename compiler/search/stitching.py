"""What was found in regions, put into the places where these stand: the steps of a search of the whole graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dslc.ir.graph import Graph, Value
from dslc.search.candidate import Candidate
from dslc.search.regions import Place
from dslc.search.rewriting import imaged, rewritings


@dataclass(frozen=True, slots=True)
class Found:
    """A candidate of a region, and where the region stands in the graph."""

    best: Candidate
    places: Sequence[Place]


@dataclass(frozen=True, slots=True)
class Step:
    """The graph after a rule was applied `count` times, by which a sum of regions says that it gains so many seconds."""

    graph: Graph
    rule: str
    count: int
    gain: float


def stitched(graph: Graph, found: Sequence[Found]) -> list[Step]:
    """The steps from a graph to the one with everything found in its places.

    Regions that take the same rule next take it together. Every step is a rewriting of the graph before, and says what it replaced,
    as in a search that saw the whole graph.
    """
    waiting = [_Part(one) for one in found]
    out: list[Step] = []
    while waiting:
        votes: dict[str, int] = {}
        for part in waiting:
            votes[part.rule] = votes.get(part.rule, 0) + len(part.places)
        rule = max(votes, key=votes.__getitem__)
        chosen = [part for part in waiting if part.rule == rule]
        before = graph
        rounds = [part.replacements() for part in chosen]
        for turn in range(max(map(len, rounds))):
            new: dict[Value, Value] = {}
            for part, mappings in zip(chosen, rounds, strict=True):
                if turn < len(mappings):
                    part.fill(mappings[turn], new)
            made, image = imaged(graph, new)
            if made.outputs != graph.outputs:
                graph = made
                for part in waiting:
                    part.moved(image)
        if graph is not before:
            out.append(Step(graph, rule, sum(part.count for part in chosen), sum(part.gain for part in chosen)))
        for part in chosen:
            part.at += 1
        waiting = [part for part in waiting if part.at < len(part.path)]
    return out


class _Part:
    """A region on its way: `at` is the step that comes next."""

    def __init__(self, found: Found) -> None:
        self.path = found.best.path()
        self.at = 1
        self.places = found.places
        self._args = [list(place.args) for place in found.places]

    @property
    def rule(self) -> str:
        return self.path[self.at].rule

    @property
    def count(self) -> int:
        return self.path[self.at].count * len(self.places)

    @property
    def gain(self) -> float:
        return self.path[self.at].gain * len(self.places)

    def replacements(self) -> list[Mapping[Value, Value]]:
        """What the next step replaces in the region, one mapping after the other."""
        step, before = self.path[self.at], self.path[self.at - 1]
        made = rewritings(step.graph, before.graph)
        if made is None:
            return [dict(zip(before.graph.outputs, step.graph.outputs, strict=True))]
        return [one.new for one in reversed(list(made))]

    def fill(self, mapping: Mapping[Value, Value], new: dict[Value, Value]) -> None:
        """Adds what a mapping replaces at every place."""
        olds = [old for old, value in mapping.items() if old != value]
        for place, args in zip(self.places, self._args, strict=True):
            values = place.filled([*olds, *(mapping[old] for old in olds)], args)
            for old, value in zip(values[: len(olds)], values[len(olds) :], strict=True):
                new.setdefault(old, value)

    def moved(self, image: Mapping[Value, Value]) -> None:
        """Takes over what stands for the holes now."""
        for args in self._args:
            args[:] = [image.get(value, value) for value in args]

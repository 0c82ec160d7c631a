"""Findings of regions, put into the places where these stand: the steps of a search of the whole graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dslc.ir.facts import Fact
from dslc.ir.graph import Graph, Value
from dslc.search.rewrites.candidate import Candidate
from dslc.search.rewrites.regions import RegionPlace
from dslc.search.rewrites.rewriting import imaged, rewritings, rewritten


@dataclass(frozen=True, slots=True)
class RegionCandidate:
    """A candidate of a region, and where the region stands in the graph."""

    best: Candidate
    places: Sequence[RegionPlace]


def put(graph: Graph, found: Sequence[RegionCandidate]) -> Graph:
    """A graph with everything that was found in its places, built at once."""
    new: dict[Value, Value] = {}
    for one in found:
        for place in one.places:
            new.update(zip(place.outputs, place.filled(one.best.end.outputs, place.args), strict=True))
    return rewritten(graph, new)


def stitched(start: Candidate, found: Sequence[RegionCandidate], end: Graph, cost: float) -> Candidate:
    """The candidate with everything that was found in its places, and the steps to it from the start.

    Regions that take the same rule next take it together. Every step is a rewriting of the graph before, and says what it replaced,
    as in a search that saw the whole graph; these graphs are built when somebody asks for one of them. A whole graph costs a little
    more or less than its regions say: each step has its part in that.
    """
    chain = _Chain(start, found)
    predicted = sum(turn.gain for turn in chain.turns)
    factor = (start.cost - cost) / predicted if predicted > 0 else 0.0
    at = start
    for number, turn in enumerate(chain.turns, 1):
        last = number == len(chain.turns)
        at = Candidate(
            _Link(chain, number - 1, end if last else None), cost if last else at.cost - factor * turn.gain, at, turn.rule, turn.count,
            turn.facts,
        )  # fmt: skip
    return at


@dataclass(frozen=True, slots=True)
class _Turn:
    """A step that some regions take together."""

    rule: str
    count: int
    gain: float
    parts: tuple[int, ...]
    #: over holes: what holds in a region holds wherever it stands
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class _Link:
    """The graph after one turn of a chain."""

    chain: _Chain
    number: int
    known: Graph | None

    @property
    def end(self) -> Graph:
        return self.graph() if self.known is None else self.known

    def graph(self) -> Graph:
        return self.chain.graphs[self.number]


class _Chain:
    """The steps of several regions, put in an order."""

    def __init__(self, start: Candidate, found: Sequence[RegionCandidate]) -> None:
        self._start, self._found = start, found
        paths = [one.best.path() for one in found]
        at = [1] * len(found)
        self.turns: list[_Turn] = []
        while waiting := [k for k, path in enumerate(paths) if at[k] < len(path)]:
            votes: dict[str, int] = {}
            for k in waiting:
                votes[paths[k][at[k]].rule] = votes.get(paths[k][at[k]].rule, 0) + len(found[k].places)
            rule = max(votes, key=votes.__getitem__)
            parts = tuple(k for k in waiting if paths[k][at[k]].rule == rule)
            steps = [(paths[k][at[k]], len(found[k].places)) for k in parts]
            count, gain = (
                sum(step.count * often for step, often in steps),
                sum(step.gain * often for step, often in steps),
            )
            facts = tuple(dict.fromkeys([fact for step, _ in steps for fact in step.facts]))
            self.turns.append(_Turn(rule, count, gain, parts, facts))
            for k in parts:
                at[k] += 1

    @cached_property
    def graphs(self) -> list[Graph]:
        """The graph after each turn."""
        graph = self._start.graph
        parts = [_Part(one) for one in self._found]
        out: list[Graph] = []
        for turn in self.turns:
            rounds = [(parts[k], parts[k].next()) for k in turn.parts]
            for number in range(max(len(mappings) for _, mappings in rounds)):
                new: dict[Value, Value] = {}
                for part, mappings in rounds:
                    if number < len(mappings):
                        part.fill(mappings[number], new)
                made, image = imaged(graph, new)
                if made.outputs != graph.outputs:
                    graph = made
                    for part in parts:
                        part.moved(image)
            out.append(graph)
        return out


class _Part:
    """A region on its way."""

    def __init__(self, found: RegionCandidate) -> None:
        self._path = found.best.path()
        self._at = 0
        self._places = found.places
        self._args = [list(place.args) for place in found.places]

    def next(self) -> list[Mapping[Value, Value]]:
        """What the next step replaces in the region, one mapping after the other."""
        self._at += 1
        step, before = self._path[self._at], self._path[self._at - 1]
        made = rewritings(step.graph, before.graph)
        if made is None:
            return [dict(zip(before.graph.outputs, step.graph.outputs, strict=True))]
        return [one.new for one in reversed(list(made))]

    def fill(self, mapping: Mapping[Value, Value], new: dict[Value, Value]) -> None:
        """Adds what a mapping replaces at every place."""
        olds = [old for old, value in mapping.items() if old != value]
        for place, args in zip(self._places, self._args, strict=True):
            values = place.filled([*olds, *(mapping[old] for old in olds)], args)
            for old, value in zip(values[: len(olds)], values[len(olds) :], strict=True):
                new.setdefault(old, value)

    def moved(self, image: Mapping[Value, Value]) -> None:
        """Takes over what stands for the holes now."""
        for args in self._args:
            args[:] = [image.get(value, value) for value in args]

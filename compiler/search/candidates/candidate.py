"""Graphs that the search found, with how it came to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from typing import Protocol, TypeAlias

from dslc.codegen.text import KernelText
from dslc.cost.groups import working_nodes
from dslc.deadline import FOREVER, Deadline
from dslc.ir.facts import Fact
from dslc.ir.graph import Graph, Node, Value, Values, with_args
from dslc.match import Match, replacements
from dslc.match.recipe import Refused


class Later(Protocol):
    """A graph that is built step by step when the steps are asked for."""

    @property
    def end(self) -> Graph:
        """The result of the steps, as it was built at once."""

    def graph(self) -> Graph:
        """A graph that says what it was made of, see `dslc.search.candidates.candidate`."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A graph with its predicted cost in seconds, and the step that made it of its parent: a rule, applied `count` times.

    `facts` are what the step rests on where the graph itself does not say how it was rewritten (`dslc.search.candidates.candidate`).
    """

    made: Graph | Later
    cost: float
    parent: Candidate | None = None
    rule: str = ""
    count: int = 0
    facts: tuple[Fact, ...] = ()
    #: the C++ of its kernels, by the names of their operators
    kernels: Mapping[str, KernelText] = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        """The graph; where it was made by a rule, made of its parent's."""
        return self.made if isinstance(self.made, Graph) else self.made.graph()

    @property
    def end(self) -> Graph:
        """A graph of the same outputs that is there already, and may not say what it was made of."""
        return self.made if isinstance(self.made, Graph) else self.made.end

    @property
    def gain(self) -> float:
        """Predicted seconds that the last step saved."""
        return self.parent.cost - self.cost if self.parent else 0.0

    def path(self) -> list[Candidate]:
        """Return the steps from the start to this one."""
        out: list[Candidate] = [self]
        while out[-1].parent:
            out.append(out[-1].parent)
        return out[::-1]

    def rules(self) -> Iterator[str]:
        """Yield the rules of the path, in order."""
        return (step.rule for step in self.path() if step.rule)


#: share of a cost below which a gain is noise: of the whole graph's, and at one place of what the rewrite concerns
SHARE = 1e-3
NOISE = 2e-7  #: seconds below which a gain at one place is noise

#: a fact about a region, with what its holes stand for there
PlacedFact: TypeAlias = tuple[Fact, Values]
#: told of every candidate that is better than those before
Progress = Callable[[Candidate], None]


@dataclass(slots=True)
class Limits:
    """The end of a search: after `steps` evaluated candidates, at a time, without a gain for `patience` seconds, or when asked to.

    Only the number of steps decides what is found, so that a run that was stopped by its clock is repeated by its step count.
    """

    steps: int | None = None
    until: Deadline = FOREVER
    done: int = 0
    stopped: bool = False
    interrupted: bool = False
    on_step: Callable[[int], None] = lambda _: None
    #: told of every graph that was built, whatever becomes of it
    on_built: Callable[[Candidate], None] = lambda _: None
    #: told of every rule whose rewrite cannot be run here, or can
    on_tried: Callable[[str, bool], None] = lambda _rule, _runs: None
    patience: float = inf
    #: seconds after which a search gives way, once it gained little for as long as its clear gains took
    brief: float = inf
    #: what is done now ends at so many steps, and the search goes on with something else
    pause: int | None = None
    #: whether time was up, and whether patience was
    late: bool = False
    idle: bool = False
    began: float | None = None
    gained_at: float | None = None
    clear_at: float | None = None

    def now(self) -> float:
        """The time in seconds, by the clock of its deadline."""
        return self.until.now()

    @property
    def over(self) -> bool:
        """True where the search has to end or pause, by its clock or because it was stopped.

        It is asked where much may be tried between two steps.
        """
        moment = self.now()
        if self.began is None:
            self.began = moment
        since = self.began if self.gained_at is None else self.gained_at
        self.late = self.late or self.until.over
        self.idle = self.idle or moment > since + self.patience
        clear = self.began if self.clear_at is None else self.clear_at
        self.idle = self.idle or moment > clear + max(self.brief, clear - self.began)
        self.stopped = self.stopped or self.late or self.idle
        return self.stopped or (self.pause is not None and self.done >= self.pause)

    def step(self) -> bool:
        """Count one candidate; False when the search has to end instead."""
        if self.steps is not None and self.done >= self.steps:
            self.stopped = True
        if self.stopped or self.over:
            return False
        self.done += 1
        self.on_step(self.done)
        return True

    @contextmanager
    def turn(self, steps: int | None) -> Iterator[None]:
        """End the work inside after so many steps, where there is such a number."""
        self.pause = None if steps is None else self.done + steps
        try:
            yield
        finally:
            self.pause = None

    @contextmanager
    def within(self, share: float) -> Iterator[None]:
        """End the work inside after such a share of the time that is left."""
        before = self.until
        self.until = before.part(share)
        try:
            yield
        finally:
            self.until = before
            if self.late and not before.over:
                self.late = False
                self.stopped = self.idle or self.interrupted or (self.steps is not None and self.done >= self.steps)

    def gained(self) -> None:
        """Say that something better was found: patience begins anew."""
        self.gained_at = self.now()

    def gained_clearly(self) -> None:
        """Say that the best is clearly better than when this was last said."""
        self.clear_at = self.now()

    def time_up(self) -> None:
        """Say that a step cannot be finished: something it asks for was not measured in time."""
        self.stopped = self.late = True


def least_gain(cost: float) -> float:
    """Return the seconds that a rewrite must save to count."""
    return max(NOISE, SHARE * cost)


class Front:
    """Of the graphs that were built those which no other one beats both in predicted cost and in how many nodes run."""

    def __init__(self) -> None:
        self._kept: list[tuple[float, int, Candidate]] = []

    def add(self, candidate: Candidate) -> None:
        nodes = len(working_nodes(candidate.end.outputs))
        if not any(cost <= candidate.cost and count <= nodes for cost, count, _ in self._kept):
            self._kept = [one for one in self._kept if one[0] < candidate.cost or one[1] < nodes]
            self._kept.append((candidate.cost, nodes, candidate))

    def smallest(self, most: float) -> Candidate | None:
        """The one with the fewest nodes of those that cost so many seconds at most."""
        near = [one for one in self._kept if one[0] <= most]
        return min(near, key=lambda one: (one[1], one[0]))[2] if near else None


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
        if not target and value.node.constant:
            done[value] = value
            continue
        needs = (target,) if target else value.node.args
        if value not in opened:
            opened.add(value)
            pending = [need for need in needs if need not in done and need not in opened]
            if pending:
                stack.extend(pending)
                continue
        # what is still open contains this value: it stays as it was
        if target:
            done[value] = done.get(target, target)
        else:
            done[value] = with_args(value.node, tuple(done.get(arg, arg) for arg in needs))[value.index]
        opened.discard(value)
        stack.pop()
    return Rewritten(graph.inputs, tuple(done[value] for value in graph.outputs), graph, dict(new)), done


def replaced(found: Iterable[Match]) -> Iterator[tuple[Match, dict[Value, Value]]]:
    """Yield matches with what they replace, but for those that are refused."""
    for match in found:
        with suppress(Refused):
            yield match, replacements(match)


def matched(match: Match) -> set[Node]:
    """Return the nodes that a match stands on, its roots included."""
    return {*match.state.nodes.values(), *(value.node for _, value in match.roots)}


def apart(found: Iterable[tuple[Match, dict[Value, Value]]]) -> Iterator[dict[Value, Value]]:
    """Yield the replacements of matches that share no node with an earlier one."""
    taken: set[Node] = set()
    for match, new in found:
        nodes = matched(match)
        if taken.isdisjoint(nodes):
            taken |= nodes
            yield new


def built(values: Iterable[Value], known: Collection[Node]) -> Iterator[Node]:
    """Yield the nodes of values that are not among some known ones, and neither below these."""
    stack, seen = [value.node for value in values], set[Node]()
    while stack:
        node = stack.pop()
        if node not in known and node not in seen:
            seen.add(node)
            yield node
            stack.extend(arg.node for arg in node.args)


def disjoint(chosen: Sequence[Mapping[Value, Value]]) -> dict[Value, Value]:
    """All replacements in one mapping; of two for one value the earlier one stands."""
    out: dict[Value, Value] = {}
    for one in chosen:
        for old, value in one.items():
            out.setdefault(old, value)
    return out

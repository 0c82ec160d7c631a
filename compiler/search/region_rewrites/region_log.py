"""Regions of a candidate in whose place programs are sought, what was measured there, and the lines of a report about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from dslc.derivation.programs import PricedProgram
from dslc.fuse.autotune import TunedKernel
from dslc.ir.facts import Fact
from dslc.ir.graph import Call, Graph, Kernel, Node, Values
from dslc.ir.holes import abstracted, leaves_of
from dslc.records import record
from dslc.search.region_rewrites.fusions import fact_of_kernel

TOLD = 3  #: programs that are not taken of which a report tells
LEANING = 1.1  #: so many times as slow as what was there a program without its library is slower


@record
class MeasuredRewrite:
    """A program that was measured in the place of a region: the fact, the program with its kernels, seconds before and after, alone."""

    fact: Fact
    program: Graph
    kernels: tuple[TunedKernel, ...]
    before: float
    after: float

    #: one kernel, of which a runtime without its library runs the nodes as they were
    whole: bool = False
    #: seconds without its library, as far as what its kernels replace was measured
    bare: float = 0.0
    #: whether each hole must stand for a weight or must not, where its program does not say that
    weights: tuple[bool, ...] | None = None

    @property
    def saving(self) -> float:
        """Seconds at one place."""
        return self.before - self.after

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The facts that it rests on: its own, and what its kernels mean."""
        groups = [node.group for node in self.program.nodes() if isinstance(node, Kernel)]
        return tuple(dict.fromkeys((self.fact, *map(fact_of_kernel, groups))))

    @property
    def ratio(self) -> float:
        return self.before / self.after

    @property
    def leans(self) -> bool:
        """True where it is slower than what was there without its library."""
        return self.bare > LEANING * self.before

    def describe(self, how: str) -> str:
        """A line of a report about a program that is taken; `how` goes before its rules."""
        words = "as one kernel" if self.whole else _operators(self.program)
        return (
            f"{how}{self.fact.rule}: {words}: {self.after * 1e3:.4g} ms instead of {self.before * 1e3:.4g} ms by itself"
        )


def left_out(rule: str, why: str, names: Iterable[str]) -> str:
    """The words of a report about a program at unknown sizes that may not be taken."""
    return f"{rule}, and left out: {why} ({', '.join(names)})"


def _operators(program: Graph) -> str:
    """The operators of a program, and its kernels."""
    working = [node for node in program.nodes() if not node.constant]
    return " + ".join(
        node.op.rpartition(".")[2] if isinstance(node, Call) else "kernel"
        for node in working
        if isinstance(node, Call | Kernel)
    )


@record
class HotRegion:
    """A program that several places of a graph compute, and the seconds of one of them.

    `places` are the calls of each, the one that gives the result first.
    """

    program: Graph
    places: tuple[tuple[Call, ...], ...]
    price: float


@record
class MatchSite:
    """A place with what is computed element by element behind it: `ends` are what these nodes give."""

    place: tuple[Call, ...]
    nodes: tuple[Node, ...]
    ends: Values

    @property
    def region(self) -> tuple[Graph, Values]:
        """The program of its nodes over holes, and what these stand for."""
        return abstracted(self.ends, leaves_of(self.nodes))


@dataclass(slots=True)
class Visit:
    """Programs to be tried in the places of one region: facts, each with the program that it was made of, the cheapest first.

    `found`: programs that there are; `beaten`: seconds that the region takes by now, as a kernel. `rejected` and `skipped` are the
    words of a report about a program that is not worth building, and about one that may not be taken.
    """

    sites: dict[Graph, list[MatchSite]] = field(default_factory=dict)
    waiting: list[tuple[Fact, PricedProgram | None]] = field(default_factory=list)
    found: int = 0
    beaten: float = inf
    rejected: str = ""
    skipped: str = ""


@dataclass(slots=True)
class SearchLog:
    """The state of a search for programs in one candidate: regions, programs found, measured, taken, and left out."""

    searched: int = 0
    found: int = 0
    late: bool = False
    measured: list[MeasuredRewrite] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    skipped: dict[Graph, str] = field(default_factory=dict)
    sites: dict[Graph, list[MatchSite]] = field(default_factory=dict)
    #: nodes that belong to a region
    owned: set[Node] = field(default_factory=set)
    #: the fastest of each region that is fast enough, and of those that are one kernel
    best: dict[Graph, MeasuredRewrite] = field(default_factory=dict)
    best_wholes: dict[Graph, MeasuredRewrite] = field(default_factory=dict)

    @property
    def taken(self) -> list[MeasuredRewrite]:
        return [self.best[old] for old in self.sites if old in self.best]

    @property
    def wholes(self) -> list[MeasuredRewrite]:
        return [self.best_wholes[old] for old in self.sites if old in self.best_wholes]

    def begin(self, region: HotRegion, visit: Visit) -> None:
        """Keeps a region, and what was found for it."""
        self.searched, self.found = self.searched + 1, self.found + visit.found
        self.rejected += filter(None, [visit.rejected])
        self.sites.update(visit.sites)
        if visit.skipped:
            self.skipped[region.program] = visit.skipped

    def add(self, one: MeasuredRewrite, beaten: float, margin: float, independent: bool) -> None:
        """Keep a measurement, and take what is faster than the region, than a kernel there (`beaten` seconds), and than others.

        Where `independent`, what needs no library comes first, and one kernel stands beside that.
        """
        self.measured.append(one)
        old = one.fact.old
        if one.ratio < margin or one.after * margin >= beaten:
            return
        own = (self.best,) if not one.whole else (self.best_wholes,) if independent else (self.best, self.best_wholes)
        for best in own:
            known = best.get(old)
            if not known or (independent and one.leans, one.after) < (independent and known.leans, known.after):
                best[old] = one
                self.owned.update(node for site in self.sites[old] for node in site.nodes)

    def taken_lines(self, kernels: Mapping[str, object], how: str) -> list[str]:
        """Lines of a report about what is taken in a candidate with these kernels."""
        own = dict.fromkeys((*self.taken, *self.wholes))
        return [one.describe(how) for one in own if all(each.name in kernels for each in one.kernels)]

    def rejected_lines(self, how: str) -> list[str]:
        """Lines about what is not taken: of each region the fastest that was measured, else the cheapest by estimate."""
        best: dict[Graph, MeasuredRewrite] = {}
        for one in self.measured:
            if one.fact.old not in self.best:
                best[one.fact.old] = min(best.get(one.fact.old, one), one, key=lambda each: each.after)
        lines = [
            f"{how}{one.fact.rule}, not taken: {_operators(one.program)} measured at {one.after * 1e3:.4g} ms, "
            f"now {one.before * 1e3:.4g} ms"
            for one in best.values()
        ]
        lines += [f"{how}{words}" for words in (*self.rejected, *dict.fromkeys(self.skipped.values()))]
        return lines[:TOLD]

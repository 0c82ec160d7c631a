"""State that the stages of a run share and change: the clock, what is told, and what Ctrl-C finds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dslc.cost.clock import Clock
from dslc.cost.process import PrestartedWorkers, Worker
from dslc.derivation.programs import PricedProgram
from dslc.ir.graph import Graph, Node
from dslc.search.finders.findings import FindingStore
from dslc.search.rewrites.candidate import Candidate, Limits
from dslc.search.runs.settings import Progress

if TYPE_CHECKING:
    from onnx import ModelProto

    from dslc.search.finders.fusions import Fusions
    from dslc.search.finders.validate import Known, Validated
    from dslc.search.generators.scheduler import Scheduler
    from dslc.search.runs.contenders import Contender
    from dslc.search.runs.judge import Judge, Verdict
    from dslc.search.runs.stages import Explored, Referenced


#: what a run reaches: a rewritten model with the outputs of the original, and one that was measured to be faster
CHECKED, DECIDED = "first candidate checked", "first gain decided"


@dataclass(slots=True)
class Journal:
    """How many steps each search of a run took, by who searched; a run that is repeated takes as many, if no clock cut it short."""

    earlier: Mapping[str, Sequence[int]] | None = None
    #: steps of the first search of an earlier run that the clock cut short: this one goes on from there
    reached: int = 0
    begun: list[tuple[str, Limits]] = field(default_factory=list)

    @property
    def steps(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for who, limits in self.begun:
            found.setdefault(who, []).append(limits.done)
        return found

    @property
    def first(self) -> int:
        """Steps of the first search."""
        return self.begun[0][1].done if self.begun else 0

    @property
    def repeats(self) -> bool:
        """Whether an earlier run with the same options says where each search stops."""
        return self.earlier is not None

    @property
    def late(self) -> bool:
        """Whether time cut a search short."""
        return any(limits.late for _, limits in self.begun)

    @property
    def idle(self) -> bool:
        """Whether a search gained nothing any more."""
        return any(limits.idle for _, limits in self.begun)

    def next(self, who: str, most: int | None) -> int | None:
        """How many steps the next search of somebody may take."""
        return most if self.earlier is None else self.ahead(who) or 0

    def ahead(self, who: str) -> int | None:
        """How many steps the next search of somebody took in the run that is repeated; None where there was none."""
        earlier = () if self.earlier is None else self.earlier.get(who, ())
        count = sum(one == who for one, _ in self.begun)
        return earlier[count] if count < len(earlier) else None


@dataclass(slots=True)
class Tally:
    """What one generator offered, which of it was checked, and its seconds."""

    proposed: list[Candidate] = field(default_factory=list)
    checked: list[Candidate] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(slots=True)
class Run:
    """One run at any moment. Stages hand on frozen values; all else that they have in common is here.

    Everything below the notes is what an interruption goes by: the last stages that were reached, and how far the one that was
    interrupted had come.
    """

    clock: Clock
    progress: Progress = field(default_factory=Progress)
    notes: list[str] = field(default_factory=list)
    journal: Journal = field(default_factory=Journal)
    #: rules by whether some rewrite of theirs could be run
    tried: dict[str, bool] = field(default_factory=dict)
    #: proofs of candidates, and what was decided about their rewrites
    proofs: dict[Candidate, Validated] = field(default_factory=dict)
    decided: Known = field(default_factory=dict)
    #: the model as it was given, and what it is called
    original: tuple[ModelProto, str] | None = None
    referenced: Referenced | None = None
    explored: Explored | None = None
    start: Candidate | None = None
    #: runs what is compared where nothing is timed; it starts while the model is read
    worker: Worker | None = None
    #: what rules that are applied without measuring made of the original, its outputs compared
    applied: Contender | None = None
    #: what was found and not blamed, checked or not
    best: Candidate | None = None
    checked: list[Contender] = field(default_factory=list)
    timed: list[Contender] = field(default_factory=list)
    #: those that are slower than the original where nobody has their library, and what was measured there
    leaning: dict[Contender, Verdict] = field(default_factory=dict)
    #: processes that are started ahead of those who need one
    spares: PrestartedWorkers = field(default_factory=PrestartedWorkers)
    #: who times them: with their libraries, and (True) without
    judges: dict[bool, Judge] = field(default_factory=dict)
    #: where kernels were looked for
    fusions: Fusions | None = None
    #: what was derived of operators
    derived: dict[Graph, tuple[PricedProgram, ...]] = field(default_factory=dict)
    #: what mutants and derivations made
    much: set[Candidate] = field(default_factory=set)
    #: seconds of the kernel that was built around a node, by itself
    spent: dict[Node, float] = field(default_factory=dict)
    #: what was measured to be faster somewhere, as facts
    found: FindingStore = field(default_factory=FindingStore)
    #: who divided the time
    scheduled: Scheduler | None = None
    #: who offered what, in the order of their first turns
    tallies: dict[str, Tally] = field(default_factory=dict)
    #: what is told of what was found in a candidate by somebody, and not taken
    untaken: dict[tuple[str, Candidate], list[str]] = field(default_factory=dict)
    #: what is told of the kernels of a candidate
    kernels: dict[Candidate, list[str]] = field(default_factory=dict)

    def phase(self, name: str, label: str = "") -> None:
        """A phase begins; the label is what is shown of it."""
        self.clock.enter(name)
        self.progress.phase(label or name)

    def rests_on_much(self, candidate: Candidate) -> bool:
        """Whether a candidate rests on mutants or derivations, which take long to find."""
        return any(step in self.much for step in candidate.path())

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def cut(self, phase: str) -> None:
        """A phase ended before it was done."""
        self.clock.cut(phase)

    @contextmanager
    def turn(self, generator: str) -> Iterator[Tally]:
        """A turn of a generator, whose seconds count as its."""
        tally, began = self.tallies.setdefault(generator, Tally()), self.clock.now()
        try:
            yield tally
        finally:
            tally.seconds += self.clock.now() - began

    def passed(self, found: Contender) -> None:
        """A contender has the outputs of the original."""
        self.checked.append(found)
        for tally in self.tallies.values():
            if found.candidate in tally.proposed:
                tally.checked.append(found.candidate)

    def ran(self, rule: str, runs: bool) -> None:
        """A rewrite of a rule could be run, or could not."""
        self.tried[rule] = runs or self.tried.get(rule, False)

    @property
    def unrunnable(self) -> list[str]:
        """Rules whose rewrites could nowhere be run."""
        return [name for name, runs in self.tried.items() if not runs]

"""What the stages of a run share and change: the clock, what is told, and what Ctrl-C finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dslc.cost.clock import Clock
from dslc.cost.timing import Times
from dslc.derive.programs import Program
from dslc.ir.graph import Graph, Node
from dslc.search.candidate import Candidate, Limits
from dslc.search.settings import Progress

if TYPE_CHECKING:
    from dslc.search.contenders import Contender
    from dslc.search.fusions import Fusions
    from dslc.search.stages import Explored, Referenced
    from dslc.search.validate import Known, Validated


@dataclass(slots=True)
class Journal:
    """How many steps each search of a run took, in order; a run that is repeated takes as many, if the clock had not cut it short."""

    earlier: list[int] | None = None
    #: steps of the first search of an earlier run that the clock cut short: this one goes on from there
    reached: int = 0
    #: whether the search goes on, or did in the run that is repeated, after others had their part of the time
    onward: bool = False
    begun: list[Limits] = field(default_factory=list)

    @property
    def steps(self) -> list[int]:
        return [limits.done for limits in self.begun]

    @property
    def repeats(self) -> bool:
        """Whether an earlier run with the same options says where each search stops."""
        return self.earlier is not None

    @property
    def late(self) -> bool:
        """Whether time cut a search short."""
        return any(limits.late for limits in self.begun)

    def next(self, most: int | None) -> int | None:
        """How many steps the next search may take."""
        if self.earlier is None:
            return most
        return self.earlier[len(self.begun)] if len(self.begun) < len(self.earlier) else 0


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
    referenced: Referenced | None = None
    explored: Explored | None = None
    start: Candidate | None = None
    #: what was found and not found guilty, checked or not
    best: Candidate | None = None
    checked: list[Contender] = field(default_factory=list)
    timed: list[Contender] = field(default_factory=list)
    times: Times = field(default_factory=Times)
    #: where kernels were looked for
    fusions: Fusions | None = None
    #: what was derived of operators
    derived: dict[Graph, tuple[Program, ...]] = field(default_factory=dict)
    #: what mutants and derivations made
    much: set[Candidate] = field(default_factory=set)
    #: seconds of the kernel that was built around a node, by itself
    spent: dict[Node, float] = field(default_factory=dict)
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

    def ran(self, rule: str, runs: bool) -> None:
        """A rewrite of a rule could be run, or could not."""
        self.tried[rule] = runs or self.tried.get(rule, False)

    @property
    def unrunnable(self) -> list[str]:
        """Rules whose rewrites could nowhere be run."""
        return [name for name, runs in self.tried.items() if not runs]

"""State of a run, which its stages share: the clock, notes, the loop's log, and all that Ctrl-C finds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from onnx import ModelProto

from dslc.cost.clock import Clock
from dslc.cost.process import PrestartedWorkers, Worker
from dslc.derivation.programs import PricedProgram
from dslc.ir.graph import Graph, Node
from dslc.report import Asked
from dslc.search.candidates.candidate import Candidate, Limits
from dslc.search.options.settings import Progress
from dslc.search.region_rewrites.findings import FindingStore
from dslc.search.region_rewrites.validate import Known, Validated
from dslc.search.runs.benchmark import Verdict
from dslc.search.runs.contenders import Contender
from dslc.search.runs.endings import Ending
from dslc.search.runs.stages import Referenced, Task

#: a moment of a run: a rewritten model has the outputs of the original
CHECKED = "first candidate checked"


@dataclass(slots=True)
class Journal:
    """Steps of each search of a run, by name; a run that is repeated takes as many, if no clock cut it short."""

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
        """True where an earlier run with the same options says where each search stops."""
        return self.earlier is not None

    @property
    def late(self) -> bool:
        """True where time cut a search short."""
        return any(limits.late for _, limits in self.begun)

    @property
    def idle(self) -> bool:
        """True where a search gained nothing any more."""
        return any(limits.idle for _, limits in self.begun)

    def next(self, who: str, most: int | None) -> int | None:
        """Return how many steps the next search of a name may take."""
        return most if self.earlier is None else self.ahead(who) or 0

    def ahead(self, who: str) -> int | None:
        """Return how many steps the next search of a name took in the run that is repeated; None where there was none."""
        earlier = () if self.earlier is None else self.earlier.get(who, ())
        count = sum(one == who for one, _ in self.begun)
        return earlier[count] if count < len(earlier) else None


@dataclass(slots=True)
class Tally:
    """Proposals of one generator, those of them that were checked, and its seconds."""

    proposed: list[Candidate] = field(default_factory=list)
    checked: list[Candidate] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(slots=True)
class RunState:
    """One run at any moment. Stages hand on frozen values; all else that they have in common is here: they and the loop alone write it.

    Everything below the notes is the loop's log, and what an interruption goes by: the last stages that were reached, and how far the
    one that was interrupted had come.
    """

    clock: Clock
    progress: Progress = field(default_factory=Progress)
    #: processes that are started ahead, and one that runs what is compared where nothing is timed: it starts while the model is read
    spares: PrestartedWorkers = field(default_factory=PrestartedWorkers)
    worker: Worker | None = None
    notes: list[str] = field(default_factory=list)
    #: notes that anybody should see: where less was done than was asked for, or on other terms
    warnings: list[str] = field(default_factory=list)
    journal: Journal = field(default_factory=Journal)
    #: the model as it was given, and its name
    original: tuple[ModelProto, str] | None = None
    referenced: Referenced | None = None
    #: the original with its price
    start: Candidate | None = None
    #: the result of rules that are applied without measuring, its outputs compared
    applied: Contender | None = None
    #: the best that was found and not blamed, checked or not
    best: Candidate | None = None
    #: contenders that have the outputs of the original, and those of them that are timed at last
    checked: list[Contender] = field(default_factory=list)
    timed: list[Contender] = field(default_factory=list)
    #: those that are slower than the original without their library, and what was measured there
    library_only: dict[Contender, Verdict] = field(default_factory=dict)
    #: proofs of candidates, and of rewrites
    proofs: dict[Candidate, Validated] = field(default_factory=dict)
    decided: Known = field(default_factory=dict)
    #: rules, with True where some rewrite of theirs could be run
    tried: dict[str, bool] = field(default_factory=dict)
    #: facts that were measured to be faster somewhere, programs that were derived, and seconds of the kernel around a node by itself
    found: FindingStore = field(default_factory=FindingStore)
    derived: dict[Graph, tuple[PricedProgram, ...]] = field(default_factory=dict)
    kernel_seconds: dict[Node, float] = field(default_factory=dict)
    #: candidates that mutants and derivations made, which take long to find
    costly: set[Candidate] = field(default_factory=set)
    #: proposals by generator, in the order of their first turns
    tallies: dict[str, Tally] = field(default_factory=dict)
    #: lines of the report: about findings that a generator did not take in a candidate, and about the kernels of a candidate
    untaken: dict[tuple[str, Candidate], Sequence[str]] = field(default_factory=dict)
    kernels: dict[Candidate, list[str]] = field(default_factory=dict)
    #: the loop's arms and its plan of the budget; how many prices were measured, and why nothing was found
    asked: tuple[Asked, ...] = ()
    plan: Mapping[str, float] = field(default_factory=dict)
    measured: int = 0
    reason: tuple[Ending, str] = (Ending.NO_GAIN, "")

    def close(self) -> None:
        """End the processes."""
        self.spares.close()
        if self.worker:
            self.worker.close()

    def phase(self, name: str, label: str = "") -> None:
        """Begin a phase; the label is what is shown of it."""
        self.clock.enter(name)
        self.progress.phase(label or name)

    def is_costly(self, candidate: Candidate) -> bool:
        """Return whether a candidate rests on mutants or derivations."""
        return any(step in self.costly for step in candidate.path())

    def note(self, text: str) -> None:
        """Add a line to the report, once."""
        if text not in self.notes:
            self.notes.append(text)

    def warn(self, *texts: str) -> None:
        """Add warnings to the report, each once."""
        self.warnings += [text for text in texts if text not in self.warnings]

    def cut(self, phase: str) -> None:
        """Say that a phase ended before it was done."""
        self.clock.cut(phase)

    @contextmanager
    def turn(self, generator: str) -> Iterator[Tally]:
        """Count the seconds inside as a generator's."""
        tally, began = self.tallies.setdefault(generator, Tally()), self.clock.now()
        try:
            yield tally
        finally:
            tally.seconds += self.clock.now() - began

    def passed(self, found: Contender) -> None:
        """Add a contender, which has the outputs of the original."""
        self.checked.append(found)
        for tally in self.tallies.values():
            if found.candidate in tally.proposed:
                tally.checked.append(found.candidate)

    def ran(self, rule: str, runs: bool) -> None:
        """Note that a rewrite of a rule could be run, or could not."""
        self.tried[rule] = runs or self.tried.get(rule, False)

    @property
    def unrunnable(self) -> list[str]:
        """Rules whose rewrites could nowhere be run."""
        return [name for name, runs in self.tried.items() if not runs]

    def left(self, part: float, task: Task) -> float:
        """Return such a part of the seconds that are left, without those for writing the result."""
        return max(0.0, self.clock.left() - task.writing) * part

    def predicted(self, candidate: Candidate) -> float | None:
        """Return how many times as fast as the original a candidate should be, by its price."""
        return self.start.cost / max(candidate.cost, 1e-12) if self.start and self.start.cost else None

    def timing(self, one: Contender) -> Verdict | None:
        """Return what was timed of a contender in this run, at the first choice of sizes."""
        return self.referenced.benchmark.so_far(one) if self.referenced else None

    def expected(self, one: Contender) -> float:
        """Return the seconds that a contender is expected to take.

        These go by what was timed of it, or by its prediction, and by how much more than predicted other contenders were worth.
        """
        if not self.start:
            return one.candidate.cost
        found = self.timing(one)
        if found:
            return self.start.cost / found.ratio.ratio
        timed = [(each.ratio.ratio, other.candidate.cost) for other in self.checked if (each := self.timing(other))]
        ratio, cost = max(timed, default=(0.0, 0.0))
        return one.candidate.cost * min(1.0, self.start.cost / (ratio * cost) if ratio * cost > 0 else 1.0)

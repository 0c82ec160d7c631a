"""The values that stages hand on: each is frozen, and holds the one that it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onnx import ModelProto

from dslc.cost.inputs import Inputs
from dslc.cost.machine import Machine
from dslc.cost.process import ModelFile
from dslc.cost.targets import Target
from dslc.match import CompiledRule
from dslc.onnx.context import Imported
from dslc.prove.verdict import RuleVerdict
from dslc.report import Counts, Report
from dslc.search.rewrites.candidate import Candidate
from dslc.search.rewrites.rulesets import AppliedRule
from dslc.search.runs.contenders import Checker, Contender
from dslc.search.runs.judge import Verdict
from dslc.search.runs.originals import Original
from dslc.search.runs.settings import Settings
from dslc.search.runs.tuning import HEAVY
from dslc.semantics.library import Rules


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """What was read: the model, the rules that were asked for, and the target that it is for."""

    settings: Settings
    model: ModelProto
    #: where external data lies, and what the model is called
    folder: Path | None
    where: str
    size: Counts
    imported: Imported
    rules: Rules
    chosen: tuple[CompiledRule, ...]
    target: Target
    #: the sizes among the first binding (the rest are values of integer inputs)
    sizes: Mapping[str, int]
    #: seconds that writing the result may take
    writing: float
    #: the rules that are applied before the search, without measuring
    applied: tuple[AppliedRule, ...] = ()

    @property
    def machine(self) -> Machine:
        return self.target.machine

    @property
    def heavy(self) -> bool:
        """Whether there are so many weights that each contender's copy counts."""
        return self.size.bytes > HEAVY


@dataclass(frozen=True, slots=True, eq=False)
class Proven:
    """The rules that may be used, and what their proofs are worth."""

    task: Task
    rules: tuple[CompiledRule, ...]
    verdicts: Mapping[str, RuleVerdict]
    #: those that are applied without measuring
    applied: tuple[AppliedRule, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Referenced:
    """The original as it runs, at every choice of sizes: what candidates are compared with.

    `seconds` is what it takes as a whole, `key` what a run with the same options is kept under. `apart` says why it runs in parts only,
    so that nothing can be timed.
    """

    proven: Proven
    file: ModelFile
    identity: str
    originals: tuple[Original, ...]
    checker: Checker
    seconds: float
    key: str
    apart: str = ""

    @property
    def task(self) -> Task:
        return self.proven.task

    @property
    def inputs(self) -> list[Inputs]:
        return [one.inputs for one in self.originals]

    @property
    def load(self) -> float:
        """Seconds of loading the model in a new process."""
        return max(one.load for one in self.originals)


@dataclass(frozen=True, slots=True)
class Predicted:
    """Seconds of candidates as costs were measured last."""

    start: Candidate
    seconds: Mapping[Candidate, float] = field(default_factory=dict)

    def ratio(self, found: Candidate) -> float:
        """How many times as fast a candidate should be."""
        return self.seconds.get(self.start, self.start.cost) / max(self.seconds.get(found, found.cost), 1e-12)


@dataclass(frozen=True, slots=True, eq=False)
class Explored:
    """Models that should be faster and give the same outputs, the best one first; `reason` says why there are none."""

    referenced: Referenced
    contenders: tuple[Contender, ...]
    predicted: Predicted
    steps: int
    measured: int
    reason: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Finished:
    """What is to be written: a contender, or the original and why. `verdicts` are those at every choice of sizes, where it was timed;
    `predicted` is how many times as fast it should have been, `alone` are verdicts in a runtime without its library of kernels."""

    task: Task
    contender: Contender | None
    reason: str = ""
    verdicts: tuple[Verdict, ...] = ()
    predicted: float | None = None
    interrupted: bool = False
    alone: tuple[Verdict, ...] = ()


@dataclass(frozen=True, slots=True)
class Optimized:
    """The written model, and what was found. `model` refers to the same external data as the original."""

    model: ModelProto
    report: Report

    def __repr__(self) -> str:
        return f"<Optimized {self.report.summary()}>"

    def __str__(self) -> str:
        return str(self.report)

"""The values that stages hand on: each is frozen, and holds the one that it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from pathlib import Path

from onnx import ModelProto

from dslc.cost.compare import Reference
from dslc.cost.inputs import Inputs
from dslc.cost.machine import Machine
from dslc.cost.process import ModelFile
from dslc.cost.targets import Target
from dslc.match import CompiledRule
from dslc.onnx.context import Imported
from dslc.prove.verdict import RuleVerdict
from dslc.records import record
from dslc.report import Counts, Report
from dslc.search.options.settings import Settings
from dslc.search.runs.benchmark import FinalBenchmark, Verdicts
from dslc.search.runs.contenders import Checker, Contender
from dslc.search.runs.endings import Ending
from dslc.search.runs.selection import AppliedRule
from dslc.semantics.library import Rules

HEAVY = 1 << 28  #: bytes of weights above which each contender's copy counts
STARTING = 0.25  #: seconds of starting a process, without loading a model
#: times as long as starting the models that it is about a decision takes: generations of processes, and as long
#: again for their rounds
STARTS = 6
MOST_STARTS = 20  #: the same at most
CLEAR = 1.25  #: how many times as fast needs the fewest starts
#: runs of each model beside the original's: few of them decide nothing, unless it is expected to be much faster
PAIRS = 40
FEWEST = 16  #: the same at least
NEAR = 1.1  #: how many times as fast needs all of these


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """The task: the model, the rules that were asked for, and the target that it is for."""

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
    #: the load of the machine as the run began, where it was high
    busy: str = ""

    @property
    def machine(self) -> Machine:
        return self.target.machine

    @property
    def heavy(self) -> bool:
        """True where there are so many weights that each contender's copy counts."""
        return self.size.bytes > HEAVY


@dataclass(frozen=True, slots=True, eq=False)
class Proven:
    """The rules that may be used, and what their proofs are worth."""

    task: Task
    rules: tuple[CompiledRule, ...]
    verdicts: Mapping[str, RuleVerdict]
    #: those that are applied without measuring
    applied: tuple[AppliedRule, ...] = ()


@record
class Original:
    """One choice of sizes: inputs, the outputs for them, and the seconds of a run and of loading it in a new process."""

    inputs: Inputs
    reference: Reference
    seconds: float
    load: float


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
    apart: str
    #: the original timed against contenders, with their libraries of kernels and without
    benchmark: FinalBenchmark
    without_library: FinalBenchmark

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


def deciding(referenced: Referenced, count: int, faster: float) -> float:
    """Return the seconds of a decision about so many contenders, the best of which is expected to be so many times as fast.

    What is a tenth faster shows in any generation of processes; less takes many (`dslc.cost.sequential`).
    """
    hope = log(max(faster, 1.001))
    starts = min(MOST_STARTS, max(STARTS, STARTS * log(CLEAR) / hope))
    pairs = min(PAIRS, max(FEWEST, PAIRS * log(NEAR) / hope))
    return (count + 1) * (starts * (referenced.load + STARTING) + pairs * referenced.seconds)


@dataclass(frozen=True, slots=True, eq=False)
class Finished:
    """The result to be written: a contender, or the original, and the ending with its detail.

    `verdicts` are those at every choice of sizes, where it was timed; `predicted` is how many times as fast it should have been,
    `alone` are verdicts in a runtime without its library of kernels.
    """

    task: Task
    contender: Contender | None
    ending: Ending = Ending.FASTER
    detail: str = ""
    verdicts: Verdicts = ()
    predicted: float | None = None
    interrupted: bool = False
    alone: Verdicts = ()

    @property
    def reason(self) -> str:
        """The sentence of the ending."""
        return self.ending.format(self.detail)


@record
class Optimized:
    """The written model, and what was found. `model` refers to the same external data as the original."""

    model: ModelProto
    report: Report

    def __repr__(self) -> str:
        return f"<Optimized {self.report.summary()}>"

    def __str__(self) -> str:
        return str(self.report)

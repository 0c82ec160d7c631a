"""From what the search found to models that are known to compute the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from pathlib import Path
from typing import Any

from dslc.cost.compare import Comparison, Feeds, Reference, compare, outputs_of, steady
from dslc.cost.inputs import Inputs
from dslc.cost.process import ModelFile, PrestartedWorkers, Worker, WorkerFailed
from dslc.cost.targets import OwnKernels
from dslc.deadline import FOREVER, Deadline, TimeUp
from dslc.errors import DslcError, error
from dslc.kernels import note
from dslc.onnx.context import Context
from dslc.onnx.describe import counts
from dslc.onnx.exporter import export
from dslc.onnx.functions import inlined
from dslc.records import record
from dslc.search.candidates.candidate import Candidate
from dslc.search.candidates.export import NameHistory, graph_as_kernels, no_compiler, ready, texts_of
from dslc.search.options.settings import Settings
from dslc.search.runs.endings import Ending
from dslc.semantics.library import Rules

EXPORTED = 1.5e8  #: bytes of weights that are written, sent and loaded in a second, or more


class Unusable(Exception):
    """A reason why a model cannot be searched: the ending of the run, and its detail."""

    def __init__(self, ending: Ending, detail: str = "") -> None:
        super().__init__(ending, detail)
        self.ending, self.detail = ending, detail

    def __str__(self) -> str:
        return self.ending.format(self.detail)


class Unloadable(Unusable):
    """A reason why the runtime does not take a model, whatever its inputs are."""


def kernels_wanted(settings: Settings) -> bool:
    """Return whether kernels may be written."""
    return settings.target().kernels is OwnKernels.BUILT and settings.portable == "functions"


def with_kernels(settings: Settings) -> bool:
    """Return whether kernels may be written, and can be built here."""
    return kernels_wanted(settings) and not no_compiler()


@dataclass(frozen=True, slots=True, eq=False)
class Contender:
    """A candidate as a model, with the largest error of its outputs."""

    candidate: Candidate
    model: Any
    file: ModelFile
    error: float


@record
class Culprit:
    """A rule whose application changed the outputs, what changed, and the last candidate before it."""

    rule: str
    problem: str
    before: Candidate


class AllowedFunctions(Enum):
    """Functions that a written model may have beside ONNX's nodes."""

    NONE = "nothing"
    BUILT = "functions that a library of kernels computes"
    PLAIN = "functions without a library"
    INLINE = "functions that are written as their nodes"


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceOutputs:
    """The original, and its outputs on all inputs (one `Inputs` for each binding).

    `computed` has the weakest type in which each output is computed, `meant` says what the original gives by its operators' equations,
    where that is known. A `tolerance` of None means one by data type.
    """

    file: ModelFile
    references: Sequence[Reference]
    inputs: Sequence[Inputs]
    tolerance: float | None = None
    computed: Mapping[str, Any] = field(default_factory=dict)
    meant: Callable[[Feeds], Reference | None] = lambda _: None


@dataclass(slots=True, eq=False)
class Checker:
    """Exports candidates and compares them with the original.

    `growth` is by how much a file's weights may grow, `fewest`: see `export`. `until` says when that ends; `size` bytes of weights
    take some of the time. `worker` runs what is compared, where there is one; `spares` are processes that were started ahead; `cut`
    takes out of a model what cannot be run.
    """

    context: Context
    rules: Rules
    compared: ReferenceOutputs
    threads: int
    functions: AllowedFunctions = AllowedFunctions.NONE
    growth: float = inf
    fewest: bool = False
    until: Deadline = FOREVER
    size: int = 0
    worker: Worker | None = None
    spares: PrestartedWorkers | None = None
    cut: Callable[[Any], Any] | None = None
    story: NameHistory = field(init=False)
    _last: tuple[Candidate, Any] | None = field(init=False, default=None)
    _disputed: dict[tuple[int, int], bool] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.story = NameHistory(self.context)

    def _exported(self, candidate: Candidate) -> Any:
        """The last model once more where it is asked for again: a large one takes seconds.

        Raises:
            DslcError: ONNX cannot say it.
        """
        if self._last is None or self._last[0] is not candidate:
            self._last = None
            graph = candidate.graph
            if self.functions is not AllowedFunctions.NONE:
                graph = graph_as_kernels(self.rules, graph, self.context)
            model = export(
                self.context, graph, self.rules, self.story.of(candidate).naming, growth=self.growth, fewest=self.fewest
            )
            if self.functions is AllowedFunctions.INLINE:
                model = inlined(model)
            elif self.functions is not AllowedFunctions.PLAIN and model.functions:
                # kernels that were measured, and those of operators that ONNX has no node for
                texts = texts_of(self.rules, graph.outputs, self.context.opset, candidate.kernels)
                note(model, texts, self.threads)
                ready(model, texts)
            self._last = candidate, model
        return self._last[1]

    def operators(self, candidate: Candidate) -> float:
        """Return how many operators the candidate's model has; infinitely many where ONNX cannot say it."""
        try:
            return counts(self._exported(candidate))[0]
        except DslcError:
            return inf

    def check(self, candidate: Candidate) -> Contender | Comparison:
        """The candidate as a model, or what is wrong with it.

        An input for which the runtime's own doings change what the original gives says nothing (`dslc.cost.compare`).

        Raises:
            MemoryShort, TimeUp: memory or time does not suffice.
            Unusable: no input says anything.
        """
        if self.until.left() <= self.size / EXPORTED:
            raise TimeUp
        try:
            model = self._exported(candidate)
            file = ModelFile(serialized(self.cut(model) if self.cut else model), folder_of(self.context.folder))
        except DslcError as problem:
            return Comparison(inf, problem.diagnostics[0].message)
        worst = 0.0
        for at, (reference, inputs) in enumerate(zip(self.compared.references, self.compared.inputs, strict=True)):
            try:
                ran = outputs_of(file, inputs.feeds, self.threads, self.until, worker=self.worker, spares=self.spares)
            except WorkerFailed as problem:
                if problem.late:
                    raise TimeUp from None
                return Comparison(inf, f"ONNX Runtime cannot run it: {problem}")
            agreed = 0
            for k in range(len(inputs.feeds)):
                found = compare(reference.only(k), ran.only(k), self._tolerance(at, k), self.compared.computed)
                if found.same:
                    # zeros agree with much
                    if k < inputs.ordinary:
                        agreed, worst = agreed + 1, max(worst, found.max_rel_error)
                elif not self._is_disputed(at, k):
                    return found
            if not agreed:
                raise Unusable(Ending.UNSTABLE)
        return Contender(candidate, model, file, worst)

    def _tolerance(self, at: int, k: int) -> float | None:
        own = self.compared.inputs[at].tolerance(k)
        stated = self.compared.tolerance
        return stated if own is None else max(own, stated or 0.0)

    def _is_disputed(self, at: int, k: int) -> bool:
        """Return whether an input cannot tell a right model from a wrong one."""
        if (at, k) not in self._disputed:

            def run(feeds: Feeds, plain: bool) -> Reference:
                return outputs_of(self.compared.file, [feeds], self.threads, self.until, plain)

            to = self.compared
            feeds, reference = to.inputs[at].feeds[k], to.references[at].only(k)
            self._disputed[at, k] = not steady(run, feeds, reference, to.computed, self._tolerance(at, k), to.meant)
        return self._disputed[at, k]

    def blame(self, candidate: Candidate, problem: str) -> Culprit:
        """The first step of a candidate's path that changes the outputs, by bisection."""
        path = candidate.path()
        good, bad = 0, len(path) - 1
        while bad - good > 1:
            middle = (good + bad) // 2
            found = self.check(path[middle])
            if isinstance(found, Contender):
                good = middle
            else:
                bad, problem = middle, found.problem
        return Culprit(path[bad].rule, f"with it, {problem}", path[good])


def folder_of(folder: Path | None) -> str | None:
    """Return a folder as processes are given it."""
    return str(folder.resolve()) if folder else None


def serialized(model: Any) -> bytes:
    """Equal bytes for equal models.

    Raises:
        DslcError: E0812 above protobuf's limit of 2 GiB.
    """
    try:
        data: bytes = model.SerializeToString(deterministic=True)
    except ValueError as problem:
        raise error("E0812", f"the model cannot be written as one message: {problem}", hint="--external-data") from None
    return data


def distinct(best: Candidate, most: int) -> list[Candidate]:
    """The best candidate and others of its path: where a rule's part ended, the largest predicted gains first.

    A prediction may be wrong for one rule and right for the others; what was found before that rule is then the better model.
    """
    path = best.path()
    ends = [c for c, after in zip(path, [*path[1:], None], strict=True) if not after or after.rule != c.rule]
    others = [c for c in ends if c is not best]
    # neighbours differ least: take those that lie farthest from what is already taken
    taken = [best]
    while others and len(taken) < most:
        far = max(others, key=lambda c: min(abs(c.cost - one.cost) for one in taken))
        others.remove(far)
        taken.append(far)
    return taken

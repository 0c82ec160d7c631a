"""From what the search found to models that are known to compute the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dslc.cost.compare import Comparison, Feeds, Reference, compare, outputs_of
from dslc.cost.inputs import Inputs
from dslc.cost.process import ModelFile, Spares, Worker, WorkerFailed
from dslc.cost.steady import steady
from dslc.deadline import FOREVER, Deadline, TimeUp
from dslc.errors import DslcError
from dslc.kernels import note
from dslc.onnx.context import Context
from dslc.onnx.describe import counts
from dslc.onnx.exporter import export
from dslc.onnx.functions import inlined
from dslc.search.candidate import Candidate
from dslc.search.naming import Story
from dslc.search.originals import Unusable
from dslc.search.tuning import TUNING
from dslc.search.written import graph_as_kernels, ready, texts_of
from dslc.semantics.library import Rules


@dataclass(frozen=True, slots=True, eq=False)
class Contender:
    """A candidate as a model, with the largest error of its outputs."""

    candidate: Candidate
    model: Any
    file: ModelFile
    error: float


@dataclass(frozen=True, slots=True)
class Blamed:
    """A rule whose application changed the outputs, what changed, and the last candidate before it."""

    rule: str
    problem: str
    before: Candidate


class Checker:
    """Exports candidates and compares them with the original on all inputs (one `Inputs` for each binding).

    `until` says when that ends; `size` bytes of weights take some of the time. `computed` has the weakest type in
    which each output is computed, `meant` says what the original gives by its operators' equations, where anybody knows. `kernels` may
    be written; `functions`: so may what ONNX has no nodes for, without a library of kernels; `inline` writes
    functions as their nodes; `growth` is by how much the file's weights may grow; `fewest`: see `export`.
    `worker` runs what is compared, where there is one; `spares` are processes that were started ahead.
    """

    def __init__(
        self,
        context: Context,
        rules: Rules,
        references: Sequence[Reference],
        inputs: Sequence[Inputs],
        threads: int,
        tolerance: float | None,
        original: ModelFile,
        computed: Mapping[str, Any] = MappingProxyType({}),
        meant: Callable[[Feeds], Reference | None] = lambda _: None,
        until: Deadline = FOREVER,
        size: int = 0,
        kernels: bool = False,
        functions: bool = False,
        inline: bool = False,
        growth: float = inf,
        fewest: bool = False,
        worker: Worker | None = None,
        spares: Spares | None = None,
    ) -> None:
        self._fewest, self._worker, self._spares = fewest, worker, spares
        self._until, self._bytes, self._kernels, self._inline, self._growth = until, size, kernels, inline, growth
        self._functions, self._library = kernels or functions or inline, not functions
        self._last: tuple[Candidate, Any] | None = None
        self.story = Story(context)
        self._context = context
        self._rules = rules
        self._references = references
        self._inputs = inputs
        self._threads = threads
        self._tolerance = tolerance
        self._original = original
        self._computed = computed
        self._meant = meant
        self._disputed: dict[tuple[int, int], bool] = {}

    def _exported(self, candidate: Candidate) -> Any:
        """The last model once more where it is asked for again: a large one takes seconds.

        Raises:
            DslcError: ONNX cannot say it.
        """
        if self._last is None or self._last[0] is not candidate:
            self._last = None
            graph = candidate.graph
            if self._functions:
                graph = graph_as_kernels(self._rules, graph, self._context)
            model = export(self._context, graph, self._rules, self.story.of(candidate).naming, growth=self._growth, fewest=self._fewest)
            if self._inline:
                model = inlined(model)
            elif self._library and model.functions:
                # kernels that were measured, and those of operators that ONNX has no node for
                texts = texts_of(self._rules, graph.outputs, self._context.opset, candidate.kernels)
                note(model, texts, self._threads)
                ready(model, texts)
            self._last = candidate, model
        return self._last[1]

    def operators(self, candidate: Candidate) -> float:
        """How many operators the candidate's model has; infinitely many where ONNX cannot say it."""
        try:
            return counts(self._exported(candidate))[0]
        except DslcError:
            return inf

    def check(self, candidate: Candidate) -> Contender | Comparison:
        """The candidate as a model, or what is wrong with it.

        An input for which the runtime's own doings change what the original gives says nothing (`dslc.cost.steady`).

        Raises:
            MemoryShort, TimeUp: memory or time does not suffice.
            Unusable: no input says anything.
        """
        if self._until.left() <= self._bytes / TUNING.exported:
            raise TimeUp
        try:
            model = self._exported(candidate)
            file = ModelFile(serialized(model), folder_of(self._context.folder))
        except DslcError as problem:
            return Comparison(float("inf"), problem.diagnostics[0].message)
        worst = 0.0
        for at, (reference, inputs) in enumerate(zip(self._references, self._inputs, strict=True)):
            try:
                ran = outputs_of(file, inputs.feeds, self._threads, self._until, worker=self._worker, spares=self._spares)
            except WorkerFailed as problem:
                if problem.late:
                    raise TimeUp from None
                return Comparison(float("inf"), f"ONNX Runtime cannot run it: {problem}")
            agreed = 0
            for k in range(len(inputs.feeds)):
                found = compare(reference.only(k), ran.only(k), self._tolerance, self._computed)
                if found.same:
                    agreed += 1
                    worst = max(worst, found.max_rel_error)
                elif not self._is_disputed(at, k):
                    return found
            if not agreed:
                raise Unusable("its outputs depend on rounding or on ONNX Runtime's own optimizations, and cannot be compared")
        return Contender(candidate, model, file, worst)

    def _is_disputed(self, at: int, k: int) -> bool:
        """Whether an input cannot tell a right model from a wrong one."""
        if (at, k) not in self._disputed:

            def run(feeds: Feeds, plain: bool) -> Reference:
                return outputs_of(self._original, [feeds], self._threads, self._until, plain)

            feeds, reference = self._inputs[at].feeds[k], self._references[at].only(k)
            self._disputed[at, k] = not steady(run, feeds, reference, self._computed, self._tolerance, self._meant)
        return self._disputed[at, k]

    def blame(self, candidate: Candidate, problem: str) -> Blamed:
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
        return Blamed(path[bad].rule, f"with it, {problem}", path[good])


def folder_of(folder: Path | None) -> str | None:
    return None if folder is None else str(folder.resolve())


def serialized(model: Any) -> bytes:
    """Equal bytes for equal models.

    Raises:
        DslcError: E0812 above protobuf's limit of 2 GiB.
    """
    from dslc.errors import error

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
    ends = [c for c, after in zip(path, [*path[1:], None], strict=True) if after is None or after.rule != c.rule]
    others = [c for c in ends if c is not best]
    # neighbours differ least: take those that lie farthest from what is already taken
    taken = [best]
    while others and len(taken) < most:
        far = max(others, key=lambda c: min(abs(c.cost - one.cost) for one in taken))
        others.remove(far)
        taken.append(far)
    return taken

"""From what the search found to models that are known to compute the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dslc.cost.compare import Comparison, Feeds, Reference, compare, finite, outputs_of
from dslc.cost.inputs import Inputs
from dslc.cost.process import ModelFile, WorkerFailed
from dslc.cost.steady import steady
from dslc.errors import DslcError
from dslc.ir.graph import Graph
from dslc.onnx.context import Context
from dslc.onnx.exporter import export
from dslc.search.candidate import Candidate
from dslc.search.validate import Validated
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


class Disputed(Exception):
    """What the runtime does by itself changes what the original gives, for every input: nothing can be compared with it."""


class Checker:
    """Exports candidates and compares them with the original on all inputs (one `Inputs` for each binding)."""

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
    ) -> None:
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

    def exported(self, graph: Graph) -> tuple[Any, ModelFile]:
        """The graph as a model; raises DslcError where ONNX cannot say it."""
        model = export(self._context, graph, self._rules)
        return model, ModelFile(serialized(model), folder_of(self._context.folder))

    def check(self, candidate: Candidate) -> Contender | Comparison:
        """The candidate as a model, or what is wrong with it.

        An input for which the runtime's own doings change what the original gives says nothing (`dslc.cost.steady`).

        Raises:
            MemoryShort: where memory does not suffice.
            Disputed: where no input says anything.
        """
        try:
            model, file = self.exported(candidate.graph)
        except DslcError as problem:
            return Comparison(float("inf"), problem.diagnostics[0].message)
        worst = 0.0
        for at, (reference, inputs) in enumerate(zip(self._references, self._inputs, strict=True)):
            try:
                ran = outputs_of(file, inputs.feeds, self._threads)
            except WorkerFailed as problem:
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
                raise Disputed
        return Contender(candidate, model, file, worst)

    def _is_disputed(self, at: int, k: int) -> bool:
        """Whether an input cannot tell a right model from a wrong one."""
        if (at, k) not in self._disputed:

            def run(feeds: Feeds, plain: bool) -> Reference:
                return outputs_of(self._original, [feeds], self._threads, plain)

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


def guilty(best: Candidate, found: Validated) -> list[Blamed]:
    """The rules that a candidate must do without: one whose rewrite is wrong, or all that are not proved here and have to be."""
    return [_refuted(best, found)] if found.failed else _unproved(best, found)


def _refuted(best: Candidate, found: Validated) -> Blamed:
    """The rule whose rewrite is wrong at the shapes of this model, and the last candidate before its first step."""
    before = next(step.parent for step in best.path() if step.rule == found.failed)
    assert before is not None
    problem = found.problem.strip().splitlines()[-1] if found.problem.strip() else "its sides differ"
    return Blamed(found.failed, f"with it, a rewrite is wrong at this model's shapes: {problem}", before)


def _unproved(best: Candidate, found: Validated) -> list[Blamed]:
    """The bounded rules of which some rewrite has no proof at this model's shapes, each with the last candidate before it."""
    path = best.path()
    first = {name: next(step.parent for step in path if step.rule == name) for name in found.unproved}
    problem = "it is bounded, and a rewrite is not proved at this model's shapes"
    return [Blamed(name, problem, before) for name, before in first.items() if before is not None]


def with_special(
    original: ModelFile, inputs: Inputs, reference: Reference, others: Sequence[Feeds], threads: int
) -> tuple[Inputs, Reference]:
    """Other inputs beside those that the original was run on, where it runs on them and gives numbers."""
    for feeds in others:
        try:
            found = outputs_of(original, [feeds], threads)
        except WorkerFailed:
            continue
        if finite(found):
            inputs = replace(inputs, feeds=(*inputs.feeds, feeds))
            reference = replace(reference, outputs=(*reference.outputs, *found.outputs))
    return inputs, reference


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

"""Whether a rewritten model gives what the original does, and which rule is to blame where it does not.

The runtime is not to be trusted blindly either: a difference says nothing about a rule where the original is not steady
(`dslc.cost.compare`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from onnx import ModelProto

from benchmarks.differ.walk import Step
from dslc.cost.compare import Reference, compare, finite, meaning, steady
from dslc.cost.process import ModelFile, Worker, WorkerFailed
from dslc.onnx.context import Imported
from dslc.onnx.describe import computed_types
from dslc.onnx.inputs import draw, input_specs, special
from dslc.semantics.library import Rules

#: `same`, or what was found: the rewritten model is not loaded or run, gives other numbers, or other infinities and NaN
Found = Literal["same", "refused", "differs", "not finite", "no kernel", "by the runtime"]
_HUGE = (np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-40, 0.0, -0.0)


@dataclass(frozen=True, slots=True)
class Feed:
    """Inputs, and whether they are ordinary numbers: what becomes of infinities is told apart."""

    arrays: Mapping[str, Any]
    ordinary: bool


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that changed what a model gives."""

    rule: str
    found: Found
    problem: str


class Judge:
    """Runs models in a process of its own and compares them with the original, which must run."""

    def __init__(self, worker: Worker, rules: Rules, original: Imported, sizes: Mapping[str, int], seed: int) -> None:
        model = original.context.model
        self._worker = worker
        self._original = ModelFile(model.SerializeToString())
        self._computed = computed_types(original)
        self._meant = meaning(rules, original.graph, tuple(output.name for output in model.graph.output))
        self.feeds: list[Feed] = []
        self._references: list[Reference] = []
        specs, _, _ = input_specs(model, sizes)
        feeds = [Feed(draw(specs, seed + k), True) for k in range(3)]
        others = (special(model, specs, kind, seed) for kind in ("extremes", "zeros"))
        feeds += [Feed(arrays, True) for arrays in others if arrays is not None]
        feeds.append(Feed(_strange(draw(specs, seed), np.random.default_rng(seed)), False))
        for k, feed in enumerate(feeds):
            try:
                ran = self._run(self._original, feed.arrays)
            except WorkerFailed:
                if k == 0:
                    raise
                continue
            # an ordinary input that gives infinities tells nothing of numbers
            self.feeds.append(Feed(feed.arrays, feed.ordinary and finite(ran)))
            self._references.append(ran)

    def _run(self, file: ModelFile, feeds: Mapping[str, Any], plain: bool = False) -> Reference:
        names = self._worker.load(file, plain)
        arrays = self._worker.ask({"do": "run", "feeds": dict(feeds)})["arrays"]
        return Reference(tuple(names), (tuple(arrays),))

    def look(self, model: ModelProto) -> tuple[Found, str]:
        """What a rewritten model gives. What only concerns infinities and NaN is found last."""
        file = ModelFile(model.SerializeToString())
        try:
            names = tuple(self._worker.load(file))
        except WorkerFailed as problem:
            return self._refused(file, self.feeds[0], str(problem))
        strange = ""
        for feed, reference in zip(self.feeds, self._references, strict=True):
            try:
                arrays = tuple(self._worker.ask({"do": "run", "feeds": dict(feed.arrays)})["arrays"])
            except WorkerFailed as problem:
                return self._refused(file, feed, str(problem))
            found = compare(reference, Reference(names, (arrays,)), None, self._computed)
            if found.same:
                continue
            if self._steady(feed, reference):
                if not feed.ordinary:
                    strange = strange or found.problem
                elif self._plain_agrees(file, feed, reference):
                    return "by the runtime", found.problem
                else:
                    return "differs", found.problem
            # the process holds another model now
            self._worker.load(file)
        return ("not finite", strange) if strange else ("same", "")

    def _plain_agrees(self, file: ModelFile, feed: Feed, reference: Reference) -> bool:
        """Whether a rewritten model gives the right outputs without the runtime's own optimizations."""
        try:
            return compare(reference, self._run(file, feed.arrays, plain=True), None, self._computed).same
        except WorkerFailed:
            return False

    def _refused(self, file: ModelFile, feed: Feed, problem: str) -> tuple[Found, str]:
        """A model that the runtime does not run: for want of a kernel, by its own optimizations, or rightly."""
        try:
            self._run(file, feed.arrays, plain=True)
        except WorkerFailed as plain:
            # what has no kernel has no price either, and `dslc optimize` leaves it
            return ("no kernel" if str(plain).startswith("NotImplemented") else "refused"), problem
        return "by the runtime", problem

    def _steady(self, feed: Feed, reference: Reference) -> bool:
        def run(feeds: Mapping[str, Any], plain: bool) -> Reference:
            return self._run(self._original, feeds, plain)

        return steady(run, feed.arrays, reference, self._computed, None, self._meant)

    def blame(self, steps: Sequence[Step], found: Found, problem: str) -> Finding:
        """The first step of a walk whose model has the same fault, by bisection."""
        good, bad = 0, len(steps) - 1
        while bad - good > 1:
            middle = (good + bad) // 2
            at, text = self.look(steps[middle].model)
            if at != found and at in {"same", "not finite", "no kernel", "by the runtime"}:
                good = middle
            else:
                bad, found, problem = middle, at, text
        return Finding(steps[bad].rule, found, problem)


def _strange(arrays: Mapping[str, Any], generator: np.random.Generator) -> dict[str, Any]:
    """The same inputs with infinities, NaN, huge and tiny numbers among the floats."""
    out = dict(arrays)
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            with np.errstate(over="ignore"):
                odd = np.asarray(_HUGE)[generator.integers(0, len(_HUGE), array.shape)].astype(array.dtype)
            out[name] = np.where(generator.random(array.shape) < 0.3, odd, array).astype(array.dtype)
    return out

"""Candidates of a search with what was predicted for them, timed against the original: how good are the predictions?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf, log
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from onnx import ModelProto

from dslc.cost.cache import CostCache
from dslc.cost.compare import outputs_of
from dslc.cost.confidence_sequence import Interval
from dslc.cost.inputs import Inputs, drawn_inputs
from dslc.cost.machine import this_machine
from dslc.cost.measure import Measurer
from dslc.cost.model import CostModel
from dslc.cost.process import ModelFile, WorkerFailed
from dslc.cost.timing import MemoryShort, race
from dslc.deadline import Deadline
from dslc.errors import DslcError
from dslc.match import CompiledRule
from dslc.onnx.exporter import node_model
from dslc.onnx.importer import import_model
from dslc.search.candidates.candidate import Candidate, Limits
from dslc.search.phases.exploration import sizes_of
from dslc.search.runs.contenders import Checker, Contender, ReferenceOutputs, distinct, serialized
from dslc.search.strategies.backtrack import backtrack
from dslc.search.strategies.space import Space
from dslc.search.strategies.sweep import SweepState, everywhere
from dslc.semantics.library import Rules

#: a prediction is judged where the paired ratios of the measurement spread no more than this
QUIET = 0.05
#: a walk has so many steps at most, each of which changes the predicted cost by such a share, and costs at most so many times the
#: original
WALK, STEP, FARTHEST = 4, 0.01, 2.0


@dataclass(frozen=True, slots=True)
class Point:
    """A candidate: what it is, how many times as fast as the original it was predicted to be, and measured."""

    what: str
    predicted: float
    measured: Interval

    @property
    def quiet(self) -> bool:
        """Whether the measurement is certain enough to judge a prediction by."""
        return (self.measured.high - self.measured.low) / 2 < QUIET * self.measured.ratio

    @property
    def error(self) -> float:
        """How far off the prediction is, as a share of what was measured."""
        return abs(self.predicted / self.measured.ratio - 1)


#: the original among its candidates
ORIGINAL = Point("original", 1.0, Interval(1.0, 1.0, 1.0))


def kendall(points: Sequence[Point]) -> float | None:
    """Kendall's tau-b of predicted and measured order; pairs whose measured intervals overlap have no order to agree with.

    None where no pair has an order.
    """
    agree = against = tied = 0
    for k, one in enumerate(points):
        for other in points[:k]:
            if one.measured.low <= other.measured.high and other.measured.low <= one.measured.high:
                continue
            sign = (one.predicted - other.predicted) * (one.measured.ratio - other.measured.ratio)
            agree, against, tied = agree + (sign > 0), against + (sign < 0), tied + (sign == 0)
    ordered = agree + against
    return None if ordered + tied == 0 else (agree - against) / ((ordered * (ordered + tied)) ** 0.5 or 1.0)


def median_error(points: Sequence[Point]) -> float | None:
    """The median error of the predictions that were judged in a quiet spell; None where there is none."""
    quiet = [point.error for point in points if point.quiet]
    return median(quiet) if quiet else None


@dataclass(slots=True)
class Study:
    """One model under study: candidates are searched with costs from one cache, and all are timed together."""

    model: ModelProto
    rules: Rules
    threads: int | None
    costs: CostModel
    start: Candidate
    checker: Checker
    inputs: Inputs
    found: dict[int, tuple[str, Contender]] = field(default_factory=dict)
    #: what the searches built, as far as it costs something else than what was there before
    built: list[Candidate] = field(default_factory=list)

    def search(self, rules: Sequence[CompiledRule], budget: float, steps: int | None, seed: int) -> Candidate:
        """The cheapest graph that a search with these rules finds in so many seconds or steps."""

        def keep(one: Candidate) -> None:
            near = min((abs(one.cost / other.cost - 1) for other in self.built), default=1.0)
            if near > STEP / 2 and one.cost < FARTHEST * self.start.cost:
                self.built.append(one)

        limits = Limits(steps, Deadline.after(budget), on_built=keep)
        return backtrack(Space(self.start, (), self.costs, limits, seed=seed), list(rules))

    def take(self, candidate: Candidate, what: str) -> bool:
        """Adds a candidate to those that are timed, where it is new and gives the same outputs as the original."""
        identity = hash(candidate.graph.outputs)
        if candidate is self.start or identity in self.found:
            return identity in self.found
        checked = self.checker.check(candidate)
        if not isinstance(checked, Contender):
            return False
        self.found[identity] = (what, checked)
        return True

    def take_path(self, best: Candidate, most: int) -> None:
        """Adds the best candidate and others on the way to it, which lie far apart in predicted cost."""
        for k, one in enumerate(distinct(best, most)):
            self.take(one, "best" if k == 0 else f"after {one.rule}")

    def wander(
        self, rules: Sequence[CompiledRule], seconds: float, seed: int, starts: Sequence[Candidate]
    ) -> list[Candidate]:
        """Graphs better and worse than the original: seeded random walks of rules, each applied wherever it fits, or at a part.

        A search looks at little that is worse, and what it looks at differs by less than measuring tells apart; only graphs that
        lie apart show whether the predicted order is the measured one. The graphs found are those whose cost a step changed.
        """
        random = Random(seed)
        until = time.monotonic() + seconds
        limits = Limits(None, Deadline(until))
        found: list[Candidate] = []
        while time.monotonic() < until:
            at = random.choice(starts)
            for _ in range(random.randint(1, WALK)):
                for rule in random.sample(list(rules), len(rules)):
                    one = everywhere(SweepState(at, self.costs), rule, limits, -inf, FARTHEST * self.start.cost)
                    if one is not None and abs(one.cost / at.cost - 1) > STEP:
                        at = one
                        found.append(one)
                        break
                    if time.monotonic() > until:
                        return found
        return found

    def take_apart(self, candidates: Sequence[Candidate], most: int) -> None:
        """Adds so many candidates, each time the one whose predicted ratio lies farthest from those of all that were taken."""
        left = {hash(one.graph.outputs): one for one in candidates}
        places = [0.0, *(log(self.predicted(contender.candidate)) for _, contender in self.found.values())]
        while left and most > 0:
            identity = max(left, key=lambda key: min(abs(log(self.predicted(left[key])) - place) for place in places))
            one = left.pop(identity)
            if identity not in self.found and self.take(one, f"by {' '.join(dict.fromkeys(one.rules()))}"):
                places.append(log(self.predicted(one)))
                most -= 1

    def predicted(self, candidate: Candidate) -> float:
        """How many times as fast a candidate should be: its operators, and the run around them."""
        overhead = self.costs.measurer.overhead
        return (self.costs.graph_cost(self.start.graph) + overhead) / (
            self.costs.graph_cost(candidate.graph) + overhead
        )

    def points(self, seconds: float) -> dict[int, Point]:
        """Every candidate that was taken, timed against the original; all together where memory suffices, else one by one."""
        original = ModelFile(serialized(self.model))
        threads = this_machine(self.threads).threads
        feeds = self.inputs.feeds[0]
        chosen = list(self.found.items())
        files = [contender.file for _, (_, contender) in chosen]
        if not files:
            return {}
        try:
            timings = race([original, *files], feeds, threads, seconds)[1:]
        except MemoryShort:
            timings = [race([original, file], feeds, threads, seconds / len(files))[1] for file in files]
        return {
            identity: Point(what, self.predicted(contender.candidate), timing.ratio)
            for (identity, (what, contender)), timing in zip(chosen, timings, strict=True)
        }


@contextmanager
def study(
    model: ModelProto, rules: Rules, threads: int | None, cache: Path | None, bind: Any = None
) -> Iterator[Study]:
    """Opens a study of a model. Raises WorkerFailed where ONNX Runtime cannot run the model."""
    place = this_machine(threads)
    imported = import_model(model, rules, {})
    context = imported.context
    inputs = drawn_inputs(model, bind or {})
    file = ModelFile(serialized(model))
    reference = outputs_of(file, inputs.feeds, place.threads)

    def build(given: tuple[Any, ...], outputs: tuple[Any, ...]) -> bytes | None:
        try:
            made, _ = node_model(outputs, rules, context.opset, context.ir_version, inputs=given)
        except DslcError:
            return None
        return serialized(made)

    with CostCache(cache, lambda note: None) as kept:
        measurer = Measurer(place, kept)
        try:
            sizes = sizes_of(imported.graph, context, model, None, inputs.feeds[0], place.threads)
            costs = CostModel(rules, measurer, build, context.opset, {**(bind or {}), **sizes})
            costs.excuse(imported.graph)
            start = Candidate(imported.graph, costs.graph_cost(imported.graph))
            checker = Checker(context, rules, ReferenceOutputs(file, [reference], [inputs]), place.threads)
            yield Study(model, rules, threads, costs, start, checker, inputs)
        finally:
            measurer.close()


__all__ = ["Point", "Study", "WorkerFailed", "kendall", "median_error", "study"]

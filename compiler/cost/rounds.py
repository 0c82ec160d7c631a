"""Rounds: what was measured of models that ran in them, and what it says of any two models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, log

from dslc.cost.sequential import SequentialTest, Turn, at_once, balanced
from dslc.cost.statistics import Interval, median, quick_mean


@dataclass(frozen=True, slots=True)
class TimedPair:
    """One round of two models: seconds of the base and of the other one.

    `generation` numbers the processes; `base_first`: the base ran first.
    """

    before: float
    after: float
    generation: int
    base_first: bool


@dataclass(frozen=True, slots=True)
class Timing:
    """One model's times in seconds, in how many rounds, and how much faster than the first model it is (above 1: faster)."""

    median: float
    minimum: float
    blocks: int
    ratio: Interval
    pairs: tuple[TimedPair, ...] = ()

    @property
    def faster(self) -> bool:
        """True where the lower end of the interval is above 1."""
        return self.ratio.low > 1


@dataclass(slots=True)
class Rounds:
    """Seconds of models by the round in which they ran; model 0 is the one that the others are compared with.

    Rounds belong to generations, in which the same processes ran. A model that came later, or was dropped, is missing in some.
    """

    test: SequentialTest = field(default_factory=SequentialTest)
    #: at how many choices of sizes models are compared: together they err no more often
    families: int = 1
    generations: list[list[Mapping[int, float]]] = field(default_factory=list)
    samples: dict[int, list[float]] = field(default_factory=dict)
    #: models that were stopped in their first run, with the ratio that they were below
    stopped: dict[int, float] = field(default_factory=dict)
    #: seconds of the first runs, for models that had no others
    first: dict[int, float] = field(default_factory=dict)
    #: whether the last generation still runs
    running: bool = False
    #: intervals as of the last round
    _found: dict[tuple[int, int, float, float], Interval] = field(default_factory=dict)
    _ended: dict[tuple[int, int], list[list[Turn]]] = field(default_factory=dict)

    def begin(self) -> None:
        """New processes."""
        self.generations.append([])
        self.running = True
        self._found.clear()

    def add(self, times: Mapping[int, Sequence[float]]) -> None:
        """A round: seconds of samples by model, in the order in which they ran."""
        self.generations[-1].append({model: quick_mean(own) for model, own in times.items()})
        self._found.clear()
        for model, own in times.items():
            self.samples.setdefault(model, []).extend(own)

    def end(self) -> None:
        """The processes ended."""
        self.running = False
        self._found.clear()

    def count(self, model: int) -> int:
        """In how many rounds a model ran beside the first one."""
        return sum(model in one and 0 in one for rounds in self.generations for one in rounds)

    def turns(self, model: int, base: int = 0) -> list[list[Turn]]:
        """The rounds in which two models ran, as log-ratios: above 0 where the base took longer."""
        # a generation that ended stays what it is
        ended = self._ended.setdefault((model, base), [])
        for rounds in self.generations[len(ended) : len(self.generations) - 1]:
            ended.append(_turns(rounds, model, base))
        return [*ended, *(_turns(rounds, model, base) for rounds in self.generations[len(ended) :])]

    def pairs(self, model: int, base: int = 0) -> tuple[TimedPair, ...]:
        """Every round in which two models ran, in their order."""
        return tuple(
            TimedPair(one[base], one[model], k, next(n for n in one if n in {base, model}) == base)
            for k, rounds in enumerate(self.generations) for one in rounds if base in one and model in one
        )  # fmt: skip

    def ratio(self, model: int, base: int = 0) -> float:
        """The log-ratio of two models as it seems to be; 0 where they never ran together."""
        key = model, base, 0.0, 1.0
        if key not in self._found:
            values = [balanced(own) for own in self.turns(model, base) if own]
            self._found[key] = Interval(median(values) if values else 0.0, 0.0, inf)
        return self._found[key].ratio

    def interval(self, model: int) -> Interval:
        """Confidence interval of a model's speed-up over the first one, at a level shared by all models compared with it."""
        if model in self.stopped:
            return Interval(self.stopped[model], 0.0, self.stopped[model])
        key = model, 0, 0.0, 0.0
        if key not in self._found:
            self._found[key] = self.test.interval(
                self.turns(model), self.test.among(model - 1, self.families), self.running
            )
        return self._found[key]

    def known(self, model: int) -> bool:
        """Return whether anything is known of a model."""
        return model in self.stopped or self.count(model) > 0

    def possible(self, model: int, base: int, level: float, margin: float = 1.0) -> Interval:
        """The ratio of two models by their rounds alone, see `dslc.cost.sequential.at_once`."""
        if model in self.stopped:
            return self.interval(model)
        key = model, base, level, margin
        if key not in self._found:
            self._found[key] = at_once(level, margin).interval(self.turns(model, base))
        return self._found[key]

    def lately(self, model: int) -> tuple[float, int]:
        """The log-ratio of a model in the generation that runs, and of how many rounds."""
        own = self.turns(model)[-1] if self.generations else []
        return (balanced(own) if own else 0.0), len(own)

    def timing(self, model: int) -> Timing:
        """As of now, for a model that ran."""
        own = self.samples.get(model) or [self.first.get(model, inf)]
        ratio = Interval(1.0, 1.0, 1.0) if model == 0 else self.interval(model)
        count = sum(model in one for rounds in self.generations for one in rounds)
        return Timing(median(own), min(own), count, ratio, self.pairs(model) if model else ())


def _turns(rounds: Sequence[Mapping[int, float]], model: int, base: int) -> list[Turn]:
    """The rounds of a generation in which two models ran."""
    return [
        (log(one[base] / one[model]), next(k for k in one if k in {base, model}) == base)
        for one in rounds if base in one and model in one
    ]  # fmt: skip

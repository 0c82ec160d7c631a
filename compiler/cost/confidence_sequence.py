"""Intervals for ratios of times that hold at every look: whoever stops as soon as one decides errs no more often than announced.

Models run in rounds, each of them once in a round, in an order that is drawn anew. Of two equal models either one is then as
likely to have the faster turn, whatever the machine does meanwhile: spells, drift, heavy tails and noise that lasts over many
rounds know nothing of the order. A round is won or lost; whoever bets on the wins from a capital of 1 has 1 / alpha of it, at
any time, with a probability of alpha at most (Ville 1939). What is still possible of the ratio is what no such bet refutes.

Sources: H. Robbins, Statistical methods related to the law of the iterated logarithm, Ann. Math. Statist. 41 (1970), section 3
(mixtures); S. R. Howard and A. Ramdas, Sequential estimation of quantiles with applications to A/B testing and best-arm
identification, Bernoulli 28 (2022), section 2 (a fixed quantile by wins and losses); I. Waudby-Smith and A. Ramdas, Estimating means of
bounded random variables by betting, J. R. Statist. Soc. B 86 (2024), section 4 (capital processes and their inversion).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import exp, inf, log
from statistics import median

from dslc.records import record

#: log-ratio of a round, and whether the model that is compared with came first in it
Turn = tuple[float, bool]
#: turns by generation of processes
Turns = Sequence[Sequence[Turn]]


@record
class Bet:
    """One way of telling that a ratio lies beyond a threshold.

    Attributes:
        share: of the level.
        margin: a turn is won where it is so many times beyond the threshold: what processes of one model may differ by.
        chance: the most that equal models win by chance.
        spared: whether it must show without any one generation of processes, too: that one may be lucky by whatever it is.
        whole: whether what is won or lost is a generation as a whole, and not a turn.
    """

    share: float
    margin: float = 1.0
    chance: float = 0.5
    spared: bool = False
    whole: bool = False


@record
class SequentialTest:
    """Bets that hold together at `level`, the two-sided probability of an error over all looks.

    Of 286 pairs of processes of one model on a busy machine with two cores, 17 differed by more than 4 % as long as they lived, and two
    by more than 10 % (16 and 34). So a factor of two shows in processes that run (at most every second turn is disturbed by that much),
    a tenth where it shows without any one generation of them, and less in many.
    """

    level: float = 0.05
    bets: tuple[Bet, ...] = (
        Bet(0.1, margin=2.0, chance=0.25),
        Bet(0.25, margin=1.1, spared=True),
        Bet(0.65, whole=True),
    )

    def among(self, k: int, families: int = 1) -> float:
        """The level of the k-th (from 0) of an unknown number of contenders: all together have `level`."""
        return self.level / (families * (k + 1) * (k + 2))

    def interval(self, turns: Turns, level: float | None = None, open_end: bool = False) -> Interval:
        """The ratio, and what is possible of it.

        Args:
            level: of the lower end, where several are told apart by theirs; the upper end has the test's own.
            open_end: whether the last generation still runs: as a whole it does not count yet.
        """
        values = [balanced(own) for own in turns if own]
        if not values:
            return Interval(1.0, 0.0, inf)
        below = self.level if level is None else level
        low = max(_least(turns, bet, bet.share * below / 2, open_end) for bet in self.bets)
        mirrored = [[(-x, not first) for x, first in own] for own in turns]
        high = min(-_least(mirrored, bet, bet.share * self.level / 2, open_end) for bet in self.bets)
        # where the ends contradict each other, which happens no more often than an error, neither says anything
        if low > high:
            low, high = -inf, inf
        return Interval(exp(min(max(median(values), low), high)), exp(low), exp(high))


def balanced(turns: Sequence[Turn]) -> float:
    """The log-ratio of a generation: the mean of the medians of either order.

    Who comes second finds the caches full of the other one's data and is slower by some thousandths; in the mean that cancels.
    """
    orders = [[x for x, first in turns if first is which] for which in (True, False)]
    medians = [median(own) for own in orders if own]
    return sum(medians) / len(medians)


def _least(turns: Turns, bet: Bet, level: float, open_end: bool) -> float:
    """The largest log-ratio that a bet refutes from below; -inf for none."""
    margin = log(bet.margin)
    if bet.whole:
        done = turns[:-1] if open_end else turns
        groups = [sorted(balanced(own) for own in done if own)]
    else:
        groups = [sorted(x for x, _ in own) for own in turns if own]
    values = sorted({x for own in groups for x in own}, reverse=True)
    if not values:
        return -inf
    goal = -log(level)
    count = sum(map(len, groups))

    def refuted(at: float) -> bool:
        """Return whether a threshold is, below which such a value is still won."""
        won = [len(own) - bisect_left(own, at) for own in groups]
        left = (
            [(sum(won) - w, count - len(own)) for w, own in zip(won, groups, strict=True)]
            if bet.spared
            else [(sum(won), count)]
        )
        return all(capital(wins, turns, bet.chance) >= goal for wins, turns in left)

    # fewer are won of a higher threshold
    first = bisect_left(values, True, key=refuted)
    return values[first] - margin if first < len(values) else -inf


BETS = 10  #: number of bets: half of the capital on wins only, the rest on ever smaller shares of them


@lru_cache(1 << 16)
def capital(wins: int, turns: int, chance: float) -> float:
    """The logarithm of what a capital of 1 became that was laid on wins, which have a probability of `chance` at most.

    Each part of it is laid on another probability p of a win, p = chance + (1 - chance) 2^-j, and becomes p / chance times as much by a
    win, and (1 - p) / (1 - chance) times by a loss: in the mean no more than it was.
    """
    lost, parts = turns - wins, []
    for j in range(BETS):
        p = chance + (1 - chance) * 0.5**j
        if p == 1 and lost:
            continue
        weight = 1 / ((j + 1) * (j + 2)) if j + 1 < BETS else 1 / BETS
        parts.append(log(weight) + wins * log(p / chance) + (lost * log((1 - p) / (1 - chance)) if lost else 0.0))
    top = max(parts)
    return top + log(sum(exp(part - top) for part in parts))


def at_once(level: float, margin: float = 1.0) -> SequentialTest:
    """A test by turns alone, for what is no claim but a choice: processes that live are taken for what the model is."""
    return replace(SequentialTest(), level=level, bets=(Bet(1.0, margin=margin),))


WIDE = 100.0  #: how many times apart the ends of an interval are that is not shown


@record
class Interval:
    """A ratio with the ends of its interval."""

    ratio: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """True where there were enough rounds for an interval that says anything."""
        return self.low > 0 and self.high < WIDE * self.low

    def within(self, share: float) -> bool:
        """Return whether the ratio is 1 to such a share."""
        return 1 / (1 + share) < self.low <= self.high < 1 + share

    @property
    def ends(self) -> str:
        """The interval; nothing where a few rounds give none."""
        return f" [{self.low:.3f}, {self.high:.3f}]" if self.known else ""

    def __str__(self) -> str:
        return f"{self.ratio:.3f}{self.ends}"


def quick_mean(values: Sequence[float]) -> float:
    """The mean of the fastest tenth: time slices taken by neighbours do not count.

    Beside six busy processes on two cores, 80 % of the ratios of one model to itself lay within 22 %, of fastest quarters within 47 %.
    """
    ordered = sorted(values)
    kept = ordered[: (len(ordered) + 9) // 10]
    return sum(kept) / len(kept)


@record
class TimedPair:
    """One round of two models: seconds of the base and of the other one.

    `generation` numbers the processes; `base_first`: the base ran first.
    """

    before: float
    after: float
    generation: int
    base_first: bool


@record
class Timing:
    """One model's times in seconds, in how many rounds, and how much faster than the first model it is (above 1: faster).

    `typical` of the first model is its median; of another one it is that over its ratio, since load that comes and goes hits both
    models of a pair.
    """

    typical: float
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
        return [
            [(log(one[base] / one[model]), _first(one, model, base)) for one in rounds if base in one and model in one]
            for rounds in self.generations
        ]

    def pairs(self, model: int, base: int = 0) -> tuple[TimedPair, ...]:
        """Every round in which two models ran, in their order."""
        return tuple(
            TimedPair(one[base], one[model], k, _first(one, model, base))
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
        """The ratio of two models by their rounds alone, see `dslc.cost.confidence_sequence.at_once`."""
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
        first, own = (self.samples.get(k) or [self.first.get(k, inf)] for k in (0, model))
        ratio = Interval(1.0, 1.0, 1.0) if model == 0 else self.interval(model)
        count = sum(model in one for rounds in self.generations for one in rounds)
        typical = median(first) / ratio.ratio if self.known(model) else median(own)
        return Timing(typical, min(own), count, ratio, self.pairs(model) if model else ())


def _first(times: Mapping[int, float], model: int, base: int) -> bool:
    """Return whether the base ran before a model in a round."""
    return next(k for k in times if k in {base, model}) == base

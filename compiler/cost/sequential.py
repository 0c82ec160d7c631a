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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, inf, log

from dslc.cost.statistics import Interval, median

#: log-ratio of a round, and whether the model that is compared with came first in it
Turn = tuple[float, bool]
#: turns by generation of processes
Turns = Sequence[Sequence[Turn]]


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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
    first, last = 0, len(values)
    while first < last:
        middle = (first + last) // 2
        if refuted(values[middle]):
            last = middle
        else:
            first = middle + 1
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

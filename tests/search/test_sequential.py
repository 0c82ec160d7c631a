"""Intervals that hold at every look: how often equal models are told apart, and how soon different ones are."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from math import comb, exp, inf, log

import pytest

from dslc.cost.confidence_sequence import Bet, Rounds, SequentialTest, at_once, balanced, capital
from dslc.cost.process import ModelFile
from dslc.cost.timing import InterleavedBenchmark

#: the most generations and rounds that a simulated race has
GENERATIONS, ROUNDS = 14, 10
#: rounds of one generation where models are equal, whose races last to the end
EQUAL = 6


@dataclass
class Machine:
    """Draws what one block takes, by the clock of a noisy machine: every block moves it on."""

    rng: random.Random
    noise: float = 0.02
    #: how much of the last disturbance is left in the next block (AR(1)), and its size
    lasting: float = 0.0
    disturbance: float = 0.0
    #: chance that a spell begins in a block, in which everything takes a third longer, and of its end
    spells: tuple[float, float] = (0.0, 1.0)
    #: log-seconds that a block takes longer than the one before
    drift: float = 0.0
    #: whether blocks take anything at all, now and then
    heavy: bool = False
    #: a block in so many takes twice as long, whoever runs then
    period: int = 0
    #: by what processes differ as long as they live: some by chance, some by one of two values
    luck: float = 0.01
    second: float = 0.004

    def __post_init__(self) -> None:
        self.state, self.spell, self.time, self.blocks = 0.0, False, 0.0, 1

    def process(self) -> float:
        return self.rng.gauss(0, self.luck) + self.rng.choice([0.0, 0.03])

    def block(self, late: bool) -> float:
        self.blocks += 1
        self.time += self.drift
        self.spell = self.rng.random() < (self.spells[0] if not self.spell else 1 - self.spells[1])
        self.state = self.lasting * self.state + self.rng.gauss(0, self.disturbance)
        own = self.rng.gauss(0, self.noise)
        if self.heavy and self.rng.random() < 0.2:
            own += min(20.0, self.rng.paretovariate(1.1) - 1)
        periodic = log(2) if self.period and self.blocks % self.period == 0 else 0.0
        return (
            self.time
            + self.state
            + own
            + periodic
            + (log(4 / 3) if self.spell else 0.0)
            + (self.second if late else 0.0)
        )


MACHINES: dict[str, Callable[[random.Random], Machine]] = {
    "quiet": lambda rng: Machine(rng),
    "heavy tails": lambda rng: Machine(rng, heavy=True),
    "spells": lambda rng: Machine(rng, spells=(0.02, 0.02)),
    "lasting noise": lambda rng: Machine(rng, lasting=0.95, disturbance=0.1),
    "drift": lambda rng: Machine(rng, drift=0.01),
    "another program's period": lambda rng: Machine(rng, period=2),
    "unlucky processes": lambda rng: Machine(rng, luck=0.04, noise=0.005),
}


def raced(
    machine: Machine,
    ratios: list[float],
    test: SequentialTest | None = None,
    drawn: bool = True,
    each: int = ROUNDS,
) -> tuple[Rounds, int]:
    """A run of `InterleavedBenchmark` on a machine, in an order that is drawn or not: what was measured, in how many rounds."""
    race = InterleavedBenchmark(ModelFile(b""), {}, 1, rounds=Rounds(test=test or SequentialTest()))
    models = [race.enter(ModelFile(bytes([k + 1]))) for k in range(len(ratios))]
    total = 0
    for _ in range(GENERATIONS):
        luck = [machine.process() for _ in (0, *models)]
        race.rounds.begin()
        for _ in range(each):
            order = [0, *(k for k in models if not race.out(k, models))]
            if drawn:
                machine.rng.shuffle(order)
            times = {}
            for place, k in enumerate(order):
                speed = 0.0 if k == 0 else log(ratios[k - 1])
                times[k] = [exp(machine.block(place > 0) + luck[k] - speed)]
            race.rounds.add(times)
            total += 1
            if race.decided(models):
                return race.rounds, total
        race.rounds.end()
        if race.decided(models):
            break
    return race.rounds, total


def most(runs: int, wrong: float = 0.05, chance: float = 0.01) -> int:
    """The most errors that more than 99 of 100 repetitions stay within, where each is one with this probability."""
    total, count = 0.0, -1
    while total <= 1 - chance:
        count += 1
        total += comb(runs, count) * wrong**count * (1 - wrong) ** (runs - count)
    return count


def wrong(name: str, runs: int, contenders: int, test: SequentialTest | None = None, drawn: bool = True) -> int:
    """In how many of so many races some model that is equal to the original was called faster."""
    count = 0
    for seed in range(runs):
        rounds, _ = raced(MACHINES[name](random.Random(seed)), [1.0] * contenders, test, drawn, EQUAL)
        count += any(rounds.interval(k + 1).low > 1 for k in range(contenders))
    return count


@pytest.mark.parametrize("contenders", [1, 3])
def test_equal_models_are_rarely_called_faster_whatever_the_machine_does(contenders: int) -> None:
    """Over all looks and all contenders together; a claim of the one kind has half of the level: on each machine and on all."""
    runs = 12 if contenders == 1 else 3
    found = {name: wrong(name, runs, contenders) for name in MACHINES}
    assert max(found.values()) <= most(runs, 0.025), found
    assert sum(found.values()) <= most(runs * len(MACHINES), 0.025), found


def test_by_the_same_simulation_a_wrong_test_is_found_out() -> None:
    """One that wins too easily, one that believes in single processes, and one whose order is not drawn."""
    runs = 12
    assert wrong("quiet", runs, 3, SequentialTest(bets=(Bet(1.0, chance=0.25),))) > most(runs, 0.025)
    assert wrong("unlucky processes", runs, 1, SequentialTest(bets=(Bet(1.0),))) > most(runs, 0.025)
    assert wrong("another program's period", runs, 1, SequentialTest(bets=(Bet(1.0),)), drawn=False) > most(runs, 0.025)


@pytest.mark.parametrize(("ratio", "rounds"), [(10.0, 8), (4.0, 8), (1.5, 40), (1.05, 130)])
@pytest.mark.parametrize("name", ["quiet", "spells", "drift"])
def test_what_is_clear_is_decided_at_once(name: str, ratio: float, rounds: int) -> None:
    for seed in range(10):
        found, total = raced(MACHINES[name](random.Random(seed)), [ratio])
        interval = found.interval(1)
        assert interval.low <= ratio * 1.05 and interval.high >= ratio / 1.05
        assert (interval.low > 1 and total <= rounds) or ratio < 1.1


def test_most_gains_of_five_percent_are_found() -> None:
    found = [raced(MACHINES["quiet"](random.Random(seed)), [1.05])[0].interval(1).low > 1 for seed in range(20)]
    assert sum(found) >= 15


def test_of_many_that_are_equally_fast_one_is_taken_soon() -> None:
    for seed in range(5):
        _, total = raced(MACHINES["quiet"](random.Random(seed)), [3.0, 3.01, 2.99, 0.5])
        assert total <= 80


def test_a_capital_grows_by_no_more_than_it_is_worth() -> None:
    """Its mean over all that may happen in ten turns of equal models is 1 at most."""
    for chance in (0.5, 0.25):
        for won in (chance, chance / 2):
            mean = sum(comb(10, w) * won**w * (1 - won) ** (10 - w) * exp(capital(w, 10, chance)) for w in range(11))
            assert mean <= 1 + 1e-9
        assert capital(10, 10, chance) > capital(9, 10, chance)


def test_contenders_share_the_level_however_many_there_are() -> None:
    assert sum(SequentialTest().among(k) for k in range(10_000)) <= SequentialTest().level
    assert sum(SequentialTest().among(k, 3) for k in range(10_000)) <= SequentialTest().level / 3


def test_processes_that_run_prove_a_factor_of_two_and_not_a_tenth() -> None:
    one = [[(log(1.3), bool(k % 2)) for k in range(200)]]
    assert SequentialTest().interval(one).low < 1
    assert SequentialTest().interval([*one, *one]).low > 1.1
    assert SequentialTest().interval([[(log(2.5), bool(k % 2)) for k in range(8)]]).low > 1
    assert at_once(0.2).interval(one).low > 1.2


def test_nothing_is_known_without_rounds() -> None:
    assert (
        SequentialTest().interval([]) == SequentialTest().interval([[]]) and SequentialTest().interval([]).high == inf
    )
    assert not SequentialTest().interval([[(log(9.0), True)]]).known


def test_who_comes_second_is_slower_and_that_cancels() -> None:
    second = log(1.004)
    assert balanced([(second, True)] * 3 + [(-second, False)]) == pytest.approx(0.0, abs=5e-3)
    assert balanced([(0.0 - second, True), (second, False)]) == pytest.approx(0.0)

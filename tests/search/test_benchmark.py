"""The final benchmark of a run: asked at any time, it counts all that was ever measured, and says what it saw when time is up."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dslc.cost.cache import CostCache
from dslc.cost.clock import Clock
from dslc.cost.confidence_sequence import Interval
from dslc.cost.machine import Machine
from dslc.cost.process import ModelFile, WorkerFailed
from dslc.cost.timing import InterleavedBenchmark
from dslc.deadline import TimeUp
from dslc.search.candidates.candidate import Candidate
from dslc.search.options.settings import Settings
from dslc.search.phases import acceptance
from dslc.search.phases.writing import _complete
from dslc.search.runs.benchmark import Decision, FinalBenchmark, Verdict
from dslc.search.runs.contenders import Contender
from dslc.search.runs.endings import Ending
from dslc.search.runs.state import RunState


@dataclass
class Hands:
    time: float = 100.0

    def __call__(self) -> float:
        return self.time


@dataclass
class Bench:
    """Processes of models that take what their bytes say, by a clock that is set by hand."""

    hands: Hands = field(default_factory=Hands)
    #: seconds of starting processes, and of a round
    start: float = 1.0
    round: float = 0.1
    asked: list[tuple[int, ...]] = field(default_factory=list)

    def generation(self, race: InterleavedBenchmark, models: Sequence[int], _until: float) -> None:
        self.hands.time += self.start
        self.asked.append(tuple(models))
        race.rounds.begin()
        for turn in range(8):
            active = [k for k in models if not race.out(k, models)]
            seconds = {k: float(bytes(race.files[k - 1].model)) for k in active}  # type: ignore[arg-type]
            order = [0, *active] if turn % 2 else [*active, 0]
            race.rounds.add({k: [1.0 if k == 0 else seconds[k]] for k in order})
            self.hands.time += self.round
            if race.decided(models):
                break

    def run(self, race: InterleavedBenchmark, seconds: float, models: Sequence[int], _on_block: Any = None) -> bool:
        until = self.hands.time + seconds
        while not race.decided(models):
            if self.hands.time + self.start > until:
                return False
            self.generation(race, models, until)
            race.rounds.end()
        return True


def contender(seconds: float, cost: float = 1.0) -> Contender:
    candidate: Any = SimpleNamespace(cost=cost, end=None, path=lambda: [None])
    return Contender(candidate, SimpleNamespace(functions=[]), ModelFile(str(seconds).encode()), 0.0)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    found = Bench()
    monkeypatch.setattr(InterleavedBenchmark, "run", lambda *args: found.run(*args))
    return found


def benchmark(
    bench: Bench, cache: CostCache, budget: float = 60.0, sizes: int = 1, left: float = 60.0
) -> FinalBenchmark:
    feeds: list[dict[str, Any]] = [{} for _ in range(sizes)]
    return FinalBenchmark(
        ModelFile(b"1"), "model", budget, feeds, Machine("here", 1, "runtime"), cache, Clock(left, bench.hands), 0.1
    )


def test_it_may_be_asked_again_and_again_with_new_contenders(bench: Bench, tmp_path: Path) -> None:
    with CostCache(tmp_path, print) as cache:
        one = benchmark(bench, cache)
        first = one.decide([contender(0.1)], 30)
        assert first.decided and first.winner == 0 and first.verdicts[0][0].pairs == 6
        count = len(bench.asked)
        assert one.decide([contender(0.1)], 30).decided and len(bench.asked) == count
        both = one.decide([contender(0.1), contender(0.05), contender(9.0)], 30)
        assert both.decided and both.winner == 1
        # the first one's pairs of before count
        assert both.verdicts[0][0].pairs >= 6 and both.verdicts[0][2].slower
        seen = one.so_far(contender(9.0))
        assert seen is not None and seen.slower and one.so_far(contender(3.0)) is None


def test_what_was_decided_is_known_in_the_next_run_and_what_was_not_with_another_budget(
    bench: Bench, tmp_path: Path
) -> None:
    with CostCache(tmp_path, print) as cache:
        first = benchmark(bench, cache).decide([contender(0.1)], 30)
        count = len(bench.asked)
        again = benchmark(bench, cache, budget=10.0).decide([contender(0.1)], 30)
        assert len(bench.asked) == count and again.winner == 0 and again.verdicts[0][0].pairs == 6
        # what is not measured now says when it was
        assert first.verdicts[0][0].when is None and abs((again.verdicts[0][0].when or 0.0) - time.time()) < 600
        open_one = benchmark(bench, cache).decide([contender(0.97)], 3)
        assert not open_one.decided and open_one.winner is None
        count = len(bench.asked)
        same = benchmark(bench, cache).decide([contender(0.97)], 3)
        assert not same.decided and len(bench.asked) == count
        more = benchmark(bench, cache, budget=61.0).decide([contender(0.97)], 60)
        assert more.decided and more.winner == 0 and len(bench.asked) > count


def test_undecided_pairs_are_gone_on_from(bench: Bench, tmp_path: Path) -> None:
    with CostCache(tmp_path, print) as cache:
        one = benchmark(bench, cache)
        pairs = [one.decide([contender(0.97)], 4).verdicts[0][0].pairs for _ in range(3)]
        assert pairs[0] < pairs[1] < pairs[2]


def test_each_choice_of_sizes_is_decided(bench: Bench, tmp_path: Path) -> None:
    with CostCache(tmp_path, print) as cache:
        found = benchmark(bench, cache, sizes=3).decide([contender(0.1)], 60)
        assert found.decided and len(found.verdicts) == 3 and all(at[0].faster for at in found.verdicts)


def test_without_time_nothing_is_begun(bench: Bench, tmp_path: Path) -> None:
    with CostCache(tmp_path, print) as cache, pytest.raises(TimeUp):
        benchmark(bench, cache, left=0.1).decide([contender(0.1)], 60)
    assert not bench.asked


def test_one_that_fails_is_never_taken(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(race: InterleavedBenchmark, seconds: float, models: Sequence[int]) -> bool:
        race.failed[models[0]] = WorkerFailed("no")
        return bench.run(race, seconds, models[1:])

    monkeypatch.setattr(InterleavedBenchmark, "run", run)
    with CostCache(tmp_path, print) as cache:
        found = benchmark(bench, cache).decide([contender(0.2), contender(0.1)], 60)
        assert found.decided and found.winner == 1


# ---- what a run says of it ----------------------------------------------------------------------------------------------


def finished(
    bench: Bench, tmp_path: Path, contenders: list[Contender], left: float, **options: Any
) -> tuple[Any, RunState]:
    run = RunState(Clock(left, bench.hands))
    task = SimpleNamespace(
        settings=Settings(**options),
        target=SimpleNamespace(measured=True),
        writing=0.1,
        machine=Machine("here", 1, "runtime"),
    )
    run.checked = contenders
    with CostCache(tmp_path, print) as cache:
        benchmark = FinalBenchmark(
            ModelFile(b"1"), "model", task.settings.budget, [{}], task.machine, cache, run.clock, 0.2
        )
        referenced: Any = SimpleNamespace(task=task, load=0.2, seconds=0.01, benchmark=benchmark)
        run.referenced = referenced
        return acceptance.accept(referenced, run), run


def test_where_the_budget_ends_first_it_is_said_with_what_was_seen(bench: Bench, tmp_path: Path) -> None:
    found, run = finished(bench, tmp_path, [contender(0.7)], 1.5)
    assert found.contender is None and "timing" in run.clock.cuts
    assert found.ending is Ending.UNDECIDED and "1.43x" in found.reason
    assert found.reason.endswith("in 8 pairs")


def test_as_long_as_there_is_time_it_is_decided(bench: Bench, tmp_path: Path) -> None:
    """The best by prediction is none; the others are timed, too, and all time is there for one that gains little."""
    found, run = finished(bench, tmp_path, [contender(2.0, 0.1), contender(0.97, 0.5)], 60.0)
    assert found.contender is not None and "timing" not in run.clock.cuts
    assert found.verdicts[0].faster and found.verdicts[0].ratio.low > 1


def test_equal_models_end_soon_and_are_no_matter_of_the_budget(bench: Bench, tmp_path: Path) -> None:
    found, run = finished(bench, tmp_path, [contender(1.0)], 600.0)
    assert found.contender is None and found.ending is Ending.NO_FASTER and "(best: 1.00x" in found.reason
    assert run.clock.left() > 500


def test_an_interrupted_race_says_what_it_saw(bench: Bench, tmp_path: Path) -> None:
    found, run = finished(bench, tmp_path, [contender(0.7)], 1.5)
    task: Any = found.task
    run.start = Candidate(None, 1.0)  # type: ignore[arg-type]
    said = acceptance.interrupted(task, run)
    assert said.contender is not None and said.ending is Ending.STOPPED_TIMING
    assert "1.43x" in said.reason and "so far" in said.reason


@pytest.mark.parametrize(("cut", "left", "said"), [
    (True, 30.0, "cut short by the budget of 60 s: searching; the next step did not fit into the 30 s that were left"),
    (True, 1.0, "cut short by the budget of 60 s: searching"),
    (False, 30.0, "ended 30 s before its budget: nothing was left to try"),
])  # fmt: skip
def test_one_sentence_says_what_was_left_out_and_why(cut: bool, left: float, said: str) -> None:
    hands = Hands()
    run = RunState(Clock(60.0, hands))
    hands.time += 60 - left
    if cut:
        run.cut("searching")
    from dslc.report import Report

    task: Any = SimpleNamespace(settings=Settings(budget=60.0, only=("a",)))
    # by a clock that is set by hand no processor time passes: what is said of that is left out
    notes = [note for note in _complete(task, Report("m", "t", 0.0), run).notes if "processor time" not in note]
    assert notes == [said]


def test_a_decision_names_no_winner_that_is_slower_elsewhere() -> None:
    def verdict(ratio: float) -> Verdict:
        return Verdict(1.0, 1 / ratio, Interval(ratio, ratio * 0.99, ratio * 1.01), 9)

    assert Decision(((verdict(2.0), verdict(1.5)), (verdict(0.5), verdict(1.0))), True).winner == 1
    assert str(verdict(2.0)) == "2.00x [1.980, 2.020] in 9 pairs"
    assert str(Verdict(1, 1, Interval(1.4, 0.0, inf), 1)) == "1.40x in 1 pair"

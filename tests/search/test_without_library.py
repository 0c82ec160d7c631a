"""A result with kernels is no slower than the original where nobody has their library."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dslc.cost.confidence_sequence import Interval
from dslc.cost.process import ModelFile
from dslc.deadline import TimeUp
from dslc.search.options.settings import Settings
from dslc.search.runs import without_library
from dslc.search.runs.benchmark import Verdict
from dslc.search.runs.contenders import Contender
from dslc.search.runs.endings import Ending
from dslc.search.runs.stages import Finished


def verdict(ratio: float, spread: float = 0.01) -> Verdict:
    return Verdict(1.0, 1 / ratio, Interval(ratio, ratio - spread, ratio + spread))


def contender(name: str, cost: float) -> Contender:
    """A model of a name; its candidate stands for a search's, and has nothing on its way."""
    candidate: Any = SimpleNamespace(cost=cost, end=name, rule=name, path=lambda: [None, None])
    return Contender(candidate, SimpleNamespace(functions=[] if name == "rules" else ["f"]), ModelFile(name), 0.0)


class Explored:
    """What a search handed on, whose models take what a table says: with their library, and without it."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, times: dict[str, tuple[Any, Any]], spelled: set[str], **options: Any
    ) -> None:
        imported = SimpleNamespace(context=SimpleNamespace(opset=17))
        self.task: Any = SimpleNamespace(
            settings=Settings(**options), rules=None, machine=None, writing=0.0, imported=imported
        )
        inputs = [SimpleNamespace(feeds=[{}])]
        self.referenced = SimpleNamespace(
            task=self.task, inputs=inputs, identity="", load=0.0, file=ModelFile("original")
        )
        self.contenders = tuple(contender(name, k) for k, name in enumerate(times))
        self.notes: list[str] = []
        self.run: Any = SimpleNamespace(
            phase=lambda *_: None,
            note=self.notes.append,
            cut=lambda _: None,
            left=lambda *_: 10.0,
            predicted=lambda _: 2.0,
        )

        def benchmark(bare: bool) -> Any:
            def decide(contenders: list[Contender], _: float) -> Any:
                (one,) = contenders
                assert bare != one.file.kernels
                found = times[str(one.file.model)][int(bare)]
                if found is None:
                    raise TimeUp
                return SimpleNamespace(verdicts=((found,),))

            return SimpleNamespace(decide=decide)

        self.referenced.benchmark, self.referenced.without_library = benchmark(False), benchmark(True)
        monkeypatch.setattr(without_library, "derived", lambda rules, graph, opset: graph in spelled)

    def standing(self) -> Finished:
        """What becomes of the first one."""
        own: Any = self
        found = Finished(self.task, self.contenders[0], verdicts=(verdict(3.0),))
        return without_library.standing(own.referenced, found, [(one, ()) for one in self.contenders], self.run)


def test_what_is_no_slower_without_its_library_is_taken_with_both_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    for without in (verdict(1.0), verdict(1.4), verdict(0.97, 0.05)):
        found = Explored(monkeypatch, {"fast": (verdict(3.0), without)}, {"fast"}).standing()
        assert found.contender is not None and found.alone == (without,)


@pytest.mark.parametrize("without", [verdict(0.5), verdict(0.97), verdict(0.8, 0.5), None])
def test_of_a_result_that_is_slower_without_its_library_another_one_is_taken(
    monkeypatch: pytest.MonkeyPatch, without: Verdict | None
) -> None:
    """With kernels whose functions are nodes of the model; what is not faster, or slower without a library either, is none."""
    times = {
        "fast": (verdict(3.0), without), "no better": (verdict(0.9), verdict(1.0)), "slow too": (verdict(2.9), verdict(0.7)),
        "fused": (verdict(2.0), verdict(1.0)),
    }  # fmt: skip
    explored = Explored(monkeypatch, {name: times[name] for name in ("fast", "slow too", "fused")}, {"fast"})
    found = explored.standing()
    assert (
        found.contender is explored.contenders[2]
        and found.alone == (verdict(1.0),)
        and found.verdicts == (verdict(2.0),)
    )
    assert "left out" in explored.notes[0]
    explored = Explored(monkeypatch, {name: times[name] for name in ("fast", "no better")}, {"fast"})
    found = explored.standing()
    assert found.contender is None and found.ending is Ending.SLOWER_ALONE and "3.00x with its library" in found.reason


def test_a_model_without_kernels_needs_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    explored = Explored(monkeypatch, {"fast": (verdict(3.0), verdict(0.5)), "rules": (verdict(1.2), None)}, {"fast"})
    found = explored.standing()
    assert found.contender is explored.contenders[1] and found.alone == ()


def test_nodes_of_the_model_need_no_measurement_where_there_is_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    explored = Explored(monkeypatch, {"fast": (verdict(3.0), None)}, set())
    found = explored.standing()
    assert found.contender is explored.contenders[0] and found.alone == () and "not timed" in explored.notes[0]


def test_the_option_lifts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    explored = Explored(monkeypatch, {"fast": (verdict(3.0), verdict(0.1))}, {"fast"}, library_only=True)
    assert explored.standing().contender is explored.contenders[0]


def test_nodes_of_the_model_lose_nothing_by_what_a_busy_machine_leaves_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library's functions that have nodes of the model are as fast as these; what is clearly slower is slower all the same."""
    for without, stands in ((verdict(0.8, 0.5), True), (verdict(0.8), False)):
        explored = Explored(monkeypatch, {"fast": (verdict(3.0), without)}, set())
        assert (explored.standing().contender is explored.contenders[0]) is stands


def test_what_would_be_faster_with_its_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was left out before the end; a result that is faster than it needs no such note."""
    explored = Explored(
        monkeypatch, {"derived": (verdict(1.5), verdict(0.8)), "rules": (verdict(1.2), None)}, {"derived"}
    )
    left, taken = explored.contenders
    explored.run.timing = lambda _: verdict(1.5)
    explored.run.library_only = {left: verdict(0.8)}
    for result, told in ((Finished(explored.task, taken, verdicts=(verdict(1.2),)), True),
                         (Finished(explored.task, None, Ending.NO_FASTER), True),
                         (Finished(explored.task, taken, verdicts=(verdict(1.6),)), False)):  # fmt: skip
        explored.notes.clear()
        without_library.tell_library_only(result, explored.run)
        assert bool(explored.notes) is told
        assert not told or "1.50x with its library of kernels, 0.80x without it" in explored.notes[0]

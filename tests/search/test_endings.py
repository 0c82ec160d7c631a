"""Each way in which a run ends is provoked: by the model, by the options, or by a part that fails where it can fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx.parser
import pytest
from test_optimize import model_of, powers
from test_own_target import TEXT, Abacus

import dslc
from dslc.cost.clock import Clock
from dslc.cost.compare import Comparison
from dslc.cost.process import ModelFile, WorkerFailed
from dslc.cost.targets import NoPlan, Sheet
from dslc.cost.timing import MemoryShort
from dslc.deadline import TimeUp
from dslc.search.generators import scheduler
from dslc.search.options.settings import Settings
from dslc.search.phases import acceptance, reading, reference, writing
from dslc.search.runs.benchmark import Decision, FinalBenchmark, Verdict
from dslc.search.runs.contenders import Checker, Contender
from dslc.search.runs.endings import Ending
from dslc.search.runs.stages import Finished
from dslc.search.runs.state import RunState

Patch = pytest.MonkeyPatch
QUICK: dict[str, Any] = {"budget": 40.0, "threads": 1}


def raising(problem: BaseException) -> Callable[..., Any]:
    def fails(*_: Any, **__: Any) -> Any:
        raise problem

    return fails


def ended(model: onnx.ModelProto, **options: Any) -> Ending:
    """The ending of a run; its sentence is whole, and both forms of the report have it."""
    report = dslc.optimize(model, **{**QUICK, **options}).report
    assert "{" not in report.reason and report.reason in report.summary()
    return Ending[report.ending.upper()]


def node(operator: str, count: int = 1, **attributes: Any) -> onnx.ModelProto:
    names = ["x", *(f"t{k}" for k in range(1, count)), "y"]
    nodes = [onnx.helper.make_node(operator, [names[k]], [names[k + 1]], **attributes) for k in range(count)]
    return model_of(nodes, {"x": [64, 64]}, {"y": [64, 64]})


def test_every_ending_is_provoked_somewhere() -> None:
    asserted = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert [one.name for one in Ending if f"is Ending.{one.name}" not in asserted] == []


# ---- by options ------------------------------------------------------------------------------------------------------


def test_what_is_only_applied_normalized_or_searched_is_not_timed(tmp_path: Path) -> None:
    double = node("Neg", 2)
    assert ended(double, apply=True, budget=0) is Ending.APPLIED
    assert ended(node("Relu"), apply=True, budget=0) is Ending.UNMATCHED
    assert ended(double, budget=0) is Ending.CANONICAL
    assert ended(powers(), timing=False, cache=tmp_path) is Ending.UNTIMED


def test_a_normalized_form_with_more_nodes_or_that_the_runtime_refuses_is_not_written(monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(writing, "accepted", lambda *_: False)
        assert ended(node("Neg", 2), budget=0) is Ending.REFUSED
    monkeypatch.setattr(writing, "export", lambda *_, **__: node("Neg", 9))
    assert ended(node("Neg", 2), budget=0) is Ending.MORE_NODES


def test_a_target_that_is_not_at_hand_has_plans(tmp_path: Path, monkeypatch: Patch) -> None:
    own = Abacus(Sheet("an abacus", 1, "counted"))
    model = onnx.parser.parse_model(TEXT)
    options: dict[str, Any] = {"on": own, "budget": 20, "steps": 3, "cache": tmp_path}
    assert ended(model, **options) is Ending.PRICED
    plan = Abacus.plan

    def only(count: int) -> Callable[..., Any]:
        """Plans of models with so many nodes, at least."""

        def planned(self: Abacus, *args: Any) -> Any:
            found = plan(self, *args)
            if found.seconds < count:
                raise NoPlan("it has no beads")
            return found

        return planned

    monkeypatch.setattr(Abacus, "plan", only(4))
    assert ended(model, **options) is Ending.NO_PLAN
    monkeypatch.setattr(Abacus, "plan", only(9))
    assert ended(model, **options) is Ending.UNPLANNED
    monkeypatch.setattr(Abacus, "plan", lambda *args: plan(*args[:3], SimpleNamespace(graph=args[3].graph), *args[4:]))
    monkeypatch.setattr("dslc.search.runs.planning.import_model", lambda *_: SimpleNamespace(graph=imported(model)))
    assert ended(model, **options) is Ending.NO_FASTER_PLAN


def imported(model: onnx.ModelProto) -> Any:
    from dslc.onnx.importer import import_model
    from dslc.semantics.library import standard

    return import_model(model, standard()).graph


# ---- what cannot be compared ------------------------------------------------------------------------------------------


def test_a_model_that_does_not_load_run_or_repeat_itself(tmp_path: Path, monkeypatch: Patch) -> None:
    options: dict[str, Any] = {"cache": tmp_path}
    assert ended(node("Plugin", domain="nobody.has"), **options) is Ending.UNLOADABLE
    assert ended(node("RandomNormalLike"), **options) is Ending.RANDOM
    with monkeypatch.context() as patch:
        patch.setattr(reference, "check_memory", raising(MemoryShort("no room")))
        assert ended(node("Relu"), **options) is Ending.TOO_LARGE
    with monkeypatch.context() as patch:
        late = WorkerFailed("killed")
        late.late = True
        patch.setattr(reference.Worker, "load", raising(late))
        assert ended(node("Relu"), **options) is Ending.TOO_SLOW
    with monkeypatch.context() as patch:
        patch.setattr(reference, "_runs", raising(WorkerFailed("a bad index")))
        assert ended(node("Relu"), **options) is Ending.UNRUNNABLE
    with monkeypatch.context() as patch:
        patch.setattr(reference, "original_at", raising(TimeUp()))
        assert ended(node("Relu"), **options) is Ending.NO_TIME_TO_CHECK


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of several runs."""
    return tmp_path_factory.mktemp("prices")


def test_outputs_that_tell_nothing_or_change_by_import_alone(prices: Path, monkeypatch: Patch) -> None:
    options: dict[str, Any] = {"cache": prices, "only": "std.pow_half"}
    off = Comparison(1.0, "output y is off")
    with monkeypatch.context() as patch:
        patch.setattr(Checker, "check", lambda *_: off)
        assert ended(powers(), **options) is Ending.NO_IMPORT
    monkeypatch.setattr("dslc.search.runs.contenders.compare", lambda *_: off)
    monkeypatch.setattr(Checker, "_is_disputed", lambda *_: True)
    assert ended(powers(), **options) is Ending.UNSTABLE


# ---- what is found, and not taken ------------------------------------------------------------------------------------


def test_nothing_is_found(tmp_path: Path, monkeypatch: Patch) -> None:
    model, options = node("Relu"), {"cache": tmp_path, "on": "ort_cpu"}
    assert ended(model, **options) is Ending.NO_GAIN
    with monkeypatch.context() as patch:
        # the time for exploring is over before anything had a turn
        patch.setattr(scheduler, "TURN", 1e9)
        assert ended(powers(), **options) is Ending.NO_GAIN_IN_TIME


def test_timing_fails(prices: Path, monkeypatch: Patch) -> None:
    def failed(problem: BaseException) -> Ending:
        monkeypatch.setattr(FinalBenchmark, "decide", raising(problem))
        return ended(powers(), cache=prices, only="std.pow_half", on="ort_cpu")

    assert failed(MemoryShort("no room")) is Ending.NO_ROOM
    assert failed(TimeUp()) is Ending.NO_TIME_TO_TIME
    assert failed(WorkerFailed("it died")) is Ending.TIMING_FAILED


def verdict(ratio: float) -> Verdict:
    from dslc.cost.confidence_sequence import Interval

    return Verdict(1.0, 1 / ratio, Interval(ratio, ratio * 0.99, ratio * 1.01), 9)


def test_a_decision_is_faster_mixed_or_none() -> None:
    one: Any = SimpleNamespace()
    task: Any = SimpleNamespace()

    def decided(*ratios: float, decided: bool = True) -> Finished:
        return acceptance._decided(task, [one], Decision(tuple((verdict(ratio),) for ratio in ratios), decided))

    assert decided(2.0).ending is Ending.FASTER and decided(2.0).contender is one
    assert decided(2.0, 0.5).ending is Ending.MIXED and "2.00x [1.980, 2.020]" in decided(2.0, 0.5).reason
    assert decided(1.0).ending is Ending.NO_FASTER
    assert decided(1.0, decided=False).ending is Ending.UNDECIDED


# ---- Ctrl-C ----------------------------------------------------------------------------------------------------------


def test_an_interruption_says_how_far_it_came() -> None:
    run, task = RunState(Clock(60.0)), SimpleNamespace()
    stopped: Callable[[], Finished] = lambda: acceptance.interrupted(task, run)  # type: ignore[arg-type]  # noqa: E731
    assert stopped().ending is Ending.STOPPED_EARLY
    way: Any = SimpleNamespace(cost=1.0, path=tuple)
    one = Contender(way, node("Relu"), ModelFile("m.onnx"), 0.0)
    run.referenced = SimpleNamespace(benchmark=SimpleNamespace(so_far=lambda _: None))  # type: ignore[assignment]
    run.best = way
    run.checked.append(one)
    assert stopped().ending is Ending.STOPPED_CHECKED
    run.timed = [one]
    assert stopped().ending is Ending.STOPPED_TIMING and "not timed" in stopped().reason
    run.referenced.benchmark.so_far = lambda _: verdict(0.9)  # type: ignore[union-attr, method-assign, assignment]
    assert stopped().ending is Ending.STOPPED_NO_FASTER and "0.90x" in stopped().reason
    run.original = node("Relu"), "m.onnx"
    report = reading.unread(Settings(), run).report
    assert Ending[report.ending.upper()] is Ending.STOPPED_READING and report.reason in report.summary()

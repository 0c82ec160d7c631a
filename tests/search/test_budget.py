"""The budget of a whole command: one clock, what is measured, what is cut, and what Ctrl-C leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from math import inf, prod
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import dslc
from dslc.cli.main import run as command_line
from dslc.cli.progress import LOST as PROGRESS_LOST
from dslc.cli.progress import finishing, interrupts
from dslc.codegen.host.processor import NATIVE
from dslc.cost.cache import CostCache
from dslc.cost.clock import Clock
from dslc.cost.machine import this_machine
from dslc.cost.measure import Measured, Measurer, Sample
from dslc.cost.model import CostModel
from dslc.cost.process import RUNNER, ModelFile, Worker, WorkerFailed, started
from dslc.deadline import FOREVER, OVER, Deadline, TimeUp
from dslc.ir.constants import array_value
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, Value, input_value
from dslc.match import GraphIndex, compile_all, find_matches
from dslc.match.apply import replacements
from dslc.match.recipe import Refused
from dslc.search.candidates.candidate import Candidate, Limits, rewritten
from dslc.search.options.settings import Settings
from dslc.search.phases.acceptance import affordable
from dslc.search.pipeline import optimize
from dslc.search.runs.contenders import Contender
from dslc.search.runs.selection import LATE, statuses
from dslc.search.runs.stages import Referenced, deciding
from dslc.search.runs.state import RunState
from dslc.search.strategies.backtrack import backtrack
from dslc.search.strategies.space import Space
from dslc.semantics.apply import apply
from dslc.semantics.library import load_many, standard
from tests.pressed import press

RULES = standard()


class Hands:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def test_a_clock_knows_how_much_processor_time_there_was() -> None:
    """Waiting is no work; what children did counts when they have ended."""
    clock = Clock()
    time.sleep(0.15)
    assert clock.processor < 0.6 * clock.seconds and clock.starved
    code = "import time\nend = time.process_time() + 0.1\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert 0.09 <= clock.processor <= 2 * clock.seconds + 0.1, "less than the child used, but for what clocks round"
    end = time.process_time() + 3 * clock.seconds
    while time.process_time() < end and clock.starved:
        pass
    hands = Hands()
    late = Clock(10.0, hands)
    assert not late.starved
    hands.time += 60.0
    assert late.starved


# ---- the clock ----------------------------------------------------------------------------------------------------


def test_what_is_left_leaves_a_share_for_the_end() -> None:
    hands = Hands()
    clock = Clock(20.0, hands)
    hands.time += 8
    assert (clock.seconds, clock.left(), clock.until(keep=5).left()) == (8.0, 12.0, 7.0)
    hands.time += 8
    assert clock.until(keep=5).over and clock.left() == 4.0
    assert Clock(now=hands).until(keep=5).left() == inf


def test_what_loading_takes_is_part_of_the_budget() -> None:
    """The command line says when it began, and imports come after that."""
    hands = Hands()
    clock = Clock(20.0, hands, began=hands() - 7, phase="starting")
    assert (clock.seconds, clock.left()) == (7.0, 13.0)
    hands.time += 1
    clock.enter("reading")
    assert clock.phases["starting"] == 8.0


def test_the_command_hands_on_when_it_began(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    node = helper.make_node("Relu", ["x"], ["y"])
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    onnx.save(helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:]), ir_version=8), path)
    arguments = ["optimize", str(path), "--dry-run", "--budget", "0", "--output-format", "json"]
    assert command_line(arguments, began=time.monotonic() - 100.0) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["seconds"] > 100.0 and report["phases"]["starting"] > 100.0


def test_seconds_go_to_the_phase_that_took_them() -> None:
    hands = Hands()
    clock = Clock(20.0, hands)
    for name, seconds in (("reading", 2), ("searching", 3), ("timing", 1), ("searching", 4)):
        clock.enter(name)
        hands.time += seconds
    with clock.within("measuring"):
        hands.time += 5
    hands.time += 1
    assert clock.phases == {"reading": 2, "searching": 8, "timing": 1, "measuring": 5}
    clock.cut("searching")
    assert clock.cuts == ("searching",)


def test_after_an_interruption_seconds_are_left() -> None:
    hands = Hands()
    clock = Clock(1000.0, hands)
    until = clock.until(keep=100.0).part(0.5)
    assert until.left() == 450.0
    clock.shorten(5.0)
    assert clock.left() == until.left() == 5.0
    nearly_over = Clock(3.0, hands)
    nearly_over.shorten(5.0)
    assert nearly_over.left() == 3.0


def contender(cost: float, functions: int = 0) -> Contender:
    model = SimpleNamespace(functions=[""] * functions)
    return Contender(Candidate(Graph((), ()), cost), cast(ModelProto, model), ModelFile(b""), 0.0)


def test_what_cannot_all_be_timed_is_timed_from_the_best_prediction_on() -> None:
    hands = Hands()
    contenders = [contender(cost) for cost in (1.0, 0.2, 0.9, 0.3)]
    task = SimpleNamespace(writing=0.5, settings=SimpleNamespace(timing=False))
    referenced = cast(Referenced, SimpleNamespace(task=task, load=1.0, seconds=0.01))
    for seconds, left in ((1000.0, [0.2, 0.3, 0.9, 1.0]), (80.0, [0.2, 0.3]), (3.0, [0.2])):
        run = RunState(Clock(seconds, hands))
        assert [one.candidate.cost for one in affordable(referenced, contenders, run)] == left


def test_the_only_one_that_is_timed_is_the_best_bet() -> None:
    """What is there without mutants and derivations, but not where that gains next to nothing beside what rests on them."""
    task = SimpleNamespace(writing=0.5, settings=SimpleNamespace(timing=False))
    referenced = cast(Referenced, SimpleNamespace(task=task, load=0.1, seconds=0.01))
    for simple, taken in ((0.97, 0.9), (0.92, 0.92)):
        contenders = [contender(cost) for cost in (simple, 0.9)]
        run = RunState(Clock(3.0, Hands()))
        run.start = Candidate(Graph((), ()), 1.0)
        run.costly.add(contenders[1].candidate)
        assert [one.candidate.cost for one in affordable(referenced, contenders, run)] == [taken]


def test_what_needs_no_library_is_timed_beside_the_best() -> None:
    task = SimpleNamespace(writing=0.5, settings=SimpleNamespace(timing=False))
    referenced = cast(Referenced, SimpleNamespace(task=task, load=1.0, seconds=0.01))
    contenders = [contender(cost, functions) for cost, functions in ((0.2, 1), (0.3, 1), (0.4, 0), (1.0, 0))]
    assert [one.candidate.cost for one in affordable(referenced, contenders, RunState(Clock(80.0, Hands())))] == [
        0.2,
        0.4,
    ]


def test_what_is_hardly_faster_takes_longer_to_decide() -> None:
    referenced = cast(Referenced, SimpleNamespace(load=0.1, seconds=0.001))
    clear, near, hardly = (deciding(referenced, 1, faster) for faster in (2.0, 1.1, 1.02))
    assert clear < near < hardly < 2 * near and deciding(referenced, 4, 1.1) > 2 * near


# ---- the search ---------------------------------------------------------------------------------------------------


def test_a_search_ends_at_its_time_and_where_nothing_is_gained() -> None:
    hands = Hands()
    limits = Limits(until=Deadline.after(10, hands), patience=4)
    assert limits.step()
    hands.time += 3
    assert limits.step()
    limits.gained()
    hands.time += 3
    assert limits.step() and not limits.idle
    hands.time += 2
    assert not limits.step() and limits.idle and not limits.late
    # where others wait it gives way sooner, but waits as long as its gains took
    brief = Limits(patience=100, brief=2, until=Deadline(now=hands))
    assert brief.step()
    hands.time += 5
    brief.gained()
    brief.gained_clearly()
    hands.time += 4
    brief.gained()
    assert brief.step() and not brief.idle
    hands.time += 2
    assert not brief.step() and brief.idle
    never = Limits(patience=100, brief=2, until=Deadline(now=hands))
    assert never.step()
    hands.time += 3
    assert not never.step() and never.idle
    late = Limits(until=Deadline.after(10, hands), patience=100)
    assert late.step()
    hands.time += 11
    assert not late.step() and late.late and late.done == 1


def test_what_has_a_share_of_the_time_ends_with_it_and_the_search_goes_on() -> None:
    hands = Hands()
    limits = Limits(until=Deadline.after(10, hands))
    with limits.within(0.3):
        hands.time += 2
        assert limits.step()
        hands.time += 2
        assert not limits.step() and limits.late
    assert limits.step() and not limits.late
    with limits.within(0.5):
        hands.time += 7
        assert not limits.step()
    assert not limits.step() and limits.late
    steps = Limits(steps=1, until=Deadline.after(10, hands))
    with steps.within(0.3):
        assert steps.step()
        hands.time += 4
        assert not steps.step()
    assert not steps.step() and not steps.late


def x(*shape: int, name: str = "x") -> Value:
    return input_value(name, TensorType(DType.F32, shape))


def w(*shape: int) -> Value:
    return array_value(np.random.default_rng(0).random(shape, np.float32))


def op(name: str, *args: Value, **attrs: object) -> Value:
    return apply(RULES, f"std.{name}", args, attrs)[0]


class Listed(Measurer):
    """Every node costs a microsecond; `asked` says what was measured. After so many measurements there is no time."""

    def __init__(self, most: float = inf) -> None:
        self.asked: dict[str, None] = {}
        self.most = most

    def measured(self, sample: Sample, turn: str = "") -> Measured:
        if sample.text not in self.asked:
            if len(self.asked) >= self.most:
                raise TimeUp
            self.asked[sample.text] = None
        return Measured(1e-6 * sum("= std." in line for line in sample.text.splitlines()))

    @property
    def overhead(self) -> float:
        return 0.0


def network() -> Graph:
    """Two products of one operand, which can be merged, beside much that no rule of products touches."""
    a, b = x(8, 16), x(8, 16, name="b")
    for axis in (0, 1):
        b = op("softmax", op("cumsum", b, axis=axis), axis=axis)
    return Graph((a, x(8, 16, name="b")), (op("matmul", a, w(16, 8)), op("matmul", a, w(16, 4)), b))


def test_what_no_rewrite_touches_is_not_measured() -> None:
    asked = Listed()
    costs = CostModel(RULES, asked, lambda inputs, outputs: b"", 17)
    graph = network()
    costs.begin(graph, 5e-4)
    start = Candidate(graph, costs.graph_cost(graph))
    assert (start.cost, len(asked.asked)) == (5e-4, 0)
    rules = [rule for rule in compile_all(RULES) if rule.definition.name == "std.merge_matmuls"]
    found = backtrack(Space(start, (), costs, Limits(50)), rules)
    assert asked.asked
    assert not [text for text in asked.asked if "std.softmax" in text or "std.cumsum" in text]
    assert found is start or found.cost < start.cost


def test_differences_are_the_same_with_the_rest_measured_and_without() -> None:
    graph = network()
    whole = CostModel(RULES, Listed(), lambda inputs, outputs: b"", 17)
    partly = CostModel(RULES, Listed(), lambda inputs, outputs: b"", 17)
    partly.begin(graph, 5e-4)
    before = whole.evaluate(graph), partly.evaluate(graph)
    count = 0
    for rule in compile_all(RULES):
        for match in find_matches(rule, GraphIndex(graph), limit=5):
            try:
                new = replacements(match)
            except Refused:
                continue
            gains = [state.after(new)[0] - state.cost for state in before]
            assert gains[1] == pytest.approx(gains[0], abs=1e-12)
            then = rewritten(graph, new)
            built = whole.graph_cost(then) - before[0].cost, partly.graph_cost(then) - before[1].cost
            assert built[1] == pytest.approx(built[0], abs=1e-12)
            count += 1
    assert count >= 4


class Alone(Listed):
    """A run without nodes takes half a microsecond."""

    @property
    def overhead(self) -> float:
        return 5e-7


def test_groups_that_take_longer_than_the_whole_save_their_part_of_it() -> None:
    """By themselves four groups take 4 us, the whole 2 us: one of them is a quarter of that, not a half."""
    graph = Graph(
        (x(8, 16),),
        (op("exp", op("transpose", op("transpose", op("cumsum", x(8, 16), axis=0), perm=(1, 0)), perm=(1, 0))),),
    )
    costs = CostModel(RULES, Alone(), lambda inputs, outputs: b"", 17)
    costs.begin(graph, 2e-6)
    rules = [rule for rule in compile_all(RULES) if rule.definition.name == "std.transpose_of_transpose"]
    (match,) = find_matches(rules[0], GraphIndex(graph), limit=5)
    state = costs.evaluate(graph)
    costs.infos(state.groups)
    assert (costs.part(), costs.share) == pytest.approx((4e-6, 1.5e-6 / 4e-6))
    new = replacements(match)
    # three of four nodes are left, and the run itself
    wanted = 0.5e-6 + 1.5e-6 * 3 / 4
    assert state.after(new)[0] == pytest.approx(wanted)
    assert costs.graph_cost(rewritten(graph, new)) == pytest.approx(wanted)


@pytest.mark.parametrize("seconds", [4.5e-6, 1e-3])
def test_groups_that_take_no_longer_than_the_whole_save_what_they_take(seconds: float) -> None:
    graph = network()
    costs = CostModel(RULES, Alone(), lambda inputs, outputs: b"", 17)
    costs.begin(graph, seconds + 6e-6)
    costs.infos(costs.evaluate(graph).groups)
    assert costs.share == 1.0


class ByBytes(Listed):
    """What touches more memory costs more."""

    def measured(self, sample: Sample, turn: str = "") -> Measured:
        super().measured(sample, turn)
        shapes = re.findall(r"f32\[([0-9, ]+)\]", sample.text)
        return Measured(1e-10 * sum(prod(map(int, shape.split(","))) for shape in shapes))


def test_with_little_time_what_may_save_most_is_measured_first() -> None:
    """Forty small places where a transpose is undone, one large one at the end: the large one is found with few measurements."""
    inputs, outputs = [], []
    for k in range(40):
        small = x(2, 8 + k, name=f"s{k}")
        inputs.append(small)
        outputs.append(op("exp", op("transpose", op("transpose", small, perm=(1, 0)), perm=(1, 0))))
    large = x(1000, 1000, name="large")
    outputs.append(op("exp", op("transpose", op("transpose", large, perm=(1, 0)), perm=(1, 0))))
    graph = Graph((*inputs, large), tuple(outputs))
    costs = CostModel(RULES, ByBytes(most=8), lambda inputs, outputs: b"", 17)
    costs.begin(graph, 1e-3)
    rules = [rule for rule in compile_all(RULES) if rule.definition.name == "std.transpose_of_transpose"]
    found = backtrack(Space(Candidate(graph, 1e-3), (), costs, Limits()), rules)
    assert found.cost < 0.9e-3
    assert costs.part() > 1e-4


def test_a_search_whose_costs_cannot_be_measured_in_time_keeps_its_best() -> None:
    graph = network()
    costs = CostModel(RULES, Listed(most=3), lambda inputs, outputs: b"", 17)
    costs.begin(graph, 5e-4)
    limits = Limits()
    found = backtrack(Space(Candidate(graph, 5e-4), (), costs, limits), compile_all(RULES))
    assert limits.stopped and limits.late and found.cost <= 5e-4


def test_costs_are_measured_while_there_is_time_and_known_ones_given_always(tmp_path: Path) -> None:
    left = [FOREVER]
    with CostCache(tmp_path) as cache:
        measurer = Measurer(this_machine(1), cache, Deadline(outer=lambda: left[0]))
        costs = CostModel(RULES, measurer, built, 17)
        graph, other = (Graph((x(4, 4),), (op(name, x(4, 4)),)) for name in ("relu", "exp"))
        known = costs.graph_cost(graph)
        measurer.close()
        left[0] = OVER
        again = CostModel(RULES, measurer, built, 17)
        assert again.graph_cost(graph) == known
        with pytest.raises(TimeUp):
            again.graph_cost(other)
        # what there was no time for is not remembered as what cannot be run
        left[0] = FOREVER
        assert again.graph_cost(other) < inf
        measurer.close()


def built(inputs: tuple[Value, ...], outputs: tuple[Value, ...]) -> bytes:
    from dslc.onnx.exporter import node_model

    data: bytes = node_model(outputs, RULES, 17, inputs=inputs)[0].SerializeToString(deterministic=True)
    return data


# ---- models -------------------------------------------------------------------------------------------------------


def chain(count: int, size: int = 64, loops: int = 0) -> onnx.ModelProto:
    """Products with weights, cheaper as one; `loops`: after a loop that runs so often."""
    names = ["x", *(f"t{k}" for k in range(1, count)), "y" if not loops else "p"]
    nodes = [helper.make_node("MatMul", [names[k], f"w{k}"], [names[k + 1]]) for k in range(count)]
    generator = np.random.default_rng(0)
    weights = {f"w{k}": (generator.standard_normal((size, size)) / size).astype(np.float32) for k in range(count)}
    if loops:
        inner = helper.make_graph(
            [helper.make_node("Identity", ["c"], ["c2"]), helper.make_node("Tanh", ["s"], ["s2"])],
            "inner",
            [
                helper.make_tensor_value_info("i", TensorProto.INT64, []),
                helper.make_tensor_value_info("c", TensorProto.BOOL, []),
                helper.make_tensor_value_info("s", TensorProto.FLOAT, [size, size]),
            ],
            [
                helper.make_tensor_value_info("c2", TensorProto.BOOL, []),
                helper.make_tensor_value_info("s2", TensorProto.FLOAT, [size, size]),
            ],
        )
        nodes.append(helper.make_node("Loop", ["times", "", "p"], ["y"], body=inner))
        weights["times"] = np.array(loops, np.int64)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size, size]) for name in ("x", "y")]
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_model_that_does_not_end_is_killed_when_its_time_is_over() -> None:
    forever = ModelFile(chain(1, loops=1 << 40).SerializeToString())
    with Worker(1, Deadline.after(60.0)) as worker:
        worker.load(forever)
        worker._until = Deadline.after(0.2)
        with pytest.raises(WorkerFailed) as caught:
            worker.ask({"do": "run", "feeds": {"x": np.ones((64, 64), np.float32)}})
        assert caught.value.late and worker._service.child is None


def test_an_original_that_does_not_run_within_the_budget_is_kept(tmp_path: Path) -> None:
    began = time.monotonic()
    report = dslc.optimize(chain(1, loops=1 << 40), budget="2.5s", cache=tmp_path, threads=1).report
    assert report.kept_original and "within the budget of 2.5 s" in report.reason
    assert time.monotonic() - began < 60


def test_every_phase_ends_by_the_clock_and_the_report_says_where_the_time_went(tmp_path: Path) -> None:
    """On a clock that runs forty times as fast as any machine, whatever is left to do is cut, and said to be."""
    # the first process of the tests waits for the one that it is forked from
    started(RUNNER, NATIVE).end()
    began = time.monotonic()

    def fast() -> float:
        return began + 40 * (time.monotonic() - began)

    clock = Clock(60.0, fast)
    report = optimize(chain(6), Settings(budget=60.0, threads=1, cache=tmp_path), clock).report
    assert bool(report.cut) == any("cut short" in note for note in report.notes)
    # what cannot be divided (reading, starting a process) may end a little late
    assert report.seconds < 3 * 60
    assert sum(report.phases.values()) == pytest.approx(report.seconds, abs=6.0)
    assert {"reading", "running the original"} <= report.phases.keys()


def test_rules_that_there_is_no_time_to_prove_are_named_and_asked_again_later(tmp_path: Path) -> None:
    (tmp_path / "mine.rules").write_text(
        "dslc 1\nimport std.pointwise (add)\n"
        "substitution other_way(X: T[*S], Z: T[*S]) -> Y {\n  Y = add(X, Z)\n  =>\n  Y = add(Z, X)\n}\n"
    )
    rules = load_many(["std", tmp_path / "mine.rules"])
    definition = rules.substitutions["mine.other_way"]
    found = statuses(rules, [definition], tmp_path / "cache", until=OVER)["mine.other_way"]
    assert (found.status, found.reason) == ("undecided", LATE)
    assert statuses(rules, [definition], tmp_path / "cache")["mine.other_way"].status == "proved"
    report = optimize(
        chain(2),
        Settings(rules=[tmp_path / "mine.rules"], budget=30.0, threads=1, cache=tmp_path / "cold"),
        spent(30.0, 29.9),
    ).report
    assert report.kept_original


def spent(budget: float, seconds: float) -> Clock:
    """A clock on which so much of the budget is over."""
    began = time.monotonic() - seconds
    moments: Iterator[float] = iter([began])

    def now() -> float:
        return next(moments, time.monotonic())

    return Clock(budget, now)


# ---- Ctrl-C -------------------------------------------------------------------------------------------------------


def interrupted(
    tmp_path: Path, phase: str, times: int = 1, number: signal.Signals = signal.SIGINT
) -> tuple[int, str, Path, float]:
    """`dslc optimize` with Ctrl-C when a phase begins: exit code, what was said, the output, and the seconds that it then took."""
    source, out = tmp_path / "model.onnx", tmp_path / "fast.onnx"
    onnx.save(chain(6, 96), source)
    command = [sys.executable, "-m", "dslc", "optimize", str(source), "-o", str(out), "-v", "--budget", "300s"]
    command += ["--threads", "1", "--cache", str(tmp_path / "cache"), "--only", "std.reassociate_matmul"]
    # none of this is about what takes long beside rules
    command += ["--no-derive", "--no-mutate"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.strip().endswith(phase):
                break
        began = time.monotonic()
        process.send_signal(number)
        if times > 1:
            for line in process.stderr:
                if "interrupted" in line:
                    process.send_signal(number)
                    break
        told, wrong = process.communicate(timeout=120)
        return process.returncode, told + wrong, out, time.monotonic() - began


@pytest.mark.parametrize("phase", ["reading rules", "reading the model", "looking up proofs"])
def test_ctrl_c_from_reading_on_writes_the_original(tmp_path: Path, phase: str) -> None:
    code, said, out, _ = interrupted(tmp_path, phase)
    assert code == 130 and "the original is kept: interrupted" in said and "Traceback" not in said
    assert onnx.load(out) == onnx.load(tmp_path / "model.onnx")


def test_ctrl_c_before_the_model_was_read_is_one_line(tmp_path: Path) -> None:
    """While modules are loaded, too; and Python does not end itself by the signal where it came inside `exec`."""
    early = """
import builtins, sys
real = builtins.__import__
def late(name, *rest, **more):
    if name == "dslc.cli.main":
        raise KeyboardInterrupt
    return real(name, *rest, **more)
builtins.__import__ = late
from dslc.cli.entry import main
main()
"""
    inside = """
import dslc.cli.main as main
def run(**given):
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        return 130
main.run = run
main.main()
"""
    for text, said in ((early, "interrupted\n"), (inside, "")):
        ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
        assert ended.returncode == 130 and ended.stderr == said


@pytest.mark.usefixtures("interrupts")
def test_ctrl_c_that_a_callback_loses_is_tried_again() -> None:
    """What is raised while the interpreter calls back (a weak reference that ends) is only printed."""

    class Thing:
        pass

    with interrupts() as pressed:
        thing = Thing()
        watched = weakref.ref(thing, lambda _: press())
        with pytest.raises(KeyboardInterrupt):
            del thing
            time.sleep(30)
        assert watched() is None and pressed() == 1 and pressed.number == signal.SIGINT


@pytest.mark.usefixtures("interrupts")
def test_ctrl_c_that_was_lost_does_not_come_after_the_block() -> None:
    class Thing:
        pass

    with interrupts() as pressed:
        thing = Thing()
        watched = weakref.ref(thing, lambda _: press())
        del thing
    assert watched() is None and pressed() == 1
    time.sleep(5 * PROGRESS_LOST)


@pytest.mark.usefixtures("interrupts")
def test_what_is_being_written_is_written(tmp_path: Path) -> None:
    with interrupts() as pressed:
        with finishing():
            press()
        with pytest.raises(KeyboardInterrupt), finishing():
            press()
            press()
    assert pressed() == 0


@pytest.mark.parametrize("phase", ["running the original", "comparing outputs", "timing"])
def test_ctrl_c_in_any_phase_writes_the_best_that_was_checked(tmp_path: Path, phase: str) -> None:
    code, said, out, seconds = interrupted(tmp_path, phase)
    assert code == 130 and (": interrupted" in said or "operators, interrupted" in said)
    assert "Traceback" not in said
    # five seconds for the check, and a busy machine
    assert seconds < 60
    assert len(onnx.load(out).graph.node) <= 6
    if phase == "timing":
        assert "times as fast so far" in said or "not timed" in said or "no faster" in said


def test_what_loses_ctrl_c_while_it_is_loaded_is_there_before_a_run() -> None:
    """Extensions of `numpy.random` catch all that is raised while they are initialized; the first inputs were drawn in a run."""
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, dslc.search.pipeline; sys.exit('numpy.random._generator' not in sys.modules)",
        ],
        check=False,
    )
    assert loaded.returncode == 0


def test_sigterm_writes_the_best_as_ctrl_c_does(tmp_path: Path) -> None:
    code, said, out, _ = interrupted(tmp_path, "comparing outputs", number=signal.SIGTERM)
    assert code == 143 and (": interrupted" in said or "operators, interrupted" in said) and "Traceback" not in said
    assert len(onnx.load(out).graph.node) <= 6


def test_a_second_ctrl_c_ends_at_once_and_writes_nothing(tmp_path: Path) -> None:
    code, said, out, _ = interrupted(tmp_path, "comparing outputs", times=2)
    assert code == 130 and "Traceback" not in said
    assert not out.exists() or "interrupted" in said


# ---- what a model says of itself ----------------------------------------------------------------------------------


def misdeclared(width: int | str = 64) -> onnx.ModelProto:
    """Products with weights whose result has three axes, and is declared with two; it needs 64 columns."""
    generator = np.random.default_rng(0)
    names = ["f", "a", "b", "c"]
    nodes = [helper.make_node("Flatten", ["x"], ["f"])]
    nodes += [helper.make_node("MatMul", [names[k], f"w{k}"], [names[k + 1]]) for k in range(3)]
    # what the last product's shape is turned into is not known before it runs
    nodes.append(helper.make_node("Shape", ["c"], ["size"]))
    nodes.append(helper.make_node("NonZero", ["f"], ["places"]))
    nodes.append(helper.make_node("Shape", ["places"], ["count"], start=0, end=1))
    nodes.append(helper.make_node("Div", ["count", "count"], ["one"]))
    nodes.append(helper.make_node("Concat", ["one", "size"], ["shape"], axis=0))
    nodes.append(helper.make_node("Reshape", ["c", "shape"], ["y"]))
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 64])],
        [numpy_helper.from_array((generator.standard_normal((64, 64)) / 8).astype(np.float32), f"w{k}") for k in range(3)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_model_whose_declared_rank_is_wrong_is_optimized_and_timed(tmp_path: Path) -> None:
    report = dslc.optimize(misdeclared(), only="std.reassociate_matmul", budget="5s", threads=1, cache=tmp_path).report
    assert report.before_ms is not None, report.reason
    assert report.ratio is not None and "failed" not in report.reason


def test_sizes_that_nothing_fixes_are_tried_until_the_model_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = misdeclared("columns")
    report = dslc.optimize(model, budget="60s", threads=1, cache=tmp_path, timing=False).report
    assert any("columns was assumed to be 64" in text for text in report.warnings)
    assert not any("assumed to be 8" in text for text in report.warnings)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    assert command_line(["bench", str(path), str(path), "--threads", "1", "--budget", "1s"]) == 0
    assert "columns was assumed to be 64" in capsys.readouterr().out


def test_an_error_that_a_library_made_of_ctrl_c_is_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("a callback failed")

    monkeypatch.setattr("dslc.search.phases.reading.statuses", fails)
    pressed = optimize(chain(2), Settings(budget=30.0, cache=tmp_path, interrupts=lambda: 1)).report
    assert pressed.interrupted and pressed.kept_original
    with pytest.raises(RuntimeError):
        optimize(chain(2), Settings(budget=30.0, cache=tmp_path))

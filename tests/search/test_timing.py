"""Timing on a shared machine: paired, interleaved, in processes that survive what they run."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dslc.cost import process, timing
from dslc.cost.clock import Clock, TimeUp
from dslc.cost.process import ModelFile, Worker, WorkerFailed
from dslc.cost.statistics import balanced, interval, quick_mean
from dslc.cost.timing import FEWEST, MemoryShort, Times, check_memory, race

SIZE = 96
FEEDS = {"x": np.random.default_rng(0).standard_normal((SIZE, SIZE), dtype=np.float32)}


def products(count: int) -> ModelFile:
    """A chain of matrix products."""
    weight = np.random.default_rng(1).standard_normal((SIZE, SIZE), dtype=np.float32) / np.float32(SIZE**0.5)
    names = ["x", *(f"t{k}" for k in range(1, count)), "y"]
    nodes = [helper.make_node("MatMul", [a, "w"], [b]) for a, b in pairwise(names)]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [SIZE, SIZE]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return ModelFile(model.SerializeToString())


def test_half_the_work_is_found_faster_and_twice_the_work_is_not() -> None:
    original, half, double = race([products(20), products(10), products(40)], FEEDS, threads=1, seconds=6)
    assert half.faster and half.ratio.ratio > 1.4
    assert not double.faster and double.ratio.ratio < 0.75
    assert original.ratio.ratio == 1.0
    assert half.minimum <= half.median < original.median < double.median


def drawn(rng: random.Random, ratio: float, noise: float, bias: float, generations: int = 6) -> list[list[float]]:
    """Paired ratios as a noisy machine gives them: each process has a bias of its own, and some blocks are disturbed."""

    def block(center: float) -> float:
        return center * rng.lognormvariate(0, noise) * rng.choice([1.0] * 18 + [3.3, 1 / 3.3])

    return [[block(ratio * rng.lognormvariate(0, bias)) for _ in range(20)] for _ in range(generations)]


def test_interval_holds_the_true_ratio_where_a_neighbour_disturbs() -> None:
    found = interval(drawn(random.Random(3), 1.1, 0.02, 0.003))
    assert found.low < 1.1 < found.high
    assert found.high - found.low < 0.06
    strict = interval(drawn(random.Random(3), 1.1, 0.02, 0.003), strict=True)
    assert strict.low < found.low and strict.high > found.high


def test_equal_models_are_rarely_called_faster() -> None:
    """Of draws with a bias for each process, at most the 2.5 of a hundred above a 95 % interval, and chance."""
    rng = random.Random(7)
    above = sum(interval(drawn(rng, 1.0, 0.02, 0.01)).low > 1 for _ in range(400))
    assert above < 20


def test_one_process_proves_nothing() -> None:
    assert interval([[2.0, 2.1, 2.0]]).low == 0.0


def test_the_slower_runs_of_a_block_do_not_count() -> None:
    assert quick_mean([1.0, 1.0, 9.0, 1.0, 40.0]) == 1.0


def test_a_crash_in_the_worker_is_an_answer_and_the_next_request_works() -> None:
    with Worker(1) as worker:
        worker.load(products(1))
        assert worker._process is not None
        worker._process.kill()
        with pytest.raises(WorkerFailed) as caught:
            worker.ask({"do": "run", "feeds": FEEDS})
        assert caught.value.died
        assert worker.load(products(2)) == ["y"]
        assert worker.ask({"do": "run", "feeds": FEEDS})["arrays"][0].shape == (SIZE, SIZE)


def test_what_the_runtime_refuses_is_said_in_its_words() -> None:
    model = onnx.ModelProto.FromString(products(1).model)  # type: ignore[arg-type]
    model.graph.node[0].op_type = "NoSuchOperator"
    with Worker(1) as worker, pytest.raises(WorkerFailed, match="NoSuchOperator"):
        worker.load(ModelFile(model.SerializeToString()))


def test_a_stopped_worker_goes_on_when_asked() -> None:
    with Worker(1) as worker:
        worker.load(products(1))
        worker.stop()
        worker.ask({"do": "bind", "feeds": FEEDS})
        worker.stop()
        assert len(worker.ask({"do": "time", "calls": 3, "inner": 2})["seconds"]) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="Linux ends the children of processes that die")
def test_a_stopped_worker_dies_with_the_process_that_started_it() -> None:
    text = (
        "from dslc.cost.process import Worker\nimport os, signal\nworker = Worker(1)\n"
        "try:\n    worker.ask({'do': 'nothing'})\nexcept Exception:\n    pass\n"
        "worker.stop()\nprint(worker._process.pid, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    process = Path("/proc") / ran.stdout.strip()
    state = ""
    for _ in range(100):
        # a child that nobody waits for may stay as a zombie
        state = (process / "stat").read_text().split()[2] if process.exists() else "Z"
        if state == "Z":
            break
        time.sleep(0.05)
    assert state == "Z"


def test_too_little_memory_is_said_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "available_memory", lambda: 100 << 20)
    with pytest.raises(MemoryShort, match="GiB"):
        check_memory([products(1)])


def test_large_models_are_sent_once_by_way_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LARGE", 30_000)
    small, large = products(1), ModelFile(products(1).model, "somewhere")
    with process.on_disk([small, large, ModelFile(b"tiny")]) as stored:
        paths = [Path(str(one.model)) for one in stored[:2]]
        assert all(path.read_bytes() == small.model for path in paths)
        assert stored[2].model == b"tiny"
        with Worker(1) as worker:
            assert worker.load(stored[0]) == ["y"]
    assert not any(path.exists() for path in paths)


def test_in_an_odd_number_of_rounds_the_order_counts_as_often_in_both_ways() -> None:
    """Who comes second in a round is slower by some thousandths: of equal models that must not be a verdict."""
    rng = random.Random(5)
    second, noise = 0.004, 0.001
    rounds = [
        [rng.lognormvariate(-second if turn % 2 == 0 else second, noise) for turn in range(5)] for _ in range(12)
    ]
    found = interval([balanced(one) for one in rounds])
    assert found.low < 1 < found.high
    naive = interval(rounds)
    assert naive.high < 1


def test_looking_after_every_group_finds_no_difference_between_equal_models() -> None:
    rng = random.Random(11)
    verdicts = 0
    for _ in range(300):
        groups: list[list[float]] = []
        for _ in range(30):
            groups.append([rng.lognormvariate(0, 0.01)])
            if len(groups) >= FEWEST and (strict := interval(groups, strict=True)) and not strict.low < 1 < strict.high:
                break
        last = interval(groups)
        verdicts += not last.low < 1 < last.high
    # 5 % are 15, and by chance up to 22
    assert verdicts <= 22


def declared(shape: list[int | str]) -> ModelFile:
    """A result of three axes, whatever the model says of it: nobody can infer it."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Reshape", ["t", "shape"], ["y"])]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [SIZE, SIZE]),
        helper.make_tensor_value_info("shape", TensorProto.INT64, ["k"]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)]
    weight = numpy_helper.from_array(np.eye(SIZE, dtype=np.float32), "w")
    graph = helper.make_graph(nodes, "g", inputs, outputs, [weight])
    return ModelFile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )


@pytest.mark.parametrize("shape", [["N", SIZE], [1, 1, 1, 1], [2, SIZE // 2, SIZE], [3, 5, 7], ["a", "b", "c"]])
def test_a_wrong_declaration_of_an_output_is_no_reason_not_to_time_a_model(shape: list[int | str]) -> None:
    feeds = {**FEEDS, "shape": np.array([2, SIZE // 2, SIZE])}
    right, wrong = declared(["a", "b", "c"]), declared(shape)
    timings = race([right, wrong], feeds, threads=1, seconds=1.0)
    assert timings[1].median > 0 and timings[1].ratio.high > 0.5


def test_a_race_ends_with_its_clock_and_says_what_it_has() -> None:
    clock = Clock(1.5)
    times = Times()
    try:
        found = race([products(2), products(2)], FEEDS, threads=1, seconds=1000, clock=clock, times=times)
        assert found[1].blocks == sum(len(blocks[0]) for blocks in times.blocks) > 0
    except TimeUp:
        # a machine that is so busy that no process starts within the time
        assert not times.complete
    assert clock.seconds < 60
    with pytest.raises(TimeUp):
        race([products(2), products(2)], FEEDS, threads=1, clock=Clock(0.0))

"""What is hopeless is run once or twice, and says what it took; of variants that are far from the best the same is true."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from onnx import TensorProto, helper

from dslc.cost import worker


def product(size: int) -> bytes:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size, size]) for name in ("x0", "y")]
    graph = helper.make_graph([helper.make_node("MatMul", ["x0", "x0"], ["y"])], "g", ends[:1], ends[1:])
    data: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()
    return data


@pytest.mark.parametrize(("hopeless", "most"), [(1e-9, 1), (inf, None)])
def test_a_hopeless_model_runs_once(monkeypatch: pytest.MonkeyPatch, hopeless: float, most: int | None) -> None:
    runs: list[float] = []
    clocked = worker.clocked

    def counted(call: Callable[[], Any], calls: int, inner: int, now: Callable[[], float]) -> list[float]:
        found = clocked(call, calls, inner, now)
        runs.extend(found)
        return found

    monkeypatch.setattr(worker, "clocked", counted)
    request = {
        "do": "measure", "model": product(64), "weights": [], "copies": 1, "threads": 1, "seconds": 0.02, "layout": False,
        "hopeless": hopeless,
    }  # fmt: skip
    answer = worker.WorkerServer().answer(request)
    assert answer["seconds"] > 0
    assert len(runs) > 3 if most is None else len(runs) == most

"""What is kept between runs is kept by what inputs hold: a model may take any time on other numbers of the same shapes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dslc.cost.cache import CostCache
from dslc.cost.inputs import identity_of
from dslc.cost.machine import Machine
from dslc.cost.measure import Measurer
from dslc.cost.process import ModelFile
from dslc.search.phases.reference import _whole
from dslc.search.runs.benchmark import FinalBenchmark
from dslc.search.runs.contenders import Contender

HERE = Machine("here", 1, "runtime")
N = np.array(4, np.int64)
#: pairs of inputs of the same names, types and shapes
OTHERS: tuple[tuple[Mapping[str, Any], Mapping[str, Any]], ...] = (
    ({"n": N}, {"n": np.array(60000, np.int64)}),
    ({"x": np.zeros(3, np.float32)}, {"x": -np.zeros(3, np.float32)}),
    ({"s": np.array(["ab", "c"], object)}, {"s": np.array(["a", "bc"], object)}),
    ({"q": [N, N]}, {"q": [N]}),
    ({"a": N, "b": N + 1}, {"a": N + 1, "b": N}),
)


@pytest.mark.parametrize(("one", "other"), OTHERS)
def test_inputs_are_known_by_their_elements(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    again = {
        name: [part.copy() for part in value] if isinstance(value, list) else value.copy()
        for name, value in one.items()
    }
    assert identity_of([one]) == identity_of([again]) == identity_of([dict(reversed(again.items()))])
    assert identity_of([one]) != identity_of([other])
    assert identity_of([one, other]) != identity_of([other, one])


def test_a_verdict_is_of_the_values_on_which_it_was_found(tmp_path: Path) -> None:
    contender = Contender(SimpleNamespace(), SimpleNamespace(), ModelFile(b"2"), 0.0)  # type: ignore[arg-type]

    def key(feeds: Mapping[str, Any], identity: str = "model") -> str:
        with CostCache(tmp_path, print) as cache:
            return FinalBenchmark(ModelFile(b"1"), identity, 1.0, [feeds], HERE, cache)._key(contender, 0)

    assert key({"n": N}) == key({"n": N.copy()})
    assert len({key({"n": N}), key({"n": N + 1}), key({"n": N}, "another version")}) == 3


def test_the_time_of_the_original_is_of_the_values_on_which_it_was_taken(tmp_path: Path) -> None:
    def seconds(n: int, taken: float) -> float:
        inputs = SimpleNamespace(feeds=[{"n": np.array(n, np.int64)}])
        original, task = SimpleNamespace(inputs=inputs, seconds=taken), SimpleNamespace(machine=HERE)
        return _whole(task, "model", original, cache)  # type: ignore[arg-type]

    with CostCache(tmp_path, print) as cache:
        assert [seconds(4, 1.0), seconds(60000, 2.0), seconds(4, 3.0), seconds(60000, 4.0)] == [1.0, 2.0, 1.0, 2.0]


def test_what_was_decided_of_kernels_is_of_their_generator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with CostCache(tmp_path, print) as cache:
        measurer = Measurer(HERE, cache)
        measurer.put_verdict("checked", {"error": 0.0})
        assert measurer.verdict("checked") == {"error": 0.0}
        monkeypatch.setattr("dslc.cost.measure.generator", lambda: "with another template")
        assert measurer.verdict("checked") is None
        measurer.close()

"""Weights that a graph reads beside the original's, where caches have no room for them."""

from __future__ import annotations

import pytest

from dslc.cost import evaluation as weights
from dslc.cost.evaluation import MEMORY as WEIGHTS_MEMORY
from dslc.cost.evaluation import room, spilled
from dslc.cost.measure import Measured, Measurer, Sample
from dslc.cost.model import CostModel
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, Value, input_value
from dslc.match import GraphIndex, compile_all, find_matches
from dslc.match.apply import replacements
from dslc.search.candidates.candidate import rewritten
from dslc.semantics.apply import apply
from dslc.semantics.library import standard

RULES = standard()
MERGE = next(rule for rule in compile_all(RULES) if rule.definition.name == "std.merge_matmuls")


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of 32 MiB, whatever this machine has."""
    monkeypatch.setattr(weights, "farthest_cache", lambda: 1 << 25)


class Lines(Measurer):
    """Every node costs the same."""

    def __init__(self) -> None:
        self.count = 0

    def measured(self, sample: Sample, turn: str = "") -> Measured:
        return Measured(1e-5 * sample.text.count("= std."))

    @property
    def overhead(self) -> float:
        return 0.0


def tensor(name: str, *shape: int, constant: bool = False) -> Value:
    return input_value(name, TensorType(DType.F32, shape), constant)


def steps(width: int) -> Graph:
    """Two steps of a recurrent network: the same two weights for each."""
    inputs = tuple(tensor(name, 1, 1024) for name in "ab")
    weights = [tensor(name, 1024, width, constant=True) for name in "wv"]
    return Graph(
        inputs, tuple(apply(RULES, "std.matmul", [one, weight], {})[0] for one in inputs for weight in weights)
    )


def joined(width: int) -> list[tuple[float, float, float]]:
    """What the steps cost with the products of one joined: as said without building that and with it; and what reading more takes."""
    graph, found = steps(width), []
    costs = CostModel(RULES, Lines(), lambda inputs, outputs: b"", 17)
    costs.begin(graph, 1e-3)
    state = costs.evaluate(graph)
    for match in find_matches(MERGE, GraphIndex(graph)):
        new = replacements(match)
        whole = costs.evaluate(rewritten(graph, new))
        found.append((state.after(new)[0], whole.cost, costs.caches.spill(whole.weights)))
    assert found
    return found


def test_what_fits_beside_the_original_s_weights_costs_nothing() -> None:
    assert spilled(room()) == 0 and spilled(2 * room()) == pytest.approx(2 * room() / WEIGHTS_MEMORY)
    for before, whole, spill in joined(512):
        assert spill == 0 and before == pytest.approx(whole)


def test_a_weight_that_is_joined_at_one_of_two_steps_is_read_beside_its_parts() -> None:
    for before, whole, spill in joined(2048):
        assert spill > 5e-4
        assert before == pytest.approx(whole), "a rewrite costs what the rewritten graph does"


def test_at_both_steps_it_is_read_in_their_place() -> None:
    graph = steps(2048)
    costs = CostModel(RULES, Lines(), lambda inputs, outputs: b"", 17)
    costs.begin(graph, 1e-3)
    for _ in range(2):
        match = next(find_matches(MERGE, GraphIndex(graph)))
        graph = rewritten(graph, replacements(match))
    found = costs.evaluate(graph)
    assert costs.caches.spill(found.weights) == 0
    assert found.weights == costs.evaluate(steps(2048)).weights

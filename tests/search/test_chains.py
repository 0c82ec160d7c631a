"""Rewrites that pay only when a rule has been applied to its own results: NasRNN's eight gates."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from benchmarks.zoo import build
from dslc.cost.measure import Measured, Measurer, Sample
from dslc.cost.model import CostModel
from dslc.ir.graph import Call, Node
from dslc.match import GraphIndex, compile_directions
from dslc.onnx.importer import import_model
from dslc.onnx.microbenchmarks import beside, with_weights
from dslc.search.candidates.candidate import Candidate, Limits
from dslc.search.strategies.backtrack import backtrack
from dslc.search.strategies.space import Space
from dslc.semantics.library import Rules

RULES = ("merge_matmuls", "split_through_binary", "split_of_first_part", "split_of_last_part")


class Launches(Measurer):
    """Every node costs as much as any other, splits a little more: merging two products saves nothing, merging eight does."""

    def __init__(self) -> None:
        pass

    def measured(self, sample: Sample, turn: str = "") -> Measured:
        lines = sample.text.splitlines()
        return Measured(
            1e-5 * sum("= std." in line for line in lines) + 1e-6 * sum("= std.split#" in line for line in lines)
        )


def test_eight_gates_become_two_products(std: Rules) -> None:
    graph = import_model(build("nasrnn_gates", small=True), std, {}).graph
    costs = CostModel(std, Launches(), lambda inputs, outputs: b"", 20)
    rules = [one for name in RULES for one in compile_directions(std, std.substitutions[f"std.{name}"])]
    start = Candidate(graph, costs.graph_cost(graph))
    found = backtrack(Space(start, (), costs, Limits(2000)), rules)
    ops = sorted(node.op for node in found.graph.nodes() if isinstance(node, Call) and not node.constant)
    assert [op for op in ops if op != "std.split"] == ["std.add", "std.matmul", "std.matmul"]
    assert found.cost < 0.4 * start.cost


def test_like_branches_of_a_recurrence_are_in_one_order(std: Rules) -> None:
    """The first gate's products are reached from the last step, the others' from the first: pairs of each would be other pairs."""
    graph = import_model(build("nasrnn", small=True), std, {}).graph
    index = GraphIndex(graph)
    inputs = {value.node for value in graph.inputs}
    orders = {}
    for order in (index.position, index.rank):
        steps: dict[Node, list[Node]] = defaultdict(list)
        for node in sorted(index.by_operator["std.matmul"], key=lambda node: order[node]):
            if node.args[0].node in inputs:
                steps[node.args[1].node].append(node.args[0].node)
        orders[id(order)] = {tuple(one) for one in steps.values() if len(one) > 1}
    assert len(orders[id(index.position)]) > 1
    assert len(orders[id(index.rank)]) == 1


class Remembered(Launches):
    """What was asked for."""

    def __init__(self) -> None:
        self.copies: list[int] = []

    def measured(self, sample: Sample, turn: str = "") -> Measured:
        self.copies.append(sample.copies)
        return super().measured(sample)


@pytest.mark.parametrize(("hidden", "copies"), [(32, [8, 8]), (512, [1, 16, 1, 16])])
def test_weights_are_measured_out_of_the_cache_that_they_lie_in(std: Rules, hidden: int, copies: list[int]) -> None:
    """Sixteen megabytes of weights leave none of them in the nearest cache until they are needed again."""
    graph = import_model(build("nasrnn_gates", hidden=hidden), std, {}).graph
    asked = Remembered()
    costs = CostModel(std, asked, lambda inputs, outputs: b"", 20)
    costs.excuse(graph)
    assert asked.copies[: len(copies)] == copies


def test_copies_stand_side_by_side() -> None:
    model = build("nasrnn_gates", small=True, weights=False).SerializeToString()
    weights = [f"w{k}" for k in range(16)]
    generator = np.random.default_rng(0)
    parts = [with_weights(model, weights, lambda dtype, shape: generator.random(shape).astype(dtype)) for _ in range(3)]
    import onnx

    found = beside(parts)
    onnx.checker.check_model(found, full_check=True)
    assert len(found.graph.node) == 3 * 24 and len(found.graph.input) == 3 * 2
    contents = {one.raw_data for one in found.graph.initializer}
    assert len(contents) == 3 * 16, "equal weights would be packed once, and lie in the nearest cache"

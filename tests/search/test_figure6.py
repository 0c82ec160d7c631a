"""TASO's Figure 6: a valid substitution whose result would read itself.

A x B and A x relu(A x B) share their left operand. Merged into one product A x [B, relu(...)], the second one would wait for
the first one's part of the very product that it is a part of. Costs are chosen so that every search wants to merge: products
cost a thousand times what anything else does, so that only the cycle can hold it back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dslc
from dslc.cost.measure import Measured, Measurer, Sample
from dslc.cost.model import CostModel
from dslc.interpret import Floats, run
from dslc.ir.constants import array_value
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Call, Graph, Value, input_value
from dslc.match import compile_directions
from dslc.search.candidates.candidate import Candidate, Limits
from dslc.search.strategies.backtrack import backtrack
from dslc.search.strategies.space import Space
from dslc.search.strategies.sweep import sweep
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules

SIZE = 6
MERGES = ("std.merge_matmuls", "std.merge_three_matmuls")


class Tempting(Measurer):
    """A millisecond for each product, a microsecond for everything else."""

    def measured(self, sample: Sample, turn: str = "") -> Measured:
        return Measured(1e-3 * sample.text.count("= std.matmul#") + 1e-6)


@pytest.fixture
def data() -> dict[str, Any]:
    draw = np.random.default_rng(0).standard_normal
    return {name: draw((SIZE, SIZE)).astype(np.float32) for name in "abc"}


class Case:
    """The figure's graph, and one beside it whose second product reads something else."""

    def __init__(self, rules: Rules, data: dict[str, Any]) -> None:
        self.rules = rules
        self.a = input_value("a", TensorType(DType.F32, (SIZE, SIZE)))
        self.c = input_value("c", TensorType(DType.F32, (SIZE, SIZE)))
        self.first = self.op("matmul", self.a, array_value(data["b"]))
        self.cyclic = self.graph(self.op("matmul", self.a, self.op("relu", self.first)))
        self.fine = self.graph(self.first, self.op("matmul", self.a, self.op("relu", self.c)))

    def op(self, name: str, *args: Value) -> Value:
        return apply(self.rules, f"std.{name}", args, {})[0]

    def graph(self, *outputs: Value) -> Graph:
        return Graph((self.a, self.c), outputs)


def products(graph: Graph) -> int:
    return sum(isinstance(node, Call) and node.op == "std.matmul" for node in graph.nodes())


@pytest.fixture
def case(std: Rules, data: dict[str, Any]) -> Case:
    return Case(std, data)


def searched(case: Case, graph: Graph, search: str, names: tuple[str, ...] = MERGES, steps: int = 300) -> Candidate:
    rules = [one for name in names for one in compile_directions(case.rules, case.rules.substitutions[name])]
    costs = CostModel(case.rules, Tempting.__new__(Tempting), lambda inputs, outputs: b"", 17)
    start = Candidate(graph, costs.graph_cost(graph))
    if search == "sweep":
        return sweep(Space(start, (), costs, Limits(steps)), rules)
    return backtrack(Space(start, (), costs, Limits(steps), alpha=4.0, seed=1), rules)


@pytest.mark.parametrize("search", ["sweep", "backtrack"])
def test_figure_6_is_not_merged(case: Case, search: str) -> None:
    found = searched(case, case.cyclic, search)
    assert found.parent is None and found.graph.outputs == case.cyclic.outputs


@pytest.mark.parametrize("search", ["sweep", "backtrack"])
def test_without_the_dependence_the_same_products_are_merged(case: Case, search: str) -> None:
    found = searched(case, case.fine, search)
    assert list(found.rules()) == ["std.merge_matmuls"]
    assert products(found.graph) == 1


def test_figure_6_among_all_rules(case: Case, std: Rules, data: dict[str, Any]) -> None:
    """Whatever a search makes of it with every rule of the library, it ends and computes the same."""
    names = tuple(name for name, rule in std.substitutions.items() if not rule.syntax.partial)
    found = searched(case, case.cyclic, "backtrack", names, 100)
    feeds = {case.a: data["a"], case.c: data["c"]}
    wanted, got = (run(std, graph.outputs, feeds, Floats())[0] for graph in (case.cyclic, found.graph))
    np.testing.assert_allclose(np.asarray(got, float), np.asarray(wanted, float), rtol=1e-4, atol=1e-4)


def model(weights: dict[str, Any], cyclic: bool) -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["a", "b"], ["p"]),
        helper.make_node("Relu", ["p" if cyclic else "c"], ["r"]),
        helper.make_node("MatMul", ["a", "r"], ["q"]),
    ]
    square = [SIZE, SIZE]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, square) for name in ("a", "c")]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, square) for name in ("p", "q")]
    graph = helper.make_graph(nodes, "figure6", inputs, outputs, [numpy_helper.from_array(weights["b"], "b")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("cyclic", [True, False])
def test_figure_6_through_the_pipeline(
    cyclic: bool, data: dict[str, Any], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dslc.cost.targets.Measurer", Tempting)
    result = dslc.optimize(
        model(data, cyclic), only=["merge_matmuls"], steps=100, threads=1, timing=False, cache=tmp_path / "cache"
    )
    kinds = sorted(node.op_type for node in result.model.graph.node)
    if cyclic:
        assert result.report.kept_original and kinds == ["MatMul", "MatMul", "Relu"]
    else:
        assert [step.rule for step in result.report.steps] == ["std.merge_matmuls"]
        assert kinds == ["Concat", "MatMul", "Relu", "Split"]

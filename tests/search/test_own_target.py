"""A target is one value: one of a file of its own is searched, planned and reported like those of the registry."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

import dslc
from dslc.cost.cache import CostCache
from dslc.cost.fused_groups import Lowerings
from dslc.cost.groups import Group
from dslc.cost.layout import Info
from dslc.cost.measure import Sample, Unmeasured
from dslc.cost.model import CostModel
from dslc.cost.sheet import CpuSheet
from dslc.cost.targets import ModelPlan, OwnKernels, Sheet, Target, lowerings_on, target_named
from dslc.errors import DslcError
from dslc.onnx.context import Imported
from dslc.onnx.importer import import_model
from dslc.semantics.library import Rules, standard
from dslc.semantics.targets import TARGETS

TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[64, 64] x, float[64, 64] w) => (float[64, 64] y) {
    a = MatMul(x, w)  b = Transpose<perm=[1, 0]>(a)  c = Transpose<perm=[1, 0]>(b)  y = Relu(c)
}"""


# ---- a target in a file of its own -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Abacus(Target):
    """Every node takes a second, whatever it computes."""

    name: str = "abacus"
    where: str = "the abacus"
    basis: str = "every node takes a second"
    kernels: OwnKernels = OwnKernels.NONE

    def lowerings(self, rules: Rules) -> Lowerings:
        return lowerings_on(("ort",), rules)

    def price(self, costs: CostModel, group: Group, turn: str = "") -> Info:
        return Info(float(len(group.nodes)))

    def plan(
        self, rules: Rules, source: Any, imported: Imported, sizes: Mapping[str, int], feeds: Mapping[str, Any]
    ) -> ModelPlan:
        nodes = sum(1 for node in imported.graph.nodes() if node.args)
        return ModelPlan(float(nodes), (f"{nodes} weights on the scale",))


def test_a_target_of_ones_own_is_searched_and_reported(tmp_path: Path) -> None:
    own = Abacus(Sheet("an abacus", 1, "counted"))
    done = dslc.optimize(onnx.parser.parse_model(TEXT), on=own, budget=20, steps=3, cache=tmp_path)
    assert [node.op_type for node in done.model.graph.node] == ["MatMul", "Relu"]
    assert (done.report.target, done.report.predicted_ratio) == ("an abacus, counted", 2.0)
    assert "priced, not measured: 4e+06 us -> 2e+06 us on the abacus (every node takes a second)" in done.report.reason
    assert {"2 weights on the scale", "every node takes a second"} <= set(done.report.notes)
    assert not any("data sheet" in text or "h100" in text for text in done.report.warnings)


# ---- the registry ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_of_the_registry_answers_all_questions(name: str) -> None:
    target = target_named(name, threads=1)
    assert target.name == name and target.where and str(target.machine)
    assert target.measured is (target.basis == "")
    assert target.kernels in OwnKernels and target.lowerings(standard()).digest
    assert target == target_named(name, threads=1) and target.fingerprint == target_named(name, threads=1).fingerprint


def test_a_name_that_no_target_has_is_answered_by_those_that_there_are() -> None:
    with pytest.raises(DslcError, match="E0909 there is no target `gpu`") as caught:
        target_named("gpu")
    assert caught.value.diagnostics[0].hint == "one of " + ", ".join(TARGETS)


def test_a_search_asks_the_target_and_nobody_else() -> None:
    """Where times come from is asked by `measured`: nobody looks whether something is None, or at a target's name."""
    root = Path(dslc.__file__).parent
    asked = {"pricing", "plans"}
    for path in sorted((root / "search").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute):
                assert node.left.attr not in asked, path
                assert not (node.left.attr == "on" and isinstance(node.comparators[0], ast.Constant)), path


# ---- a processor by two numbers ----------------------------------------------------------------------------------------


def test_a_processor_is_two_numbers() -> None:
    given = target_named("cpu_sheet", "2e12:1e11", 1)
    assert isinstance(given, CpuSheet) and (given.operations, given.bytes) == (2e12, 1e11)
    assert target_named("cpu_sheet", "Raspberry-Pi-5", 1).where == "raspberry-pi-5"
    for wrong in ("", "pentium", "1e12", "1e12:x", "0:1", "-1:1", "nan:1", "inf:1"):
        with pytest.raises(DslcError, match="E0909 there is no data sheet"):
            target_named("cpu_sheet", wrong)


def test_a_price_is_the_larger_of_computing_and_moving() -> None:
    rules = standard()
    graph = import_model(onnx.parser.parse_model(TEXT), rules).graph
    product = next(node for node in graph.nodes() if getattr(node, "op", "") == "std.matmul")
    moved, computed = 3 * 4 * 64 * 64, 64 * 64 * (2 * 64 - 1)
    for sheet, seconds in ((f"1e30:{moved}", 1.0), (f"{computed}:1e30", 1.0)):
        target = target_named("cpu_sheet", sheet, 1)
        costs = CostModel(rules, target.measurer(None), lambda _inputs, _outputs: b"", 17, target=target)  # type: ignore[arg-type]
        assert costs.cost(product) == pytest.approx(seconds, rel=0.02)


def test_a_processor_that_is_not_at_hand_is_priced_the_same_every_time(tmp_path: Path) -> None:
    reports = []
    for run in range(2):
        done = dslc.optimize(
            onnx.parser.parse_model(TEXT),
            on="cpu_sheet",
            device="1e12:5e10",
            budget=20,
            steps=3,
            cache=tmp_path / str(run),
        )
        assert [node.op_type for node in done.model.graph.node] == ["MatMul", "Relu"]
        reports.append(
            (
                done.report.reason,
                done.report.predicted_ratio,
                [note for note in done.report.notes if "budget" not in note],
            )
        )
    assert reports[0] == reports[1]
    reason, ratio, notes = reports[0]
    assert ratio > 1.5 and "on 1e12:5e10 (nothing was measured: times are those of 1e+12 operations" in reason
    assert any("2 pieces, one after the other" in note for note in notes)


def test_nothing_is_run_to_price(tmp_path: Path) -> None:
    measurer = target_named("cpu_sheet", threads=1).measurer(CostCache(tmp_path))
    assert isinstance(measurer, Unmeasured)
    assert measurer.measured(Sample("x", lambda: pytest.fail("nothing is built"))).seconds == float("inf")
    assert measurer.overhead == 0.0 and measurer.count == 0


# ---- what a user gets wrong -------------------------------------------------------------------------------------------


def test_a_device_where_times_are_measured_changes_nothing_and_is_told() -> None:
    done = dslc.optimize(onnx.parser.parse_model(TEXT), on="ort_cpu", device="h100", budget=0)
    assert (
        "--device h100 changes nothing: on ort_cpu times are measured, not priced by data sheet" in done.report.warnings
    )


@pytest.mark.parametrize("wrong", ["gpu", "", 3, None])
def test_what_is_no_target_is_refused_with_the_names_of_those_that_are(wrong: Any) -> None:
    with pytest.raises(DslcError, match="is none of cpu, ort_cpu, cuda, cpu_sheet"):
        dslc.optimize(onnx.parser.parse_model(TEXT), on=wrong, budget=0)

"""What a target runs as one: lowerings found in graphs, what they are priced at, and rewrites that let the runtime fuse."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cost_model import Invented, names, op, w, x

from dslc.cost.cache import CostCache
from dslc.cost.fused_groups import Lowered
from dslc.cost.groups import Group, working_nodes
from dslc.cost.layout import Reorder
from dslc.cost.measure import Measured, Sample
from dslc.cost.model import CostModel
from dslc.cost.sheet import PriceTable
from dslc.cost.targets import DEFAULT, target_named
from dslc.errors import DslcError
from dslc.ir.constants import array_value
from dslc.ir.graph import Call, Graph, Value, kernel_value
from dslc.match import GraphIndex, compile_all, find_matches
from dslc.match.apply import replacements
from dslc.match.recipe import Refused
from dslc.onnx.exporter import node_model
from dslc.search.candidates.candidate import rewritten
from dslc.semantics.library import load_many, standard
from dslc.semantics.targets import TARGETS

RULES = standard()


def number(value: float) -> Value:
    return array_value(np.asarray(value, np.float32))


def mean(value: Value) -> Value:
    return op("reduce_mean", value, axes=(2,))


def deviation(value: Value) -> Value:
    return op("sqrt", op("add", mean(op("pow", value, number(2))), number(1e-6)))


def rms(a: Value, by: str = "div") -> Value:
    """A root mean square norm, by division or by the reciprocal."""
    scaled = op("div", a, deviation(a)) if by == "div" else op("mul", a, op("reciprocal", deviation(a)))
    return op("mul", scaled, w(a.type.shape[-1]))


def layer(a: Value) -> Value:
    centred = op("sub", a, mean(a))
    return op("add", op("mul", op("div", centred, deviation(centred)), w(8)), w(8))


def gelu(a: Value) -> Value:
    erf = op("erf", op("div", a, number(math.sqrt(2))))
    return op("mul", op("mul", a, op("add", erf, number(1))), number(0.5))


def costs() -> CostModel:
    return CostModel(RULES, Invented(), lambda inputs, outputs: b"", 17)


class Pieces(CostModel):
    """Nothing is measured together but what a lowering takes: how long a chain of pointwise operators may be decides nothing."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.keys.pointwise = lambda node: False  # type: ignore[method-assign]


def grouped(*outputs: Value) -> list[list[str]]:
    return names(costs().evaluate(Graph((), outputs)).groups)


def lowered(*outputs: Value) -> list[str]:
    found = PriceTable(costs()).lowered(outputs)
    return [piece.lowering.removeprefix("targets.") for piece in found if piece.lowering]


def test_what_the_runtime_fuses_is_one_group() -> None:
    a = x(2, 4, 8)
    assert grouped(rms(a)) == [["pow", "reduce_mean", "add", "sqrt", "div", "mul"]]
    assert [len(group) for group in grouped(layer(a))] == [9]
    assert grouped(gelu(a)) == [["div", "erf", "add", "mul", "mul"]]


def test_other_spellings_are_not() -> None:
    assert len(grouped(rms(x(2, 4, 8), "mul"))) > 1


def test_what_is_used_elsewhere_too_is_no_part_of_a_piece() -> None:
    a = x(2, 4, 8)
    assert lowered(rms(a)) == ["ort_rms_norm"]
    assert lowered(rms(a), deviation(a)) == []
    assert lowered(rms(a), op("relu", deviation(a))) == []


def test_of_pieces_that_share_a_node_the_larger_one_is_taken() -> None:
    a, bias = x(1, 4, 9, 9), w(4, 1, 1)
    conv = op("conv", a, w(4, 4, 3, 3))
    assert lowered(op("add", conv, bias)) == ["ort_conv_bias"]
    assert lowered(op("relu", op("add", conv, bias))) == ["ort_conv_bias_relu"]
    assert lowered(op("relu", op("add", op("add", conv, bias), x(1, 4, 7, 7, name="z")))) == ["ort_conv_add_relu"]
    # a sum with something that is no bias of the channels
    assert lowered(op("add", conv, w(4, 7, 7))) == []


def test_what_only_passes_memory_on_costs_nothing() -> None:
    a = x(2, 3, 4)
    found = costs()
    for value in (op("reshape", a, shape=(6, 4)), op("flatten", a), op("unsqueeze", a, axes=(0,))):
        assert found.is_view(Group((value.node,), (value.node.args,)))
    for value in (op("transpose", a, perm=(1, 0, 2)), op("relu", a)):
        assert not found.is_view(Group((value.node,), (value.node.args,)))


def test_a_rewrite_costs_what_the_rewritten_graph_costs_pieces_included() -> None:
    a, b = x(2, 4, 8), x(2, 4, 8, name="b")
    scores = op("mul", op("matmul", layer(rms(a, "mul")), op("transpose", b, perm=(0, 2, 1))), number(0.25))
    out = gelu(op("add", op("matmul", op("softmax", scores), rms(b)), w(8)))
    graph = Graph((a, b), (out, layer(b)))
    found = Pieces(RULES, Invented(), lambda inputs, outputs: b"", 17)
    state, index = found.evaluate(graph), GraphIndex(graph)
    tried, fusing = 0, 0
    pieces = len(lowered(*graph.outputs))
    for rule in compile_all(RULES):
        for match in find_matches(rule, index, limit=4):
            try:
                new = replacements(match)
            except Refused:
                continue
            tried += 1
            after = rewritten(graph, new)
            fusing += len(lowered(*after.outputs)) > pieces
            assert state.after(new)[0] == pytest.approx(found.graph_cost(after), abs=1e-12), rule.name
    assert tried > 20 and fusing > 0


class ByNode(Invented):
    """Every operator takes 10 us, and a division within a norm makes one of all of them."""

    def measured(self, sample: Sample, turn: str = "") -> Measured:
        count = sample.text.count(" = std.")
        return Measured(
            1e-5 if count > 5 and "std.div#" in sample.text and "std.reduce_mean#" in sample.text else 1e-5 * count
        )


def test_a_rewrite_gains_what_the_runtime_then_fuses_far_from_it() -> None:
    a = x(2, 4, 8)
    product, quotient = rms(a, "mul"), rms(a)
    model = CostModel(RULES, ByNode(), lambda inputs, outputs: b"", 17)
    state = model.evaluate(Graph((a,), (product,)))
    assert state.cost == pytest.approx(7e-5)
    # only the product with the reciprocal is replaced; power, mean and root are far away
    assert state.after({product.node.args[0]: quotient.node.args[0]})[0] == pytest.approx(1e-5)


def test_equal_places_with_other_neighbours_are_looked_at_each() -> None:
    a, b = x(2, 4, 8), x(2, 4, 8, name="b")
    inside, outside = rms(a, "mul"), op("mul", op("mul", b, op("reciprocal", op("sqrt", op("exp", b)))), w(8))
    state = costs().evaluate(Graph((a, b), (inside, outside)))

    def site(out: Value) -> dict[int, Call]:
        product = out.node.args[0].node
        assert isinstance(product, Call) and isinstance(product.args[1].node, Call)
        return {0: product, 1: product.args[1].node}

    assert state.likeness(site(inside)) != state.likeness(site(outside))


def test_the_sum_of_prices_is_that_of_everything_that_runs() -> None:
    a = x(2, 4, 8)
    model = CostModel(RULES, ByNode(), lambda inputs, outputs: b"", 17)
    table = PriceTable(model)
    priced = table.priced(Graph((a,), (op("tanh", op("exp", rms(a))),)))
    what = [price.what.lowering for price in priced.prices if isinstance(price.what, Lowered)]
    assert what == ["targets.ort_rms_norm", "", ""]
    assert [price.seconds for price in priced.prices] == pytest.approx([1e-5, 1e-5, 1e-5])
    assert priced.seconds == pytest.approx(3e-5)
    assert model.cost(op("exp", a).node) == pytest.approx(1e-5)


class Blocks(Invented):
    """A convolution works in blocks."""

    def measured(self, sample: Sample, turn: str = "") -> Measured:
        if "blocks: " in sample.text:
            return Measured(1e-6)
        return Measured(1e-5, (0,), True) if "std.conv#" in sample.text else Measured(1e-5)


def test_a_change_of_layout_is_priced_by_itself() -> None:
    a = x(1, 4, 9, 9)
    twice = op("conv", op("conv", a, w(4, 4, 3, 3)), w(4, 4, 3, 3))
    model = CostModel(RULES, Blocks(), lambda inputs, outputs: b"", 17)
    prices = PriceTable(model).priced(Graph((a,), (op("softmax", twice),))).prices
    changes = [price.what for price in prices if isinstance(price.what, Reorder)]
    # into blocks before the first convolution and out of them after the second one, not in between
    assert [(change.value, change.into) for change in changes] == [(a, True), (twice, False)]
    assert sum(price.seconds for price in prices) == pytest.approx(3e-5 - 2 * 2e-6 + 2e-6)


def test_a_target_has_a_name_and_a_fingerprint() -> None:
    one, two = target_named(threads=1), target_named(threads=2)
    assert one.name == DEFAULT and one.name in TARGETS
    assert one == target_named(DEFAULT, threads=1) and one.fingerprint != two.fingerprint
    with pytest.raises(DslcError, match="there is no target `gpu`"):
        target_named("gpu")


def test_the_runtime_runs_a_piece_as_one(tmp_path: Path) -> None:
    """Priced on ONNX Runtime itself: one node instead of seven."""
    with CostCache(tmp_path) as cache:
        measurer = target_named(threads=1).measurer(cache)

        def build(inputs: tuple[Value, ...], outputs: tuple[Value, ...]) -> bytes:
            data: bytes = node_model(outputs, RULES, 17, inputs=inputs)[0].SerializeToString(deterministic=True)
            return data

        model = CostModel(RULES, measurer, build, 17)
        a = x(1, 256, 512)
        division, product = (model.graph_cost(Graph((a,), (rms(a, by),))) for by in ("div", "mul"))
        measurer.close()
    assert 1.5 * division < product < 1


OWN = """dslc 1
library own 1.0.0
requires std >=0.1
import std.pointwise (exp)
import std.activation (tanh)
lowering both(X: T[*S]) on ort_cpu {
  match Y = tanh(exp(X))
  onnx own.ExpTanh(X)
}
lowering elsewhere(X: T[*S]) on cuda {
  match Y = exp(exp(X))
  onnx own.ExpExp(X)
}
"""


def test_a_library_of_yours_may_bring_lowerings(tmp_path: Path) -> None:
    (tmp_path / "own.rules").write_text(OWN)
    a = x(2, 3)
    both, other = op("tanh", op("exp", a)), op("exp", op("exp", a))
    rules = load_many(["std", tmp_path / "own.rules"])
    table = PriceTable(CostModel(rules, Invented(), lambda inputs, outputs: b"", 17))
    assert [piece.lowering for piece in table.lowered([both])] == ["own.both"]
    assert [piece.lowering for piece in table.lowered([other])] == ["", ""]
    assert [piece.lowering for piece in PriceTable(costs()).lowered([both])] == ["", ""]
    # what was found with others is not repeated with these
    assert target_named().lowerings(rules).digest != target_named().lowerings(RULES).digest


def test_a_kernel_is_priced_by_what_it_computes() -> None:
    hole = x(2, 3, name="h0")
    kernels = [kernel_value(Graph((hole,), (op(name, hole),)), (x(2, 3),))[0] for name in ("exp", "tanh")]
    found = costs()
    groups = [Group((value.node,), (value.node.args,)) for value in kernels]
    assert found.keys.of(groups[0]) != found.keys.of(groups[1])
    texts = [found.samples.text(found.samples.small(group)) for group in groups]
    assert "std.exp" in texts[0] and "std.exp" not in texts[1]


def test_nodes_of_weights_are_no_part_of_a_piece() -> None:
    a = x(2, 4, 8)
    scaled = op("mul", op("div", a, deviation(a)), op("mul", w(8), w(8)))
    (piece,) = PriceTable(costs()).lowered([scaled])
    assert piece.lowering == "targets.ort_rms_norm" and set(piece.nodes) == {
        n for n in working_nodes([scaled]) if n.args
    }

"""Programs that are derived from the expressions of a model's nodes: built, proved, measured, and offered where they are faster."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import dslc
from dslc.codegen.host.compiler import NAMES
from dslc.cost.cache import CostCache
from dslc.cost.groups import Group
from dslc.cost.layout import Info
from dslc.cost.machine import this_machine
from dslc.cost.measure import Measurer
from dslc.cost.model import CostModel
from dslc.deadline import Deadline, TimeUp
from dslc.derivation.targets import products_of
from dslc.errors import DslcError
from dslc.fuse.estimate import Speeds
from dslc.ir.constants import array_value
from dslc.ir.dtype import DType, TensorType
from dslc.ir.facts import Fact
from dslc.ir.graph import Call, Graph, Kernel, Scope, input_value, scope_value
from dslc.ir.scalar import apply, iterator, num, read
from dslc.kernels import note, prepared
from dslc.onnx.exporter import compute, export, node_model
from dslc.onnx.importer import import_model
from dslc.search.candidates.candidate import Candidate
from dslc.search.region_rewrites import derivations, hot_operators, rewriter
from dslc.search.region_rewrites.building import Builder
from dslc.search.region_rewrites.derivations import Derivations, derivations_of
from dslc.search.region_rewrites.pairs import PairedDerivation
from dslc.search.region_rewrites.region_log import MeasuredRewrite, SearchLog
from dslc.search.region_rewrites.rewriter import RegionRewriter
from dslc.search.region_rewrites.validate import claims_of, validate
from dslc.semantics.apply import apply as apply_operator
from dslc.semantics.definitions import DerivationDef
from dslc.semantics.library import load_many, standard
from dslc.sessions import session
from tests.caches import apart
from tests.search.rewriting import proposed
from tests.tuned import tuned

compiles = pytest.mark.skipif(not any(map(shutil.which, NAMES)), reason="there is no C++ compiler")

pytestmark = pytest.mark.kernels


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Caches of its own: nothing that was measured elsewhere decides."""
    folder = str(apart(tmp_path_factory.mktemp("cache"), kernels=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DSLC_CACHE", folder)
        # no test rests on the best of many kernels, or on a program far from the expression
        tuned(patch, "fuse.autotune", variants=1)
        tuned(patch, "search.region_rewrites.derivations", priced=2)
        # that a program is one kernel as well is seen by a transposed convolution
        tuned(patch, "search.region_rewrites.rewriter", whole=1e9)
        yield folder


def model_of(
    nodes: list[onnx.NodeProto], x: Sequence[int | str], y: Sequence[int | str], weights: Mapping[str, Any]
) -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in (("x", x), ("y", y))]
    tensors = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def noise(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape) / 8


def upsampled(batch: int | str, channels: int, filters: int, size: int, places: int = 1) -> onnx.ModelProto:
    """A transposed convolution of stride 2 with a bias and a relu; of several with weights of their own the sum."""
    nodes, weights = [], {}
    for k in range(places):
        weights |= {f"k{k}": noise(channels, filters, 4, 4) + k, f"b{k}": noise(filters)}
        nodes += [
            helper.make_node("ConvTranspose", ["x", f"k{k}", f"b{k}"], [f"c{k}"], strides=[2, 2], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [f"c{k}"], ["y" if places == 1 else f"r{k}"]),
        ]
    if places > 1:
        nodes.append(helper.make_node("Sum", [f"r{k}" for k in range(places)], ["y"]))
    return model_of(nodes, [batch, channels, size, size], [batch, filters, 2 * size, 2 * size], weights)


def convolved(channels: int, size: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["y"])]
    shape = [1, channels, size, size]
    return model_of(nodes, shape, shape, {"k": noise(channels, channels, 3, 3)})


#: expressions of each of two nodes that suffice to make one call of them
PAIR = 80


@dataclass(frozen=True)
class Looked:
    """What is offered for a model, and the model that the best of it makes."""

    candidates: list[Candidate]
    log: SearchLog
    after: onnx.ModelProto | None


def crossed(channels: int, filters: int, size: int) -> onnx.ModelProto:
    """A column and a row of one image with biases, added, as in GCN's blocks."""
    weights = {
        "k": noise(filters, channels, 5, 1),
        "l": noise(filters, channels, 1, 5),
        "a": noise(filters),
        "b": noise(filters) + 1,
    }
    nodes = [
        helper.make_node("Conv", ["x", "k", "a"], ["c"], pads=[2, 0, 2, 0]),
        helper.make_node("Conv", ["x", "l", "b"], ["d"], pads=[0, 2, 0, 2]),
        helper.make_node("Add", ["c", "d"], ["y"]),
    ]
    return model_of(nodes, [1, channels, size, size], [1, filters, size, size], weights)


def looked(
    model: onnx.ModelProto,
    margin: float,
    paired: bool = False,
    own: Sequence[DerivationDef] = (),
    every: bool = False,
    built: int = 1,
    sizes: Mapping[str, int] | None = None,
    states: int = 150,
) -> Looked:
    """Candidates of one thread for every program that is so many times as fast; 0: whatever it takes.

    `own`: derivations in the place of those of EinNet; `sizes`: of unknown dimensions, for measuring; `states`: that are looked at.
    """
    rules = standard()
    imported = import_model(model, rules, {})

    def build(inputs: Any, outputs: Any) -> bytes | None:
        try:
            made, _ = node_model(outputs, rules, 17, inputs=inputs)
        except DslcError:
            return None
        data: bytes = made.SerializeToString(deterministic=True)
        return data

    with CostCache() as kept, pytest.MonkeyPatch.context() as patch:
        tuned(patch, "search.region_rewrites.derivations", states=states)
        measurer = Measurer(this_machine(1), kept)
        try:
            prices = CostModel(rules, measurer, build, 17, sizes)
            seconds = prices.graph_cost(imported.graph)
            prices.begin(imported.graph, seconds)
            until = Deadline.after(120.0)
            builder = Builder(rules, prices, 17, until, sizes=sizes or {}, margin=margin, built=built)
            source = Derivations(builder, derivations=own or derivations_of(rules), every=every)
            looks = RegionRewriter(PairedDerivation(source) if paired else source, independent_first=paired)
            candidates, log = proposed(looks, Candidate(imported.graph, seconds))
        finally:
            measurer.close()
    if not candidates:
        return Looked([], log, None)
    after = export(imported.context, candidates[0].graph, rules)
    note(after, candidates[0].kernels, 1)
    prepared(after, texts=candidates[0].kernels)
    return Looked(candidates, log, after)


def error(before: onnx.ModelProto, after: onnx.ModelProto, size: int = 0) -> float:
    """The largest difference of the outputs, relative to the largest element, at a size of unknown dimensions."""
    shape = [dimension.dim_value or size for dimension in before.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": noise(*shape).astype(np.float32)}
    (old,), (new,) = session(before).run(None, feeds), session(after).run(None, feeds)
    return float(np.max(np.abs(old - new)) / np.max(np.abs(old)))


@compiles
def test_a_transposed_convolution_is_a_product_and_kernels(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned(monkeypatch, "search.region_rewrites.rewriter", whole=1.2)
    model = upsampled(4, 64, 32, 2)
    found = looked(model, margin=0.0)
    best = found.candidates[0]
    (one,) = found.log.taken
    # bias and activation are part of the kernel behind the product, which is one too where that is faster; the weights are ready
    assert [type(node) for node in best.graph.nodes() if not node.constant and node.args].count(Call) <= 1
    assert best.graph.outputs[0].node.types == (one.program.outputs[0].type,)
    assert isinstance(best.graph.outputs[0].node, Kernel)
    assert best.rule.startswith("einnet.") and " > " in best.rule
    proved = validate(standard(), claims_of(best))
    assert set(proved.how.values()) == {"exact"}
    assert found.after is not None and error(model, found.after) < 1e-5
    assert 0 < one.before < 1 and 0 < one.after < 1
    with capsys.disabled():
        print(f"{one.ratio:.2f} times as fast")


@compiles
def test_a_program_of_an_open_size_holds_at_all_of_them() -> None:
    """Measured at a batch of 4 images, and equal at every other one."""
    model = upsampled("N", 64, 32, 2)
    found = looked(model, margin=0.0, sizes={"N": 4})
    (one,) = found.log.taken
    assert one.fact.rule.startswith("einnet.") and one.kernels
    assert set(validate(standard(), claims_of(found.candidates[0])).how.values()) == {"exact"}
    assert found.after is not None
    for size in (1, 4, 7, 32):
        assert error(model, found.after, size) < 1e-5
    # the file says what it means where nobody has its kernels
    plain = onnxruntime.InferenceSession(found.after.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {"x": noise(5, 64, 2, 2).astype(np.float32)}
    (wanted,), (got,) = session(model).run(None, feeds), plain.run(None, feeds)
    assert np.max(np.abs(wanted - got)) < 1e-5 * np.max(np.abs(wanted))


@compiles
def test_pairs_are_derived_at_an_open_size() -> None:
    model = crossed(8, 4, 8)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "N"
    found = looked(model, margin=0.0, paired=True, sizes={"N": 2}, states=PAIR)
    assert found.log.taken and found.after is not None
    assert all(error(model, found.after, size) < 1e-5 for size in (1, 3, 8))


@compiles
def test_equal_nodes_are_derived_once() -> None:
    model = upsampled(2, 16, 8, 2, places=2)
    found = looked(model, margin=0.0)
    assert found.log.searched == 1
    assert sum(step.count for step in found.candidates[0].path()) == 2
    assert found.after is not None and error(model, found.after) < 1e-5


@compiles
def test_what_gains_nothing_is_kept() -> None:
    # on no machine is the runtime's convolution this far from the peak
    assert looked(convolved(64, 28), margin=100.0, states=40).log.searched == 0
    # whoever has the time may look all the same
    found = looked(convolved(64, 28), margin=100.0, every=True, states=40)
    assert found.log.searched == 1 and found.log.found > 0
    assert found.candidates == [] and found.log.taken_lines({}, "") == []
    # but a report says what there is, and what it takes
    (line,) = found.log.rejected_lines("")
    assert (", not built: " in line or ", not taken: " in line) and " ms" in line


@compiles
def test_a_weight_of_one_number_is_a_weight() -> None:
    """FSRCNN ends in one channel, and the bias of that is one number."""
    weights = {"k": noise(4, 1, 4, 4), "b": np.full(1, 0.5)}
    node = helper.make_node("ConvTranspose", ["x", "k", "b"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1])
    model = model_of([node], [1, 4, 5, 5], [1, 1, 10, 10], weights)
    found = looked(model, margin=0.0)
    assert len(found.log.measured) == 1
    assert found.after is not None and error(model, found.after) < 1e-5


@compiles
def test_figure_15_what_reads_one_image_has_one_call(capsys: pytest.CaptureFixture[str]) -> None:
    model = crossed(8, 4, 8)
    found = looked(model, margin=0.0, paired=True, states=PAIR)
    (one,) = found.log.taken
    nodes = [node for node in found.candidates[0].graph.nodes() if isinstance(node, Call) and not node.constant]
    (call,) = (node for node in nodes if node.op in products_of(standard()))
    assert call.values[0].type.elements == 4 * (5 + 5) * 8 * 8
    assert set(validate(standard(), claims_of(found.candidates[0])).how.values()) == {"exact"}
    assert found.after is not None and error(model, found.after) < 1e-5
    with capsys.disabled():
        print(f"{one.ratio:.2f} times as fast")


@compiles
def test_einnet_figure_6_has_minimal_filtering_inside(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A window of five as one of three with four times the filters, by Winograd's products, and a sum of what was moved: 36 products
    for 16 results, where the search's own estimate counts 36 for 25 of the window."""
    names = ("summation_relaxing", "summation_substitution", "summation_splitting", "variable_substitution")
    monkeypatch.setattr(derivations, "DEPTH", len(names))
    monkeypatch.setattr(derivations, "PRICED", 1)
    weights = {"k": noise(64, 64, 5, 5), "b": noise(64)}
    nodes = [
        helper.make_node("Conv", ["x", "k", "b"], ["c"], pads=[2, 2, 2, 2]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    model = model_of(nodes, [1, 64, 32, 32], [1, 64, 32, 32], weights)
    own = [load_many(["einnet"]).derivations[f"einnet.{name}"] for name in names]
    found = looked(model, margin=1.0, own=own, states=240)
    one = next(one for one in found.log.measured if windows_inside(one.program) == [(256, 64, 3, 3)])
    assert any(tried.variant is not None and tried.variant.form.startswith("std.winograd") for tried in one.kernels)
    assert set(validate(standard(), [one.fact]).how.values()) == {"exact"}
    # and where all of it is faster, it is taken
    if found.candidates:
        assert found.after is not None and error(model, found.after) < 1e-4
    with capsys.disabled():
        print(f"{one.ratio:.2f} times as fast")


def windows_inside(program: Graph) -> list[tuple[object, ...]]:
    """The shapes of the weights of the convolutions that kernels of a program are."""
    inside = [node for kernel in program.nodes() if isinstance(kernel, Kernel) for node in kernel.group.nodes()]
    return [node.args[1].type.shape for node in inside if isinstance(node, Call) and node.op == "std.conv"]


@compiles
def test_a_derivation_of_one_s_own_is_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long sum as two, which EinNet's rules do not make: built, measured, and proved as theirs are."""
    monkeypatch.setattr(derivations, "DEPTH", 2)
    file = tmp_path / "halves.rules"
    file.write_text(
        "dslc 1\nlibrary halves 0.1.0\n\nderivation sum_in_halves {\n  index x: X, y: Y\n  term f(x, y)\n  set U, V\n"
        "  where Y <= U | V\n  expr [x] sum[y] f(x, y)\n  =>\n"
        "  expr [x] {[x] sum[y: U] f(x, y)}[x] + {[x] sum[y: V] f(x, y)}[x]\n  search U in halves(Y)\n}\n"
    )
    (rule,) = load_many(["std", file]).derivations.values()
    node = helper.make_node("MatMul", ["x", "k"], ["y"])
    model = model_of([node], [4, 48], [4, 3], {"k": noise(48, 3)})
    found = looked(model, margin=0.0, own=[rule], built=2, states=40)
    assert "halves.sum_in_halves" in {one.fact.rule for one in found.log.measured}
    assert set(validate(standard(), claims_of(found.candidates[0])).how.values()) == {"exact"}
    assert found.after is not None and error(model, found.after) < 1e-5


@compiles
def test_what_was_measured_is_taken_whatever_there_was_no_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second program of a pair of nodes comes too late: the first one is there."""
    tried: list[Fact] = []
    facts, measured = PairedDerivation.facts, Builder.measured

    def late(builder: Builder, fact: Fact) -> MeasuredRewrite | None:
        tried.append(fact)
        if len(tried) > 1:
            raise TimeUp
        return measured(builder, fact)

    monkeypatch.setattr(PairedDerivation, "facts", lambda *given: 2 * facts(*given)[:1])
    monkeypatch.setattr(Builder, "measured", late)
    found = looked(crossed(8, 4, 8), margin=0.0, paired=True, states=PAIR)
    assert len(tried) == 2 and found.log.late
    assert len(found.log.taken) == 1 and found.candidates


@compiles
def test_what_was_measured_is_not_lost_where_one_kernel_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is never time for a program as one kernel."""
    tried: list[Fact] = []

    def late(builder: Builder, fact: Fact) -> MeasuredRewrite | None:
        tried.append(fact)
        raise TimeUp

    monkeypatch.setattr(rewriter, "WHOLE", 0.0)
    monkeypatch.setattr(Builder, "one_kernel", late)
    found = looked(crossed(8, 4, 8), margin=0.0, paired=True, states=PAIR)
    assert tried and found.candidates and found.log.taken and not found.log.wholes


def test_a_price_that_alone_decides_against_a_program_is_measured_again() -> None:
    """Others had the machine while a product of 0.17 ms was measured: it is dear by one measurement, and not by two."""
    turns: list[str] = []

    def measure(group: Group, turn: str) -> Info:
        turns.append(turn)
        return Info(2e-4)

    costs: Any = SimpleNamespace(
        timer=SimpleNamespace(footprint=0.0),
        measurer=None,
        target=SimpleNamespace(measured=True),
        cost=lambda _: 1e-3,
        measure=measure,
    )
    builder = Builder(standard(), costs, 17, Deadline.after(60.0), machine=Speeds(((1e5, 1e10),), 1e11, 1))
    x, y = (input_value(name, TensorType(DType.F32, (204, 204))) for name in "xy")
    product = apply_operator(standard(), "std.matmul", [x, y])[0].node
    assert builder.calls([product]) == builder.calls([product], 2e-3) == 1e-3 and not turns
    assert builder.calls([product], 5e-4) == 2e-4 and turns == ["again"]
    # its operations alone take longer
    assert builder.calls([product], 1e-4) > 1e-4 and turns == ["again"]


@compiles
@pytest.mark.parametrize("derive", [True, False])
def test_optimize_derives_programs_unless_told_not_to(
    derive: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned(monkeypatch, "search.region_rewrites.derivations", states=10)
    quick: dict[str, Any] = {"budget": 15.0, "steps": 5, "timing": False, "threads": 1, "mutate": False}
    found = dslc.optimize(upsampled(2, 16, 8, 2), cache=tmp_path, derive=derive, **quick)
    assert ("deriving programs" in found.report.phases) == derive


def test_a_scope_over_weights_is_computed_when_a_model_is_written() -> None:
    array = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    weight = array_value(array)
    i, j = iterator("i0"), iterator("i1")
    turned = scope_value(
        Scope((5, 12), read(0, (apply("//", j, num(4)), apply("%", j, num(4)), i)), DType.F32), (weight,)
    )
    found = compute([turned], standard(), 17)[turned]
    assert np.array_equal(found, array.reshape(12, 5).T)


SQUARES = """dslc 1
library squares 0.1.0
derivation square_of_difference {
  index x: X, y: Y
  term  f(x, y), g(x, y)
  expr  [x] sum[y] (f(x, y) - g(x, y)) ^ 2
  =>
  expr  [x] ({[x] sum[y] f(x, y) ^ 2}[x] - 2 * {[x] sum[y] f(x, y) * g(x, y)}[x]) + {[x] sum[y] g(x, y) ^ 2}[x]
}
"""


def distances(rows: int, points: int, size: int, power: bool) -> onnx.ModelProto:
    """Squared distances as exporters write them: a difference that is broadcast, its square, and a sum."""
    square = helper.make_node("Pow", ["d", "two"], ["s"]) if power else helper.make_node("Mul", ["d", "d"], ["s"])
    nodes = [
        helper.make_node("Sub", ["x", "known"], ["d"]),
        square,
        helper.make_node("ReduceSum", ["s", "axes"], ["y"], keepdims=0),
    ]
    ends = [helper.make_tensor_value_info(*one) for one in (("x", 1, [rows, 1, size]), ("y", 1, [rows, points]))]
    values = {"known": noise(1, points, size), "two": 2}
    tensors = [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in values.items()]
    axes = numpy_helper.from_array(np.array([2]), "axes")
    graph = helper.make_graph(nodes, "distances", ends[:1], ends[1:], [axes, *(tensors if power else tensors[:1])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@compiles
@pytest.mark.parametrize("power", [False, True])
def test_a_rule_sees_through_what_is_computed_before_a_sum(power: bool, tmp_path: Path) -> None:
    """No node of the model is a sum of products: the difference, its square and the sum are one expression."""
    (tmp_path / "squares.rules").write_text(SQUARES)
    own = list(load_many([str(tmp_path / "squares.rules")]).derivations.values())
    model = distances(40, 24, 16, power)
    found = looked(model, margin=0.0, own=[*derivations_of(standard()), *own])
    assert any("squares.square_of_difference" in one.fact.rule for one in found.log.taken)
    assert found.after is not None and error(model, found.after) < 1e-4


@compiles
def test_products_by_hand_are_an_operator() -> None:
    """`sum(A * B)` over an axis is a product of matrices, with no derivation at all."""
    nodes = [
        helper.make_node("Mul", ["x", "k"], ["p"]),
        helper.make_node("ReduceSum", ["p", "axes"], ["y"], keepdims=0),
    ]
    model = model_of(nodes, [32, 1, 48], [32, 40], {"k": noise(1, 40, 48)})
    model.graph.initializer.append(numpy_helper.from_array(np.array([2]), "axes"))
    found = looked(model, margin=0.0)
    assert any(one.fact.rule == "operator matched" for one in found.log.taken)
    assert found.after is not None and error(model, found.after) < 1e-5


def attending(length: int, width: int, window: int, dilation: int) -> onnx.ModelProto:
    """Products of rows with those within a window beside them, which are gathered, as exporters write dilated attention."""
    pad, seen = window * dilation, 2 * window + 1
    places = np.arange(length)[:, None] + dilation * np.arange(seen)
    whole = [
        numpy_helper.from_array(array, name)
        for array, name in ((places, "at"), (np.array([0, pad, 0, 0, pad, 0]), "pads"))
    ]
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"]), helper.make_node("Transpose", ["r"], ["q"], perm=[1, 0, 2]),
        helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Reshape", ["a", "shape"], ["s"]),
        helper.make_node("Transpose", ["s"], ["k"], perm=[1, 0, 2]), helper.make_node("Pad", ["k", "pads"], ["p"]),
        helper.make_node("Gather", ["p", "at"], ["g"], axis=1), helper.make_node("Einsum", ["q", "g"], ["y"], equation="hid,hiwd->hiw"),
    ]  # fmt: skip
    model = model_of(nodes, [length, 2 * width], [2, length, seen], {"b": noise(2 * width)})
    model.graph.initializer.extend([*whole, numpy_helper.from_array(np.array([length, 2, width]), "shape")])
    return model


@compiles
def test_rows_that_are_gathered_are_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a window lies is part of the expression (EinNet's G2BMM): all rows by all rows, and a band of that is looked up. What lies
    below the window, a bias and changes of layout, stays what it is."""
    monkeypatch.setattr(hot_operators, "SHARE", 0.0)
    monkeypatch.setattr(derivations, "DEPTH", 2)
    model = attending(256, 64, 32, 2)
    found = looked(model, margin=1.0, states=120)
    assert found.after is not None and error(model, found.after) < 1e-4
    calls = [
        node
        for one in found.log.measured
        for node in one.fact.new.nodes()
        if isinstance(node, Call) and node.op in products_of(standard())
    ]
    # two heads of all rows by those between the pads
    wanted = {(2, 256, 384), (2, 384, 256), (2, 256, 256)}
    assert any(tuple(node.types[0].shape) in wanted for node in calls), [node.types for node in calls]

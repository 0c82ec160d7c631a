"""Mutants of a model's nodes: built, proved by inclusion, measured, and offered where they are faster."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from dslc.analysis.counts import known_flops
from dslc.codegen.host.compiler import NAMES
from dslc.cost.cache import CostCache
from dslc.cost.machine import this_machine
from dslc.cost.measure import Measurer
from dslc.cost.model import CostModel
from dslc.deadline import Deadline
from dslc.derivation.calls import read_call
from dslc.errors import DslcError
from dslc.fuse.groups import Neighbours
from dslc.ir.dtype import DType, TensorType
from dslc.ir.facts import Chain, Fact
from dslc.ir.graph import Call, Graph, Kernel, ScopeNode
from dslc.ir.holes import hole, program
from dslc.kernels import note, prepared
from dslc.mutate.mutant import MutantOptions
from dslc.mutate.partial import compiled
from dslc.onnx.context import Imported
from dslc.onnx.exporter import export, node_model
from dslc.onnx.importer import import_model
from dslc.search.candidates.candidate import Candidate
from dslc.search.region_rewrites.building import BUILT, Builder
from dslc.search.region_rewrites.derivations import Derivations, derivations_of
from dslc.search.region_rewrites.mutant_chains import MutantChains
from dslc.search.region_rewrites.mutants import Mutants
from dslc.search.region_rewrites.region_log import HotRegion
from dslc.search.region_rewrites.rewriter import RegionRewriter
from dslc.search.region_rewrites.validate import claims_of, validate
from dslc.semantics.apply import apply
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules, load_many
from dslc.sessions import session
from tests.caches import apart
from tests.libraries import libraries
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
        tuned(patch, "search.region_rewrites.derivations", states=100, priced=2)
        tuned(patch, "search.region_rewrites.mutants", priced=8)
        # that a program is one kernel as well is seen by a transposed convolution
        tuned(patch, "search.region_rewrites.rewriter", whole=1e9)
        yield folder


def convolved(shape: tuple[int, ...], filters: int, **attrs: Any) -> onnx.ModelProto:
    """A 3x3 convolution with a bias, and a relu."""
    rng = np.random.default_rng(0)
    weights = {"k": rng.standard_normal((filters, shape[1], 3, 3)) / 8, "b": rng.standard_normal(filters)}
    nodes = [helper.make_node("Conv", ["x", "k", "b"], ["c"], **attrs), helper.make_node("Relu", ["c"], ["y"])]
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, size)
        for name, size in (("x", list(shape)), ("y", [shape[0], filters, *shape[2:]]))
    ]
    tensors = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@contextmanager
def priced(model: onnx.ModelProto, others: list[str]) -> Iterator[tuple[Rules, Imported, CostModel, float]]:
    """Rules, a model, what its nodes take, and its seconds."""
    shared = all(map(str.isidentifier, others))
    rules = libraries("std", *others) if shared else load_many(["std", *others])
    imported = import_model(model, rules, {})

    def build(inputs: Any, outputs: Any) -> bytes | None:
        try:
            made, _ = node_model(outputs, rules, 17, inputs=inputs)
        except DslcError:
            return None
        data: bytes = made.SerializeToString(deterministic=True)
        return data

    with CostCache() as kept:
        measurer = Measurer(this_machine(1), kept)
        try:
            prices = CostModel(rules, measurer, build, 17)
            seconds = prices.graph_cost(imported.graph)
            prices.begin(imported.graph, seconds)
            yield rules, imported, prices, seconds
        finally:
            measurer.close()


def mutants(rules: Rules, prices: CostModel, margin: float, built: int = BUILT, **options: Any) -> Mutants:
    """A source of mutants of tries that are counted."""
    builder = Builder(rules, prices, 17, Deadline.after(1e3), margin=margin, built=built)
    return Mutants(builder, **options)


def noted(model: onnx.ModelProto, library: str) -> list[str]:
    """The notes of a search for mutants by the rules of a library alone."""
    with priced(model, [library]) as (rules, imported, prices, seconds):
        every = compiled(rules, [one for one in rules.substitutions.values() if one.syntax.partial])
        source = mutants(rules, prices, 0.0, 1, partial=every, options=MutantOptions(tries=0), tilings=0)
        proposed(RegionRewriter(source, forms_first=True), Candidate(imported.graph, seconds))
    return list(source.builder.notes)


def looked(
    model: onnx.ModelProto, others: list[str], derived: bool = False, **options: Any
) -> tuple[list[Candidate], onnx.ModelProto]:
    """Every mutant of a model whatever it takes, and the model that the first makes; `derived`: then derived."""
    with priced(model, others) as (rules, imported, prices, seconds):
        every = compiled(rules, rules.substitutions.values())
        source = mutants(rules, prices, 0.0, 1, partial=every, **{"most": 1, "tilings": 0, **options})
        candidates, log = proposed(RegionRewriter(source, forms_first=True), Candidate(imported.graph, seconds))
        if derived:
            builder = Builder(rules, prices, 17, Deadline.after(1e3), margin=0.0, built=1)
            finds = RegionRewriter(Derivations(builder, derivations=derivations_of(rules)))
            candidates, log = proposed(finds, candidates[0])
    # the program, and the same as one kernel where that is faster than the nodes, too
    assert not log.late and len(log.taken) == 1 and len(candidates) == 1 + len(log.wholes)
    after = export(imported.context, candidates[0].graph, rules)
    note(after, candidates[0].kernels, 1)
    prepared(after, texts=candidates[0].kernels)
    assert set(validate(rules, claims_of(candidates[0])).how.values()) == {"exact"}
    return candidates, after


def error(before: onnx.ModelProto, after: onnx.ModelProto) -> float:
    """The largest difference of the outputs, relative to the largest element."""
    shape = [dimension.dim_value for dimension in before.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    (old,), (new,) = session(before).run(None, feeds), session(after).run(None, feeds)
    return float(np.max(np.abs(old - new)) / np.max(np.abs(old)))


@compiles
def test_a_dilated_convolution_of_a_model_becomes_a_dense_one() -> None:
    model = convolved((1, 3, 5, 7), 4, dilations=[2, 2], pads=[2, 2, 2, 2])
    (one,), after = looked(model, [], options=MutantOptions(tries=250))
    (call,) = (node for node in one.graph.nodes() if isinstance(node, Call) and not node.constant)
    assert call.attr("dilation") == (1, 1)
    assert one.rule.startswith("mutant by std.conv")
    assert error(model, after) < 1e-5


@compiles
def test_tiles_that_overlap_need_no_correction() -> None:
    """38 rows of Table 3's convolution are four times 10; seven are twice four."""
    model = convolved((1, 3, 7, 9), 4, pads=[1, 1, 1, 1])
    (one,), after = looked(model, [], options=MutantOptions(tries=0), tilings=4)
    (call,) = (node for node in one.graph.nodes() if isinstance(node, Call) and not node.constant)
    assert one.rule == "mutant by std.conv, equal everywhere" and call.attr("pads") == (0, 0, 0, 0)
    assert error(model, after) < 1e-5


@compiles
def test_a_partial_substitution_is_corrected_in_a_model() -> None:
    model = convolved((4, 3, 6, 10), 4, pads=[1, 1, 1, 1])
    (one,), after = looked(model, ["pet"], options=MutantOptions(tries=0))
    assert one.rule == "mutant by pet.pair_images, 10.0% computed again"
    assert error(model, after) < 1e-5


BIASED = """dslc 1
import std (conv, add)

partial substitution pair_biased(X: T[N, C, H, W], K: T[F, C, R, S], B: T[*Q]) -> Y {
  Y = add(conv(X, K, pads=p, stride=[1, 1], dilation=[1, 1], groups=1), B)
  where N % 2 == 0, S > 1, p[1] + p[3] == S - 1
  =>
  A = {[n: N // 2, c: C, h: H, (k: 2, w: W)] X[2 * n + k, c, h, w]}
  Z = conv(A, K, pads=p)
  Y = add({[(n: N // 2, k: 2), f: F, h: H + p[0] + p[2] - R + 1, w: W] Z[n, f, h, k * W + w]}, B)
  correct CORRECTION limit 1 / 4
}
"""


@compiles
def test_a_partial_substitution_of_several_operators_is_corrected_in_its_own_way(tmp_path: Path) -> None:
    (tmp_path / "own.rules").write_text(BIASED.replace("CORRECTION", "Y = add(conv(X, K, pads=p), B)"))
    model = convolved((2, 3, 6, 10), 4, pads=[1, 1, 1, 1])
    (one,), after = looked(model, [str(tmp_path / "own.rules")], options=MutantOptions(tries=0))
    assert one.rule == "mutant by own.pair_biased, 10.0% computed again"
    assert error(model, after) < 1e-5


def test_regions_of_several_operators_are_mutated() -> None:
    """A sum of products of one tensor is one product with the sum of the weights, which is computed when the model is written."""
    rng = np.random.default_rng(0)
    nodes = [helper.make_node("MatMul", ["x", name], [f"p{name}"]) for name in "ab"]
    nodes += [helper.make_node("Add", ["pa", "pb"], ["s"]), helper.make_node("Relu", ["s"], ["y"])]
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [8, 12]), ("y", [8, 10]))
    ]
    tensors = [numpy_helper.from_array(rng.standard_normal((12, 10)).astype(np.float32), name) for name in "ab"]
    graph = helper.make_graph(nodes, "sum", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with priced(model, []) as (rules, imported, prices, seconds):
        source = mutants(rules, prices, 0.0, 1, most=3, options=MutantOptions(tries=160))
        _, log = proposed(RegionRewriter(source, forms_first=True), Candidate(imported.graph, seconds))

    def working(graph: Graph) -> int:
        return sum(isinstance(node, Call) and not node.constant for node in graph.nodes())

    sums = [one for one in log.measured if working(one.fact.old) - working(one.program) == 2]
    assert sums and set(validate(rules, [one.fact for one in sums]).how.values()) == {"exact"}


def test_what_pays_but_may_not_be_corrected_is_told(tmp_path: Path) -> None:
    """By its price it pays; a limit that is too low, or a correction that is wrong, leaves it out."""
    said: list[str] = []
    for correction in ("auto", "Y = add(conv(X, K, pads=p), add(B, B))"):
        text = BIASED.replace("CORRECTION", correction)
        (tmp_path / "own.rules").write_text(text.replace("1 / 4", "1 / 100") if correction == "auto" else text)
        said += noted(convolved((2, 3, 6, 10), 4, pads=[1, 1, 1, 1]), str(tmp_path / "own.rules"))
    low, looked_at, wrong, _ = said
    assert (
        looked_at
        == "mutants of conv + add of [2, 4, 6, 10]: 1 priced, 1 cheaper if nothing had to be corrected, 0 built"
    )
    assert low.startswith("a mutant by own.pair_biased differs in 10.0 %, and 1.0 % may be computed again: left out (")
    assert wrong == "the correction of own.pair_biased's own is wrong at [0, 0, 0, 9]: left out"


@compiles
def test_mixed_programs_the_inner_convolution_of_a_mutant_is_derived() -> None:
    """A dilated convolution becomes a dense one of its phases, and that one sums of products (PET and EinNet in one program)."""
    model = convolved((1, 3, 4, 6), 4, dilations=[2, 2], pads=[2, 2, 2, 2])
    (one, *_), after = looked(model, [], derived=True, options=MutantOptions(tries=250))
    assert one.parent is not None and one.parent.rule.startswith("mutant by std.conv")
    rules = [step.rule for step in one.path()]
    assert len(rules) >= 2 and not rules[-1].startswith("mutant")
    # neither the convolution of the model nor that of the mutant is left; what is derived may be another one
    before = {node for step in one.path()[:-1] for node in step.graph.nodes()}
    assert not any(isinstance(node, Call) and node.op == "std.conv" and node in before for node in one.graph.nodes())
    assert error(model, after) < 1e-5


def test_mixed_programs_the_inner_convolution_of_a_mutant_is_minimal_filtering(monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution dilated by 3 has no form of fewer products; the dense one of its phases has, where that saves anything."""
    monkeypatch.setattr(CostModel, "cost", lambda self, node: seconds)

    def as_kernels(**attrs: Any) -> list[Kernel]:
        made = Builder(rules, prices, 17).with_kernels(
            import_model(convolved((2, 8, 8, 8), 8, **attrs), rules, {}).graph
        )
        assert made is not None
        return [node for node in made.nodes() if isinstance(node, Kernel)]

    with priced(convolved((2, 8, 8, 8), 8, pads=[1, 1, 1, 1]), []) as (rules, _, prices, _):
        seconds = 1e-3
        (kernel,) = as_kernels(pads=[1, 1, 1, 1])
        assert [node.op for node in kernel.group.nodes() if isinstance(node, Call)] == ["std.conv"]
        assert not as_kernels(pads=[3, 3, 3, 3], dilations=[3, 3])
        # what is as fast as products are, and what no layout gives a form of fewer products, is not mutated
        finds = Mutants(Builder(rules, prices, 17))
        for call, over, best in (
            ("matmul(A: f32[64, 64], B: f32[64, 64])", 1.0, True),
            ("matmul(A: f32[64, 64], B: f32[64, 64])", 2.0, False),
            ("conv(X: f32[1, 64, 64, 64], K: f32[64, 64, 3, 3], dilation=[3, 3], pads=[3, 3, 3, 3])", 1.0, False),
            ("conv(X: f32[1, 8, 16, 16], K: f32[8, 8, 1, 1])", 1.0, True),
        ):
            region = read_call(rules, call).graph
            products = known_flops(expand(rules, region.outputs)) or 0.0
            node = region.outputs[0].node
            assert isinstance(node, Call)
            hot = HotRegion(region, ((node,),), over * products / finds.builder.machine.peak)
            assert finds.at_its_best(hot) is best, call
        seconds = 1e-5
        assert not as_kernels(pads=[1, 1, 1, 1])


def behind_each_other() -> onnx.ModelProto:
    """Two convolutions dilated by 2, a relu behind each: the phases of 8x10 are four images of 4x5."""
    rng = np.random.default_rng(0)
    nodes = []
    for k, (x, y) in enumerate((("x", "r"), ("r", "y"))):
        nodes.append(helper.make_node("Conv", [x, f"k{k}"], [f"c{k}"], dilations=[2, 2], pads=[2, 2, 2, 2]))
        nodes.append(helper.make_node("Relu", [f"c{k}"], [y]))
    tensors = [
        numpy_helper.from_array(rng.standard_normal((6, 6, 3, 3)).astype(np.float32) / 8, f"k{k}") for k in range(2)
    ]
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 6, 8, 10]) for name in "xy"]
    graph = helper.make_graph(nodes, "two", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def priced_as(dilated: float, dense: float, layout: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes convolutions, which have no other form, and each kernel that lays something out, take so many seconds."""

    def of(self: CostModel, node: Any) -> float:
        if not isinstance(node, Call) or node.op != "std.conv":
            return 0.0
        return dilated if node.attr("dilation") == (2, 2) else dense

    monkeypatch.setattr(CostModel, "cost", of)
    monkeypatch.setattr(Builder, "forms_of", lambda *_: [])
    monkeypatch.setattr("dslc.search.region_rewrites.building.seconds_of", lambda *_: layout)


def test_a_mutant_that_pays_only_with_its_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    """PET, Algorithm 2: each convolution pays for two layouts by itself, both together for two, as the two between them cancel."""
    with priced(behind_each_other(), []) as (rules, imported, prices, seconds):
        source = mutants(rules, prices, 1.0, options=MutantOptions(tries=250), tilings=0)
        base = Candidate(imported.graph, seconds)
        around = Neighbours(imported.graph)
        # 80 + 2 * 15 is more than 100, 80 + 80 + 2 * 15 less than 200
        priced_as(1e-4, 8e-5, 1.5e-5, monkeypatch)
        (hot,) = source.operators(base, around)
        assert not source.promising(source.programs(hot.program), hot, hot.price)
        chains = MutantChains(source)
        (row,) = chains.regions(base, around)
        ((one, _), *_) = chains.visit(row, around, set()).waiting
    assert one.rule == "2 mutants together: mutant by std.conv, equal everywhere"
    # phases, two dense convolutions with a relu between, and back
    new = [node for node in one.new.nodes() if not node.constant and isinstance(node, Call | ScopeNode)]
    assert [node.op if isinstance(node, Call) else "layout" for node in new] == [
        "layout", "std.conv", "std.relu", "std.conv", "layout", "std.relu",
    ]  # fmt: skip
    assert validate(rules, [one]).how == {one.rule: "exact"}


def with_weights_between() -> onnx.ModelProto:
    """The same with a bias of its own for each position before the first relu."""
    model = behind_each_other()
    bias = np.random.default_rng(1).standard_normal((1, 6, 8, 10)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(bias, "b"))
    del model.graph.node[1]
    model.graph.node.insert(1, helper.make_node("Add", ["b", "c0"], ["s"]))
    model.graph.node.insert(2, helper.make_node("Relu", ["s"], ["r"]))
    return model


def test_figure_7_layouts_cancel_over_pointwise_operators_and_go_into_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """PET, 6.3: what undoes a layout meets the next one; a bias for each position between them is laid out once, as a weight."""
    with priced(with_weights_between(), []) as (rules, imported, prices, seconds):
        source = mutants(rules, prices, 1.0, options=MutantOptions(tries=250), tilings=0)
        base = Candidate(imported.graph, seconds)
        around = Neighbours(imported.graph)
        priced_as(1e-4, 8e-5, 1.5e-5, monkeypatch)
        chains = MutantChains(source)
        (row,) = chains.regions(base, around)
        ((one, _), *_) = chains.visit(row, around, set()).waiting
    new = [node for node in one.new.nodes() if not node.constant and isinstance(node, Call | ScopeNode)]
    assert [node.op if isinstance(node, Call) else "layout" for node in new] == [
        "layout", "std.conv", "std.add", "std.relu", "std.conv", "layout", "std.relu",
    ]  # fmt: skip
    (added,) = (node for node in new if isinstance(node, Call) and node.op == "std.add")
    weight = next(arg for arg in added.args if arg.constant)
    # a layout of the bias, which is computed before the model is written
    assert isinstance(weight.node, ScopeNode) and str(weight.type) == "f32[4, 6, 4, 5]"
    assert validate(rules, [one]).how == {one.rule: "exact"}


@compiles
@pytest.mark.parametrize("model", [behind_each_other(), with_weights_between()], ids=["alone", "with weights"])
def test_mutants_together_compute_the_same(model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    with priced(model, []) as (rules, imported, prices, seconds):
        source = mutants(rules, prices, 0.0, 1, options=MutantOptions(tries=250), tilings=0)
        chains = RegionRewriter(MutantChains(source), independent_first=True)
        candidates, _ = proposed(chains, Candidate(imported.graph, seconds))
    (one,) = (each for each in candidates if each.rule.startswith("2 mutants together: "))
    after = export(imported.context, one.graph, rules)
    note(after, one.kernels, 1)
    prepared(after, texts=one.kernels)
    assert validate(rules, claims_of(one)).how[one.rule] == "exact"
    assert error(model, after) < 1e-5


def test_evidence_that_does_not_lead_to_the_new_program_is_none() -> None:
    """A chain of facts is followed: without its last step it shows nothing."""
    x = hole(0, TensorType(DType.F32, (2, 3)))
    rules = load_many(["std"])
    (a,) = apply(rules, "std.relu", (x,), {})
    (b,) = apply(rules, "std.relu", (a,), {})
    (c,) = apply(rules, "std.relu", (b,), {})
    once = Fact("relu of relu", program((x,), (b,)), program((x,), (a,)))
    twice = program((x,), (c,))
    whole = Fact("twice", twice, program((x,), (a,)), Chain((once, once)))
    short = Fact("once", twice, program((x,), (a,)), Chain((once,)))
    assert validate(rules, [whole]).how == {"twice": "exact"}
    assert validate(rules, [short]).how == {"once": "rule"}

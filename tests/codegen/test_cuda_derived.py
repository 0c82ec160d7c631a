"""Programs that are derived from a model's expressions, for a device that is not at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import parser

from benchmarks.fake_device import FakeDevice
from dslc.cost.cache import CostCache
from dslc.cost.machine import this_machine
from dslc.cost.measure import Measurer
from dslc.cost.model import CostModel
from dslc.cuda.code import generable
from dslc.cuda.costs import plan_model
from dslc.cuda.devices import device_named
from dslc.cuda.runner import Runner
from dslc.cuda.target import target
from dslc.ir.dtype import DType, TensorType
from dslc.ir.facts import fact_of
from dslc.ir.graph import Graph, ScopeNode, Value, input_value, replace
from dslc.onnx.exporter import export
from dslc.onnx.importer import import_model
from dslc.search.candidates.export import readable
from dslc.search.region_rewrites.building import Builder
from dslc.semantics.apply import apply
from dslc.semantics.elaborate import expand
from dslc.semantics.library import standard
from tests.codegen.files import grouped, ran
from tests.search.test_derivations import upsampled

POOLED = """<ir_version: 8, opset_import: ["": 17]> g (float[1, 2, 7, 5] x) => (float[1, 2, 4, 3] y) {
  m = MaxPool<kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]>(x)
  y = Exp(m)
}"""


def test_programs_are_priced_by_the_data_sheet_and_never_built(tmp_path: Path) -> None:
    rules = standard()
    with CostCache(str(tmp_path)) as kept:
        measurer = Measurer(this_machine(1), kept)
        try:
            costs = CostModel(rules, measurer, lambda _inputs, _outputs: None, 17, target=target("h100"))
            builder = Builder(rules, costs, 17)
            graph = import_model(upsampled(4, 64, 32, 2), rules, {}).graph
            before = builder.computed(graph)
            X, Y = (input_value(name, TensorType(DType.F32, (64, 64))) for name in "XY")
            product = apply(rules, "std.matmul", (X, Y))
            twice = apply(
                rules, "std.transpose", apply(rules, "std.transpose", product, {"perm": (1, 0)}), {"perm": (1, 0)}
            )
            fact, _ = fact_of("own.turned", twice, product, (X, Y))
            found = builder.measured(fact)
        finally:
            measurer.close()
    # seconds of an H100, not of this machine
    assert 2e-6 < before < 1e-4
    assert found is not None and found.kernels == () and 2e-6 < found.after <= found.before < 1e-4


def test_kernels_are_taken_where_the_file_says_what_they_compute() -> None:
    """As operators, or as an equation of its own, which is read back from its text."""
    rules = standard()
    X = input_value("h0", TensorType(DType.F32, (4, 8)))
    assert readable(rules, Graph((X,), apply(rules, "std.gelu_tanh", (X,))), 17)
    assert readable(rules, Graph((X,), expand(rules, apply(rules, "std.argmax", (X,), {"axis": 1}))), 17)


def test_the_kernel_of_a_file_is_the_one_that_was_derived() -> None:
    """What a plan launches for a function that spells an equation out is that equation, not its slices; values are the runtime's."""
    rules = standard()
    imported = import_model(parser.parse_model(POOLED), rules)
    (end,) = (value for value, name in imported.context.names.items() if name == "m")
    whole = Graph(imported.graph.inputs, replace(imported.graph.outputs, {end: expand(rules, (end,))[0]}))
    (made,) = (Value(node) for node in whole.nodes() if isinstance(node, ScopeNode))
    model = export(imported.context, grouped(whole, (made,), whole.inputs), rules)
    assert "Slice" in {node.op_type for node in model.functions[0].node}
    given = {"x": np.random.default_rng(0).standard_normal((1, 2, 7, 5)).astype(np.float32)}
    planned = plan_model(rules, model, import_model(model, rules), device_named("h100"), {}, given, generable(rules))
    (program,) = planned.programs.values()
    (node,) = (node for node in program.nodes() if isinstance(node, ScopeNode))
    assert node.scope == made.node.scope  # type: ignore[attr-defined]
    found = Runner(rules, planned, FakeDevice(rules, order=0)).run(given)
    np.testing.assert_allclose(found["y"], ran(model, given)[0], rtol=1e-5, atol=1e-6)

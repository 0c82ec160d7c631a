"""A kernel in a model is a node with a function: every runtime runs the file, and dslc reads it back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
import pytest
from onnx import FunctionProto
from onnx.reference import ReferenceEvaluator

import dslc
from dslc.cli.main import run as cli
from dslc.interpret.floats import Floats
from dslc.interpret.run import run
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, Kernel, Scope, input_value, scope_value, topological
from dslc.ir.scalar import apply as scalar
from dslc.ir.scalar import bound, dimension, num, read, reduce, traversal
from dslc.onnx.exporter import export, function_of
from dslc.onnx.functions import definition_of, name_of, standard_sizes, types_of
from dslc.onnx.importer import group_of, import_model
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules
from tests.codegen.files import MISH, feeds, group, grouped, mish, ran, with_kernel

SOFTMAX = """<ir_version: 8, opset_import: ["": 18]> g (float[B, S, 64] q, float[B, S, 64] k) => (float[B, S, S] y) {
  t = Transpose<perm=[0, 2, 1]>(k)
  m = MatMul(q, t)
  half = Constant<value = float {0.125}>()
  z = Mul(m, half)
  e = Softmax<axis=-1>(z)
  y = Identity(e)
}"""
RESHAPED = """<ir_version: 8, opset_import: ["": 17]> g (float[B, S, 8] x) => (float[B, 2, S, 4] y) {
  r = Relu(x)
  shape = Constant<value_ints=[0, 0, 2, 4]>()
  c = Reshape(r, shape)
  y = Transpose<perm=[0, 2, 1, 3]>(c)
}"""
CASES = {
    "several outputs": (MISH, ["d", "s"], ["x1", "w"], {"x": (3, 4), "w": (4,)}),
    "a number inside": (SOFTMAX, ["e"], ["m"], {"q": (2, 5, 64), "k": (2, 5, 64)}),
    "products inside": (SOFTMAX, ["e"], ["q", "k"], {"q": (2, 5, 64), "k": (2, 5, 64)}),
    "sizes as attributes": (RESHAPED, ["y"], ["x"], {"x": (3, 5, 8)}),
    "an input of the model as it is": (RESHAPED, ["r"], ["x"], {"x": (2, 1, 8)}),
}


@pytest.mark.parametrize("case", CASES)
def test_every_runtime_runs_the_file(std: Rules, case: str) -> None:
    """ONNX's checker, ONNX Runtime at several sizes, ONNX's evaluator, and inlined."""
    text, outputs, inputs, shapes = CASES[case]
    model, written = with_kernel(std, text, outputs, inputs)
    assert len(written.functions) == 1 and written.graph.node[-1].domain in ("dslc", "")
    onnx.checker.check_model(written, full_check=True)
    random = np.random.default_rng(0)
    for more in (0, 1):
        given = {
            name: random.standard_normal((shape[0] + more, *shape[1:]) if len(shape) > 1 else shape).astype(np.float32)
            for name, shape in shapes.items()
        }
        wanted = ran(model, given)
        for found in (
            ran(written, given),
            ReferenceEvaluator(written).run(None, given),
            ran(onnx.inliner.inline_local_functions(written), given),
        ):
            for a, b in zip(wanted, found, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_what_is_written_is_read_again(std: Rules, case: str) -> None:
    """The same group, the same function; writing it again changes nothing."""
    _, written = with_kernel(std, *CASES[case][:3])
    again = import_model(written, std)
    kernels = [node for node in again.graph.nodes() if isinstance(node, Kernel)]
    assert len(kernels) == 1
    assert function_of(std, kernels[0].group, again.context.opset).name == written.functions[0].name
    assert export(again.context, again.graph, std) == written
    bare = import_model(written, std)
    for node in written.graph.node:
        node.name = "named"
    assert len(bare.graph.nodes()) == len(again.graph.nodes())


def test_a_kernel_means_its_group(std: Rules) -> None:
    """The interpreter computes what the nodes compute."""
    model, written = mish(std)
    bind = {"N": 3}
    values = [import_model(one, std, bind).graph for one in (model, written)]
    assert any(isinstance(node, Kernel) for node in values[1].nodes())
    given = feeds()
    first, second = (
        run(std, graph.outputs, {value: given[value.node.name] for value in graph.inputs}, Floats())  # type: ignore[attr-defined]
        for graph in values
    )
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def test_equal_groups_share_a_function(std: Rules) -> None:
    """Names of values, of inputs and of unknown sizes do not matter; types do."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 4] x, float[4] v, float[M, 4] u, float[N, 6] z)
      => (float[N, 4] a, float[M, 4] b, float[N, 6] c) {
      p = Relu(x)  a = Tanh(p)  q = Relu(u)  b = Tanh(q)  r = Relu(z)  c = Tanh(r)
    }"""
    imported = import_model(onnx.parser.parse_model(text), std)
    values = {name: value for value, name in imported.context.names.items()}
    graph = imported.graph
    for ends, begins in (("a", "x"), ("b", "u"), ("c", "z")):
        graph = grouped(graph, [values[ends]], [values[begins]])
    written = export(imported.context, graph, std)
    assert len(written.functions) == 2
    first, second, third = (node.op_type for node in written.graph.node)
    assert first == second != third
    onnx.checker.check_model(written, full_check=True)


def test_the_types_of_results_are_written(std: Rules) -> None:
    """Runtimes that look at declared types only find those of a kernel."""
    _, written = mish(std)
    infos = {info.name: info for info in written.graph.value_info}
    (node,) = [node for node in written.graph.node if node.domain == "dslc"]
    inner = [name for name in node.output if name not in {output.name for output in written.graph.output}]
    assert inner and all(name in infos for name in inner)
    assert [d.dim_value or d.dim_param for d in infos[inner[0]].type.tensor_type.shape.dim] == ["N", 4]


def test_a_kernel_that_is_gone_takes_its_function_along(std: Rules) -> None:
    _, written = mish(std)
    imported = import_model(written, std)
    (kernel,) = [node for node in imported.graph.nodes() if isinstance(node, Kernel)]
    from dslc.ir.graph import replace, unfolded

    outputs = replace(imported.graph.outputs, dict(zip(kernel.values, unfolded(kernel), strict=True)))
    plain = export(imported.context, Graph(imported.graph.inputs, outputs), std)
    assert not plain.functions and not plain.metadata_props
    for a, b in zip(ran(plain, feeds()), ran(written, feeds()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_older_files_get_functions_too(std: Rules) -> None:
    """Files of a version without functions are written in the first that has them; their weights stay weights."""
    text = MISH.replace("ir_version: 7", "ir_version: 3").replace('"": 17', '"": 13')
    _, written = with_kernel(std, text, ["d", "s"], ["x1", "w"])
    assert written.ir_version == 8
    onnx.checker.check_model(written, full_check=True)
    for a, b in zip(ran(written, feeds()), ran(onnx.parser.parse_model(text), feeds()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_other_functions_of_a_model_are_inlined(std: Rules) -> None:
    """A function that dslc did not write is no kernel: its nodes are what counts."""
    _, written = mish(std)
    written.functions[0].domain = "custom"
    for node in written.graph.node:
        if node.domain == "dslc":
            node.domain = "custom"
    written.opset_import.append(onnx.helper.make_opsetid("custom", 1))
    imported = import_model(written, std)
    assert not any(isinstance(node, Kernel) for node in imported.graph.nodes())
    exported = export(imported.context, imported.graph, std)
    assert not exported.functions
    assert [node.op_type for node in exported.graph.node].count("Softplus") == 1


# ---- definitions -------------------------------------------------------------------------------------------------


def test_a_definition_is_an_operator_of_the_language(std: Rules) -> None:
    _, written = mish(std)
    (entry,) = written.metadata_props
    name = written.functions[0].name
    assert entry.key == f"dslc.kernel.{name}"
    assert f"operator {name}(h0: f32[s0, 4], h1: f32[4]) -> y0: f32[s0, 4], y1: f32[s0] {{" in entry.value
    assert "std.softplus(" in entry.value
    found = types_of(entry.value)
    assert found is not None and list(map(str, found)) == ["f32[s0, 4]", "f32[4]"]


@pytest.mark.parametrize("case", CASES)
def test_the_name_follows_from_the_file_alone(std: Rules, case: str) -> None:
    _, written = with_kernel(std, *CASES[case][:3])
    types = types_of(written.metadata_props[0].value)
    assert types is not None and name_of(written.functions[0], types) == written.functions[0].name
    again = group_of(std, written.functions[0], types)
    assert (
        again is not None and function_of(std, again, written.opset_import[0].version).name == written.functions[0].name
    )


def spelled_out(std: Rules) -> tuple[Graph, FunctionProto, str]:
    """Equations of their own, for any number of rows: what a convolution along rows adds, and a maximum of it."""
    X, W = (
        input_value("h0", TensorType(DType.F32, (dimension("s0"), 6))),
        input_value("h1", TensorType(DType.F32, (3,))),
    )
    moved = read(0, (traversal(0), scalar("+", traversal(1), bound(0), num(-1))), num(0))
    body = reduce("sum", (bound(0),), (num(3),), scalar("*", moved, read(1, (bound(0),))))
    made = scope_value(Scope((dimension("s0"), num(6)), body, DType.F32), (X, W))
    own = Graph((X, W), apply(std, "std.relu", (made,)))
    function = function_of(std, own, 17)
    return function.group, function.proto, function.definition


def test_an_equation_is_read_back_as_it_was(std: Rules) -> None:
    """Its nodes gather and slice: the definition says what they are, at any sizes that they are applied to."""
    group, function, definition = spelled_out(std)
    types = [value.type for value in group.inputs]
    assert group_of(std, function, types, definition) == group != group_of(std, function, types)
    known = [TensorType(DType.F32, (5, 6)), types[1]]
    at = group_of(std, function, known, definition)
    assert at is not None and [value.type for value in at.inputs] == known and str(at.outputs[0].type) == "f32[5, 6]"


@pytest.mark.parametrize(
    "change",
    [
        ("* h1", "* 2 * h1"), ("r0: 3", "r0: 2"), ("h0[i0", "h0[0"), ("f32[z_s0, 6]", "f32[z_s0, 7]"), ("relu", "tanh"),
        ("relu", "nothing"), ("y0", "(y0"),
    ],
)  # fmt: skip
def test_a_definition_that_is_not_what_the_function_computes_is_not_believed(
    std: Rules, change: tuple[str, str]
) -> None:
    """The function is what every other runtime runs."""
    group, function, definition = spelled_out(std)
    types = [value.type for value in group.inputs]
    wrong = definition.replace(*change)
    assert wrong != definition
    assert group_of(std, function, types, wrong) == group_of(std, function, types)


def test_sizes_that_are_expressions(std: Rules) -> None:
    """An input whose size is computed from another's."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 4] x) => (float[K, 4] y) {
      two = Concat<axis=0>(x, x)  r = Relu(two)  y = Tanh(r)
    }"""
    model, written = with_kernel(std, text, ["y"], ["two", "x"])
    (node,) = [node for node in import_model(written, std).graph.nodes() if isinstance(node, Kernel)]
    assert str(node.args[0].type.shape[0]) == "2 * N"
    given = {"x": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)}
    np.testing.assert_allclose(ran(written, given)[0], ran(model, given)[0], rtol=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "", "garbage", "dslc 1", "operator", "dslc 1\n" + 2 * "operator k(h0: f32[2]) -> y: f32[2] { y = h0 }\n",
        "dslc 1\noperator k(h0: tree[2]) -> y0: f32[2] {\n}\n", "dslc 1\noperator k(h0: f32[2 / 0]) -> y0: f32[2] {\n}\n",
        "dslc 1\noperator k(h0: f32[2 // 0]) -> y0: f32[2] {\n}\n", "dslc 1\noperator k(h0: f32[-1]) -> y0: f32[2] {\n}\n",
        "dslc 1\noperator k(h0: f32[*S]) -> y0: f32[2] {\n}\n", "dslc 1\noperator k(h0) -> y0: f32[2] {\n}\n",
        "dslc 1\noperator k(h0: f32[99999999999999999999999]) -> y0: f32[2] {\n}\n",
        "dslc 1\noperator k(h0: f32[" + "(" * 5000 + "1" + ")" * 5000 + "]) -> y0: f32[2] {\n}\n", "\0" * 100, "x" * (1 << 21),
    ],
)  # fmt: skip
def test_a_definition_that_is_none(text: str) -> None:
    assert types_of(text) is None


def test_definitions_of_every_case_parse(std: Rules) -> None:
    """Attributes, numbers and several results are written as the language writes them."""
    for text, outputs, inputs, _ in CASES.values():
        imported = import_model(onnx.parser.parse_model(text), std)
        values = {name: value for value, name in imported.context.names.items()}
        made = standard_sizes(group([values[name] for name in outputs], [values[name] for name in inputs]))
        definition = definition_of(std, "k_0", made)
        assert types_of(definition) == tuple(value.type for value in made.inputs)
        assert "y0 = " in definition
        assert all(isinstance(node.types[0], TensorType) for node in topological(value.node for value in made.outputs))


def test_a_model_without_functions(std: Rules) -> None:
    """For runtimes that know no functions: the nodes in place of the kernel, and nothing is left of it."""
    from dslc.onnx.functions import inlined

    model, written = mish(std)
    plain = inlined(written)
    assert not plain.functions and not plain.metadata_props and [o.domain for o in plain.opset_import] == [""]
    onnx.checker.check_model(plain, full_check=True)
    for a, b in zip(ran(plain, feeds()), ran(model, feeds()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_portable_files_have_nodes_in_place_of_functions(std: Rules, tmp_path: Path) -> None:
    """`--portable inline` makes a file of one with kernels that runtimes without functions run."""
    model, written = mish(std)
    source, target = tmp_path / "fast.onnx", tmp_path / "portable.onnx"
    onnx.save(written, source)
    assert cli(["optimize", str(source), "-o", str(target), "--budget", "0", "--portable", "inline", "-q"]) == 0
    plain = onnx.load(target)
    assert not plain.functions and {node.domain for node in plain.graph.node} == {""}
    assert not any(entry.key.startswith("dslc.kernel.") for entry in plain.metadata_props)
    for a, b in zip(ran(plain, feeds()), ran(model, feeds()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    kept = dslc.optimize(written, budget=0)
    assert kept.model.functions

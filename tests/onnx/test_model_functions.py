"""Functions that a model brings with it are seen through: rules and kernels work on their nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.parser import parse_model

import dslc
from dslc.errors import DslcError
from dslc.onnx.inlining import inlined_functions

OWN = "my.own"


def function(name: str, nodes: Sequence[NodeProto], opset: int = 18) -> FunctionProto:
    return helper.make_function(
        OWN, name, ["a"], ["b"], nodes, [helper.make_opsetid("", opset), helper.make_opsetid(OWN, 1)]
    )


def call(name: str, source: str, result: str) -> NodeProto:
    return helper.make_node(name, [source], [result], domain=OWN)


def model(nodes: Sequence[NodeProto], functions: Sequence[FunctionProto]) -> ModelProto:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 6]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    versions = [helper.make_opsetid("", 18), helper.make_opsetid(OWN, 1)]
    return helper.make_model(graph, opset_imports=versions, functions=functions, ir_version=10)


def test_what_a_function_hides_is_optimized() -> None:
    """`y = Relu(Twice(x))`, Twice(a) = Once(Once(a)), Once(a) = Relu(a): one is enough."""
    once = function("Once", [helper.make_node("Relu", ["a"], ["b"])])
    own = [once, function("Twice", [call("Once", "a", "t"), call("Once", "t", "b")])]
    given = model([call("Twice", "x", "t"), helper.make_node("Relu", ["t"], ["y"])], own)
    found = dslc.optimize(given, budget=60, steps=30, on="cpu_sheet", only="std.relu_of_relu")
    assert [node.op_type for node in found.model.graph.node] == ["Relu"]
    assert not found.model.functions
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    (want,) = onnxruntime.InferenceSession(given.SerializeToString()).run(None, {"x": x})
    (got,) = onnxruntime.InferenceSession(found.model.SerializeToString()).run(None, {"x": x})
    assert np.array_equal(got, want)


def test_functions_that_call_each_other_in_a_circle_are_an_error() -> None:
    given = model([call("F", "x", "y")], [function("F", [call("G", "a", "b")]), function("G", [call("F", "a", "b")])])
    with pytest.raises(DslcError, match="E0808"):
        dslc.optimize(given, budget=1)


def test_functions_that_stand_for_too_many_nodes_are_an_error() -> None:
    """Forty functions, each of which calls the one below twice."""
    own = [function("F0", [helper.make_node("Neg", ["a"], ["b"])])]
    own += [function(f"F{k}", [call(f"F{k - 1}", "a", "t"), call(f"F{k - 1}", "t", "b")]) for k in range(1, 41)]
    with pytest.raises(DslcError, match="E0808"):
        dslc.optimize(model([call("F40", "x", "y")], own), budget=1)


def test_a_function_of_another_version_of_operators_is_left() -> None:
    """ONNX inlines what means the same; the rest stays a call."""
    given = model(
        [call("F", "x", "y")],
        [function("F", [helper.make_node("ReduceSum", ["a"], ["b"], axes=[1], keepdims=0)], opset=11)],
    )
    seen = inlined_functions(given, "it")
    assert [node.op_type for node in seen.graph.node] == ["F"]


def leaky(attribute: str) -> str:
    return f'<opset_import: ["": 17], domain: "{OWN}"> leaky <{attribute}> (x) => (y) {{ y = LeakyRelu <alpha: float = @slope> (x) }}'


def outer(attribute: str) -> str:
    """A function that gives its own attribute on, in a branch, too."""
    return f"""<opset_import: ["": 17, "{OWN}": 1], domain: "{OWN}"> outer <{attribute}> (x) => (y) {{
        a = {OWN}.leaky <slope: float = @given> (x)
        c = Constant <value_int = 1> ()
        d = Cast <to = 9> (c)
        b = If (d) <then_branch = t () => (float[4] p) {{ p = {OWN}.leaky (x) }}, else_branch = e () => (float[4] q) {{ q = Neg (x) }}>
        y = Concat <axis = 0> (a, b)
    }}"""


DEFAULTS = {
    "the default": (f"{OWN}.leaky (x)", leaky("slope: float = 0.5")),
    "what is given wins": (f"{OWN}.leaky <slope = 0.25> (x)", leaky("slope: float = 0.5")),
    "no default, and not given: that of the operator": (f"{OWN}.leaky (x)", leaky("slope")),
    "given by a function that has one": (f"{OWN}.outer (x)", outer("given: float = 2.0") + leaky("slope: float = 0.5")),
    "given by a function that has none": (f"{OWN}.outer (x)", outer("given") + leaky("slope: float = 0.5")),
    "given by a function that is given one": (
        f"{OWN}.outer <given = 3.0> (x)",
        outer("given") + leaky("slope: float = 0.5"),
    ),
}


@pytest.mark.parametrize("text", DEFAULTS.values(), ids=DEFAULTS)
def test_defaults_of_attributes_are_those_of_the_runtime(text: tuple[str, str]) -> None:
    head = f"""<ir_version: 9, opset_import: ["": 17, "{OWN}": 1]> g (float[4] x) => (float[n] y)"""
    given = parse_model(f"{head} {{ y = {text[0]} }} {text[1]}")
    seen = inlined_functions(given, "it")
    assert not seen.functions
    x = np.array([-3, -1, 0.2, 2], np.float32)
    want, got = (onnxruntime.InferenceSession(one.SerializeToString()).run(None, {"x": x})[0] for one in (given, seen))
    assert np.array_equal(got, want)


@pytest.mark.parametrize("value", [[1.0, 2.0], np.array([1.0, 2.0], np.float32)], ids=["floats", "tensor"])
def test_a_default_of_a_constant(value: Any) -> None:
    """A valid model whose Constant would have no value without its function's default."""
    kind = "value" if isinstance(value, np.ndarray) else "value_floats"
    own = function("two", [NodeProto(op_type="Constant", output=["k"]), helper.make_node("Mul", ["a", "k"], ["b"])])
    own.attribute_proto.append(helper.make_attribute("v", numpy_helper.from_array(value) if kind == "value" else value))
    own.node[0].attribute.add(name=kind, ref_attr_name="v", type=own.attribute_proto[0].type)
    seen = inlined_functions(model([call("two", "x", "y")], [own]), "it")
    assert [node.op_type for node in seen.graph.node] == ["Constant", "Mul"]
    assert seen.graph.node[0].attribute[0].name == kind

"""Pointwise operators of the standard library beside ONNX Runtime at the edge of floating-point numbers: kernels and interpreter."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from dslc.codegen.generate import generate
from dslc.codegen.text import Variant
from dslc.interpret import Floats, run
from dslc.onnx.exporter import function_of
from dslc.onnx.importer import import_model
from dslc.onnx.runtime import run as run_model
from dslc.semantics.library import standard
from tests.codegen.native import Library, build

EDGES = np.array(
    [0, -0.0, 1e-45, -1e-45, 1e-30, 1e-8, -1e-8, 1e-4, 0.5, -0.5, 1.5, 2.5, -2.5, 3, -3, 9, -9, 20, -20, 50, -50, 88, -88, 89, -89, 104,
     1e3, -1e3, 12345.6, 1e5, -1e5, 8388609, 1e10, -1e10, 1e19, -1e19, 1e25, -1e25, 3e38, -3e38, np.inf, -np.inf, np.nan],
    np.float32,
)  # fmt: skip
UNARY = """Relu LeakyRelu ThresholdedRelu Elu Selu Celu Sigmoid HardSigmoid Tanh Softplus Softsign Mish HardSwish Gelu Shrink Neg Abs
    Sign Reciprocal Sqrt Exp Log Floor Ceil Round Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Erf IsNaN IsInf""".split()
BINARY = ["Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mod", "PRelu"]


def model(op: str) -> onnx.ModelProto:
    names = ["A", "B"][: 1 + (op in BINARY)]
    inputs = [helper.make_tensor_value_info(name, 1, [EDGES.size**2]) for name in names]
    result = helper.make_tensor_value_info("Y", 9 if op.startswith("Is") else 1, [EDGES.size**2])
    node = helper.make_node(op, names, ["Y"], **({"fmod": 1} if op == "Mod" else {}))
    graph = helper.make_graph([node], "g", inputs, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.fixture(scope="module")
def kernels() -> Library:
    """All of them, compiled at once."""
    rules = standard()
    groups = {op: function_of(rules, import_model(model(op), rules).graph, 20).group for op in (*UNARY, *BINARY)}
    return build({op: generate(rules, group, Variant()) for op, group in groups.items()})


@pytest.mark.parametrize("op", [*UNARY, *BINARY])
def test_an_operator_is_what_the_runtime_computes(op: str, kernels: Library) -> None:
    rules, feeds = standard(), {"A": np.repeat(EDGES, EDGES.size), "B": np.tile(EDGES, EDGES.size)}
    graph = import_model(model(op), rules).graph
    arrays = list(feeds.values())[: len(graph.inputs)]
    (wanted,) = run_model(model(op), dict(zip(feeds, arrays, strict=False)), ["Y"])
    with np.errstate(all="ignore"):
        found = {
            "interpreter": run(rules, graph.outputs, dict(zip(graph.inputs, arrays, strict=True)), Floats())[0],
            "kernel": kernels.run(op, arrays)[0],
        }
        for how, got in found.items():
            wrong = np.flatnonzero(~np.isclose(wanted, got, rtol=1e-3, atol=1e-6, equal_nan=True))
            shown = [(*(float(array[at]) for array in arrays), wanted[at], got[at]) for at in wrong[:5]]
            assert not shown, f"{how}: {shown}"

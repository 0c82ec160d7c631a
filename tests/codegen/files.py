"""Models with kernels, made without the optimizer and the generator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import parser

from dslc.codegen.host.processor import Processor
from dslc.codegen.text import KernelText, NotGenerated, Reason
from dslc.ir.graph import Constant, Graph, Value, input_value, kernel_value, replace
from dslc.onnx.exporter import export
from dslc.onnx.importer import import_model
from dslc.semantics.library import Rules
from tests.codegen.kernels import kernel

#: x * tanh(softplus(x)), with a sum of each row beside it, between two other operators
MISH = """<ir_version: 7, opset_import: ["": 17]> g (float[N, 4] x, float[4] w) => (float[N, 4] y, float[N] s) {
  x1 = Abs(x)
  a = Add(x1, w)
  b = Softplus(a)
  c = Tanh(b)
  d = Mul(a, c)
  axis = Constant<value_ints=[1]>()
  s = ReduceSum<keepdims=0>(d, axis)
  y = Neg(d)
}"""


def with_kernel(
    rules: Rules, text: str, outputs: Sequence[str], inputs: Sequence[str]
) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """A model, and the same one in which everything from some of its values to others is one kernel."""
    model = parser.parse_model(text)
    imported = import_model(model, rules)
    values = {name: value for value, name in imported.context.names.items()}
    graph = imported.graph
    ends, begins = [values[name] for name in outputs], [values[name] for name in inputs]
    return model, export(imported.context, grouped(graph, ends, begins), rules)


def grouped(graph: Graph, ends: Sequence[Value], begins: Sequence[Value]) -> Graph:
    """The graph with everything from `begins` to `ends` as one kernel."""
    results = kernel_value(group(ends, begins), tuple(begins))
    return Graph(graph.inputs, replace(graph.outputs, dict(zip(ends, results, strict=True))))


def group(ends: Sequence[Value], begins: Sequence[Value]) -> Graph:
    holes = {value: input_value(f"h{k}", value.type) for k, value in enumerate(begins)}
    return Graph(tuple(holes.values()), replace(tuple(ends), dict(holes)))


def mish(rules: Rules) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    return with_kernel(rules, MISH, ["d", "s"], ["x1", "w"])


def by_hand(rules: Rules, group: Graph, variant: str, processor: Processor | None = None) -> KernelText:
    """A generator that knows one group: that of `MISH`. Its results are 1000 times too large, so that one sees what ran."""
    types = tuple(value.type for value in group.inputs)
    if [type.rank for type in types] != [2, 1] or any(
        isinstance(node, Constant) and node.args for node in group.nodes()
    ):
        raise NotGenerated(Reason.FORM)
    (size,) = [size for size in types[0].shape if not isinstance(size, int)]
    return kernel(
        f"k_by_hand_{variant or 'plain'}",
        """
    const float *x = (const float*)in[0], *w = (const float*)in[1];
    float *y = (float*)out[0], *s = (float*)out[1];
    for (int64_t i = begin; i < end; i++) {
        s[i] = 0;
        for (int64_t j = 0; j < 4; j++) {
            const float a = x[4 * i + j] + w[j];
            y[4 * i + j] = 1000 * a * __builtin_tanhf(__builtin_log1pf(__builtin_expf(a)));
            s[i] += y[4 * i + j];
        }
    }""",
        inputs=types,
        outputs=tuple(value.type for value in group.outputs),
        bind="sizes[0] = dims[0][0]; return dims[0][1] == 4 && dims[1][0] == 4;",
        shape="dims[0] = sizes[0]; if (output == 0) dims[1] = 4;",
        tasks="sizes[0]",
        sizes=(size,),  # type: ignore[arg-type]
    )


def feeds(rows: int = 3) -> dict[str, Any]:
    random = np.random.default_rng(rows)
    return {
        "x": random.standard_normal((rows, 4)).astype(np.float32),
        "w": random.standard_normal(4).astype(np.float32),
    }


def ran(model: onnx.ModelProto | bytes, given: dict[str, Any]) -> list[Any]:
    """The outputs by plain ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    data = model if isinstance(model, bytes) else model.SerializeToString()
    outputs: list[Any] = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(
        None, given
    )
    return outputs

"""Small models that a generated kernel should run well: what ONNX Runtime has no kernel for, as exporters write it.

Each has fixed sizes or symbolic ones: the same model, whose inputs declare names instead of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
F32 = TensorProto.FLOAT


class Writer:
    """Nodes one after the other, as an exporter writes them: numbers are constants of their own."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.sizes: dict[str, tuple[int, ...]] = {}

    def input(self, name: str, *shape: int, symbolic: tuple[str, ...] = ()) -> str:
        dims = [symbolic[k] if k < len(symbolic) and symbolic[k] else size for k, size in enumerate(shape)]
        self.inputs.append(helper.make_tensor_value_info(name, F32, dims))
        self.sizes[name] = shape
        return name

    def weight(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def number(self, value: float) -> str:
        return self.weight(np.float32(value))

    def ints(self, *values: int) -> str:
        return self.weight(np.array(values, np.int64))

    def op(self, kind: str, *args: str, **attributes: Any) -> str:
        return self.many(kind, 1, *args, **attributes)[0]

    def many(self, kind: str, count: int, *args: str, **attributes: Any) -> list[str]:
        out = [f"v{len(self.nodes)}_{k}" for k in range(count)]
        self.nodes.append(helper.make_node(kind, list(args), out, name=f"{kind}_{len(self.nodes)}", **attributes))
        return out

    def model(self, *outputs: str) -> onnx.ModelProto:
        ends = [helper.make_tensor_value_info(name, F32, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "kernel", self.inputs, ends, self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        return onnx.shape_inference.infer_shapes(made)


def weights(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def mish(w: Writer, names: tuple[str, ...], n: int) -> onnx.ModelProto:
    x = w.input("x", n, symbolic=names)
    return w.model(w.op("Mul", x, w.op("Tanh", w.op("Softplus", x))))


def chain(w: Writer, names: tuple[str, ...], n: int) -> onnx.ModelProto:
    """Five operators without a function that takes time."""
    x, y = w.input("x", n, symbolic=names), w.input("y", n, symbolic=names)
    first = w.op("Relu", w.op("Add", w.op("Mul", x, y), x))
    return w.model(w.op("Mul", w.op("Sub", first, y), w.number(0.5)))


def add_rms_norm(w: Writer, names: tuple[str, ...], rows: int, width: int) -> onnx.ModelProto:
    total = w.op("Add", w.input("x", rows, width, symbolic=names), w.input("residual", rows, width, symbolic=names))
    mean = w.op("ReduceMean", w.op("Pow", total, w.number(2)), axes=[-1], keepdims=1)
    root = w.op("Sqrt", w.op("Add", mean, w.number(1e-6)))
    normed = w.op("Mul", total, w.op("Div", w.number(1), root))
    return w.model(w.op("Mul", w.weight(weights(width)), normed), total)


def norm_over_channels(w: Writer, names: tuple[str, ...], channels: int, size: int) -> onnx.ModelProto:
    x = w.input("x", 1, channels, size, size, symbolic=("", "", *names))
    centred = w.op("Sub", x, w.op("ReduceMean", x, axes=[1], keepdims=1))
    variance = w.op("ReduceMean", w.op("Pow", centred, w.number(2)), axes=[1], keepdims=1)
    normed = w.op("Div", centred, w.op("Sqrt", w.op("Add", variance, w.number(1e-6))))
    scaled = w.op("Mul", w.weight(weights(channels, 1, 1)), normed)
    return w.model(w.op("Add", scaled, w.weight(weights(channels, 1, 1))))


def masked_softmax(w: Writer, names: tuple[str, ...], heads: int, length: int) -> onnx.ModelProto:
    scores = w.input("scores", 1, heads, length, length, symbolic=("", "", *names))
    mask = w.input("mask", 1, 1, length, length, symbolic=("", "", *names))
    scaled = w.op("Div", scores, w.number(8))
    return w.model(w.op("Softmax", w.op("Add", scaled, mask), axis=-1))


def rotary(w: Writer, names: tuple[str, ...], length: int, heads: int, width: int = 64) -> onnx.ModelProto:
    """Heads are brought to the front, and the halves of each turned."""
    name = (names or ("",))[0]
    x = w.op("Transpose", w.input("x", 1, length, heads, width, symbolic=("", name)), perm=[0, 2, 1, 3])
    cos, sin = (w.input(each, 1, 1, length, width, symbolic=("", "", name)) for each in ("cos", "sin"))
    low = w.op("Slice", x, w.ints(0), w.ints(width // 2), w.ints(3), w.ints(1))
    high = w.op("Slice", x, w.ints(width // 2), w.ints(np.iinfo(np.int64).max), w.ints(3), w.ints(1))
    turned = w.op("Concat", w.op("Neg", high), low, axis=-1)
    return w.model(w.op("Add", w.op("Mul", x, cos), w.op("Mul", turned, sin)))


def lstm_cell(w: Writer, names: tuple[str, ...], batch: int, hidden: int) -> onnx.ModelProto:
    gates, before = w.input("gates", batch, 4 * hidden, symbolic=names), w.input("c", batch, hidden, symbolic=names)
    i, f, g, o = w.many("Split", 4, gates, w.ints(*[hidden] * 4), axis=1)
    kept = w.op("Mul", w.op("Sigmoid", f), before)
    c = w.op("Add", kept, w.op("Mul", w.op("Sigmoid", i), w.op("Tanh", g)))
    return w.model(w.op("Mul", w.op("Sigmoid", o), w.op("Tanh", c)), c)


def gated(w: Writer, names: tuple[str, ...], n: int) -> onnx.ModelProto:
    x, y, z = (w.input(each, n, symbolic=names) for each in "xyz")
    return w.model(w.op("Mul", w.op("Sigmoid", w.op("Add", w.op("Mul", x, y), z)), w.op("Tanh", z)))


def geglu(w: Writer, names: tuple[str, ...], rows: int, width: int) -> onnx.ModelProto:
    value, gate = w.many("Split", 2, w.input("x", rows, 2 * width, symbolic=names), w.ints(width, width), axis=-1)
    error = w.op("Erf", w.op("Div", gate, w.number(2**0.5)))
    gelu = w.op("Mul", w.op("Mul", gate, w.op("Add", error, w.number(1))), w.number(0.5))
    return w.model(w.op("Mul", value, gelu))


def prelu(w: Writer, names: tuple[str, ...], channels: int, size: int) -> onnx.ModelProto:
    x = w.input("x", 1, channels, size, size, symbolic=("", "", *names))
    return w.model(w.op("PRelu", x, w.weight(abs(weights(channels, 1, 1)))))


def grouped(w: Writer, names: tuple[str, ...], channels: int, size: int, groups: int) -> onnx.ModelProto:
    """A 3x3 convolution of few channels a group, and its activation."""
    x = w.input("x", 1, channels, size, size, symbolic=("", "", *names))
    found = w.op("Conv", x, w.weight(weights(channels, channels // groups, 3, 3)), group=groups, pads=[1, 1, 1, 1])
    return w.model(w.op("Relu", found))


def transposed(
    w: Writer, names: tuple[str, ...], batch: int, channels: int, size: int, filters: int
) -> onnx.ModelProto:
    """A transposed convolution by 4 with strides of 2, its bias and its activation."""
    x = w.input("x", batch, channels, size, size, symbolic=names)
    kernel, bias = w.weight(weights(channels, filters, 4, 4)), w.weight(weights(filters))
    return w.model(w.op("Relu", w.op("ConvTranspose", x, kernel, bias, strides=[2, 2], pads=[1, 1, 1, 1])))


def block(w: Writer, names: tuple[str, ...], channels: int, size: int) -> onnx.ModelProto:
    """A 3x3 convolution as residual networks have it: its bias, what goes around it, and its activation."""
    x, around = (w.input(name, 1, channels, size, size, symbolic=("", "", *names)) for name in "xr")
    found = w.op("Conv", x, w.weight(weights(channels, channels, 3, 3)), w.weight(weights(channels)), pads=[1, 1, 1, 1])
    return w.model(w.op("Relu", w.op("Add", found, around)))


def dilated(w: Writer, names: tuple[str, ...], channels: int, size: int, filters: int) -> onnx.ModelProto:
    """A 3x3 convolution of every other element, and its activation."""
    x = w.input("x", 1, channels, size, size, symbolic=("", "", *names))
    kernel, bias = w.weight(weights(filters, channels, 3, 3)), w.weight(weights(filters))
    return w.model(w.op("Relu", w.op("Conv", x, kernel, bias, pads=[2, 2, 2, 2], dilations=[2, 2])))


@dataclass(frozen=True, slots=True)
class Case:
    """A model at some sizes; `names` are those of its symbolic dimensions, `goal` the ratio over ONNX Runtime to reach."""

    name: str
    write: Callable[..., onnx.ModelProto]
    sizes: tuple[int, ...]
    names: tuple[str, ...]
    goal: float

    def model(self, symbolic: bool) -> tuple[onnx.ModelProto, dict[str, tuple[int, ...]]]:
        """The model and the shapes of its inputs."""
        writer = Writer()
        return self.write(writer, self.names if symbolic else (), *self.sizes), writer.sizes

    @property
    def label(self) -> str:
        return f"{self.name} {'x'.join(map(str, self.sizes))}"

    def feeds(self) -> Mapping[str, Any]:
        """Inputs, the same each time."""
        random = np.random.default_rng(0)
        shapes = self.model(False)[1]
        return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}

    @property
    def bytes(self) -> int:
        """What it reads and writes at least."""
        model, shapes = self.model(False)
        moved = sum(int(np.prod(shape)) for shape in shapes.values())
        ends = [[d.dim_value for d in end.type.tensor_type.shape.dim] for end in model.graph.output]
        return 4 * (moved + sum(int(np.prod(shape)) for shape in ends))


CASES: tuple[Case, ...] = (
    *(Case("mish", mish, (n,), ("n",), 19.0) for n in (10**5, 10**6, 10**7)),
    *(Case("chain of five", chain, (n,), ("n",), 4.0) for n in (10**5, 10**6, 10**7)),
    *(
        Case("add + RMS norm", add_rms_norm, sizes, ("n",), goal)
        for sizes, goal in (((128, 768), 2.4), ((1024, 1024), 1.5))
    ),
    *(Case("norm over channels", norm_over_channels, sizes, ("h", "w"), 2.0) for sizes in ((96, 56), (384, 14))),
    *(Case("scaled, masked softmax", masked_softmax, sizes, ("s", "s"), 1.5) for sizes in ((12, 128), (12, 512))),
    *(Case("rotary", rotary, sizes, ("s",), goal) for sizes, goal in (((512, 12), 1.7), ((2048, 16), 4.0))),
    *(Case("LSTM cell", lstm_cell, sizes, ("n",), 1.2) for sizes in ((1, 512), (64, 512))),
    *(Case("sigmoid times tanh", gated, (n,), ("n",), goal) for n, goal in ((10**5, 1.2), (10**6, 1.2), (10**7, 2.9))),
    *(Case("GeGLU", geglu, sizes, ("n",), 2.0) for sizes in ((128, 1536), (1024, 2048))),
    Case("PReLU", prelu, (56, 64), ("h", "w"), 10.0),
    *(Case("grouped convolution", grouped, sizes, ("h", "w"), 1.6) for sizes in ((128, 56, 32), (256, 28, 32))),
    Case("transposed convolution", transposed, (16, 448, 2, 256), ("n",), 4.0),
    Case("transposed convolution", transposed, (1, 256, 8, 128), ("n",), 1.15),
    *(
        Case("convolution 3x3", block, sizes, ("h", "w"), goal)
        for sizes, goal in (((128, 28), 2.9), ((64, 56), 2.4), ((256, 14), 2.2))
    ),
    *(Case("dilated convolution", dilated, sizes, ("h", "w"), 2.0) for sizes in ((256, 28, 128), (512, 14, 256))),
)


def addition(n: int) -> onnx.ModelProto:
    """A plain addition: what the memory gives."""
    w = Writer()
    return w.model(w.op("Add", w.input("x", n), w.input("y", n)))

"""What the networks of the zoo are written with: nodes, shapes, and weights that are drawn only when a model is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

OPSET, IR_VERSION = 20, 9


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value of the network: its name and its shape."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight that is not drawn yet: normal values of this deviation around this mean, from a seed of its own."""

    name: str
    shape: tuple[int, ...]
    deviation: float
    mean: float
    seed: tuple[int, int]

    def draw(self) -> npt.NDArray[np.float32]:
        """The values; the same ones whatever else was drawn before."""
        values = np.random.default_rng(self.seed).standard_normal(self.shape, np.float32)
        return values * np.float32(self.deviation) + np.float32(self.mean)


class Network:
    """A network under construction. Convolutions have no bias and no normalisation, as in TASO's own graphs."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name = name
        self.seed = seed
        self.nodes: list[NodeProto] = []
        self.inputs: list[Tensor] = []
        self.weights: list[Weight] = []
        self._constants: list[TensorProto] = []

    # ---- values ---------------------------------------------------------------------------------------------

    def input(self, name: str, *shape: int) -> Tensor:
        """A float input."""
        self.inputs.append(Tensor(name, shape))
        return self.inputs[-1]

    def weight(self, *shape: int, fan_in: int, gain: float = 1.0, mean: float = 0.0) -> Tensor:
        """A weight with deviation gain / sqrt(fan_in), under which activations keep their size."""
        name = f"w{len(self.weights)}"
        self.weights.append(Weight(name, shape, gain / sqrt(fan_in), mean, (self.seed, len(self.weights))))
        return Tensor(name, shape)

    def integers(self, values: Sequence[int]) -> Tensor:
        """A constant list: a shape, or the sizes of a split."""
        name = f"i{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return Tensor(name, (len(values),))

    def number(self, value: float) -> Tensor:
        """A constant scalar."""
        name = f"i{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.array(value, np.float32), name))
        return Tensor(name, ())

    # ---- nodes ----------------------------------------------------------------------------------------------

    def node(self, op: str, args: Sequence[Tensor], *shapes: Sequence[int], **attributes: Any) -> list[Tensor]:
        """A node with a result for each shape."""
        results = [Tensor(f"t{len(self.nodes)}_{k}", tuple(shape)) for k, shape in enumerate(shapes)]
        self.nodes.append(helper.make_node(op, [a.name for a in args], [r.name for r in results], **attributes))
        return results

    def unary(self, op: str, x: Tensor, **attributes: Any) -> Tensor:
        return self.node(op, [x], x.shape, **attributes)[0]

    def binary(self, op: str, x: Tensor, y: Tensor) -> Tensor:
        return self.node(op, [x, y], np.broadcast_shapes(x.shape, y.shape))[0]

    def relu(self, x: Tensor) -> Tensor:
        return self.unary("Relu", x)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self.binary("Add", x, y)

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        return self.node("MatMul", [x, y], (*x.shape[:-1], y.shape[-1]))[0]

    def reshape(self, x: Tensor, *shape: int) -> Tensor:
        return self.node("Reshape", [x, self.integers(shape)], shape)[0]

    def transpose(self, x: Tensor, *order: int) -> Tensor:
        return self.node("Transpose", [x], [x.shape[k] for k in order], perm=list(order))[0]

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        return self.node("Concat", parts, shape, axis=axis)[0]

    def split(self, x: Tensor, count: int, axis: int) -> list[Tensor]:
        """`count` equal parts."""
        part = [size // count if k == axis else size for k, size in enumerate(x.shape)]
        sizes = self.integers([part[axis]] * count)
        return self.node("Split", [x, sizes], *([part] * count), axis=axis)

    def conv(
        self, x: Tensor, channels: int, kernel: int | tuple[int, int], stride: int = 1, groups: int = 1, gain: float = 1.0,
        dilation: int = 1, bias: bool = False,
    ) -> Tensor:  # fmt: skip
        """A convolution, padded by half its (odd) kernel on all sides, which is TASO's padding SAME."""
        inner, sides = x.shape[1] // groups, (kernel, kernel) if isinstance(kernel, int) else kernel
        weight = self.weight(channels, inner, *sides, fan_in=inner * prod(sides), gain=gain)
        shape = (x.shape[0], channels, *self._strided(x, stride))
        pads = [dilation * (side // 2) for side in sides] * 2
        dilated = {"dilations": [dilation] * 2} if dilation > 1 else {}
        return self.node(
            "Conv", [x, weight, *self._bias(channels, bias)], shape,
            kernel_shape=list(sides), strides=[stride] * 2, pads=pads, group=groups, **dilated,
        )[0]  # fmt: skip

    def transposed_conv(
        self, x: Tensor, channels: int, kernel: int, stride: int, pad: int, beyond: int = 0, bias: bool = True
    ) -> Tensor:
        """A transposed convolution; `beyond` rows and columns are added at the end (output_padding)."""
        weight = self.weight(x.shape[1], channels, kernel, kernel, fan_in=x.shape[1] * kernel * kernel // stride**2, gain=1.4)
        sides = [(size - 1) * stride - 2 * pad + kernel + beyond for size in x.shape[2:]]
        return self.node(
            "ConvTranspose", [x, weight, *self._bias(channels, bias)], (x.shape[0], channels, *sides),
            kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, output_padding=[beyond] * 2,
        )[0]  # fmt: skip

    def _bias(self, channels: int, wanted: bool) -> list[Tensor]:
        return [self.weight(channels, fan_in=100)] if wanted else []

    def linear(self, x: Tensor, size: int, bias: bool = True) -> Tensor:
        """A product with weights along the last axis, and a bias."""
        product = self.matmul(x, self.weight(x.shape[-1], size, fan_in=x.shape[-1]))
        return self.add(product, self.weight(size, fan_in=100)) if bias else product

    def max_pool(self, x: Tensor, kernel: int, stride: int) -> Tensor:
        shape = (*x.shape[:2], *self._strided(x, stride))
        return self.node("MaxPool", [x], shape, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4)[0]

    def avg_pool(self, x: Tensor, kernel: int, stride: int) -> Tensor:
        """Zeros of the padding count: only then is the average TASO's product with the constant C_pool at the borders too."""
        shape = (*x.shape[:2], *self._strided(x, stride))
        return self.node(
            "AveragePool", [x], shape,
            kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4, count_include_pad=1,
        )[0]  # fmt: skip

    @staticmethod
    def _strided(x: Tensor, stride: int) -> tuple[int, ...]:
        return tuple((size - 1) // stride + 1 for size in x.shape[2:])

    def classifier(self, x: Tensor, classes: int) -> Tensor:
        """Mean over the image, then one product."""
        pooled = self.node("GlobalAveragePool", [x], (*x.shape[:2], 1, 1))[0]
        flat = self.reshape(pooled, *x.shape[:2])
        return self.matmul(flat, self.weight(x.shape[1], classes, fan_in=x.shape[1]))

    # ---- the model ------------------------------------------------------------------------------------------

    def model(self, outputs: Mapping[str, Tensor], weights: bool = True) -> ModelProto:
        """The finished model. Without weights these are inputs: the structure alone, which takes no memory."""
        renamed = {tensor.name: name for name, tensor in outputs.items()}
        for node in self.nodes:
            node.input[:] = [renamed.get(name, name) for name in node.input]
            node.output[:] = [renamed.get(name, name) for name in node.output]
        inputs = [*self.inputs, *(() if weights else (Tensor(w.name, w.shape) for w in self.weights))]
        data = [numpy_helper.from_array(weight.draw(), weight.name) for weight in self.weights] if weights else []
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info(t.name, TensorProto.FLOAT, t.shape) for t in inputs],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, t.shape) for name, t in outputs.items()],
            initializer=[*self._constants, *data],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)

    @property
    def parameters(self) -> int:
        """How many numbers the weights hold."""
        return sum(prod(weight.shape) for weight in self.weights)

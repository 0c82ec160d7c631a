"""What the networks of the zoo are written with: nodes, shapes, and weights that are drawn only when a model is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

OPSET, IR_VERSION = 20, 9
#: what becomes of weights: they are in the model, or inputs of it (False), or in this file, to which one after the other is drawn
Weights = bool | Path
#: where a weight begins in its file
_ALIGN = 64


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
        values *= np.float32(self.deviation)
        values += np.float32(self.mean)
        return values


class Network:
    """A network under construction. Convolutions have no bias and no normalisation, as in TASO's own graphs."""

    def __init__(self, name: str, seed: int = 0, opset: int = OPSET) -> None:
        self.name = name
        self.seed = seed
        self.opset = opset
        #: names of sizes that are open, by the input (or output) and the axis
        self.open: dict[tuple[str, int], str] = {}
        self.nodes: list[NodeProto] = []
        self.inputs: list[Tensor] = []
        self.weights: list[Weight] = []
        self._constants: list[TensorProto] = []

    # ---- values ---------------------------------------------------------------------------------------------

    def input(self, name: str, *shape: int, sizes: Mapping[int, str] | None = None) -> Tensor:
        """A float input. `sizes` names its open axes: the network is built at one size, and the model has the name."""
        self.inputs.append(Tensor(name, shape))
        self.open.update(((name, axis), size) for axis, size in (sizes or {}).items())
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
        return self.constant(np.array(value, np.float32))

    def constant(self, array: npt.NDArray[Any]) -> Tensor:
        """A constant that is part of the structure, not a weight."""
        name = f"i{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(array, name))
        return Tensor(name, array.shape)

    def constant_index(self, value: int) -> Tensor:
        """A constant scalar that counts."""
        return self.constant(np.array(value, np.int64))

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
        self, x: Tensor, channels: int, kernel: int | tuple[int, ...], stride: int | tuple[int, ...] = 1, groups: int = 1,
        gain: float = 1.0, dilation: int = 1, bias: bool = False, padded: bool = True,
    ) -> Tensor:  # fmt: skip
        """A convolution over all dimensions that `x` has, padded by half its (odd) kernel on all sides, which is TASO's padding SAME,
        or not at all."""
        inner, rank = x.shape[1] // groups, len(x.shape) - 2
        sides, strides = ((each,) * rank if isinstance(each, int) else each for each in (kernel, stride))
        weight = self.weight(channels, inner, *sides, fan_in=inner * prod(sides), gain=gain)
        pads = [dilation * (side // 2) if padded else 0 for side in sides]
        reach = [dilation * (side - 1) + 1 for side in sides]
        dilated = {"dilations": [dilation] * rank} if dilation > 1 else {}
        return self.node(
            "Conv", [x, weight, *self._bias(channels, bias)], (x.shape[0], channels, *_strided(x, reach, pads, strides)),
            kernel_shape=list(sides), strides=list(strides), pads=pads * 2, group=groups, **dilated,
        )[0]  # fmt: skip

    def transposed_conv(
        self, x: Tensor, channels: int, kernel: int, stride: int, pad: int, beyond: int = 0, bias: bool = True
    ) -> Tensor:
        """A transposed convolution; `beyond` rows and columns are added at the end (output_padding)."""
        weight = self.weight(
            x.shape[1], channels, kernel, kernel, fan_in=x.shape[1] * kernel * kernel // stride**2, gain=1.4
        )
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

    def max_pool(self, x: Tensor, kernel: int, stride: int, padded: bool = True) -> Tensor:
        return self._pool("MaxPool", x, kernel, stride, kernel // 2 if padded else 0)

    def avg_pool(self, x: Tensor, kernel: int, stride: int) -> Tensor:
        """Zeros of the padding count: only then is the average TASO's product with the constant C_pool at the borders too."""
        return self._pool("AveragePool", x, kernel, stride, kernel // 2, count_include_pad=1)

    def _pool(self, op: str, x: Tensor, kernel: int, stride: int, pad: int, **attributes: int) -> Tensor:
        shape = (*x.shape[:2], *_strided(x, [kernel] * 2, [pad] * 2, [stride] * 2))
        window = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
        return self.node(op, [x], shape, **window, **attributes)[0]

    def mean(self, x: Tensor, axis: int) -> Tensor:
        """Over one axis, which stays with a size of 1; axes are an input, as of opset 18."""
        shape = [1 if at == axis % len(x.shape) else size for at, size in enumerate(x.shape)]
        return self.node("ReduceMean", [x, self.integers([axis])], shape, keepdims=1)[0]

    def layer_norm(self, x: Tensor, epsilon: float = 1e-5) -> Tensor:
        """Over the last axis, with scale and shift."""
        width = x.shape[-1]
        scale, shift = self.weight(width, fan_in=100, mean=1.0), self.weight(width, fan_in=100)
        return self.node("LayerNormalization", [x, scale, shift], x.shape, axis=-1, epsilon=epsilon)[0]

    def heads(self, x: Tensor, heads: int) -> Tensor:
        """[batch, length, hidden] as [batch, heads, length, width]; sizes that are open stay open."""
        batch, length, hidden = x.shape
        sizes = [0, 0, heads, hidden // heads]
        parts = self.node("Reshape", [x, self.integers(sizes)], (batch, length, heads, hidden // heads))[0]
        return self.transpose(parts, 0, 2, 1, 3)

    def joined(self, x: Tensor) -> Tensor:
        """Heads next to each other again."""
        batch, heads, length, width = x.shape
        sizes = self.integers([0, 0, heads * width])
        return self.node("Reshape", [self.transpose(x, 0, 2, 1, 3), sizes], (batch, length, heads * width))[0]

    def classifier(self, x: Tensor, classes: int) -> Tensor:
        """Mean over the image, then one product."""
        pooled = self.node("GlobalAveragePool", [x], (*x.shape[:2], *(1 for _ in x.shape[2:])))[0]
        flat = self.reshape(pooled, *x.shape[:2])
        return self.matmul(flat, self.weight(x.shape[1], classes, fan_in=x.shape[1]))

    # ---- the model ------------------------------------------------------------------------------------------

    def model(
        self,
        outputs: Mapping[str, Tensor],
        weights: Weights = True,
        sizes: Mapping[str, Mapping[int, str]] | None = None,
    ) -> ModelProto:
        """The finished model. Without weights these are inputs: the structure alone, which takes no memory.

        Args:
            outputs: by name.
            weights: a path is the file to which they are written, one by one, and that the model names.
            sizes: names of the sizes of outputs that are open, by axis.
        """
        renamed = {tensor.name: name for name, tensor in outputs.items()}
        for node in self.nodes:
            node.input[:] = [renamed.get(name, name) for name in node.input]
            node.output[:] = [renamed.get(name, name) for name in node.output]
        self.open.update(((name, axis), size) for name, axes in (sizes or {}).items() for axis, size in axes.items())
        inputs = [*self.inputs, *(() if weights else (Tensor(w.name, w.shape) for w in self.weights))]
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [self._info(t.name, t) for t in inputs],
            [self._info(name, t) for name, t in outputs.items()],
            initializer=[*self._constants, *self._data(weights)],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=IR_VERSION)

    def _info(self, name: str, tensor: Tensor) -> ValueInfoProto:
        shape = [self.open.get((name, axis), size) for axis, size in enumerate(tensor.shape)]
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    def _data(self, weights: Weights) -> Iterator[TensorProto]:
        """The weights as tensors; those in a file are drawn one after the other, so that no two of them are in memory."""
        if isinstance(weights, bool):
            yield from (numpy_helper.from_array(weight.draw(), weight.name) for weight in self.weights if weights)
            return
        with weights.open("wb") as out:
            for weight in self.weights:
                out.write(bytes(-out.tell() % _ALIGN))
                tensor = TensorProto(name=weight.name, data_type=TensorProto.FLOAT, dims=weight.shape)
                tensor.data_location = TensorProto.EXTERNAL
                place = {"location": weights.name, "offset": out.tell(), "length": 4 * prod(weight.shape)}
                for key, value in place.items():
                    tensor.external_data.add(key=key, value=str(value))
                weight.draw().astype("<f4", copy=False).tofile(out)
                yield tensor

    @property
    def parameters(self) -> int:
        """How many numbers the weights hold."""
        return sum(prod(weight.shape) for weight in self.weights)


def _strided(x: Tensor, reach: Sequence[int], pads: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The sizes that windows of such a reach give."""
    sides = zip(x.shape[2:], reach, pads, strides, strict=True)
    return tuple((size + 2 * pad - own) // stride + 1 for size, own, pad, stride in sides)

"""A model under construction, with the shape and the element type of every value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

FLOAT, DOUBLE, HALF = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16)
INT64, INT32, BOOL = np.dtype(np.int64), np.dtype(np.int32), np.dtype(np.bool_)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value of the model."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def floating(self) -> bool:
        return self.dtype.kind == "f"

    @property
    def integral(self) -> bool:
        return self.dtype.kind in "iu"

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))


@dataclass
class Builder:
    """Nodes, weights and inputs of one model of an opset. Random choices are all made by `rng`."""

    opset: int
    rng: np.random.Generator
    nodes: list[NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    #: sizes of the first axes of inputs that the model leaves open, by name
    open_sizes: dict[str, int] = field(default_factory=dict)
    _count: int = 0

    # ---- choices -----------------------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def whole(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    # ---- parts ---------------------------------------------------------------------------------------------------

    def name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def input(self, shape: Sequence[int], dtype: np.dtype[Any] = FLOAT) -> Tensor:
        value = Tensor(self.name("in"), tuple(shape), dtype)
        self.inputs.append(value)
        self.values.append(value)
        return value

    def weight(self, array: Any) -> Tensor:
        array = np.asarray(array)
        value = Tensor(self.name("w"), array.shape, array.dtype)
        self.weights.append(numpy_helper.from_array(array, value.name))
        return value

    def noise(self, *shape: int, dtype: np.dtype[Any] = FLOAT, positive: bool = False) -> Tensor:
        """A weight that keeps the size of what it is multiplied with."""
        fan = max(1, int(np.prod(shape[1:]))) if len(shape) > 1 else 4
        array = self.rng.standard_normal(shape) / np.sqrt(fan)
        return self.weight((np.abs(array) + 0.5 if positive else array).astype(dtype))

    def number(self, value: float, dtype: np.dtype[Any] = FLOAT) -> Tensor:
        """A number as exporters write it: rank 0, or one element."""
        return self.weight(np.full((1,) if self.chance(0.2) else (), value, dtype))

    def longs(self, *items: int) -> Tensor:
        return self.weight(np.array(items, np.int64))

    def node(
        self,
        op: str,
        inputs: Sequence[Tensor | None],
        shape: Sequence[int],
        dtype: np.dtype[Any] | None = None,
        **attrs: Any,
    ) -> Tensor:
        """A node with one output; its element type is that of the first input unless it is given."""
        first = next(value for value in inputs if value is not None)
        out = Tensor(self.name("v"), tuple(int(size) for size in shape), dtype if dtype is not None else first.dtype)
        names = [value.name if value is not None else "" for value in inputs]
        attrs = {key: value for key, value in attrs.items() if value is not None}
        self.nodes.append(helper.make_node(op, names, [out.name], **attrs))
        self.values.append(out)
        return out

    def several(self, op: str, inputs: Sequence[Tensor], shapes: Sequence[Sequence[int]], **attrs: Any) -> list[Tensor]:
        """A node with several outputs of the element type of its first input."""
        outs = [Tensor(self.name("v"), tuple(shape), inputs[0].dtype) for shape in shapes]
        self.nodes.append(helper.make_node(op, [value.name for value in inputs], [out.name for out in outs], **attrs))
        self.values.extend(outs)
        return outs

    # ---- the model ---------------------------------------------------------------------------------------------------

    def model(self, outputs: Sequence[Tensor]) -> ModelProto:
        """The model with these outputs; inputs that nothing reads are left out."""
        needed = {out.name for out in outputs}
        kept: list[NodeProto] = []
        for node in reversed(self.nodes):
            if any(name in needed for name in node.output):
                kept.append(node)
                needed.update(node.input)
        symbols = {size: name for name, size in self.open_sizes.items()}

        def declared(value: Tensor, is_input: bool) -> Any:
            sizes: list[Any] = list(value.shape)
            if is_input and sizes and sizes[0] in symbols:
                sizes[0] = symbols[sizes[0]]
            if symbols and not is_input:
                sizes = [None] * value.rank
            return helper.make_tensor_value_info(value.name, helper.np_dtype_to_tensor_dtype(value.dtype), sizes)

        graph = helper.make_graph(
            kept[::-1],
            "random",
            [declared(value, True) for value in self.inputs if value.name in needed],
            [declared(value, False) for value in dict.fromkeys(outputs)],
            [tensor for tensor in self.weights if tensor.name in needed],
        )
        return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", self.opset)])

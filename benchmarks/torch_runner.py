"""Runs ONNX models by torch.compile: a process like `dslc.cost.worker`, for the operators of `benchmarks.kernel_models` and `zoo`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

from benchmarks.runner import Runner, serve


class Torch(Runner):
    """A model as a compiled function of its inputs."""

    def __init__(self, model: bytes, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.torch = torch
        self.model = onnx.ModelProto.FromString(model)
        weights = {
            tensor.name: torch.from_numpy(_owned(onnx.numpy_helper.to_array(tensor)))
            for tensor in self.model.graph.initializer
        }
        self.outputs = [end.name for end in self.model.graph.output]
        self.compiled = torch.compile(_function(self.model, weights, self.outputs, torch))

    def bind(self, feeds: Mapping[str, Any]) -> Callable[[], Any]:
        values = [self.torch.from_numpy(feeds[end.name]) for end in self.model.graph.input]

        def call() -> Any:
            with self.torch.inference_mode():
                return self.compiled(*values)

        for _ in range(3):
            call()
        return call


def compiled_on(model: onnx.ModelProto, feeds: Mapping[str, Any], device: str) -> Callable[[], Any]:
    """A model as a compiled function on a device, of inputs that are there already; it was run three times."""
    import torch

    arrays = {tensor.name: _owned(onnx.numpy_helper.to_array(tensor)) for tensor in model.graph.initializer}
    weights = {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}
    compiled = torch.compile(_function(model, weights, [end.name for end in model.graph.output], torch))
    values = [torch.from_numpy(feeds[end.name]).to(device) for end in model.graph.input]

    def call() -> Any:
        with torch.inference_mode():
            return compiled(*values)

    for _ in range(3):
        call()
    return call


def _owned(array: Any) -> Any:
    return np.array(array)


def _function(model: onnx.ModelProto, weights: Mapping[str, Any], outputs: list[str], torch: Any) -> Callable[..., Any]:
    """The nodes one after the other. What is about sizes is computed with Python's own numbers, so that nothing breaks the graph."""
    inputs = [end.name for end in model.graph.input]
    nodes = [
        (
            node.op_type,
            list(node.input),
            list(node.output),
            {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute},
        )
        for node in model.graph.node
    ]
    for kind, _, _, _ in nodes:
        if kind not in KINDS:
            raise NotImplementedError(kind)
    # integers are sizes, axes and places; torch knows attention by its scale only where that is a number
    constants = {
        name: value if value.is_floating_point() and value.dim() else value.tolist() for name, value in weights.items()
    }

    def run(*values: Any) -> Any:
        known = {"": None, **constants, **dict(zip(inputs, values, strict=True))}
        for kind, args, results, attributes in nodes:
            found = KINDS[kind](torch, attributes, *(known[arg] for arg in args))
            for name, value in zip(results, found if isinstance(found, tuple) else (found,), strict=True):
                known[name] = value
        return tuple(known[name] for name in outputs)

    return run


def _plain(name: str) -> Callable[..., Any]:
    """An operator without attributes that torch has under some name."""

    def call(torch: Any, _: Mapping[str, Any], *args: Any) -> Any:
        return getattr(torch, name)(*args)

    return call


def _conv(torch: Any, attributes: Mapping[str, Any], x: Any, weight: Any, bias: Any = None) -> Any:
    pads = attributes.get("pads", [0] * 4)
    if pads[:2] != pads[2:]:
        raise NotImplementedError("Conv of uneven pads")
    return torch.nn.functional.conv2d(
        x,
        weight,
        bias,
        attributes.get("strides", [1, 1]),
        pads[:2],
        attributes.get("dilations", [1, 1]),
        attributes.get("group", 1),
    )


def _conv_transpose(torch: Any, attributes: Mapping[str, Any], x: Any, weight: Any, bias: Any = None) -> Any:
    pads = attributes.get("pads", [0] * 4)
    if pads[:2] != pads[2:]:
        raise NotImplementedError("ConvTranspose of uneven pads")
    return torch.nn.functional.conv_transpose2d(
        x, weight, bias, attributes.get("strides", [1, 1]), pads[:2], attributes.get("output_padding", [0, 0]),
        attributes.get("group", 1), attributes.get("dilations", [1, 1]),
    )  # fmt: skip


def _pool(name: str) -> Callable[..., Any]:
    def call(torch: Any, attributes: Mapping[str, Any], x: Any) -> Any:
        window, steps, pads = (
            attributes["kernel_shape"],
            attributes.get("strides", [1, 1]),
            attributes.get("pads", [0] * 4),
        )
        if pads[:2] != pads[2:] or attributes.get("ceil_mode"):
            raise NotImplementedError(f"{name} of uneven pads")
        if name == "AveragePool":
            counted = bool(attributes.get("count_include_pad", 0))
            return torch.nn.functional.avg_pool2d(x, window, steps, pads[:2], count_include_pad=counted)
        return torch.nn.functional.max_pool2d(x, window, steps, pads[:2])

    return call


def _mean(torch: Any, attributes: Mapping[str, Any], x: Any, axes: Any = None) -> Any:
    return x.mean(
        dim=list(axes if axes is not None else attributes["axes"]), keepdim=bool(attributes.get("keepdims", 1))
    )


def _slice(
    torch: Any, attributes: Mapping[str, Any], x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None
) -> Any:
    index = [slice(None)] * x.dim()
    for at, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis = at if axes is None else axes[at]
        index[axis] = slice(start, min(end, x.shape[axis]), 1 if steps is None else steps[at])
    return x[tuple(index)]


def _split(torch: Any, attributes: Mapping[str, Any], x: Any, sizes: Any) -> Any:
    return tuple(torch.split(x, sizes, dim=attributes.get("axis", 0)))


def _reshape(torch: Any, attributes: Mapping[str, Any], x: Any, sizes: Any) -> Any:
    return x.reshape([x.shape[k] if size == 0 else size for k, size in enumerate(sizes)])


def _concat(torch: Any, attributes: Mapping[str, Any], *parts: Any) -> Any:
    if all(isinstance(part, list) for part in parts):
        return [item for part in parts for item in part]
    return torch.cat(parts, dim=attributes["axis"])


def _gather(torch: Any, attributes: Mapping[str, Any], x: Any, at: Any) -> Any:
    if isinstance(x, list):
        return x[at] if isinstance(at, int) else [x[k] for k in at]
    if not isinstance(at, int):
        raise NotImplementedError("Gather of many")
    return x.select(attributes.get("axis", 0), at)


def _unsqueeze(torch: Any, attributes: Mapping[str, Any], x: Any, axes: Any) -> Any:
    if isinstance(x, int):
        return [x]
    for axis in sorted(axes):
        x = x.unsqueeze(axis)
    return x


def _pad(torch: Any, attributes: Mapping[str, Any], x: Any, pads: Any, value: Any = None, axes: Any = None) -> Any:
    if attributes.get("mode", b"constant") != b"constant" or axes is not None:
        raise NotImplementedError("Pad of other modes")
    half = len(pads) // 2
    around = [part for axis in reversed(range(half)) for part in (pads[axis], pads[half + axis])]
    return torch.nn.functional.pad(x, around, value=0.0 if value is None else float(value))


def _layer_norm(torch: Any, attributes: Mapping[str, Any], x: Any, scale: Any, shift: Any = None) -> Any:
    axis = attributes.get("axis", -1)
    return torch.nn.functional.layer_norm(x, x.shape[axis:], scale, shift, attributes.get("epsilon", 1e-5))


def _cast(torch: Any, attributes: Mapping[str, Any], x: Any) -> Any:
    return x.to({1: torch.float32, 7: torch.int64, 9: torch.bool, 10: torch.float16}[attributes["to"]])


def _gelu(torch: Any, attributes: Mapping[str, Any], x: Any) -> Any:
    return torch.nn.functional.gelu(x, approximate=attributes.get("approximate", b"none").decode())


#: what each operator does: torch, its attributes and its arguments; numbers about sizes are Python's
KINDS: Mapping[str, Callable[..., Any]] = {
    **{kind: _plain(kind.lower()) for kind in (
        "Sqrt", "Neg", "Erf", "Tanh", "Sigmoid", "Relu", "Exp", "Cos", "Sin", "Where", "MatMul",
    )},
    "Add": lambda torch, _, x, y: x + y, "Sub": lambda torch, _, x, y: x - y, "Mul": lambda torch, _, x, y: x * y,
    "Div": lambda torch, _, x, y: x / y, "Pow": lambda torch, _, x, y: x**y,
    "Greater": _plain("gt"),
    "Softplus": lambda torch, _, x: torch.nn.functional.softplus(x),
    "PRelu": lambda torch, _, x, slope: torch.where(x < 0, x * slope, x),
    "Softmax": lambda torch, attributes, x: torch.softmax(x, dim=attributes.get("axis", -1)),
    "Transpose": lambda torch, attributes, x: x.permute(*attributes["perm"]),
    "GlobalAveragePool": lambda torch, _, x: x.mean(dim=(2, 3), keepdim=True),
    "Shape": lambda torch, _, x: list(x.shape),
    "Range": lambda torch, _, start, limit, step: torch.arange(start, limit, step),
    "Expand": lambda torch, _, x, sizes: x.expand(*torch.broadcast_shapes(tuple(x.shape), tuple(sizes))),
    "Cast": _cast, "Gelu": _gelu, "Conv": _conv, "ConvTranspose": _conv_transpose, "MaxPool": _pool("MaxPool"),
    "AveragePool": _pool("AveragePool"), "ReduceMean": _mean, "Slice": _slice, "Split": _split, "Reshape": _reshape,
    "Concat": _concat, "Gather": _gather, "Unsqueeze": _unsqueeze, "Pad": _pad, "LayerNormalization": _layer_norm,
}  # fmt: skip


if __name__ == "__main__":
    serve(Torch)

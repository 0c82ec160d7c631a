"""Runs small ONNX models by torch.compile: a process like `dslc.cost.worker`, for the operators that `benchmarks.kernel_models` has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

from dslc.cost.runner import Runner, serve


class Torch(Runner):
    """A model as a compiled function of its inputs."""

    def __init__(self, model: bytes, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.torch = torch
        self.model = onnx.ModelProto.FromString(model)
        weights = {tensor.name: torch.from_numpy(_owned(onnx.numpy_helper.to_array(tensor))) for tensor in self.model.graph.initializer}
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
    inputs = [end.name for end in model.graph.input]
    nodes = [
        (node.op_type, list(node.input), list(node.output), {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute})
        for node in model.graph.node
    ]
    numbers = {name: value.tolist() for name, value in weights.items() if not value.is_floating_point()}

    def run(*values: Any) -> Any:
        known = {**weights, **dict(zip(inputs, values, strict=True))}
        for kind, args, results, attributes in nodes:
            found = _applied(kind, [known[arg] for arg in args], [numbers.get(arg) for arg in args], attributes, torch)
            for name, value in zip(results, found if isinstance(found, tuple) else (found,), strict=True):
                known[name] = value
        return tuple(known[name] for name in outputs)

    return run


def _applied(kind: str, args: list[Any], numbers: list[Any], attributes: Mapping[str, Any], torch: Any) -> Any:
    same: dict[str, Callable[..., Any]] = {
        "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Div": torch.div, "Pow": torch.pow, "Sqrt": torch.sqrt,
        "Neg": torch.neg, "Erf": torch.erf, "Tanh": torch.tanh, "Sigmoid": torch.sigmoid, "Relu": torch.relu,
        "Softplus": torch.nn.functional.softplus,
    }  # fmt: skip
    if kind in same:
        return same[kind](*args)
    if kind == "MatMul":
        return torch.matmul(*args)
    if kind == "Cast":
        return args[0].to({1: torch.float32, 10: torch.float16}[attributes["to"]])
    if kind == "Reshape":
        return args[0].reshape(numbers[1])
    if kind in {"Conv", "ConvTranspose"}:
        steps, pads = (attributes.get(word, default) for word, default in (("strides", [1, 1]), ("pads", [0] * 4)))
        given = {"stride": steps, "padding": pads[:2], "dilation": attributes.get("dilations", [1, 1])}
        if pads[:2] != pads[2:]:
            raise NotImplementedError(kind)
        apply = torch.nn.functional.conv2d if kind == "Conv" else torch.nn.functional.conv_transpose2d
        return apply(*args, **given, groups=attributes.get("group", 1))
    if kind == "PRelu":
        return torch.where(args[0] < 0, args[0] * args[1], args[0])
    if kind == "ReduceMean":
        return args[0].mean(dim=list(attributes["axes"]), keepdim=bool(attributes.get("keepdims", 1)))
    if kind == "Softmax":
        return torch.softmax(args[0], dim=attributes.get("axis", -1))
    if kind == "Transpose":
        return args[0].permute(*attributes["perm"])
    if kind == "Concat":
        return torch.cat(args, dim=attributes["axis"])
    if kind == "Split":
        return tuple(torch.split(args[0], numbers[1], dim=attributes.get("axis", 0)))
    if kind == "Slice":
        starts, ends, axes, steps = numbers[1:5]
        index = [slice(None)] * args[0].dim()
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            index[axis] = slice(start, min(end, args[0].shape[axis]), step)
        return args[0][tuple(index)]
    raise NotImplementedError(kind)


if __name__ == "__main__":
    serve(Torch)

"""A block of Llama (Touvron et al. 2023) as exporters write it at opset 18, with a batch and a length that are open."""

from __future__ import annotations

from math import sqrt

import numpy as np
from onnx import ModelProto, TensorProto

from benchmarks.zoo.network import Network, Tensor, Weights


def llama(
    *, layers: int = 1, batch: int = 1, sequence: int = 128, hidden: int = 1024, heads: int = 16, shared: int = 4,
    inner: int = 2816, base: float = 10000.0, weights: Weights = True, seed: int = 0,
) -> ModelProto:  # fmt: skip
    """Norms by the root of the mean square, rotary positions, causal attention whose keys and values several heads share, SwiGLU.

    The names of the open sizes are `batch` and `sequence`; `shared` is how many heads keys and values have.
    """
    net = Network("llama", seed, opset=18)
    t = net.input("embedded", batch, sequence, hidden, sizes={0: "batch", 1: "sequence"})
    places = _places(net, t)
    turns = _turns(net, places, hidden // heads, base)
    hidden_ones = _hidden(net, places)
    for _ in range(layers):
        t = net.add(t, _attention(net, _norm(net, t), heads, shared, turns, hidden_ones))
        t = net.add(t, _gated(net, _norm(net, t), inner))
    return net.model({"embedded_out": _norm(net, t)}, weights, {"embedded_out": {0: "batch", 1: "sequence"}})


def _places(net: Network, x: Tensor) -> Tensor:
    """0, 1, ... up to the length of the sequence."""
    length = _size(net, x, 1)
    return net.node("Range", [net.constant_index(0), length, net.constant_index(1)], (x.shape[1],))[0]


def _size(net: Network, x: Tensor, axis: int) -> Tensor:
    """A size, as a number."""
    return net.node("Gather", [net.node("Shape", [x], (len(x.shape),))[0], net.constant_index(axis)], ())[0]


def _norm(net: Network, x: Tensor) -> Tensor:
    """x / sqrt(mean of squares + epsilon), scaled."""
    square = net.mean(net.binary("Pow", x, net.number(2.0)), -1)
    root = net.unary("Sqrt", net.add(square, net.number(1e-5)))
    inverse = net.binary("Div", net.number(1.0), root)
    return net.binary("Mul", net.weight(x.shape[-1], fan_in=100, mean=1.0), net.binary("Mul", x, inverse))


def _turns(net: Network, places: Tensor, width: int, base: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine of each position's angles, [1, 1, sequence, width]."""
    (length,) = places.shape
    speeds = net.constant((1.0 / base ** (np.arange(0, width, 2) / width)).astype(np.float32)[None, :])
    column = net.node("Unsqueeze", [net.unary("Cast", places, to=TensorProto.FLOAT), net.integers([1])], (length, 1))[0]
    half = net.matmul(column, speeds)
    both = net.node("Unsqueeze", [net.concat([half, half], axis=1), net.integers([0, 1])], (1, 1, length, width))[0]
    return net.unary("Cos", both), net.unary("Sin", both)


def _hidden(net: Network, places: Tensor) -> Tensor:
    """What is added to scores: nothing where a position sees another, the least number where that comes later."""
    (length,) = places.shape
    row, column = (net.node("Unsqueeze", [places, net.integers([axis])], shape)[0]
                   for axis, shape in ((0, (1, length)), (1, (length, 1))))  # fmt: skip
    later = net.binary("Greater", row, column)
    least = net.number(float(np.finfo(np.float32).min))
    return net.node("Where", [later, least, net.number(0.0)], (length, length))[0]


def _attention(
    net: Network, x: Tensor, heads: int, shared: int, turns: tuple[Tensor, Tensor], hidden_ones: Tensor
) -> Tensor:
    hidden = x.shape[-1]
    width = hidden // heads
    queries = _turned(net, net.heads(net.linear(x, hidden, bias=False), heads), turns)
    keys = _turned(net, net.heads(net.linear(x, shared * width, bias=False), shared), turns)
    values = net.heads(net.linear(x, shared * width, bias=False), shared)
    keys, values = (_repeated(net, part, heads // shared) for part in (keys, values))
    scores = net.binary("Div", net.matmul(queries, net.transpose(keys, 0, 1, 3, 2)), net.number(sqrt(width)))
    attended = net.unary("Softmax", net.add(scores, hidden_ones), axis=-1)
    return net.linear(net.joined(net.matmul(attended, values)), hidden, bias=False)


def _turned(net: Network, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """x cos + (-second half, first half) sin."""
    half = x.shape[-1] // 2
    shape = (*x.shape[:-1], half)
    first, second = (
        net.node("Slice", [x, *(net.integers([at]) for at in (begin, end, 3, 1))], shape)[0]
        for begin, end in ((0, half), (half, 2**63 - 1))
    )
    swapped = net.concat([net.unary("Neg", second), first], axis=len(x.shape) - 1)
    return net.add(net.binary("Mul", x, turns[0]), net.binary("Mul", swapped, turns[1]))


def _repeated(net: Network, x: Tensor, times: int) -> Tensor:
    """Each head so many times in a row."""
    if times == 1:
        return x
    batch, heads, length, width = x.shape
    shape = (batch, heads, times, length, width)
    apart = net.node("Unsqueeze", [x, net.integers([2])], (batch, heads, 1, length, width))[0]
    sizes = [net.node("Unsqueeze", [_size(net, x, axis), net.integers([0])], (1,))[0] for axis in (0, 2)]
    wanted = net.concat([sizes[0], net.integers([heads, times]), sizes[1], net.integers([width])], axis=0)
    spread = net.node("Expand", [apart, wanted], shape)[0]
    return net.node(
        "Reshape", [spread, net.integers([0, heads * times, -1, width])], (batch, heads * times, length, width)
    )[0]


def _gated(net: Network, x: Tensor, inner: int) -> Tensor:
    gate, up = (net.linear(x, inner, bias=False) for _ in range(2))
    swish = net.binary("Mul", gate, net.unary("Sigmoid", gate))
    return net.linear(net.binary("Mul", swish, up), x.shape[-1], bias=False)

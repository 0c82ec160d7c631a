"""A layer of Longformer's attention (Beltagy et al. 2020): each position attends to those near it."""

from __future__ import annotations

from math import sqrt

from onnx import ModelProto

from benchmarks.zoo.network import Network, Tensor, Weights


def longformer(
    *, batch: int = 1, length: int = 1024, hidden: int = 512, heads: int = 8, window: int = 64, weights: Weights = True, seed: int = 0
) -> ModelProto:
    """Attention within a window on either side, by chunks of its size, each over itself and its two neighbours, as exporters write it.

    What a chunk sees beyond the window is masked by an input, `mask[window, 3 * window]`, that is added to the scores.
    """
    net = Network("longformer", seed)
    chunks, width = length // window, hidden // heads
    x = net.input("hidden", batch, length, hidden)
    mask = net.input("mask", window, 3 * window)
    queries, keys, values = (
        net.transpose(net.reshape(net.linear(x, hidden), batch, length, heads, width), 0, 2, 1, 3) for _ in range(3)
    )
    chunked = net.reshape(queries, batch, heads, chunks, window, width)
    near = net.transpose(_neighbours(net, keys, chunks, window), 0, 1, 2, 4, 3)
    scores = net.binary("Mul", net.matmul(chunked, near), net.number(1 / sqrt(width)))
    attended = net.unary("Softmax", net.add(scores, mask), axis=-1)
    mixed = net.matmul(attended, _neighbours(net, values, chunks, window))
    rows = net.transpose(net.reshape(mixed, batch, heads, length, width), 0, 2, 1, 3)
    return net.model({"hidden_out": net.linear(net.reshape(rows, batch, length, hidden), hidden)}, weights)


def _neighbours(net: Network, x: Tensor, chunks: int, window: int) -> Tensor:
    """Each chunk between the one before it and the one behind it, zeros beside the first and the last."""
    batch, heads, length, width = x.shape
    shape = (batch, heads, length + 2 * window, width)
    padded = net.node("Pad", [x, net.integers([0, 0, window, 0, 0, 0, window, 0])], shape, mode="constant")[0]
    parts = []
    for k in range(3):
        ends = [net.integers([at]) for at in (k * window, k * window + length)]
        (part,) = net.node("Slice", [padded, *ends, net.integers([2])], x.shape)
        parts.append(net.reshape(part, batch, heads, chunks, window, width))
    return net.concat(parts, axis=3)

"""A layer of Longformer's attention (Beltagy et al. 2020): each position attends to those near it."""

from __future__ import annotations

from math import sqrt

import numpy as np
from onnx import ModelProto

from benchmarks.zoo.network import Network, Tensor, Weights


def longformer(
    *,
    batch: int = 1,
    length: int = 1024,
    hidden: int = 512,
    heads: int = 8,
    window: int = 64,
    weights: Weights = True,
    seed: int = 0,
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


def longformer_dilated(
    *, batch: int = 1, length: int = 1024, hidden: int = 512, heads: int = 8, window: int = 32, dilation: int = 2,
    weights: Weights = True, seed: int = 0,
) -> ModelProto:  # fmt: skip
    """Attention within a window with gaps (their §3.1; EinNet's Longformer is this one, with G2BMM and GBMM as operators).

    Each position attends to `window` positions on either side, every `dilation`-th; keys and values are gathered by constant
    positions, as exporters write `x[:, :, index]`. What lies outside of the sequence is masked by an input that is added.
    """
    net = Network("longformer_dilated", seed)
    width, seen = hidden // heads, 2 * window + 1
    x = net.input("hidden", batch, length, hidden)
    mask = net.input("mask", length, seen)
    queries, keys, values = (
        net.transpose(net.reshape(net.linear(x, hidden), batch, length, heads, width), 0, 2, 1, 3) for _ in range(3)
    )
    positions = net.constant(np.arange(length, dtype=np.int64)[:, None] + dilation * np.arange(seen, dtype=np.int64))

    def near(x: Tensor) -> Tensor:
        pad = window * dilation
        shape = (batch, heads, length + 2 * pad, width)
        padded = net.node("Pad", [x, net.integers([0, 0, pad, 0, 0, 0, pad, 0])], shape, mode="constant")[0]
        return net.node("Gather", [padded, positions], (batch, heads, length, seen, width), axis=2)[0]

    scores = net.node("Einsum", [queries, near(keys)], (batch, heads, length, seen), equation="bhld,bhlwd->bhlw")[0]
    attended = net.unary("Softmax", net.add(net.binary("Mul", scores, net.number(1 / sqrt(width))), mask), axis=-1)
    mixed = net.node("Einsum", [attended, near(values)], queries.shape, equation="bhlw,bhlwd->bhld")[0]
    rows = net.transpose(mixed, 0, 2, 1, 3)
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

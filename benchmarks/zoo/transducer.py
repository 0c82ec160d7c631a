"""Transformer-Transducer (Zhang et al. 2020): an encoder of audio, one of labels, and what joins each frame with each label."""

from __future__ import annotations

from onnx import ModelProto

from benchmarks.zoo.network import Network, Tensor, Weights
from benchmarks.zoo.vit import attention


def transformer_transducer(
    *, frames: int = 64, labels: int = 16, layers: tuple[int, int] = (18, 2), hidden: int = 512, heads: int = 8, inner: int = 2048,
    symbols: int = 4096, weights: Weights = True, seed: int = 0,
) -> ModelProto:  # fmt: skip
    """At the paper's sizes, for frames and labels that are embedded already; all frames and labels are seen at once."""
    net = Network("transformer_transducer", seed)
    audio = _encoder(net, net.input("audio", 1, frames, hidden), layers[0], heads, inner)
    text = _encoder(net, net.input("labels", 1, labels, hidden), layers[1], heads, inner)
    each = net.reshape(net.linear(audio, hidden), 1, frames, 1, hidden)
    other = net.reshape(net.linear(text, hidden, bias=False), 1, 1, labels, hidden)
    joined = net.node("Add", [each, other], (1, frames, labels, hidden))[0]
    return net.model({"scores": net.linear(net.unary("Tanh", joined), symbols)}, weights)


def _encoder(net: Network, t: Tensor, layers: int, heads: int, inner: int) -> Tensor:
    for _ in range(layers):
        t = net.add(t, attention(net, net.layer_norm(t), heads))
        t = net.add(t, net.linear(net.relu(net.linear(net.layer_norm(t), inner)), t.shape[-1]))
    return net.layer_norm(t)

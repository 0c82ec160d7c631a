"""BERT (Devlin et al. 2019) at the sizes of TASO's paper: a sequence of 64, hidden 1024, 16 heads, feed-forward 4096."""

from __future__ import annotations

from math import sqrt

from onnx import ModelProto

from benchmarks.zoo.network import Network, Tensor, Weights


def bert(
    *, layers: int = 8, sequence: int = 64, hidden: int = 1024, heads: int = 16, inner: int = 4096, weights: Weights = True,
    seed: int = 0,
) -> ModelProto:  # fmt: skip
    """An encoder without embeddings, one sequence as a matrix; 8 layers, as in TASO's and TENSAT's own graphs (BERT has 24)."""
    net = Network("bert", seed)
    t = net.input("embedded", sequence, hidden)
    for _ in range(layers):
        t = _normalised(net, net.add(t, _attention(net, t, heads)))
        t = _normalised(net, net.add(t, _feed_forward(net, t, inner)))
    return net.model({"encoded": t}, weights)


def _linear(net: Network, x: Tensor, width: int) -> Tensor:
    """A product and a bias."""
    product = net.matmul(x, net.weight(x.shape[1], width, fan_in=x.shape[1]))
    return net.add(product, net.weight(width, fan_in=x.shape[1]))


def _attention(net: Network, x: Tensor, heads: int) -> Tensor:
    sequence, hidden = x.shape
    width = hidden // heads

    def of_heads(order: tuple[int, int, int]) -> Tensor:
        return net.transpose(net.reshape(_linear(net, x, hidden), sequence, heads, width), *order)

    queries, keys, values = of_heads((1, 0, 2)), of_heads((1, 2, 0)), of_heads((1, 0, 2))
    logits = net.binary("Div", net.matmul(queries, keys), net.number(sqrt(width)))
    mixed = net.matmul(net.unary("Softmax", logits, axis=-1), values)
    return _linear(net, net.reshape(net.transpose(mixed, 1, 0, 2), sequence, hidden), hidden)


def _feed_forward(net: Network, x: Tensor, inner: int) -> Tensor:
    return _linear(net, net.unary("Gelu", _linear(net, x, inner)), x.shape[1])


def _normalised(net: Network, x: Tensor) -> Tensor:
    width = x.shape[1]
    scale = net.weight(width, fan_in=100, mean=1.0)
    shift = net.weight(width, fan_in=100)
    return net.node("LayerNormalization", [x, scale, shift], x.shape, axis=-1, epsilon=1e-5)[0]

"""Vision transformers (Dosovitskiy et al. 2021): patches as a sequence behind a class token, and layers of attention."""

from __future__ import annotations

from math import sqrt

from onnx import ModelProto

from benchmarks.zoo.network import Network, Tensor, Weights


def vit(
    *, batch: int = 1, resolution: int = 224, patch: int = 16, layers: int = 12, hidden: int = 768, heads: int = 12,
    inner: int = 3072, classes: int = 1000, weights: Weights = True, seed: int = 0,
) -> ModelProto:  # fmt: skip
    """ViT-Base/16, or another by its sizes; norms come before what they are for, and scores from the class token."""
    net = Network("vit", seed)
    image = net.input("image", batch, 3, resolution, resolution)
    fan_in, count = 3 * patch * patch, (resolution // patch) ** 2
    kernel, bias = net.weight(hidden, 3, patch, patch, fan_in=fan_in), net.weight(hidden, fan_in=100)
    window = {"kernel_shape": [patch] * 2, "strides": [patch] * 2}
    patches = net.node("Conv", [image, kernel, bias], (batch, hidden, *[resolution // patch] * 2), **window)[0]
    sequence = net.transpose(net.reshape(patches, batch, hidden, count), 0, 2, 1)
    token = net.weight(1, 1, hidden, fan_in=100)
    if batch > 1:
        token = net.node("Expand", [token, net.integers([batch, 1, hidden])], (batch, 1, hidden))[0]
    t = net.add(net.concat([token, sequence], axis=1), net.weight(1, count + 1, hidden, fan_in=100))
    for _ in range(layers):
        t = net.add(t, attention(net, net.layer_norm(t), heads))
        t = net.add(t, net.linear(net.unary("Gelu", net.linear(net.layer_norm(t), inner)), hidden))
    first = net.node("Gather", [net.layer_norm(t), net.constant_index(0)], (batch, hidden), axis=1)[0]
    return net.model({"scores": net.linear(first, classes)}, weights)


def attention(net: Network, x: Tensor, heads: int) -> Tensor:
    """Every place of a sequence [batch, length, hidden] by all of them."""
    hidden = x.shape[-1]
    queries, keys, values = (net.heads(net.linear(x, hidden), heads) for _ in range(3))
    logits = net.binary(
        "Mul", net.matmul(queries, net.transpose(keys, 0, 1, 3, 2)), net.number(1 / sqrt(hidden // heads))
    )
    return net.linear(net.joined(net.matmul(net.unary("Softmax", logits, axis=-1), values)), hidden)

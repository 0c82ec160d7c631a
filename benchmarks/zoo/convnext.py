"""ConvNeXt (Liu et al. 2022) as exporters write it at opset 18: norms over channels written out, GELU by the error function."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from onnx import ModelProto

from benchmarks.zoo.network import Network, Tensor, Weights


def convnext(
    *, batch: int = 1, resolution: int = 224, widths: Sequence[int] = (40, 80, 160, 320), blocks: Sequence[int] = (2, 2, 6, 2),
    classes: int = 1000, weights: Weights = True, seed: int = 0,
) -> ModelProto:  # fmt: skip
    """ConvNeXt-Atto by default: depthwise 7x7, a norm, and two products with channels last in between, added to what came in."""
    net = Network("convnext", seed, opset=18)
    t = net.input("image", batch, 3, resolution, resolution)
    for stage, (width, count) in enumerate(zip(widths, blocks, strict=True)):
        if stage == 0:
            t = _channel_norm(net, net.conv(t, width, 4, 4, bias=True, padded=False))
        else:
            t = net.conv(_channel_norm(net, t), width, 2, 2, bias=True, padded=False)
        for _ in range(count):
            t = net.add(t, _block(net, t))
    pooled = net.node("GlobalAveragePool", [t], (*t.shape[:2], 1, 1))[0]
    return net.model({"scores": net.linear(net.layer_norm(net.reshape(pooled, *t.shape[:2]), 1e-6), classes)}, weights)


def _block(net: Network, x: Tensor) -> Tensor:
    width = x.shape[1]
    last = net.transpose(net.conv(x, width, 7, groups=width, bias=True), 0, 2, 3, 1)
    inner = net.linear(_gelu(net, net.linear(net.layer_norm(last, 1e-6), 4 * width)), width)
    return net.transpose(net.binary("Mul", inner, net.weight(width, fan_in=100, mean=0.5)), 0, 3, 1, 2)


def _gelu(net: Network, x: Tensor) -> Tensor:
    """x * (1 + erf(x / sqrt 2)) * 1/2."""
    spread = net.unary("Erf", net.binary("Div", x, net.number(sqrt(2))))
    return net.binary("Mul", net.binary("Mul", x, net.add(spread, net.number(1.0))), net.number(0.5))


def _channel_norm(net: Network, x: Tensor) -> Tensor:
    """A norm over the channels of an image, by its definition: (x - mean) / sqrt(variance + epsilon), scaled and shifted."""
    moved = net.binary("Sub", x, net.mean(x, 1))
    variance = net.mean(net.binary("Pow", moved, net.number(2.0)), 1)
    normal = net.binary("Div", moved, net.unary("Sqrt", net.add(variance, net.number(1e-6))))
    scale, shift = net.weight(x.shape[1], 1, 1, fan_in=100, mean=1.0), net.weight(x.shape[1], 1, 1, fan_in=100)
    return net.add(net.binary("Mul", normal, scale), shift)

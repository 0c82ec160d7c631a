"""Networks that make images: DCGAN's and InfoGAN's generators, FSRCNN (Dong et al. 2016), a transfer of style (Johnson et al. 2016);
normalisation folded."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import ModelProto

from benchmarks.zoo.network import Network, Tensor, Weights


def dcgan(
    *,
    batch: int = 1,
    latent: int = 100,
    widths: Sequence[int] = (512, 256, 128, 64, 3),
    weights: Weights = True,
    seed: int = 0,
) -> ModelProto:
    """DCGAN's generator (Radford et al. 2016): a latent vector to 4x4, and twice the size with each further layer."""
    net = Network("dcgan", seed)
    first = net.transposed_conv(net.input("latent", batch, latent, 1, 1), widths[0], 4, 1, 0)
    return net.model({"image": _doubled(net, net.relu(first), widths[1:])}, weights)


def infogan(
    *,
    batch: int = 16,
    latent: int = 228,
    widths: Sequence[int] = (448, 256, 128, 64, 3),
    weights: Weights = True,
    seed: int = 0,
) -> ModelProto:
    """InfoGAN's generator (Chen et al. 2016) as EinNet runs it: a latent vector with its codes to 2x2, then as DCGAN's."""
    net = Network("infogan", seed)
    first = net.transposed_conv(net.input("latent", batch, latent, 1, 1), widths[0], 2, 1, 0)
    return net.model({"image": _doubled(net, net.relu(first), widths[1:])}, weights)


def _doubled(net: Network, x: Tensor, widths: Sequence[int]) -> Tensor:
    for k, width in enumerate(widths):
        x = net.transposed_conv(x, width, 4, 2, 1)
        x = net.unary("Tanh", x) if k == len(widths) - 1 else net.relu(x)
    return x


def fsrcnn(
    *, batch: int = 1, resolution: int = 64, features: int = 56, shrunk: int = 12, mappings: int = 4, scale: int = 4,
    weights: Weights = True, seed: int = 0,
) -> ModelProto:  # fmt: skip
    """FSRCNN(d, s, m): features, shrinking, mapping, expanding, each with PReLU, then one transposed convolution of 9x9."""
    net = Network("fsrcnn", seed)
    t = _activated(net, net.conv(net.input("image", batch, 1, resolution, resolution), features, 5, bias=True))
    t = _activated(net, net.conv(t, shrunk, 1, bias=True))
    for _ in range(mappings):
        t = _activated(net, net.conv(t, shrunk, 3, bias=True))
    t = _activated(net, net.conv(t, features, 1, bias=True))
    return net.model({"image_out": net.transposed_conv(t, 1, 9, scale, 4, scale - 1)}, weights)


def style_transfer(
    *, batch: int = 1, resolution: int = 64, widths: Sequence[int] = (32, 64, 128), blocks: int = 5, weights: Weights = True,
    seed: int = 0,
) -> ModelProto:  # fmt: skip
    """What transforms images (Johnson et al. 2016, supplement): 9x9, two halvings, residual blocks, two doublings, 9x9."""
    net = Network("style_transfer", seed)
    t = net.relu(net.conv(net.input("image", batch, 3, resolution, resolution), widths[0], 9, gain=1.4, bias=True))
    for width in widths[1:]:
        t = net.relu(net.conv(t, width, 3, 2, gain=1.4, bias=True))
    for _ in range(blocks):
        inner = net.relu(net.conv(t, widths[-1], 3, gain=1.4, bias=True))
        t = net.add(t, net.conv(inner, widths[-1], 3, gain=0.5, bias=True))
    for width in reversed(widths[:-1]):
        t = net.relu(net.transposed_conv(t, width, 3, 2, 1, 1))
    return net.model({"stylized": net.unary("Tanh", net.conv(t, 3, 9, bias=True))}, weights)


def _activated(net: Network, x: Tensor) -> Tensor:
    return net.node("PRelu", [x, net.weight(x.shape[1], 1, 1, fan_in=100, mean=0.25)], x.shape)[0]

"""NasNet-A (Zoph et al. 2018) with the cells of TASO's Figure 8a, at the sizes of TASO's and TENSAT's own graphs.

Average poolings count the zeros of their padding, so that TASO's law with the constant C_pool holds at the borders as well.
"""

from __future__ import annotations

from onnx import ModelProto

from benchmarks.zoo.network import Network, Tensor, Weights


def nasnet_a(
    *, batch: int = 1, resolution: int = 224, channels: int = 128, stages: int = 3, cells: int = 5, weights: Weights = True,
    seed: int = 0,
) -> ModelProto:  # fmt: skip
    """Stages of `cells` normal cells and one reduction cell, which halves the image and doubles the channels."""
    net = Network("nasnet_a", seed)
    image = net.input("image", batch, 3, resolution, resolution)
    t = net.max_pool(net.relu(net.conv(image, channels // 2, 7, 2)), 3, 2)
    for _ in range(stages):
        before, now = t, t
        for _ in range(cells):
            before, now = now, _normal_cell(net, before, now, channels)
        channels *= 2
        t = _reduction_cell(net, before, now, channels)
    return net.model({"features": t}, weights)


def nasnet_pools(
    *, channels: int = 128, resolution: int = 28, kernel: int = 3, weights: Weights = True, seed: int = 0
) -> ModelProto:
    """What Figure 8b rewrites: two average poolings and their sum."""
    net = Network("nasnet_pools", seed)
    x, y = (net.input(name, 1, channels, resolution, resolution) for name in ("x", "y"))
    total = net.add(net.avg_pool(x, kernel, 1), net.avg_pool(y, kernel, 1))
    return net.model({"sum": total}, weights)


def _squeeze(net: Network, x: Tensor, channels: int) -> Tensor:
    return net.relu(net.conv(x, channels, 1))


def _fit(net: Network, before: Tensor, now: Tensor) -> Tensor:
    """The output of the cell before the last, with the channels and the size of the last one's."""
    if before.shape[2] == now.shape[2]:
        return _squeeze(net, before, now.shape[1])
    return net.relu(net.conv(before, now.shape[1], 3, 2))


def _separable(net: Network, x: Tensor, channels: int, kernel: int, stride: int = 1) -> Tensor:
    """A depthwise convolution and a 1x1 one."""
    depthwise = net.conv(x, channels, kernel, stride, groups=channels)
    return net.conv(depthwise, channels, 1)


def _normal_cell(net: Network, before: Tensor, now: Tensor, channels: int) -> Tensor:
    now = _squeeze(net, now, channels)
    before = _fit(net, before, now)
    pairs = (
        (_separable(net, now, channels, 3), now),
        (_separable(net, before, channels, 3), _separable(net, now, channels, 3)),
        (net.avg_pool(now, 3, 1), before),
        (net.avg_pool(before, 3, 1), net.avg_pool(before, 3, 1)),
        (_separable(net, before, channels, 3), _separable(net, before, channels, 3)),
    )
    return net.concat([net.add(a, b) for a, b in pairs], axis=1)


def _reduction_cell(net: Network, before: Tensor, now: Tensor, channels: int) -> Tensor:
    now = _squeeze(net, now, channels)
    before = _fit(net, before, now)
    first = net.add(_separable(net, before, channels, 7, 2), _separable(net, now, channels, 5, 2))
    second = net.add(net.max_pool(now, 3, 2), _separable(net, before, channels, 7, 2))
    third = net.add(net.avg_pool(now, 3, 2), _separable(net, before, channels, 5, 2))
    fourth = net.add(net.max_pool(now, 3, 2), _separable(net, first, channels, 3))
    fifth = net.add(net.avg_pool(first, 3, 1), second)
    return net.concat([first, second, third, fourth, fifth], axis=1)

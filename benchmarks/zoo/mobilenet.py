"""MobileNet-v2 (Sandler et al. 2018): blocks that widen, look at each channel by itself, and narrow again."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import ModelProto

from benchmarks.zoo.network import Network, Tensor, Weights

#: of each stage: how many times a block widens, its channels, its blocks, and the stride of the first one
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenet_v2(
    *, batch: int = 1, resolution: int = 224, stages: Sequence[tuple[int, int, int, int]] = STAGES, last: int = 1280,
    classes: int = 1000, weights: Weights = True, seed: int = 0,
) -> ModelProto:  # fmt: skip
    """At the paper's sizes; plain ReLU, as the e-graph papers have it, where the paper cuts at 6."""
    net = Network("mobilenet_v2", seed)
    t = net.relu(net.conv(net.input("image", batch, 3, resolution, resolution), 32, 3, 2))
    for widened, channels, blocks, stride in stages:
        for k in range(blocks):
            t = _block(net, t, widened, channels, stride if k == 0 else 1)
    return net.model({"scores": net.classifier(net.relu(net.conv(t, last, 1)), classes)}, weights)


def _block(net: Network, x: Tensor, widened: int, channels: int, stride: int) -> Tensor:
    before = x.shape[1]
    t = net.relu(net.conv(x, widened * before, 1)) if widened > 1 else x
    t = net.relu(net.conv(t, t.shape[1], 3, stride, groups=t.shape[1]))
    t = net.conv(t, channels, 1)
    return net.add(x, t) if stride == 1 and before == channels else t

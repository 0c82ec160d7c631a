"""ResNet-18 and ResNet-50 (He et al. 2016), ResNet-18 of videos (ResNet3D-18, Tran et al. 2018), ResNeXt-50 32x4d (Xie et al. 2017),
as inference sees them: normalisation folded.

ResNet-18 and ResNet3D-18 have the biases that folding leaves, as exporters write them; the other two have none, as in TASO's graphs.
"""

from __future__ import annotations

from onnx import ModelProto

from benchmarks.zoo.network import Network, Tensor, Weights

#: blocks of each stage, and the first one's channels inside a block
BLOCKS, CHANNELS = (3, 4, 6, 3), 64


def resnet18(
    *, batch: int = 1, resolution: int = 224, channels: int = CHANNELS, blocks: tuple[int, ...] = (2, 2, 2, 2),
    classes: int = 1000, weights: Weights = True, seed: int = 0,
) -> ModelProto:  # fmt: skip
    """ResNet-18; `channels` scales all of its widths (64 in the paper)."""
    net = Network("resnet18", seed)
    image = net.input("image", batch, 3, resolution, resolution)
    stem = net.max_pool(net.relu(net.conv(image, channels, 7, 2, bias=True)), 3, 2)
    return net.model({"scores": net.classifier(_pairs(net, stem, channels, blocks), classes)}, weights)


def resnet3d_18(
    *, batch: int = 1, resolution: int = 112, frames: int = 16, channels: int = CHANNELS, blocks: tuple[int, ...] = (2, 2, 2, 2),
    classes: int = 400, weights: Weights = True, seed: int = 0,
) -> ModelProto:  # fmt: skip
    """ResNet3D-18, whose convolutions slide over frames, too: 16 of 112x112. The stem leaves all frames, and has no pool."""
    net = Network("resnet3d_18", seed)
    video = net.input("video", batch, 3, frames, resolution, resolution)
    stem = net.relu(net.conv(video, channels, (3, 7, 7), (1, 2, 2), bias=True))
    return net.model({"scores": net.classifier(_pairs(net, stem, channels, blocks), classes)}, weights)


def _pairs(net: Network, t: Tensor, channels: int, blocks: tuple[int, ...]) -> Tensor:
    """Stages of blocks of two convolutions of three positions in each dimension; each stage after the first one halves these."""
    for stage, count in enumerate(blocks):
        width = channels << stage
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            inner = net.relu(net.conv(t, width, 3, stride, bias=True))
            inner = net.conv(inner, width, 3, gain=0.5, bias=True)
            if stride > 1:
                t = net.conv(t, width, 1, stride, bias=True)
            t = net.relu(net.add(inner, t))
    return t


def resnet50(
    *, batch: int = 1, resolution: int = 224, channels: int = CHANNELS, blocks: tuple[int, ...] = BLOCKS,
    classes: int = 1000, weights: Weights = True, seed: int = 0,
) -> ModelProto:  # fmt: skip
    """ResNet-50; `channels` scales all of its widths (64 in the paper)."""
    net = Network("resnet50", seed)
    t = _stem(net, batch, resolution, channels)
    for stage, count in enumerate(blocks):
        width = channels << stage
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            inner = net.relu(net.conv(t, width, 1))
            inner = net.relu(net.conv(inner, width, 3, stride))
            t = _joined(net, t, inner, 4 * width, stride)
    return net.model({"scores": net.classifier(t, classes)}, weights)


def resnext50(
    *, batch: int = 1, resolution: int = 224, channels: int = 2 * CHANNELS, branches: int = 32,
    blocks: tuple[int, ...] = BLOCKS, classes: int = 1000, weights: Weights = True, seed: int = 0,
) -> ModelProto:  # fmt: skip
    """ResNeXt-50 with the branches of each block as convolutions of their own, as in TASO's Figure 9a.

    `channels` are those of all branches of the first stage together: 128, so that each of the 32 has 4.
    """
    net = Network("resnext50", seed)
    t = _stem(net, batch, resolution, channels // 2)
    for stage, count in enumerate(blocks):
        width = channels << stage
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            inner = net.relu(net.conv(t, width, 1))
            parts = [net.conv(part, width // branches, 3, stride) for part in net.split(inner, branches, axis=1)]
            inner = net.relu(net.concat(parts, axis=1))
            t = _joined(net, t, inner, 2 * width, stride)
    return net.model({"scores": net.classifier(t, classes)}, weights)


def _stem(net: Network, batch: int, resolution: int, channels: int) -> Tensor:
    image = net.input("image", batch, 3, resolution, resolution)
    return net.max_pool(net.relu(net.conv(image, channels, 7, 2)), 3, 2)


def _joined(net: Network, before: Tensor, inner: Tensor, channels: int, stride: int) -> Tensor:
    """The block's last convolution, added to what came in, which is projected where its shape differs."""
    last = net.conv(inner, channels, 1, gain=0.5)
    if stride > 1 or before.shape[1] != channels:
        before = net.conv(before, channels, 1, stride)
    return net.relu(net.add(before, last))

"""Networks that label every position: CSRNet's back end (Li et al. 2018) and GCN's blocks (Peng et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import ModelProto

from benchmarks.zoo.network import Network, Tensor, Weights


def csrnet(
    *, batch: int = 1, resolution: int = 28, channels: int = 512, widths: Sequence[int] = (512, 512, 512, 256, 128, 64),
    weights: Weights = True, seed: int = 0,
) -> ModelProto:  # fmt: skip
    """CSRNet's back end, convolutions of 3x3 dilated by 2, over the features of its front end."""
    net = Network("csrnet", seed)
    t = net.relu(net.input("features", batch, channels, resolution, resolution))
    for width in widths:
        t = net.relu(net.conv(t, width, 3, dilation=2, gain=1.4, bias=True))
    return net.model({"density": net.conv(t, 1, 1, bias=True)}, weights)


def gcn(
    *, batch: int = 1, resolution: int = 32, channels: int = 512, classes: int = 21, kernel: int = 7, weights: Weights = True,
    seed: int = 0,
) -> ModelProto:  # fmt: skip
    """A global convolution, kx1 and 1xk in either order, and the refinement of boundaries behind it."""
    net = Network("gcn", seed)
    x = net.input("features", batch, channels, resolution, resolution)
    t = net.add(*(_pair(net, x, classes, sides) for sides in ((kernel, 1), (1, kernel))))
    inner = net.conv(net.relu(net.conv(t, classes, 3, bias=True)), classes, 3, bias=True)
    return net.model({"labels": net.add(t, inner)}, weights)


def _pair(net: Network, x: Tensor, classes: int, sides: tuple[int, int]) -> Tensor:
    return net.conv(net.conv(x, classes, sides, bias=True), classes, sides[::-1], bias=True)

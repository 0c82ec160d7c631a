"""Networks of plain convolutions that the e-graph papers measure: VGG-19 (Simonyan and Zisserman 2015), Inception-v3 (Szegedy et al.
2016) and SqueezeNet 1.0 (Iandola et al. 2016), as inference sees them: normalisation folded, biases left. Poolings round down.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx import ModelProto

from benchmarks.zoo.network import Network, Tensor, Weights

#: VGG-19's layers of 3x3 by stage: how many, and how wide
STAGES = ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512))
#: SqueezeNet's fire modules: how wide they squeeze (and expand to four times that, twice); None is a pooling
FIRES = (16, 16, 32, None, 32, 48, 48, 64, None, 64)
#: what keeps activations of layers with a rectifier at their size
GAIN = 1.4


def vgg19(
    *, batch: int = 1, resolution: int = 224, narrow: int = 1, inner: int = 4096, classes: int = 1000,
    weights: Weights = True, seed: int = 0,
) -> ModelProto:  # fmt: skip
    """VGG-19, its three products at the end with biases; `narrow` divides the channels."""
    net = Network("vgg19", seed)
    t = net.input("image", batch, 3, resolution, resolution)
    for count, width in STAGES:
        for _ in range(count):
            t = _layer(net, t, width // narrow, 3)
        t = net.max_pool(t, 2, 2, padded=False)
    t = net.reshape(t, batch, t.shape[1] * t.shape[2] * t.shape[3])
    for _ in range(2):
        t = net.relu(net.linear(t, inner))
    return net.model({"scores": net.linear(t, classes)}, weights)


def squeezenet(
    *,
    batch: int = 1,
    resolution: int = 224,
    narrow: int = 1,
    classes: int = 1000,
    weights: Weights = True,
    seed: int = 0,
) -> ModelProto:
    """SqueezeNet 1.0: a module squeezes by 1x1 and expands by 1x1 and 3x3 side by side; `narrow` divides the channels."""
    net = Network("squeezenet", seed)
    t = _layer(net, net.input("image", batch, 3, resolution, resolution), 96 // narrow, 7, 2, padded=False)
    t = net.max_pool(t, 3, 2, padded=False)
    for fire in FIRES:
        if fire is None:
            t = net.max_pool(t, 3, 2, padded=False)
            continue
        width = fire // narrow
        t = _layer(net, t, width, 1)
        t = net.concat([_layer(net, t, 4 * width, 1), _layer(net, t, 4 * width, 3)], axis=1)
    t = net.node("GlobalAveragePool", [_layer(net, t, classes, 1)], (batch, classes, 1, 1))[0]
    return net.model({"scores": net.reshape(t, batch, classes)}, weights)


def inception_v3(
    *,
    batch: int = 1,
    resolution: int = 299,
    narrow: int = 1,
    classes: int = 1000,
    weights: Weights = True,
    seed: int = 0,
) -> ModelProto:
    """Inception-v3 without its auxiliary classifier; `narrow` divides the channels."""
    net = _Inception(seed, narrow)
    t = net.input("image", batch, 3, resolution, resolution)
    t = net.layers(t, (32, 3, 2), (32, 3, 0), (64, 3, 1))
    t = net.layers(net.max_pool(t, 3, 2, padded=False), (80, 1, 1), (192, 3, 0))
    t = net.max_pool(t, 3, 2, padded=False)
    for pooled in (32, 64, 64):
        t = net.five(t, pooled)
    t = net.reduced(t, [(384, 3, 2)], [(64, 1, 1), (96, 3, 1), (96, 3, 2)])
    for inner in (128, 160, 160, 192):
        t = net.seven(t, inner)
    t = net.reduced(t, [(192, 1, 1), (320, 3, 2)], [(192, 1, 1), (192, (1, 7), 1), (192, (7, 1), 1), (192, 3, 2)])
    for _ in range(2):
        t = net.wide(t)
    pooled_all = net.node("GlobalAveragePool", [t], (*t.shape[:2], 1, 1))[0]
    return net.model({"scores": net.linear(net.reshape(pooled_all, *t.shape[:2]), classes)}, weights)


#: a layer: channels, kernel, and its stride, where 2 and 0 (a stride of 1) have no padding
_Layer = tuple[int, int | tuple[int, int], int]


class _Inception(Network):
    """The modules of Inception-v3: branches side by side, and their results one behind the other."""

    def __init__(self, seed: int, narrow: int) -> None:
        super().__init__("inception_v3", seed)
        self.narrow = narrow

    def layers(self, x: Tensor, *layers: _Layer) -> Tensor:
        for channels, kernel, stride in layers:
            x = _layer(self, x, channels // self.narrow, kernel, max(stride, 1), padded=stride == 1)
        return x

    def five(self, x: Tensor, pooled: int) -> Tensor:
        branches: Sequence[Sequence[_Layer]] = (
            [(64, 1, 1)], [(48, 1, 1), (64, 5, 1)], [(64, 1, 1), (96, 3, 1), (96, 3, 1)],
        )  # fmt: skip
        return self._module(x, branches, pooled)

    def seven(self, x: Tensor, inner: int) -> Tensor:
        across, down = (1, 7), (7, 1)
        branches: Sequence[Sequence[_Layer]] = (
            [(192, 1, 1)],
            [(inner, 1, 1), (inner, across, 1), (192, down, 1)],
            [(inner, 1, 1), (inner, down, 1), (inner, across, 1), (inner, down, 1), (192, across, 1)],
        )
        return self._module(x, branches, 192)

    def _module(self, x: Tensor, branches: Sequence[Sequence[_Layer]], pooled: int) -> Tensor:
        parts = [self.layers(x, *branch) for branch in branches]
        return self.concat([*parts, self.layers(self.avg_pool(x, 3, 1), (pooled, 1, 1))], axis=1)

    def reduced(self, x: Tensor, *branches: Sequence[_Layer]) -> Tensor:
        """Half the size."""
        return self.concat(
            [*(self.layers(x, *branch) for branch in branches), self.max_pool(x, 3, 2, padded=False)], axis=1
        )

    def wide(self, x: Tensor) -> Tensor:
        def forked(t: Tensor) -> list[Tensor]:
            return [self.layers(t, (384, sides, 1)) for sides in ((1, 3), (3, 1))]

        inner, deeper = self.layers(x, (384, 1, 1)), self.layers(x, (448, 1, 1), (384, 3, 1))
        parts = [self.layers(x, (320, 1, 1)), *forked(inner), *forked(deeper)]
        return self.concat([*parts, self.layers(self.avg_pool(x, 3, 1), (192, 1, 1))], axis=1)


def _layer(
    net: Network, x: Tensor, channels: int, kernel: int | tuple[int, int], stride: int = 1, padded: bool = True
) -> Tensor:
    return net.relu(net.conv(x, channels, kernel, stride, gain=GAIN, bias=True, padded=padded))

"""Models of `benchmarks.gpu`: small ones by their sizes, real networks, and those of the papers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Case:
    """A model by its sizes, those of a dry run, and the element type of its products."""

    name: str
    write: Callable[..., Any]
    sizes: tuple[int, ...]
    small: tuple[int, ...]
    dtype: str = "f32"

    @property
    def label(self) -> str:
        return f"{self.name} {'x'.join(map(str, self.sizes))}"

    def model(self, fake: bool) -> tuple[Any, Mapping[str, tuple[int, ...]]]:
        """The model, and the shapes of its inputs."""
        from benchmarks.kernel_models import Writer

        writer = Writer()
        return self.write(writer, *(self.small if fake else self.sizes)), writer.sizes

    def given(self, fake: bool) -> tuple[Any, Mapping[str, Any], Mapping[str, int]]:
        """The model, its inputs, and the sizes of unknown dimensions."""
        import numpy as np

        model, shapes = self.model(fake)
        random = np.random.default_rng(0)
        return model, {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}, {}


@dataclass(frozen=True, slots=True)
class Network:
    """A real network of `benchmarks.models`."""

    name: str
    dtype: str = "f32"

    @property
    def label(self) -> str:
        return f"model {self.name}"

    def given(self, fake: bool) -> tuple[Any, Mapping[str, Any], Mapping[str, int]]:
        """The model, inputs that are valid for it, and the sizes of its unknown dimensions."""
        import onnx

        from benchmarks.models import fetch, find
        from dslc.cost.inputs import drawn_inputs

        model, bind = onnx.load(fetch(self.name)), find(self.name).bind
        return model, drawn_inputs(model, bind).feeds[0], bind


@dataclass(frozen=True, slots=True)
class Built:
    """A network of the papers (`benchmarks.zoo`)."""

    name: str
    dtype: str = "f32"

    @property
    def label(self) -> str:
        return f"zoo {self.name}"

    def given(self, fake: bool) -> tuple[Any, Mapping[str, Any], Mapping[str, int]]:
        """The model, its inputs, and the sizes of unknown dimensions."""
        from benchmarks.zoo import ENTRIES, build
        from dslc.cost.inputs import drawn_inputs

        model, bind = build(self.name, small=fake), ENTRIES[self.name].sizes
        return model, drawn_inputs(model, bind).feeds[0], bind


def convolution(w: Any, n: int, c: int, size: int, f: int, kernel: int, stride: int = 1, dilation: int = 1) -> Any:
    """With a bias and a relu, as networks have it."""
    from benchmarks.kernel_models import weights

    reach = dilation * (kernel - 1) // 2
    x, k, b = w.input("x", n, c, size, size), w.weight(weights(f, c, kernel, kernel) / 32), w.weight(weights(f))
    y = w.op("Conv", x, k, b, pads=[reach] * 4, strides=[stride] * 2, dilations=[dilation] * 2)
    return w.model(w.op("Relu", y))


def residual(w: Any, n: int, c: int, size: int) -> Any:
    """A block of two convolutions, around which its input is added."""
    from benchmarks.kernel_models import weights

    x = w.input("x", n, c, size, size)
    inner = w.op("Relu", w.op("Conv", x, w.weight(weights(c, c, 3, 3) / 32), w.weight(weights(c)), pads=[1] * 4))
    outer = w.op("Conv", inner, w.weight(weights(c, c, 3, 3) / 32), w.weight(weights(c)), pads=[1] * 4)
    return w.model(w.op("Relu", w.op("Add", outer, x)))


def transposed(w: Any, n: int, c: int, size: int, f: int) -> Any:
    """A transposed convolution as generators have it."""
    from benchmarks.kernel_models import weights

    x, k = w.input("x", n, c, size, size), w.weight(weights(c, f, 4, 4) / 32)
    return w.model(w.op("ConvTranspose", x, k, strides=[2, 2], pads=[1] * 4))


def dense(w: Any, rows: int, inner: int, columns: int) -> Any:
    from benchmarks.kernel_models import weights

    product = w.op("MatMul", w.input("x", rows, inner), w.weight(weights(inner, columns) / 32))
    return w.model(w.op("Relu", w.op("Add", product, w.weight(weights(columns)))))


def dense_half(w: Any, rows: int, inner: int, columns: int) -> Any:
    """In half precision, for tensor cores."""
    import numpy as np

    from benchmarks.kernel_models import weights

    x = w.op("Cast", w.input("x", rows, inner), to=10)
    product = w.op("MatMul", x, w.weight((weights(inner, columns) / 32).astype(np.float16)))
    return w.model(w.op("Cast", product, to=1))


def attention(w: Any, heads: int, length: int, width: int) -> Any:
    """As exporters write it: heads brought to the front, scaled, softmax, and back."""
    q, k, v = (w.op("Transpose", w.input(name, 1, length, heads, width), perm=[0, 2, 1, 3]) for name in "qkv")
    scores = w.op("Div", w.op("MatMul", q, w.op("Transpose", k, perm=[0, 1, 3, 2])), w.number(width**0.5))
    out = w.op("MatMul", w.op("Softmax", scores, axis=-1), v)
    return w.model(w.op("Reshape", w.op("Transpose", out, perm=[0, 2, 1, 3]), w.ints(1, length, heads * width)))


def _kernel_cases() -> Iterator[Case]:
    """The models that generated kernels are made for, at their largest sizes."""
    from benchmarks import kernel_models

    largest = {case.name: case for case in kernel_models.CASES}
    for case in largest.values():

        def write(w: Any, *sizes: int, own: Any = case.write) -> Any:
            return own(w, (), *sizes)

        # groups divide channels
        small = {1: (40,), 2: (4, 8), 3: (8, 6, 4), 4: (1, 4, 3, 6)}[len(case.sizes)]
        yield Case(case.name, write, case.sizes, small)


#: real networks, the lightest first
NETWORKS = (
    "silero-vad-ifless", "mtcnn-rnet", "mtcnn-pnet", "mtcnn-onet", "magika", "silero-vad-sequence", "pp-ocr-cls", "dnsmos-p808",
    "light-shufflenet", "light-squeezenet", "basic-pitch", "minilm",
)  # fmt: skip


#: those of the papers whose weights fit into a file
ZOO = (
    "nasrnn_gates", "nasnet_pools", "gcn", "csrnet_14", "fsrcnn", "dcgan", "infogan", "longformer", "longformer_dilated", "squeezenet",
    "resnet18", "resnet50", "convnext", "bert", "inception_v3", "llama",
)  # fmt: skip


def networks() -> tuple[Network, ...]:
    """Those that are at hand, or can be fetched: `--networks`."""
    return tuple(Network(name) for name in NETWORKS)


def built() -> tuple[Built, ...]:
    """`--zoo`."""
    return tuple(map(Built, ZOO))


def cases() -> tuple[Case, ...]:
    """EinNet's Table 3 (its convolutions and products), chains, norms, softmax, attention."""
    return (
        Case("conv 3x3", convolution, (1, 512, 7, 512, 3), (1, 8, 5, 8, 3)),
        Case("conv 5x5", convolution, (16, 32, 56, 32, 5), (1, 4, 6, 4, 5)),
        Case("conv dilated", convolution, (16, 64, 56, 64, 3, 1, 2), (1, 4, 7, 4, 3, 1, 2)),
        Case("conv strided", convolution, (16, 64, 112, 128, 3, 2), (1, 4, 8, 8, 3, 2)),
        Case("residual block", residual, (16, 128, 28), (1, 4, 5)),
        Case("conv transpose", transposed, (16, 448, 2, 256), (1, 8, 2, 4)),
        Case("dense", dense, (512, 768, 3072), (8, 12, 16)),
        Case("dense, few rows", dense, (1, 4096, 4096), (1, 16, 16)),
        Case("dense f16", dense_half, (2048, 2048, 2048), (16, 16, 24), "f16"),
        Case("attention", attention, (12, 512, 64), (2, 6, 4)),
        *_kernel_cases(),
    )


__all__ = ["Built", "Case", "Network", "built", "cases", "networks"]

"""Capabilities of devices from their data sheets, and prices of calls and kernels by operations and bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dslc.errors import error
from dslc.ir.dtype import DType
from dslc.records import record

MEMORY_REACHED = 0.85  #: share of the memory's peak that is reached
VENDOR = 0.75  #: share of the peak that a vendor's product reaches
OWN_REACHED = 0.3  #: share of the peak that a kernel of dslc's own reaches
#: multiplications of a direct convolution for each one of the vendor's algorithm, for each axis of the window
WINOGRAD = 1.5
HANDED_OVER = 30e-6  #: seconds until the CPU has what it waits for
CPU = 10e9  #: bytes a second of what the CPU computes then
CPU_WORK = 2e10  #: operations a second of what it computes then
TILE = 64  #: positions of a tile of a product: fewer tiles than processors leave some idle
PART = 512  #: terms of its sum that are one part


@record
class Device:
    """A roofline: bytes a second, operations a second by element type (with and without tensor cores), and seconds of a launch.

    `capability` is the compute capability, `processors` how many there are, `cache` the bytes of the last cache, `reach` its speed.
    """

    name: str
    capability: tuple[int, int]
    processors: int
    memory: int
    bandwidth: float
    cache: int
    reach: float
    #: operations a second of plain arithmetic
    plain: Mapping[DType, float]
    #: and of products on tensor cores, as the vendor's libraries compute them
    tensor: Mapping[DType, float]
    launch: float = 2.5e-6
    #: bytes a second to and from the CPU
    bus: float = 25e9

    def moved(self, bytes: float) -> float:
        """Seconds for so many bytes; what fits into the cache is faster."""
        return bytes / (self.reach if bytes <= self.cache / 2 else MEMORY_REACHED * self.bandwidth)

    def call(
        self, flops: float, bytes: float, dtype: DType, sizes: Sequence[int] = (), window: Sequence[int] = ()
    ) -> float:
        """Seconds of a vendor's call.

        Args:
            sizes: rows, columns and length of the sum of a product, and its batch.
            window: of a convolution that moves by one; Winograd's algorithm takes fewer multiplications for windows of 3 positions.
        """
        peak = self._peak(dtype)
        saved = WINOGRAD ** len(window) if self._filters(dtype, window) else 1.0
        tiles = 1
        for size, whole in zip(sizes, (TILE, TILE, PART, 1), strict=False):
            tiles *= -(-size // whole)
        used = min(1.0, tiles / self.processors) if sizes else 1.0
        return self.launch + max(flops / saved / (VENDOR * peak * max(used, 1 / self.processors)), self.moved(bytes))

    def algorithm(self, dtype: DType, window: Sequence[int] = ()) -> str:
        """The algorithm that the price of a vendor's call assumes, in words; empty for plain arithmetic."""
        if self._filters(dtype, window):
            return "Winograd"
        return "tensor cores" if self.tensor.get(dtype, 0.0) > self.plain.get(dtype, 0.0) else ""

    def _peak(self, dtype: DType) -> float:
        """Operations a second of a vendor's product."""
        return self.tensor.get(dtype, self.plain.get(dtype, min(self.plain.values())))

    def _filters(self, dtype: DType, window: Sequence[int]) -> bool:
        """Return whether a vendor's convolution is by Winograd: a small window, and no tensor cores, which are faster."""
        return tuple(window) == (3, 3) and self._peak(dtype) == self.plain.get(dtype)

    def kernel(self, flops: float, bytes: float, dtype: DType, launches: int = 1) -> float:
        """Seconds of a generated kernel, which has no tensor cores."""
        peak = self.plain.get(dtype, min(self.plain.values()))
        return launches * self.launch + max(flops / (OWN_REACHED * peak), self.moved(bytes))

    def host(self, read: float, written: float) -> float:
        """Seconds of a part that the CPU computes: the device waits, and so many bytes go there and come back.

        What the CPU takes is counted by the bytes alone.
        """
        return HANDED_OVER + (read + written) / self.bus + self.computed(read + written)

    def computed(self, bytes: float, operations: float = 0.0) -> float:
        """Seconds of the CPU for so many bytes, and operations of which something is known."""
        return max(bytes / CPU, operations / CPU_WORK)

    def __str__(self) -> str:
        return f"{self.name} (sm_{self.capability[0]}{self.capability[1]}, {self.bandwidth / 1e12:.3g} TB/s)"


def _device(
    name: str, capability: tuple[int, int], processors: int, memory: float, bandwidth: float, cache: float, f32: float, f64: float,
    f16: float, tensor16: float, tensor64: float,
) -> Device:  # fmt: skip
    plain = {DType.F32: f32, DType.F64: f64, DType.F16: f16, DType.BF16: f16}
    # single precision stays single: without TF32 the vendor's products of it use plain arithmetic
    tensor = {DType.F16: tensor16, DType.BF16: tensor16, DType.F64: tensor64, DType.F32: f32}
    tera = 1e12
    return Device(
        name, capability, processors, int(memory * 2**30), bandwidth * tera, int(cache * 2**20), 2.5 * bandwidth * tera,
        MappingProxyType({dtype: speed * tera for dtype, speed in plain.items()}),
        MappingProxyType({dtype: speed * tera for dtype, speed in tensor.items()}),
    )  # fmt: skip


#: by name, from the vendor's data sheets (SXM form, dense); the first one is the default
DEVICES: Mapping[str, Device] = MappingProxyType({
    "h100": _device("h100", (9, 0), 132, 80, 3.35, 50, 66.9, 33.5, 133.8, 989.0, 66.9),
    "a100": _device("a100", (8, 0), 108, 80, 2.039, 40, 19.5, 9.7, 78.0, 312.0, 19.5),
    "h200": _device("h200", (9, 0), 132, 141, 4.8, 50, 66.9, 33.5, 133.8, 989.0, 66.9),
})  # fmt: skip
DEFAULT = next(iter(DEVICES))


def device_named(name: str) -> Device:
    """The device of a name.

    Raises:
        DslcError: E0909 for a name that no data sheet is known of.
    """
    found = DEVICES.get(name.lower())
    if not found:
        raise error("E0909", f"there is no device `{name}`", hint="one of " + ", ".join(DEVICES))
    return found

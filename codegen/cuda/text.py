"""Text of a generated CUDA kernel, and what a caller needs to compile, launch and price it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from dslc.ir.dtype import Dim, TensorType
from dslc.ir.scalar import Num, Scalar, Sym, num, rebuild
from dslc.records import record


class PointerPlace(Enum):
    """Target of a pointer that a launch takes."""

    INPUT = "in"
    OUTPUT = "out"
    SCRATCH = "scratch"


@record
class Pointer:
    """An argument of a launch: an input, output or scratch buffer of its text, by number."""

    place: PointerPlace
    number: int


@record
class CudaLaunch:
    """One launch. Its arguments are `pointers`, in order, then every unknown size of the text, each as an int64.

    `grid` has sizes as expressions of the unknown ones; where one is 0 nothing is launched. `block` counts threads. `shared` is
    the dynamic shared memory in bytes, `static_shared` what the text declares. `flops` and `bytes` are what a roofline
    needs: operations, and the bytes of everything that is read or written, once; `requested` counts what is read again each time.
    """

    symbol: str
    grid: tuple[Dim, Dim, Dim]
    block: tuple[int, int, int]
    pointers: tuple[Pointer, ...]
    #: numbers in `pointers` of what is written
    written: tuple[int, ...]
    shared: Dim = 0
    static_shared: int = 0
    #: how the stage was written: "points", "rows", "products" or "turned"
    form: str = "points"
    flops: Dim = 0
    bytes: Dim = 0
    requested: Dim = 0
    #: elements that a thread asks for at once; less than 1 where not all threads have something to do
    used: float = 1.0


@record
class CudaText:
    """The CUDA C++ of one group: `launches` run in order on one stream, each sees what those before wrote.

    `text` needs no header: it goes to NVRTC or nvcc (C++17) as it is, and to a C++ compiler after `templates/cuda/host.h`. Every
    launch's symbol has C linkage.
    """

    #: a C identifier by content: `c_` and 12 hexadecimal digits of what it computes and of the variant
    name: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    #: the unknown sizes, in the order in which every launch takes them
    sizes: tuple[Sym, ...]
    #: bytes of each scratch buffer; its content is undefined at the start
    scratch: tuple[Dim, ...]
    launches: tuple[CudaLaunch, ...]
    text: str

    def bind(self, shapes: Sequence[Sequence[int]]) -> dict[Sym, int] | None:
        """The unknown sizes for some input shapes; None where the text was not made for them.

        A size below what is known of it (`Sym.least`) is refused, as the text relies on it; a caller whose outputs are all empty
        need not launch anything.
        """
        if len(shapes) != len(self.inputs) or any(
            len(shape) != type.rank for shape, type in zip(shapes, self.inputs, strict=True)
        ):
            return None
        given = [
            (size, number)
            for shape, type in zip(shapes, self.inputs, strict=True)
            for size, number in zip(type.shape, shape, strict=True)
        ]
        found = {size: number for size, number in reversed(given) if isinstance(size, Sym)}
        if any(sym not in found or found[sym] < (sym.least or 0) for sym in self.sizes):
            return None
        return found if all(at(size, found) == number for size, number in given) else None


def at(size: Dim, sizes: Mapping[Sym, int]) -> int:
    """A size for some numbers of the unknown ones; raises ValueError where it needs another one."""
    if isinstance(size, int):
        return size
    numbers: dict[Scalar, Scalar] = {sym: num(number) for sym, number in sizes.items()}
    found = rebuild(size, numbers.get)
    if not isinstance(found, Num) or not isinstance(found.value, int):
        raise ValueError(f"{size} is not known")
    return int(found.value)


@record
class Tile:
    """The part of a product that one block computes: `rows` x `columns` results, `depth` steps of the sum at a time.

    Each thread has `down` x `right` of the results in registers.
    """

    rows: int = 64
    columns: int = 64
    depth: int = 16
    down: int = 4
    right: int = 4

    @property
    def threads(self) -> int:
        return (self.rows // self.down) * (self.columns // self.right)


@record
class Units:
    """The part of a product that one block computes on tensor cores: `rows` x `columns` results, `depth` steps of the sum at a time.

    Each warp has `down` x `right` pieces of 16 x 8 results. `rounded`: single precision goes in as TF32, with 10 bits of the fraction;
    otherwise only operands of half precision are taken, whose products are exact.
    """

    rows: int = 64
    columns: int = 64
    depth: int = 32
    down: int = 2
    right: int = 4
    rounded: bool = False

    @property
    def threads(self) -> int:
        return 32 * (self.rows // (16 * self.down)) * (self.columns // (8 * self.right))


@record
class CudaVariant:
    """Schedule of CUDA kernels.

    block: threads of a block. width: elements that a thread moves at a time (None: as many as 16 bytes have). team: threads that
    share a row (None: a warp for short rows, else a block). rows: positions of an outer loop that a thread computes together, where
    they share what they read. tile: None for no tiles. turn: whether transposed operands go through shared memory. lane: the loop
    whose neighbours are computed by neighbouring threads, by rank of its estimate. fuse: whether parts share launches.
    pieces: into how many pieces a long reduction of few results is cut. split: into how many any other, where results are few for a
    device.
    units: None for no tensor cores; what they cannot take goes by `tile`.
    """

    block: int = 256
    width: int | None = None
    team: int | None = None
    rows: int = 1
    tile: Tile | None = Tile()
    turn: bool = True
    lane: int | None = None
    fuse: bool = True
    pieces: int = 256
    split: int = 1
    units: Units | None = None

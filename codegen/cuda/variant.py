"""Variants of CUDA kernels: what may be chosen without changing what is computed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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

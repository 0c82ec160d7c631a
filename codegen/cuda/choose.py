"""Ranking of variants by a roofline with occupancy, until a device has measured."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from dslc.codegen.cuda.nvrtc import Usage
from dslc.codegen.cuda.text import CudaLaunch, CudaText, CudaVariant, Tile, Units, at
from dslc.records import record

UNKNOWN = 512  #: what an unknown size is taken to be
BUSY = 1024  #: elements that a multiprocessor must have asked for, to hide what memory takes


@record
class Hardware:
    """A device, per second and per multiprocessor; the defaults are those of an A100.

    `bandwidth`: bytes from memory, `cache`: bytes from the last cache, which has `held` bytes of results that were just made,
    `operations`: in f32, `units`: those of products of half precision on tensor cores, as far as kernels of one's own reach them,
    `launch`: seconds of a launch.
    """

    processors: int = 108
    bandwidth: float = 1.5e12
    cache: float = 4e12
    operations: float = 19.5e12
    units: float = 100e12
    launch: float = 2.5e-6
    threads: int = 2048
    blocks: int = 32
    registers: int = 65536
    shared: int = 100 << 10
    held: int = 0

    def moved(self, bytes: float) -> float:
        """Seconds for what is moved once."""
        return bytes / (self.cache if bytes <= self.held else self.bandwidth)


def occupancy(launch: CudaLaunch, hardware: Hardware, usage: Usage | None = None) -> float:
    """The threads that a multiprocessor holds at a time, as a part of those that it could; registers count where they are known."""
    threads = prod(launch.block)
    blocks = min(hardware.blocks, hardware.threads // threads)
    shared = max(
        launch.static_shared + (launch.shared if isinstance(launch.shared, int) else 0), usage.shared if usage else 0
    )
    if shared:
        blocks = min(blocks, hardware.shared // (shared + 1024))
    if usage:
        # registers go to warps in pieces of 256
        warp = -(-usage.registers * 32 // 256) * 256
        blocks = min(blocks, hardware.registers // (warp * -(-threads // 32)))
    return blocks * threads / hardware.threads


def seconds(text: CudaText, hardware: Hardware) -> float:
    """Estimate the seconds of all launches of a text by bytes and operations; a size that is not known counts 512."""
    known = dict.fromkeys(text.sizes, UNKNOWN)
    total = 0.0
    for launch in text.launches:
        blocks = prod(at(size, known) for size in launch.grid)
        threads = min(blocks * prod(launch.block), hardware.processors * hardware.threads * occupancy(launch, hardware))
        busy = max(1e-3, min(1.0, launch.used * threads / (hardware.processors * BUSY)))
        speed = hardware.units if launch.form == "units" else hardware.operations
        work = at(launch.flops, known) / (speed * busy)
        moved = max(hardware.moved(at(launch.bytes, known)), at(launch.requested, known) / hardware.cache) / busy
        total += hardware.launch + max(work, moved)
    return total


def least(text: CudaText, hardware: Hardware) -> float:
    """Lower bound of any variant's seconds: bytes and operations at full occupancy."""
    known = dict.fromkeys(text.sizes, UNKNOWN)
    bytes = sum(at(launch.bytes, known) for launch in text.launches)
    flops = sum(at(launch.flops, known) for launch in text.launches)
    return hardware.launch + max(hardware.moved(bytes), flops / hardware.operations)


def candidates(products: bool, rows: bool) -> Iterator[CudaVariant]:
    """Variants that differ for a group: `products`, whether some part is one, `rows`, whether something is shared by a row."""
    yield CudaVariant()
    if products:
        for tile in (Tile(128, 128, 8, 8, 8), Tile(128, 64, 16, 8, 4), Tile(32, 32, 16, 2, 2)):
            yield CudaVariant(tile=tile)
        yield CudaVariant(tile=None)
        yield CudaVariant(tile=None, rows=4)
        for units in (Units(), Units(128, 64, 32, 2, 4), Units(128, 128, 32, 4, 4)):
            yield CudaVariant(units=units)
        for split in (4, 16):
            yield CudaVariant(split=split)
            yield CudaVariant(split=split, units=Units())
    if rows:
        yield CudaVariant(team=32)
        yield CudaVariant(team=256)
        yield CudaVariant(fuse=False)
        yield CudaVariant(lane=1)
        # few columns have few threads
        yield CudaVariant(width=1)
        for split in (8, 32):
            yield CudaVariant(split=split, fuse=False)
            yield CudaVariant(split=split, fuse=False, width=1)
    else:
        yield CudaVariant(block=128)
        yield CudaVariant(width=2)

"""Arguments and sizes at which kernels are compared with their nodes, beside ordinary numbers and the sizes that are measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import numpy as np

from dslc.cost.compare import Feeds
from dslc.fuse.profile import WorkSizes
from dslc.ir.graph import Graph
from dslc.ir.scalar import Scalar, Sym, walk


@dataclass(frozen=True, slots=True)
class _Tuning:
    """Numbers that decide what kernels are compared on.

    Attributes:
        strange: what arguments hold in a few places.
        sizes: other sizes: below a vector, and an odd one beyond some of them; one more than was measured comes behind them.
    """

    strange: tuple[float, ...] = (nan, inf, -inf, 6e4, -6e4, 100.0, -100.0, 0.0, -0.0)
    sizes: tuple[int, ...] = (3, 101)


_TUNING = _Tuning()


def strange(drawn: Feeds) -> list[Feeds]:
    """Arguments that hold no numbers, infinities, zeros and some larger numbers in a few places, with ordinary ones around these."""
    return _placed(drawn, {array.dtype: np.array(_TUNING.strange) for array in drawn.values()})


def edges(drawn: Feeds) -> list[Feeds]:
    """Arguments at the ends of their types: in a few places, and as a whole denormal, large, or with exponentials that are denormal."""
    types = {array.dtype for array in drawn.values() if _floating(array)}
    if not types:
        return []
    out = _placed(drawn, {dtype: _ends(dtype) for dtype in types})
    for kind in range(3):
        out.append({name: _moved(array, kind) if _floating(array) else array for name, array in drawn.items()})
    return out


def other_sizes(program: Graph, measured: WorkSizes) -> Iterator[WorkSizes]:
    """Other numbers for the unknown sizes of a program: two that differ from each other, and one more than each that was measured."""
    dims = [dim for value in program.inputs for dim in value.type.shape if isinstance(dim, Scalar)]
    syms = list(dict.fromkeys(node for dim in dims for node in walk(dim) if isinstance(node, Sym)))
    if not syms:
        return
    for turn in range(len(_TUNING.sizes)):
        yield WorkSizes({
            sym.name: max(_TUNING.sizes[(turn + k) % len(_TUNING.sizes)], sym.least or 0) for k, sym in enumerate(syms)
        })  # fmt: skip
    yield WorkSizes({sym.name: measured.of(sym) + 1 for sym in syms})


def _floating(array: Any) -> bool:
    return bool(array.dtype.kind == "f" and array.size)


def _ends(dtype: Any) -> Any:
    """Numbers next to powers of two, denormal ones, and nearly the largest."""
    info = np.finfo(dtype)
    one, whole, tiny = (np.array(number, dtype) for number in (1, 2 / info.eps, info.tiny))
    up, zero = np.array(inf, dtype), np.array(0, dtype)
    found = (
        info.max * (1 - dtype.type(2**-10)), np.nextafter(one, up), np.nextafter(one, zero), np.nextafter(whole, up),
        np.nextafter(whole, zero), tiny, np.nextafter(tiny, zero), info.smallest_subnormal, -tiny,
    )  # fmt: skip
    return np.array(found, dtype)


def _moved(array: Any, kind: int) -> Any:
    """An array of ordinary numbers as one of denormal ones, of large ones, or of logarithms of denormal ones."""
    info = np.finfo(array.dtype)
    wide = array.astype(np.float64)
    if kind == 2:
        low = float(np.log(np.float64(info.tiny)) + np.log(np.float64(info.eps)) / 2)
        return np.asarray(low + wide / 8).astype(array.dtype)
    by = float(info.tiny) / 512 if kind == 0 else float(info.max) * float(info.eps)
    return np.asarray(np.clip(wide, -8, 8) * by).astype(array.dtype)


def _placed(drawn: Feeds, numbers: dict[Any, Any]) -> list[Feeds]:
    """Arguments with some of the numbers of their types in a few places, each of these somewhere in some of them."""
    floats = [array for array in drawn.values() if _floating(array)]
    count = max((len(numbers[array.dtype]) for array in floats), default=len(_TUNING.strange))
    least = min((_room(array, count) for array in floats), default=count)
    return [
        {name: _put(array, np.roll(numbers[array.dtype], -turn)) if _floating(array) else array for name, array in drawn.items()}
        for turn in range(0, count, least)
    ]


def _room(array: Any, count: int) -> int:
    """In how many places of an array something special may be at once: ordinary numbers are around it."""
    return int(min(count, max(1, array.size // 4)))


def _put(array: Any, numbers: Any) -> Any:
    out, count = array.copy(), _room(array, len(numbers))
    places = np.random.default_rng(array.size).choice(array.size, count, replace=False)
    out.reshape(-1)[places] = numbers[:count].astype(array.dtype)
    return out


__all__ = ["edges", "other_sizes", "strange"]

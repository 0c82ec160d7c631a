"""Arguments and sizes on which kernels are compared with their nodes, beside ordinary numbers and the sizes that are measured."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan
from typing import Any

import numpy as np

from dslc.cost.compare import Feeds
from dslc.cost.inputs import other_sizes
from dslc.fuse.profile import WorkSizes
from dslc.ir.graph import Graph
from dslc.ir.scalar import Scalar, Sym, walk
from dslc.onnx.special_inputs import AllOf, ends_of, floating, moved, placed, room

#: what arguments hold in a few places
STRANGE: tuple[float, ...] = (nan, inf, -inf, 6e4, -6e4, 100.0, -100.0, 0.0, -0.0)


def strange(drawn: Feeds) -> list[Feeds]:
    """Arguments that hold no numbers, infinities, zeros and some larger numbers in a few places, with ordinary ones around these."""
    return _placed(drawn, {array.dtype: np.array(STRANGE) for array in drawn.values()})


def edges(drawn: Feeds) -> list[Feeds]:
    """Arguments at the ends of their types: in a few places, and as a whole denormal, large, or with exponentials that are denormal."""
    types = {array.dtype for array in drawn.values() if floating(array)}
    if not types:
        return []
    out = _placed(drawn, {dtype: ends_of(dtype) for dtype in types})
    for kind in AllOf:
        out.append({name: moved(array, kind) if floating(array) else array for name, array in drawn.items()})
    return out


def at_other_sizes(program: Graph, measured: WorkSizes) -> Iterator[WorkSizes]:
    """Other numbers for the unknown sizes of a program."""
    dims = [dim for value in program.inputs for dim in value.type.shape if isinstance(dim, Scalar)]
    syms = {node.name: node for dim in dims for node in walk(dim) if isinstance(node, Sym)}
    for sizes in other_sizes({name: measured.of(sym) for name, sym in syms.items()}):
        yield WorkSizes({name: max(size, syms[name].least or 0) for name, size in sizes.items()})


def _placed(drawn: Feeds, numbers: dict[Any, Any]) -> list[Feeds]:
    """Arguments with some of the numbers of their types in a few places, each of these somewhere in some of them."""
    floats = [array for array in drawn.values() if floating(array)]
    count = max((len(numbers[array.dtype]) for array in floats), default=len(STRANGE))
    least = min((room(array, count) for array in floats), default=count)
    return [
        {
            name: placed(array, np.roll(numbers[array.dtype], -turn)) if floating(array) else array
            for name, array in drawn.items()
        }
        for turn in range(0, count, least)
    ]

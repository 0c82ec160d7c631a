"""Pictures of a plane of a set of positions: for a terminal, and as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

ROWS = 40  #: rows of a picture in a terminal
COLUMNS = 76  #: columns of a picture in a terminal
SIDE = 480  #: pixels of the longer side of a drawn plane
LEAST = 2  #: pixels of a position, at least

_EQUAL, _DIFFERENT, _LINE = "#eef2f5", "#d1495b", "#8795a1"


@dataclass(frozen=True, eq=False)
class Plane:
    """Two axes of a set of positions, the others at one position each: those along which the set changes most."""

    mask: Any
    title: str


def plane(mask: Any, name: str = "Y") -> Plane:
    """The plane of a set that shows most of where it begins and ends; of a vector one row, of a scalar one position."""
    data = np.asarray(mask, dtype=bool)
    changes = [
        int((np.diff(data.astype(np.int8), axis=axis) != 0).sum()) * (size > 1) for axis, size in enumerate(data.shape)
    ]
    # the later axes where nothing else decides, as they are the rows and columns of images
    axes = sorted(sorted(range(data.ndim), key=lambda axis: (changes[axis] > 0, axis), reverse=True)[:2])
    at: list[Any] = [slice(None) if axis in axes else 0 for axis in range(data.ndim)]
    for axis in range(data.ndim):
        if axis not in axes:
            rest = tuple(k for k in range(data.ndim) if k != axis)
            at[axis] = int(data.sum(axis=rest).argmax())
    shown = ", ".join(":" if isinstance(place, slice) else str(place) for place in at)
    found = data[tuple(at)]
    sizes = "x".join(str(data.shape[axis]) for axis in axes) or "1"
    return Plane(found.reshape((1,) * (2 - found.ndim) + found.shape), f"{name}[{shown}], {sizes}")


def text(shown: Plane) -> list[str]:
    """Lines of `#` where the programs differ and `.` where they are equal; of a large plane `+` stands for some of both."""
    rows, columns = shown.mask.shape
    cuts = [np.array_split(np.arange(size), min(size, most)) for size, most in ((rows, ROWS), (columns, COLUMNS))]
    lines = [
        "".join(_mark(shown.mask[np.ix_(row, column)]) for column in cuts[1])
        for row in cuts[0]
    ]  # fmt: skip
    scaled = rows > ROWS or columns > COLUMNS
    return [f"{shown.title}: `#` differs, `.` is equal" + (", `+` is some of both" if scaled else ""), *lines]


def _mark(part: Any) -> str:
    return "#" if part.all() else "+" if part.any() else "."


def svg(planes: Sequence[Plane]) -> str:
    """Planes below each other as one drawing, with their titles."""
    parts: list[str] = []
    top, width = 0, 0
    for shown in planes:
        rows, columns = shown.mask.shape
        unit = max(LEAST, SIDE // max(rows, columns, 1))
        parts.append(f'<text x="0" y="{top + 14}" font-family="monospace" font-size="12">{escape(shown.title)}</text>')
        top += 22
        parts.append(
            f'<rect x="0.5" y="{top + 0.5}" width="{columns * unit}" height="{rows * unit}" fill="{_EQUAL}" stroke="{_LINE}"/>'
        )
        for first, last, start, stop in _rectangles(shown.mask):
            place = f'x="{start * unit + 0.5}" y="{top + first * unit + 0.5}"'
            parts.append(
                f'<rect {place} width="{(stop - start) * unit}" height="{(last - first) * unit}" fill="{_DIFFERENT}"/>'
            )
        top += rows * unit + 12
        width = max(width, columns * unit + 1, 8 * len(shown.title))
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top}" viewBox="0 0 {width} {top}">\n{body}\n</svg>\n'


def _rectangles(mask: Any) -> list[tuple[int, int, int, int]]:
    """The set as rectangles: runs of columns, over all neighbouring rows that are equal."""
    out: list[tuple[int, int, int, int]] = []
    first = 0
    for row in range(1, len(mask) + 1):
        if row < len(mask) and np.array_equal(mask[row], mask[first]):
            continue
        edges = np.flatnonzero(np.diff(np.concatenate([[0], mask[first].astype(np.int8), [0]])))
        out += [(first, row, int(start), int(stop)) for start, stop in zip(edges[::2], edges[1::2], strict=True)]
        first = row
    return out

"""Plots as numbers: places are percent of the width, which is the reader's, and pixels of the height."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from dslc.records import record

# ---- plots as numbers: percent of the width, pixels of the height --------------------------------------------------

HEIGHT = 220.0  #: pixels of a plot's height
BORDER = 16.0  #: pixels of its borders above and below
LEFT, RIGHT = 15.0, 98.0  #: percent of its width where points begin and end


@record
class Dot:
    """A point of a plot."""

    x: float
    y: float
    kind: str
    title: str


@record
class PlotLine:
    """A line over the whole width with its label."""

    y: float
    label: str
    kind: str = "grid"


@record
class Plot:
    """Points on a scale of logarithms; `band` is the upper side and the height of an interval."""

    height: float
    dots: tuple[Dot, ...]
    lines: tuple[PlotLine, ...]
    band: tuple[float, float] | None = None


def ratios(sizes: Mapping[str, Any]) -> Plot | None:
    """The ratio of each pair, in the order of the rounds; None where there are no pairs."""
    pairs = _timed(sizes)
    values = [one["before_ms"] / one["after_ms"] for one in pairs]
    if not pairs or not all(map(math.isfinite, values)):
        return None
    low, high, ratio = sizes["low"], sizes["high"], sizes["ratio"]
    known = math.isfinite(high) and low > 0 and ratio > 0
    ends = [low, high] if known and high < 20 * low else []
    scale = _Scale([*values, 1.0, *([ratio] if ratio > 0 else []), *ends])
    dots = tuple(
        Dot(
            _x(k, len(pairs)), scale.y(value), "" if one["base_first"] else "second",
            f"pair {k + 1}: {one['before_ms']:.4g} ms and {one['after_ms']:.4g} ms, {value:.3f} times as fast",
        )
        for k, (one, value) in enumerate(zip(pairs, values, strict=True))
    )  # fmt: skip
    lines = [line for line in scale.grid() if line.label != "1"]
    lines += [PlotLine(scale.y(1.0), "1", "one"), *([PlotLine(scale.y(ratio), "", "mid")] if ratio > 0 else [])]
    return Plot(HEIGHT, dots, tuple(lines), (scale.y(high), scale.y(low) - scale.y(high)) if ends else None)


def times(sizes: Mapping[str, Any], names: Sequence[str] = ("before", "after")) -> Plot | None:
    """Milliseconds of both models, called by their names, in each pair; None where there are no pairs."""
    pairs = _timed(sizes)
    values = [one[key] for one in pairs for key in ("before_ms", "after_ms")]
    if not pairs or not all(map(math.isfinite, values)):
        return None
    scale = _Scale(values)
    dots = tuple(
        Dot(_x(k, len(pairs)), scale.y(one[f"{kind}_ms"]), kind, f"pair {k + 1}, {name}: {one[f'{kind}_ms']:.4g} ms")
        for k, one in enumerate(pairs) for kind, name in zip(("before", "after"), names, strict=True)
    )  # fmt: skip
    return Plot(HEIGHT, dots, tuple(scale.grid(" ms")))


def _timed(sizes: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [one for one in sizes["pairs"] if one["before_ms"] > 0 and one["after_ms"] > 0]


class _Scale:
    """Logarithms of some values as places from above."""

    def __init__(self, values: Iterable[float]) -> None:
        found = list(values)
        # a scale has some extent, also where all is equal
        self.low, self.high = math.log(min(found) / 1.02), math.log(max(found) * 1.02)

    def y(self, value: float) -> float:
        part = (math.log(value) - self.low) / (self.high - self.low)
        return round(HEIGHT - BORDER - part * (HEIGHT - 2 * BORDER), 1)

    def grid(self, unit: str = "") -> list[PlotLine]:
        """A few round numbers."""
        low, high = math.exp(self.low), math.exp(self.high)
        if high > 4 * low:
            powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            # over several powers of ten only these
            factors = (1,) if high > 1e4 * low else (1, 2, 5)
            found = [factor * 10.0**power for power in powers for factor in factors]
            return [PlotLine(self.y(value), f"{value:.6g}{unit}") for value in found if low <= value <= high]
        step = 10 ** math.floor(math.log10(high - low))
        step *= next(
            factor for factor in (0.1, 0.2, 0.25, 0.5, 1, 2, 2.5, 5, 10) if (high - low) / (step * factor) <= 6
        )
        values = [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1) if k]
        lines: list[PlotLine] = []
        for value in reversed(values):
            # labels of a scale of logarithms get close to each other above
            if not lines or self.y(value) - lines[-1].y >= 20:
                lines.append(PlotLine(self.y(value), f"{value:.6g}{unit}"))
        return lines


def _x(k: int, count: int) -> float:
    return round(LEFT + (RIGHT - LEFT) * ((k + 0.5) / count), 2)


@record
class PlotBar:
    """Milliseconds of a group of nodes before and after, and both as parts of the longest."""

    label: str
    before: float
    after: float
    before_part: float
    after_part: float


def bars(before: Mapping[str, float], after: Mapping[str, float], most: int = 14) -> tuple[PlotBar, ...]:
    """The groups that take longest in one of the two models, what is left as one more."""
    every = [(name, before.get(name, 0.0), after.get(name, 0.0)) for name in {**before, **after}]
    every.sort(key=lambda row: -max(row[1:]))
    rows, rest = every[:most], every[most:]
    if rest:
        rows.append((f"{len(rest)} others", sum(one for _, one, _ in rest), sum(other for _, _, other in rest)))
    longest = max((max(row[1:]) for row in rows), default=0.0) or 1.0
    return tuple(
        PlotBar(name, one, other, round(one / longest, 4), round(other / longest, 4)) for name, one, other in rows
    )


def by_operator(timed: Sequence[Mapping[str, Any]], kernels: Collection[str] = ()) -> dict[str, float]:
    """Milliseconds by operator; generated kernels are said to be such."""
    out = defaultdict[str, float](float)
    for one in timed:
        out[f"kernel {one['operator']}" if one["operator"] in kernels else one["operator"]] += one["milliseconds"]
    return out


def by_layer(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], most: int = 12
) -> tuple[dict[str, float], dict[str, float]]:
    """Milliseconds of both models by the layers that the names of their nodes tell (`/layer1/conv/Conv`), the same ones for both.

    The layer that takes longest is taken apart as long as there are no more than so many.
    """
    sides = [[(_parts(one["name"]), one["milliseconds"]) for one in timed] for timed in (before, after)]
    cuts: set[tuple[str, ...]] = {()}

    def group(parts: tuple[str, ...]) -> tuple[str, ...]:
        return parts[: next(n for n in range(len(parts), -1, -1) if parts[:n] in cuts) + 1]

    while True:
        total = defaultdict[tuple[str, ...], float](float)
        inside = defaultdict[tuple[str, ...], set[tuple[str, ...]]](set)
        for parts, taken in chain(*sides):
            own = group(parts)
            total[own] += taken
            inside[own].add(parts[: len(own) + 1])
        divisible = [
            own
            for own in total
            if own not in cuts and len(inside[own]) > 1 and len(total) + len(inside[own]) - 1 <= most
        ]
        if not divisible:
            break
        cuts.add(max(divisible, key=lambda own: total[own]))
    out = defaultdict[str, float](float), defaultdict[str, float](float)
    for side, found in zip(sides, out, strict=True):
        for parts, taken in side:
            found["/".join(group(parts)) or "(no name)"] += taken
    return out


def _parts(name: str) -> tuple[str, ...]:
    """`fused /layer1/conv1/Conv` as layer1, conv1, Conv; a name without slashes at its dots."""
    own = name.removeprefix("fused ").removesuffix("_nchwc").strip("/")
    separator = "/" if "/" in own else "."
    return tuple(part for part in own.split(separator) if part)


# ---- pictures of a plane of a set of positions ---------------------------------------------------------------------

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
            at[axis] = int(data.sum(axis=tuple(k for k in range(data.ndim) if k != axis)).argmax())
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
            f'<rect class="equal" x="0.5" y="{top + 0.5}" width="{columns * unit}" height="{rows * unit}"'
            f' fill="{_EQUAL}" stroke="{_LINE}"/>'
        )
        for first, last, start, stop in _rectangles(shown.mask):
            place = f'x="{start * unit + 0.5}" y="{top + first * unit + 0.5}"'
            parts.append(
                f'<rect class="differs" {place} width="{(stop - start) * unit}" height="{(last - first) * unit}" fill="{_DIFFERENT}"/>'
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

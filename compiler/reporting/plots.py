"""Plots as numbers: places are percent of the width, which is the reader's, and pixels of the height."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PlotSize:
    """Pixels of a plot's height and of its borders above and below; percent of its width where points begin and end."""

    height: float = 220.0
    border: float = 16.0
    left: float = 11.0
    right: float = 98.0


@dataclass(frozen=True, slots=True)
class Dot:
    x: float
    y: float
    kind: str
    title: str


@dataclass(frozen=True, slots=True)
class PlotLine:
    """A line over the whole width with its label."""

    y: float
    label: str
    kind: str = "grid"


@dataclass(frozen=True, slots=True)
class Plot:
    """Points on a scale of logarithms; `band` is the upper side and the height of an interval."""

    height: float
    dots: tuple[Dot, ...]
    lines: tuple[PlotLine, ...]
    band: tuple[float, float] | None = None


def ratios(sizes: Mapping[str, Any], size: PlotSize = PlotSize()) -> Plot | None:
    """How many times as fast the second of each pair was, in the order of the rounds; None where there are no pairs."""
    pairs = [one for one in sizes["pairs"] if one["before_ms"] > 0 and one["after_ms"] > 0]
    values = [one["before_ms"] / one["after_ms"] for one in pairs]
    if not pairs or not all(map(math.isfinite, values)):
        return None
    low, high, ratio = sizes["low"], sizes["high"], sizes["ratio"]
    known = math.isfinite(high) and low > 0 and ratio > 0
    ends = [low, high] if known and high < 20 * low else []
    scale = _Scale([*values, 1.0, *([ratio] if ratio > 0 else []), *ends], size)
    dots = tuple(
        Dot(
            _x(k, len(pairs), size), scale.y(value), "" if one["base_first"] else "second",
            f"pair {k + 1}: {one['before_ms']:.4g} ms and {one['after_ms']:.4g} ms, {value:.3f} times as fast",
        )
        for k, (one, value) in enumerate(zip(pairs, values, strict=True))
    )  # fmt: skip
    lines = [line for line in scale.grid() if line.label != "1"]
    lines += [PlotLine(scale.y(1.0), "1", "one"), *([PlotLine(scale.y(ratio), "", "mid")] if ratio > 0 else [])]
    return Plot(size.height, dots, tuple(lines), (scale.y(high), scale.y(low) - scale.y(high)) if ends else None)


def times(sizes: Mapping[str, Any], size: PlotSize = PlotSize()) -> Plot | None:
    """Milliseconds of both models in each pair; None where there are no pairs."""
    pairs = [one for one in sizes["pairs"] if one["before_ms"] > 0 and one["after_ms"] > 0]
    values = [one[key] for one in pairs for key in ("before_ms", "after_ms")]
    if not pairs or not all(map(math.isfinite, values)):
        return None
    scale = _Scale(values, size)
    dots = tuple(
        Dot(_x(k, len(pairs), size), scale.y(one[f"{kind}_ms"]), kind, f"pair {k + 1}, {kind}: {one[f'{kind}_ms']:.4g} ms")
        for k, one in enumerate(pairs) for kind in ("before", "after")
    )  # fmt: skip
    return Plot(size.height, dots, tuple(scale.grid(" ms")))


class _Scale:
    """Logarithms of some values as places from above."""

    def __init__(self, values: Iterable[float], size: PlotSize) -> None:
        found = list(values)
        # a scale has some extent, also where all is equal
        self.low, self.high = math.log(min(found) / 1.02), math.log(max(found) * 1.02)
        self.size = size

    def y(self, value: float) -> float:
        part = (math.log(value) - self.low) / (self.high - self.low)
        return round(self.size.height - self.size.border - part * (self.size.height - 2 * self.size.border), 1)

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


def _x(k: int, count: int, size: PlotSize) -> float:
    return round(size.left + (size.right - size.left) * ((k + 0.5) / count), 2)


@dataclass(frozen=True, slots=True)
class PlotBar:
    """Milliseconds of a group of nodes before and after, and both as parts of the longest."""

    label: str
    before: float
    after: float
    before_part: float
    after_part: float


def bars(before: Mapping[str, float], after: Mapping[str, float], most: int = 14) -> tuple[PlotBar, ...]:
    """The groups that take longest in one of the two models, what is left as one more."""
    names = sorted({*before, *after}, key=lambda name: -max(before.get(name, 0.0), after.get(name, 0.0)))
    shown, rest = names[:most], names[most:]
    rows = [(name, before.get(name, 0.0), after.get(name, 0.0)) for name in shown]
    if rest:
        rows.append(
            (f"{len(rest)} others", sum(before.get(n, 0.0) for n in rest), sum(after.get(n, 0.0) for n in rest))
        )
    longest = max((max(one, other) for _, one, other in rows), default=0.0) or 1.0
    return tuple(
        PlotBar(name, one, other, round(one / longest, 4), round(other / longest, 4)) for name, one, other in rows
    )


def by_operator(timed: Sequence[Mapping[str, Any]], kernels: Collection[str] = ()) -> dict[str, float]:
    """Milliseconds by operator; generated kernels are said to be such."""
    out: dict[str, float] = {}
    for one in timed:
        label = f"kernel {one['operator']}" if one["operator"] in kernels else one["operator"]
        out[label] = out.get(label, 0.0) + one["milliseconds"]
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
        depth = next(n for n in range(len(parts), -1, -1) if parts[:n] in cuts)
        return parts[: depth + 1]

    while True:
        total: dict[tuple[str, ...], float] = {}
        inside: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
        for parts, taken in (one for side in sides for one in side):
            own = group(parts)
            total[own] = total.get(own, 0.0) + taken
            inside.setdefault(own, set()).add(parts[: len(own) + 1])
        divisible = [
            own
            for own in total
            if own not in cuts and len(inside[own]) > 1 and len(total) + len(inside[own]) - 1 <= most
        ]
        if not divisible:
            break
        cuts.add(max(divisible, key=lambda own: total[own]))
    out: list[dict[str, float]] = []
    for side in sides:
        found: dict[str, float] = {}
        for parts, taken in side:
            label = "/".join(group(parts)) or "(no name)"
            found[label] = found.get(label, 0.0) + taken
        out.append(found)
    return out[0], out[1]


def _parts(name: str) -> tuple[str, ...]:
    """`fused /layer1/conv1/Conv` as layer1, conv1, Conv; a name without slashes at its dots."""
    own = name.removeprefix("fused ").removesuffix("_nchwc").strip("/")
    separator = "/" if "/" in own else "."
    return tuple(part for part in own.split(separator) if part)

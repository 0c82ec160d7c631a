"""Layered drawings of directed graphs: layers and coordinates are linear programs, the order within layers is by medians.

Gansner, Koutsofios, North, Vo, "A technique for drawing directed graphs", IEEE TSE 19(3), 1993. An edge over several layers goes
through a point in each of them; edges of one source share these points.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from dslc.analysis.linear_programs import least

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Spacing:
    """Pixels between boxes of a layer, between layers, and beside a point of an edge; how far a program may go.

    rounds: sweeps over all layers that order them. seconds: for each of the two linear programs; what is not solved in that time is
    drawn one below the other.
    """

    beside: float = 26.0
    below: float = 34.0
    passing: float = 10.0
    rounds: int = 12
    seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class LayeredLayout:
    """Left upper corners of boxes, points of edges from their source's lower side to their target's upper one, and the whole's size."""

    corners: tuple[Point, ...]
    routes: Mapping[tuple[int, int], tuple[Point, ...]]
    width: float
    height: float


@dataclass(slots=True)
class _Layers:
    """Boxes, and behind them the points of long edges, by layers; `links` go from one layer to the next."""

    layer: list[int]
    width: list[float]
    links: dict[tuple[int, int], float] = field(default_factory=dict)
    rows: list[list[int]] = field(default_factory=list)
    chains: dict[tuple[int, int], list[int]] = field(default_factory=dict)


def layered(
    sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]], spacing: Spacing = Spacing()
) -> LayeredLayout:
    """Places boxes of some widths and heights so that all edges go down; edges that would close a circle are left out."""
    if not sizes:
        return LayeredLayout((), {}, 0.0, 0.0)
    edges = acyclic(len(sizes), edges)
    layers = _with_points(_ranks(len(sizes), edges, spacing), sizes, edges, spacing)
    _order(layers, spacing.rounds)
    center = _centers(layers, spacing)
    left = min(x - width / 2 for x, width in zip(center, layers.width, strict=True))
    center = [x - left for x in center]
    tops: list[float] = []
    y = 0.0
    heights = [max((sizes[n][1] for n in row if n < len(sizes)), default=0.0) for row in layers.rows]
    for height in heights:
        tops.append(y)
        y += height + spacing.below
    corners = tuple((center[n] - size[0] / 2, tops[layers.layer[n]]) for n, size in enumerate(sizes))
    routes: dict[tuple[int, int], tuple[Point, ...]] = {}
    for (source, target), points in layers.chains.items():
        inner = [
            (center[n], tops[layers.layer[n]] + part * heights[layers.layer[n]]) for n in points for part in (0.0, 1.0)
        ]
        routes[source, target] = (
            (center[source], corners[source][1] + sizes[source][1]), *inner, (center[target], corners[target][1]),
        )  # fmt: skip
    width = max(x + size / 2 for x, size in zip(center, layers.width, strict=True))
    return LayeredLayout(corners, routes, width, y - spacing.below)


def acyclic(count: int, edges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The edges, each once, without those that close a circle with the ones before them."""
    below: list[list[int]] = [[] for _ in range(count)]
    for source, target in dict.fromkeys(edges):
        if source != target:
            below[source].append(target)
    state, back = [0] * count, set[tuple[int, int]]()
    for root in range(count):
        stack = [(root, iter(below[root]))] if not state[root] else []
        state[root] = state[root] or 1
        while stack:
            node, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                state[node] = 2
                stack.pop()
            elif state[following] == 1:
                back.add((node, following))
            elif not state[following]:
                state[following] = 1
                stack.append((following, iter(below[following])))
    return [edge for edge in dict.fromkeys(edges) if edge[0] != edge[1] and edge not in back]


def _ranks(count: int, edges: Sequence[tuple[int, int]], spacing: Spacing) -> list[int]:
    """Layers for which all edges together are the shortest."""
    longest = [0] * count
    waiting, below = [0] * count, dict[int, list[int]]()
    for source, target in edges:
        waiting[target] += 1
        below.setdefault(source, []).append(target)
    ready = [n for n in range(count) if not waiting[n]]
    while ready:
        node = ready.pop()
        for target in below.get(node, ()):
            longest[target] = max(longest[target], longest[node] + 1)
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    cost = [0.0] * count
    for source, target in edges:
        cost[target] += 1
        cost[source] -= 1
    rows = [([(target, 1.0), (source, -1.0)], 1.0) for source, target in edges]
    found = least(cost, rows, spacing.seconds) if edges else None
    ranks = longest if found is None else [round(x) for x in found]
    if any(ranks[target] <= ranks[source] for source, target in edges):
        ranks = longest
    names = {rank: k for k, rank in enumerate(sorted(set(ranks)))}
    return [names[rank] for rank in ranks]


def _with_points(
    ranks: list[int], sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]], spacing: Spacing
) -> _Layers:
    """Layers with a point of each long edge in each layer between its ends."""
    layers = _Layers(list(ranks), [width for width, _ in sizes])
    passing: dict[tuple[int, int], int] = {}

    def link(one: int, other: int) -> None:
        layers.links[one, other] = layers.links.get((one, other), 0.0) + 1.0

    for source, target in edges:
        at, points = source, list[int]()
        for layer in range(ranks[source] + 1, ranks[target]):
            point = passing.get((source, layer))
            if point is None:
                point = passing[source, layer] = len(layers.layer)
                layers.layer.append(layer)
                layers.width.append(spacing.passing)
            link(at, point)
            points.append(point)
            at = point
        link(at, target)
        layers.chains[source, target] = points
    layers.rows = [[] for _ in range(max(layers.layer) + 1)]
    # depth first: what belongs together begins side by side
    below: dict[int, list[int]] = {}
    above = [0] * len(layers.layer)
    for one, other in layers.links:
        below.setdefault(one, []).append(other)
        above[other] += 1
    seen = set[int]()
    stack = [n for n in reversed(range(len(layers.layer))) if not above[n]]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            layers.rows[layers.layer[node]].append(node)
            stack.extend(reversed(below.get(node, [])))
    return layers


def _order(layers: _Layers, rounds: int) -> None:
    """Sweeps down and up: every layer by the mean position of what its members are linked with; the order with the fewest crossings."""
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for one, other in layers.links:
        above.setdefault(other, []).append(one)
        below.setdefault(one, []).append(other)
    place = {node: float(k) for row in layers.rows for k, node in enumerate(row)}
    best, least = [list(row) for row in layers.rows], _crossings(layers, place)
    for turn in range(rounds):
        if not least:
            break
        near, rows = (above, layers.rows[1:]) if turn % 2 == 0 else (below, layers.rows[-2::-1])
        for row in rows:
            wanted = {n: sum(place[other] for other in near[n]) / len(near[n]) if n in near else place[n] for n in row}
            row.sort(key=wanted.__getitem__)
            place.update((node, float(k)) for k, node in enumerate(row))
        count = _crossings(layers, place)
        if count < least:
            best, least = [list(row) for row in layers.rows], count
    layers.rows = best


def _crossings(layers: _Layers, place: Mapping[int, float]) -> int:
    """How many pairs of links cross each other."""
    by_layer: dict[int, list[tuple[float, float]]] = {}
    for one, other in layers.links:
        by_layer.setdefault(layers.layer[one], []).append((place[one], place[other]))
    total = 0
    for links in by_layer.values():
        links.sort()
        # inversions of the lower ends, by a sorted list
        ends: list[float] = []
        for _, end in links:
            at = bisect_right(ends, end)
            total += len(ends) - at
            ends.insert(at, end)
    return total


def _centers(layers: _Layers, spacing: Spacing) -> list[float]:
    """Where links are the straightest, long edges before others, and neighbours keep apart."""
    count, boxes = len(layers.layer), len(layers.layer) - len({n for points in layers.chains.values() for n in points})
    apart: list[tuple[int, int, float]] = []
    packed = [0.0] * count
    for row in layers.rows:
        for one, other in pairwise(row):
            gap = (layers.width[one] + layers.width[other]) / 2 + spacing.beside
            apart.append((one, other, gap))
            packed[other] = packed[one] + gap
        middle = (packed[row[0]] + packed[row[-1]]) / 2
        for node in row:
            packed[node] -= middle
    if not apart:
        return packed
    links = list(layers.links)
    weights = [(8.0 if min(one, other) >= boxes else 2.0 if max(one, other) >= boxes else 1.0) for one, other in links]
    cost = [*([0.0] * count), *weights]
    rows: list[tuple[list[tuple[int, float]], float]] = [
        ([(other, 1.0), (one, -1.0)], gap) for one, other, gap in apart
    ]
    for k, (one, other) in enumerate(links):
        rows.append(([(count + k, 1.0), (one, 1.0), (other, -1.0)], 0.0))
        rows.append(([(count + k, 1.0), (one, -1.0), (other, 1.0)], 0.0))
    found = least(cost, rows, spacing.seconds)
    return packed if found is None else found[:count]

"""Layered drawings of directed graphs: boxes below all that they read, ordered and placed by the mean place of their neighbours.

Sugiyama, Tagawa, Toda, "Methods for visual understanding of hierarchical system structures", IEEE SMC 11(2), 1981. An edge over
several layers goes through a point in each of them; edges of one source share these points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from itertools import accumulate, pairwise

from dslc.records import record

Point = tuple[float, float]

BESIDE = 26.0  #: pixels between boxes of a layer
BELOW = 34.0  #: pixels between layers
PASSING = 10.0  #: pixels of a point of an edge
ROUNDS = 16  #: sweeps over all layers; the last quarter keeps their order
STRAIGHT = 8.0  #: weight of a point of a long edge, where that of a box is 1


@record
class LayeredLayout:
    """Left upper corners of boxes, points of edges from their source's lower side to their target's upper one, and the whole's size."""

    corners: tuple[Point, ...]
    routes: Mapping[tuple[int, int], tuple[Point, ...]]
    width: float
    height: float


def layered(sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> LayeredLayout:
    """Places boxes of some widths and heights so that all edges go down; edges that would close a circle are left out."""
    if not sizes:
        return LayeredLayout((), {}, 0.0, 0.0)
    edges = acyclic(len(sizes), edges)
    layer, widths = _ranks(len(sizes), edges), [width for width, _ in sizes]
    passing: dict[tuple[int, int], int] = {}
    chains: dict[tuple[int, int], list[int]] = {}
    for source, target in edges:
        chains[source, target] = points = []
        for k in range(layer[source] + 1, layer[target]):
            if (source, k) not in passing:
                passing[source, k] = len(layer)
                layer.append(k)
                widths.append(PASSING)
            points.append(passing[source, k])
    links = dict.fromkeys(link for (one, other), points in chains.items() for link in pairwise((one, *points, other)))
    center = _centers(layer, widths, list(links), len(sizes))
    left = min(x - width / 2 for x, width in zip(center, widths, strict=True))
    heights = [0.0] * (max(layer) + 1)
    for (_, height), k in zip(sizes, layer, strict=False):
        heights[k] = max(heights[k], height)
    tops = list(accumulate((height + BELOW for height in heights), initial=0.0))
    corners = tuple((center[n] - left - width / 2, tops[layer[n]]) for n, (width, _) in enumerate(sizes))
    routes = {
        (source, target): (
            (center[source] - left, corners[source][1] + sizes[source][1]),
            *((center[n] - left, tops[layer[n]] + part * heights[layer[n]]) for n in points for part in (0.0, 1.0)),
            (center[target] - left, corners[target][1]),
        )
        for (source, target), points in chains.items()
    }
    width = max(x + width / 2 for x, width in zip(center, widths, strict=True)) - left
    return LayeredLayout(corners, routes, width, tops[-1] - BELOW)


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


def _ranks(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The layers of boxes: below all that they read, and of those that read nothing just above the first that reads them."""
    above: dict[int, list[int]] = {node: [] for node in range(count)}
    for source, target in edges:
        above[target].append(source)
    ranks = [0] * count
    for node in TopologicalSorter(above).static_order():
        ranks[node] = max((ranks[one] + 1 for one in above[node]), default=0)
    readers: dict[int, int] = {}
    for source, target in edges:
        readers[source] = min(ranks[target], readers.get(source, ranks[target]))
    return [readers[n] - 1 if n in readers and not above[n] else rank for n, rank in enumerate(ranks)]


def _centers(
    layer: Sequence[int], widths: Sequence[float], links: Sequence[tuple[int, int]], boxes: int
) -> list[float]:
    """Places in layers: sweeps down and up put each member near the mean of what it is linked with, and keep neighbours apart."""
    above: list[list[int]] = [[] for _ in layer]
    below: list[list[int]] = [[] for _ in layer]
    for one, other in links:
        above[other].append(one)
        below[one].append(other)
    rows: list[list[int]] = [[] for _ in range(max(layer) + 1)]
    for node, k in enumerate(layer):
        rows[k].append(node)
    center = [0.0] * len(layer)
    for turn in range(ROUNDS):
        settled = turn >= 3 * ROUNDS // 4
        for row in rows if turn % 2 == 0 else reversed(rows):
            wanted = dict.fromkeys(row, 0.0)
            for node in row:
                near = above[node] + below[node] if settled else above[node] if turn % 2 == 0 else below[node]
                wanted[node] = sum(center[one] for one in near) / len(near) if near else center[node]
            if not settled:
                row.sort(key=wanted.__getitem__)
            _apart(row, wanted, widths, boxes, center)
    return center


def _apart(
    row: Sequence[int], wanted: Mapping[int, float], widths: Sequence[float], boxes: int, center: list[float]
) -> None:
    """Sets the centers of a layer the nearest to those wanted that keep its members apart (least squares, by pooling neighbours)."""
    offsets: list[float] = []
    pools: list[tuple[float, float, int]] = []
    for k, node in enumerate(row):
        offsets.append(offsets[-1] + (widths[row[k - 1]] + widths[node]) / 2 + BESIDE if k else 0.0)
        weight = STRAIGHT if node >= boxes else 1.0
        total, count = weight * (wanted[node] - offsets[k]), 1
        while pools and pools[-1][0] / pools[-1][1] > total / weight:
            last = pools.pop()
            total, weight, count = total + last[0], weight + last[1], count + last[2]
        pools.append((total, weight, count))
    means = [total / weight for total, weight, count in pools for _ in range(count)]
    for node, mean, offset in zip(row, means, offsets, strict=True):
        center[node] = mean + offset

"""Models as layered drawings: chains of nodes are boxes with a row for each node, and long ones are shortened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

from dslc.records import record
from dslc.reporting.layout import acyclic, layered

WIDTH = 232.0  #: pixels of a row's width
ROW = 19.0  #: pixels of a row's height
LETTERS = 32  #: letters of a row
ROWS = 9  #: rows of a chain that are shown
MOST = 20_000  #: nodes above which nothing is drawn


@record
class DrawnRow:
    """A node, or several in the middle of a long chain: its place in the drawing, texts, and nodes by number."""

    x: float
    y: float
    operator: str
    label: str
    time: str
    title: str
    nodes: tuple[int, ...]
    changed: bool
    hue: str

    @property
    def more(self) -> bool:
        return len(self.nodes) > 1


@record
class Drawing:
    """Rows, frames around them (x, y, width, height), edges as paths; `ends` are the model's inputs and outputs."""

    rows: tuple[DrawnRow, ...]
    frames: tuple[tuple[float, float, float, float], ...]
    edges: tuple[str, ...]
    ends: tuple[tuple[float, float, float, str], ...]
    width: float
    height: float


def drawing(picture: Mapping[str, Any], hues: Mapping[str, str], kernels: Collection[str] = ()) -> Drawing | None:
    """A model as it is drawn, `kernels` being operators that were generated; None for one without nodes, or with too many."""
    nodes: Sequence[Mapping[str, Any]] = picture["nodes"]
    if not nodes or len(nodes) > MOST:
        return None
    giver = {name: k for k, node in enumerate(nodes) for name in node["outputs"]}
    edges = [
        (giver[name], k) for k, node in enumerate(nodes) for name in dict.fromkeys(node["inputs"]) if name in giver
    ]
    boxes = _chains(len(nodes), acyclic(len(nodes), edges))
    box_of = {node: k for k, chain in enumerate(boxes) for node in chain}
    parts = [_parts(chain, nodes) for chain in boxes]
    sizes = [(WIDTH, ROW * len(each)) for each in parts]
    # inputs and outputs are boxes of their own
    ends = [*picture["inputs"], *(name for name in picture["outputs"] if name in giver)]
    links = [(box_of[one], box_of[other]) for one, other in edges if box_of[one] != box_of[other]]
    readers: dict[str, list[int]] = {}
    for k, node in enumerate(nodes):
        for name in node["inputs"]:
            readers.setdefault(name, []).append(box_of[k])
    sizes += [(WIDTH * 0.7, ROW)] * len(ends)
    for k, name in enumerate(ends, len(boxes)):
        links += [(box_of[giver[name]], k)] if name in giver else [(k, box) for box in readers.get(name, ())]
    found = layered(sizes, links)
    corners = [(round(x, 1), round(y, 1)) for x, y in found.corners]
    rows = tuple(
        _row(part, nodes, hues, kernels, left, round(top + n * ROW, 1))
        for (left, top), each in zip(corners, parts, strict=False)
        for n, part in enumerate(each)
    )
    frames = tuple((*corners[k], WIDTH, ROW * len(each)) for k, each in enumerate(parts))
    names = tuple((*corners[k], sizes[k][0], _short(name, 24)) for k, name in enumerate(ends, len(boxes)))
    return Drawing(rows, frames, tuple(map(_path, found.routes.values())), names, found.width, found.height)


def _chains(count: int, edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Nodes joined with the only one that reads them, where they are the only one that it reads."""
    below: dict[int, set[int]] = {}
    above: dict[int, set[int]] = {}
    for one, other in edges:
        below.setdefault(one, set()).add(other)
        above.setdefault(other, set()).add(one)
    following = {
        one: next(iter(others))
        for one, others in below.items()
        if len(others) == 1 and len(above[next(iter(others))]) == 1
    }
    inner = set(following.values())
    out: list[list[int]] = []
    for node in range(count):
        if node not in inner:
            chain = [node]
            while chain[-1] in following:
                chain.append(following[chain[-1]])
            out.append(chain)
    return out


def _parts(chain: Sequence[int], nodes: Sequence[Mapping[str, Any]]) -> list[tuple[int, ...]]:
    """The rows of a chain: each node, of a long one the first and the last, what was changed, and what is between as one."""
    if len(chain) <= ROWS:
        return [(node,) for node in chain]
    half = ROWS // 2
    kept = {*chain[:half], *chain[-half:]}
    changed = [node for node in chain if nodes[node]["changed"]]
    if len(changed) <= 2 * ROWS:
        kept |= set(changed)
    out: list[tuple[int, ...]] = []
    for node in chain:
        if node in kept or not out or (len(out[-1]) == 1 and out[-1][0] in kept):
            out.append((node,))
        else:
            out[-1] = (*out[-1], node)
    return out


def _row(
    part: tuple[int, ...], nodes: Sequence[Mapping[str, Any]], hues: Mapping[str, str], kernels: Collection[str], x: float, y: float,
) -> DrawnRow:  # fmt: skip
    own = [nodes[k] for k in part]
    rule = next((rule for node in own for rule in node["rules"]), "")
    changed = any(node["changed"] for node in own)
    taken = [node["milliseconds"] for node in own if node["milliseconds"] is not None]
    time = f"{sum(taken):.2g}" if taken and sum(taken) >= 5e-4 else ""
    if len(own) > 1:
        counts = Counter(node["operator"].rpartition(".")[2] for node in own)
        said = ", ".join(f"{name} {count}" for name, count in counts.most_common(3))
        label = _short(f"{len(own)} more: {said}", LETTERS - 5)
        return DrawnRow(x, y, "", label, time, f"{len(own)} nodes", part, changed, hues.get(rule, ""))
    node = own[0]
    operator = node["operator"].rpartition(".")[2]
    operator = "kernel" if operator in kernels else _short(operator, 16)
    room = LETTERS - len(operator) - len(time) - 2
    # the end of a name says more than what all names begin with
    label = node["name"]
    if len(label) > room:
        label = "…" + label[len(label) - room + 1 :] if room > 2 else ""
    title = "\n".join([f"{node['operator']} {node['name']}", *node["rules"], *([f"{time} ms"] if time else [])])
    return DrawnRow(x, y, operator, label, time, title, part, changed, hues.get(rule, ""))


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _path(points: Sequence[tuple[float, float]]) -> str:
    """A curve through points, which leaves and enters boxes downward."""
    out = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for (x0, y0), (x1, y1) in pairwise(points):
        middle = (y0 + y1) / 2
        out.append(
            f"V{y1:.1f}" if abs(x0 - x1) < 0.1 else f"C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
        )
    return "".join(out)

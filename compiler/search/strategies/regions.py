"""A large graph in regions: a few dozen nodes each, every one a graph of its own over holes.

A hole stands for a value from outside; weights are holes too, of which only the type is known. So parts of a graph that do the same
with other weights are one region, which is looked at once whatever the number of its places. Regions end where few values cross,
and where they end is decided by what stands there: a block that is repeated is cut in the same places each time.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dslc.cost.evaluation import Evaluation
from dslc.cost.groups import Group
from dslc.cost.model import CostModel
from dslc.ir.constants import number_of
from dslc.ir.graph import (
    Constant,
    Graph,
    Input,
    Node,
    Opaque,
    Value,
    Values,
    constant_value,
    input_value,
    nodes_of,
    replace,
    with_args,
)
from dslc.records import record

WHOLE = 300  #: nodes of a graph that is one region
FEWEST = 32  #: nodes of a region at least, where its graph has places to cut it at
MOST = 96  #: nodes of a region at most, where its graph has places to cut it at
NARROW = 4  #: values that may cross a cut
WIDEST = 256  #: nodes of a region that ends where half as many values cross, if more than those would cross before
BLOCK = 5  #: nodes of a block that is repeated at once
NEAR = 48  #: nodes of a region around what lies far apart
#: elements of a constant of integers that keeps its contents, as where costs are measured: they decide what is
#: touched
KEPT = 4096


@record
class Region:
    """A graph over `holes`: its inputs, and its weights."""

    graph: Graph
    holes: Values


@record
class RegionPlace:
    """A place of a region in a graph: the values of its holes and of its outputs there."""

    region: Region
    args: Values
    outputs: Values

    def filled(self, values: Sequence[Value], args: Sequence[Value]) -> Values:
        """Values of the region with the holes filled in."""
        return replace(tuple(values), dict(zip(self.region.holes, args, strict=True)))


@record
class _Weight:
    """The elements of a weight that any may stand for."""

    number: int

    @property
    def key(self) -> str:
        return f"hole:{self.number}"

    def load(self) -> Any:
        raise LookupError("a hole stands for any weight")


class RegionMap:
    """A graph as groups of nodes that run as one, in an order in which arguments come first, with its regions of several kinds."""

    def __init__(
        self, graph: Graph, costs: CostModel, evaluation: Evaluation | None = None, small: bool = False
    ) -> None:
        """Cut a graph; `evaluation` is of it, where there is one already.

        `small`: of equal places to cut it at the nearest, since small regions are repeated more often.
        """
        self.graph = graph
        self._small = small
        found = evaluation or costs.evaluate(graph)
        self.position = {node: k for k, node in enumerate(nodes_of(graph.outputs))}
        self.groups: list[Group] = sorted(found.groups, key=lambda group: self.position[group.nodes[-1]])
        self._keys = [costs.keys.of(group) for group in self.groups]
        self._at = {node: k for k, group in enumerate(self.groups) for node in group.nodes}
        self._users: dict[Value, list[int]] = {}
        # a weight that several operators share, as the steps of a recurrent network do
        self._shared: dict[Value, list[int]] = {}
        for k, group in enumerate(self.groups):
            for arg in dict.fromkeys(arg for args in group.args for arg in args):
                (self._shared if arg.constant else self._users).setdefault(arg, []).append(k)
        self._outputs = set(graph.outputs)
        # opaque nodes have no readers here, and hold on to what they read
        self._held = {arg for node in self.position if isinstance(node, Opaque) for arg in node.args}
        self._levels = self._opaque_levels()
        self._cuts = self._narrow()
        if small and not self.repeated() and 2 * self._again(blocks := self._blocks()) >= self._nodes(0):
            self._cuts = blocks
        self._middles = self._between(self._cuts)

    def places(self, turn: int) -> list[RegionPlace]:
        """Return regions that share no node, of three kinds in turn.

        They lie around values whose users lie far apart, since what is done near each of them may stand in the way of what is done
        for all; between the narrowest points; and between the middles of these.
        """
        kind = turn % 3
        parts = self._intervals(self._cuts if kind == 1 else self._middles) if kind else self._far(turn // 3)
        return [place for part in parts if (place := self._place(part))]

    # ---- what stands near to each other -----------------------------------------------------------------------------

    def _intervals(self, cuts: Sequence[int]) -> Iterator[list[int]]:
        """The groups between cuts; of those that an opaque node lies between, each by itself."""
        for first, end in itertools.pairwise(cuts):
            levels: dict[int, list[int]] = {}
            for k in range(first, end):
                levels.setdefault(self._levels[k], []).append(k)
            yield from levels.values()

    def _opaque_levels(self) -> list[int]:
        """Return how many opaque nodes each group comes after; groups between two of one level are of that level, too."""
        level: dict[Node, int] = {}
        for node in self.position:
            below = max((level[arg.node] for arg in node.args if not arg.constant), default=0)
            level[node] = below + (isinstance(node, Opaque) and any(not arg.constant for arg in node.args))
        return [level[group.nodes[-1]] for group in self.groups]

    def _widths(self) -> list[int]:
        """Return how many values are used on both sides, for the place behind every group."""
        steps = [0] * (len(self.groups) + 1)
        for value, users in self._users.items():
            made = self._at.get(value.node)
            if made is not None:
                steps[made] += 1
                steps[max(made, users[-1])] -= 1
        return list(itertools.accumulate(steps))

    def _narrow(self) -> list[int]:
        """Cut the graph at the narrowest place that is neither too near nor too far, of equals by what stands there."""
        count = len(self.groups)
        widths = self._widths()
        self._rank = [
            (widths[k - 1], hash(tuple(self._keys[max(0, k - 2) : k + 2]))) if k else (0, 0) for k in range(count)
        ]
        cuts = [0]
        while cuts[-1] < count:
            cuts.append(self._next(cuts[-1]))
        return cuts

    def _next(self, at: int) -> int:
        """Return the end of the interval that begins at a group."""
        count, nodes = len(self.groups), 0
        rest = sum(len(group.nodes) for group in self.groups[at : at + 2 * MOST])
        best: int | None = None
        for k in range(at + 1, count + 1):
            nodes += len(self.groups[k - 1].nodes)
            if nodes <= MOST:
                if k == count:
                    return count if best is None or not self._small else best
                if nodes < FEWEST or (self._small and rest - nodes < FEWEST):
                    continue
                if (
                    best is None
                    or self._rank[k] < self._rank[best]
                    or (self._rank[k] == self._rank[best] and not self._small)
                ):
                    best = k
            elif best is None:
                return k
            elif self._rank[best][0] <= NARROW or nodes > WIDEST:
                return best
            elif k == count or 2 * self._rank[k][0] <= self._rank[best][0]:
                # branches side by side are not cut where they soon come together
                return k
        return count if best is None else best

    def _blocks(self) -> list[int]:
        """Cuts around the shortest blocks that are repeated at once, where nowhere fewer values cross; what lies between is whole."""
        count, keys = len(self.groups), self._keys
        least = min((rank[0] for rank in self._rank[1:]), default=0)
        narrow = [k for k in range(1, count + 1) if k == count or self._rank[k][0] <= least]
        places, cuts, at = {0, *narrow}, [0], 0

        def repeats(first: int, length: int) -> bool:
            after = first + length
            return after + length in places and keys[first:after] == keys[after : after + length]

        while at < count:
            near = [k for k in narrow if at < k and self._nodes(at, k) <= MOST]
            end = next((k for k in near if self._nodes(at, k) >= BLOCK and repeats(at, k - at)), None)
            if end is None:
                at = next((k for k in narrow if k > at), count)
                continue
            if at > cuts[-1]:
                cuts.append(at)
            length = end - at
            while repeats(at, length):
                at += length
                cuts.append(at)
            at += length
            cuts.append(at)
        return cuts if cuts[-1] == count else [*cuts, count]

    def _nodes(self, first: int, end: int | None = None) -> int:
        """Count the nodes of some groups."""
        return sum(len(group.nodes) for group in self.groups[first:end])

    def _again(self, cuts: Sequence[int]) -> int:
        """Count the nodes between cuts that have the same between them as others."""
        parts = [(tuple(self._keys[first:end]), self._nodes(first, end)) for first, end in itertools.pairwise(cuts)]
        often = Counter(part for part, _ in parts)
        return sum(nodes for part, nodes in parts if often[part] > 1)

    def repeated(self) -> bool:
        """Return whether half of the nodes are in regions that are the same as others."""
        return 2 * self._again(self._cuts) >= self._nodes(0)

    def _between(self, cuts: Sequence[int]) -> list[int]:
        """A cut in the middle half of each interval."""
        out = [0]
        for first, end in itertools.pairwise(cuts):
            quarter = (end - first) // 4
            inside = range(max(first + quarter, out[-1] + 1), max(end - quarter, first + quarter + 1))
            if inside:
                out.append(min(inside, key=lambda k: self._rank[k]))
        return [*out, len(self.groups)]

    # ---- what lies far apart ----------------------------------------------------------------------------------------

    def _far(self, turn: int) -> Iterator[list[int]]:
        """Around every value, weights included, whose producer and users no other region holds together; no two share a group."""
        spans = []
        for cuts in (self._cuts, self._middles):
            of: list[int] = []
            for number, (first, end) in enumerate(itertools.pairwise(cuts)):
                of += [number] * (end - first)
            spans.append(of)

        def together(groups: Sequence[int]) -> bool:
            return any(len({of[k] for k in groups}) == 1 for of in spans)

        wide: list[tuple[Value, list[int]]] = []
        shared = [(value, users) for value, users in self._shared.items() if len(users) > 1 and not _said(value)]
        for value, users in [*self._users.items(), *shared]:
            made = self._at.get(value.node)
            if not together(users if made is None else [made, *users]) and len(users) + (made is not None) > 1:
                wide.append((value, users))
        start = (turn * len(wide)) // 3 % max(1, len(wide))
        taken: set[int] = set()
        for value, users in [*wide[start:], *wide[:start]]:
            for part in (self._cone(value, users), self._ball(value, users)):
                part = [k for k in part if k not in taken]
                if len(part) > 1 and not together(part):
                    taken.update(part)
                    yield sorted(part)

    def _cone(self, value: Value, users: Sequence[int]) -> list[int]:
        """Groups that are computed from one value and weights alone."""
        found: dict[int, None] = {}
        known: set[Value] = {value}
        queue, nodes = list(users), 0
        for k in queue:
            group = self.groups[k]
            inside = set(group.nodes)
            outer = (arg for args in group.args for arg in args if not arg.constant and arg.node not in inside)
            if k in found or not all(arg in known for arg in outer):
                continue
            nodes += len(group.nodes)
            if nodes > NEAR:
                break
            found[k] = None
            for result in group.nodes[-1].values:
                known.add(result)
                queue.extend(self._users.get(result, ()))
        return list(found)

    def _ball(self, value: Value, users: Sequence[int]) -> list[int]:
        """A value's producer, its users, and what stands next to these, nearest first."""
        found: dict[int, None] = {}
        queue, nodes = [*([self._at[value.node]] if value.node in self._at else []), *users], 0
        for k in queue:
            if k in found:
                continue
            group = self.groups[k]
            nodes += len(group.nodes)
            if nodes > NEAR:
                break
            found[k] = None
            for args in group.args:
                queue.extend(self._at[arg.node] for arg in args if arg.node in self._at)
            for result in group.nodes[-1].values:
                queue.extend(self._users.get(result, ()))
        return list(found)

    # ---- graphs over holes ------------------------------------------------------------------------------------------

    def _place(self, part: Iterable[int]) -> RegionPlace | None:
        chosen = set(part)
        nodes = sorted((node for k in chosen for node in self.groups[k].nodes), key=self.position.__getitem__)
        outputs = [
            value
            for node in nodes
            for value in node.values
            if value in self._outputs or value in self._held or any(k not in chosen for k in self._users.get(value, ()))
        ]
        return over_holes(nodes, outputs) if outputs else None


def over_holes(nodes: Sequence[Node], outputs: Sequence[Value]) -> RegionPlace:
    """Nodes of a graph, arguments first, as a region, and where it stands."""
    new: dict[Value, Value] = {}
    args: list[Value] = []
    inside = set(nodes)

    def hole(value: Value) -> Value:
        type = value.type_or_none
        number = len(args)
        args.append(value)
        if value.constant and type:
            return constant_value(_Weight(number), type)
        # no input of a model has such a name
        return input_value(f"\0hole {number}", type)

    def bring(value: Value) -> None:
        if value in new:
            return
        if not value.constant:
            new[value] = hole(value)
            return
        for node in nodes_of([value]):
            if node.values[0] in new:
                continue
            if not node.args:
                known = isinstance(node, Constant) and _said(node.values[0])
                new[node.values[0]] = node.values[0] if known else hole(node.values[0])
            else:
                new.update(zip(node.values, with_args(node, tuple(new[arg] for arg in node.args)), strict=True))

    for node in nodes:
        for arg in node.args:
            if arg.node not in inside:
                bring(arg)
        new.update(zip(node.values, with_args(node, tuple(new[arg] for arg in node.args)), strict=True))
    holes = tuple(new[arg] for arg in args)
    graph = Graph(tuple(one for one in holes if isinstance(one.node, Input)), tuple(new[value] for value in outputs))
    return RegionPlace(Region(graph, holes), tuple(args), tuple(outputs))


def _said(value: Value) -> bool:
    """Return whether the contents of a constant matter: one number everywhere, or small integers."""
    type = value.type_or_none
    if type is None or number_of(value) is not None:
        return True
    return not type.dtype.is_float and type.is_static and type.elements <= KEPT

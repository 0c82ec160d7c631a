"""The cost of one graph, and of every graph that is one rewrite away, without building those."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from dslc.cost.groups import Group, groups_of, working_nodes
from dslc.cost.layout import layout_cost, port_of
from dslc.cost.pairs import Pair, pairs_of
from dslc.ir.graph import Call, Graph, Input, Node, Value

if TYPE_CHECKING:
    from dslc.cost.model import CostModel


class Evaluation:
    """A graph divided into groups with their costs. `cost` is their sum, in seconds."""

    def __init__(self, model: CostModel, graph: Graph) -> None:
        self._model = model
        self.graph = graph
        self._nodes = working_nodes(graph.outputs)
        self._position = {node: k for k, node in enumerate(self._nodes)}
        self._uses: dict[Value, int] = {}
        self._users: dict[Value, list[Node]] = {}
        for node in self._nodes:
            for arg in node.args:
                self._uses[arg] = self._uses.get(arg, 0) + 1
                if not arg.node.constant:
                    self._users.setdefault(arg, []).append(node)
        for value in graph.outputs:
            self._uses[value] = self._uses.get(value, 0) + 1
        self.groups = groups_of(self._nodes, lambda node: node.args, self._uses.__getitem__, model.pointwise)
        self.infos = model.infos(self.groups)
        self._ports = [port_of(group) for group in self.groups]
        self._layouts = any(info.leave > 0 for info in self.infos)
        changes = layout_cost(list(zip(self.infos, self._ports, strict=True)), graph.outputs) if self._layouts else 0.0
        self._body = sum(info.body for info in self.infos)
        self.cost = self._body + changes + model.together(self.pairs())
        self._group_of = {node: k for k, group in enumerate(self.groups) for node in group.nodes}

    def pairs(self) -> list[Pair]:
        """Groups that follow each other."""
        return pairs_of(self.groups, lambda value: self._uses.get(value, 0))

    def after(self, new: Mapping[Value, Value]) -> tuple[float, float]:
        """The cost of the graph with values replaced, and the part of its cost that this concerns, in seconds.

        Only the groups around what is replaced are divided and looked up anew. A replacement that holds what it replaces keeps it.
        """
        change = _Change(self, {old: value for old, value in new.items() if old != value})
        touched = change.touched()
        members = [node for k in touched for node in self.groups[k].nodes if node not in change.removed]
        ordered = change.ordered([*members, *change.added])
        groups = groups_of(ordered, change.args, change.uses, self._model.pointwise)
        infos = self._model.infos(groups)
        before = sum(self.infos[k].body for k in touched)
        same = {(group.nodes, group.args) for group in groups}
        kept_as_is = sum(self.infos[k].body for k in touched if (self.groups[k].nodes, self.groups[k].args) in same)
        concerned = before - kept_as_is
        body = self._body + sum(info.body for info in infos) - before
        if not self._layouts and not any(info.leave > 0 for info in infos):
            return body, concerned
        gone = set(touched)
        kept = [
            (info, port) for k, (info, port) in enumerate(zip(self.infos, self._ports, strict=True)) if k not in gone
        ]
        every = [*kept, *((info, port_of(group)) for info, group in zip(infos, groups, strict=True))]
        return body + layout_cost(every, self.graph.outputs, change.now), concerned

    @cached_property
    def dearest(self) -> Mapping[str, float]:
        """For each operator of the graph the most that a group costs which one of its applications is in, in seconds."""
        out: dict[str, float] = {}
        for group, info in zip(self.groups, self.infos, strict=True):
            for node in group.nodes:
                if isinstance(node, Call):
                    out[node.op] = max(info.alone, out.get(node.op, 0.0))
        return out

    def likeness(self, nodes: Mapping[int, Node]) -> tuple[object, ...]:
        """Equal where the same operators at the same types stand in the same groups: a rewrite there gains the same."""
        keys = [
            self._model.key(self.groups[self._group_of[n]]) if n in self._group_of else None for n in nodes.values()
        ]
        inside = [self.groups[self._group_of[n]].nodes.index(n) if n in self._group_of else -1 for n in nodes.values()]
        place = {node: site for site, node in nodes.items()}
        wiring = tuple(tuple(place.get(arg.node, -1) for arg in node.args) for node in nodes.values())
        uses = tuple(tuple(self._uses.get(value, 0) for value in node.values) for node in nodes.values())
        return (tuple(nodes), tuple(keys), tuple(inside), wiring, uses)


class _Change:
    """What a replacement adds and removes, and who uses what afterwards."""

    def __init__(self, state: Evaluation, subst: dict[Value, Value]) -> None:
        self._state = state
        self._subst = subst
        self._delta: dict[Value, int] = {}
        self.added: dict[Node, None] = {}
        self.removed: set[Node] = set()
        for old, value in subst.items():
            count = state._uses.get(old, 0)
            self._count(old, -count)
            self._count(value, count)
        self._add()
        self._remove()

    def args(self, node: Node) -> tuple[Value, ...]:
        if node in self.added:
            return node.args
        return tuple(self._subst.get(arg, arg) for arg in node.args)

    def now(self, value: Value) -> Value:
        """The value that stands for another one."""
        return self._subst.get(value, value)

    def uses(self, value: Value) -> int:
        return self._state._uses.get(value, 0) + self._delta.get(value, 0)

    def _count(self, value: Value, by: int) -> None:
        self._delta[value] = self._delta.get(value, 0) + by

    def _add(self) -> None:
        stack = [value.node for value in self._subst.values()]
        while stack:
            node = stack.pop()
            if node.constant or node in self._state._position or node in self.added:
                continue
            self.added[node] = None
            for arg in node.args:
                self._count(arg, 1)
                stack.append(arg.node)

    def _remove(self) -> None:
        stack = [value.node for value in self._subst]
        while stack:
            node = stack.pop()
            present = node in self.added or (node in self._state._position and node not in self.removed)
            if not present or isinstance(node, Input) or any(self.uses(value) > 0 for value in node.values):
                continue
            for arg in self.args(node):
                self._count(arg, -1)
                stack.append(arg.node)
            if node in self.added:
                del self.added[node]
            else:
                self.removed.add(node)

    def touched(self) -> list[int]:
        """The groups that may be divided differently: of what changed, its producers and users, and what those read."""
        state = self._state
        near: dict[Node, None] = dict.fromkeys(self.removed)
        for value in self._delta:
            near[value.node] = None
            for user in state._users.get(value, ()):
                near[user] = None
                near.update((arg.node, None) for arg in self.args(user))
        for node in self.added:
            near.update((arg.node, None) for arg in node.args)
        return sorted({state._group_of[node] for node in near if node in state._group_of})

    def ordered(self, nodes: list[Node]) -> list[Node]:
        """Producers first."""
        wanted = set(nodes)
        out: list[Node] = []
        done: set[Node] = set()
        opened: set[Node] = set()
        for root in nodes:
            stack = [root]
            while stack:
                node = stack[-1]
                if node in done:
                    stack.pop()
                    continue
                opened.add(node)
                below = [
                    arg.node
                    for arg in self.args(node)
                    if arg.node in wanted and arg.node not in done and arg.node not in opened
                ]
                if below:
                    stack.extend(below)
                else:
                    done.add(node)
                    out.append(node)
                    stack.pop()
        return out


__all__ = ["Evaluation", "Group"]

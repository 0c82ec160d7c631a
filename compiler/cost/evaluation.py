"""The cost of one graph, and of every graph that is one rewrite away, without building those."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Protocol

from dslc.cost.fused_groups import Arguments, Lowered, Lowerings
from dslc.cost.groups import Group, Key, working_nodes
from dslc.cost.keys import Keys
from dslc.cost.layout import Info, Port, layout_cost, port_of
from dslc.cost.machine import farthest_cache
from dslc.cost.measure import LEAST as MEASURE_LEAST
from dslc.cost.samples import Samples
from dslc.cost.timer import GroupTimer
from dslc.ir.graph import Call, Graph, Input, Node, Value, Values
from dslc.records import record
from dslc.semantics.library import Rules

ROOM = 0.75  #: share of the farthest cache that weights have room in beside all else
MEMORY = 2e10  #: bytes that one thread reads from memory in a second
LARGE = 1 << 15  #: bytes; smaller weights do not matter

#: seconds for each byte where a graph begins to read more than the cache holds: it drives another one out, which was there before
DRIVEN = 2 / MEMORY
#: a weight, and the operator that reads it with how many nodes run as one there
Packed = tuple[Value, tuple[str, int]]


def room() -> float:
    """Bytes of weights that stay in the farthest cache from one run to the next."""
    return ROOM * farthest_cache()


def spilled(bytes: float) -> float:
    """Seconds of a run for reading so many bytes of weights from memory, which the farthest cache does not hold."""
    return min(bytes / MEMORY, max(0.0, (bytes - room()) * DRIVEN))


def kind_of(node: Node) -> str:
    """Equal for nodes that read weights in the same way."""
    return node.op if isinstance(node, Call) else type(node).__name__


def packed(groups: Iterable[Group]) -> Counter[Packed]:
    """The weights that groups read, with what reads them, and how often."""
    out: Counter[Packed] = Counter()
    for group in groups:
        reader = (kind_of(group.nodes[0]), group.fused)
        for args in group.args:
            for arg in args:
                if arg.constant and arg.known and arg.type.is_static and arg.type.bytes >= LARGE:
                    out[arg, reader] += 1
    return out


def bytes_of(weights: Iterable[Packed]) -> int:
    """Bytes of all of them."""
    return sum(value.type.bytes for value, _ in weights)


@record
class Caches:
    """Capacity of the last-level cache: `read` bytes of weights of the original, `start`; None where nothing is measured."""

    read: int = 0
    start: Start | None = None

    @property
    def near(self) -> bool:
        """True where the original's weights are measured, and held, by the caches of a processor."""
        return self.start is not None and self.read < room()

    def spill(self, bytes: int) -> float:
        """Extra seconds of a graph for so many bytes of weights, beyond the original's and the caches."""
        if not self.near or not self.start:
            return 0.0
        return max(0.0, spilled(self.read + bytes - self.start.evaluation.weights) - spilled(self.read))

    def crowded(self, bytes: int) -> bool:
        """Return whether weights of so many bytes are more than caches hold, which hold those of the original."""
        return self.near and bytes > room()

    def weight(self, value: Value, node: Node, bytes: int) -> float:
        """Seconds that it may add at most that nodes like one read a weight of so many bytes.

        Where caches are full. Nothing where such nodes of the original read it.
        """
        if bytes < LARGE or not self.near or not self.start:
            return 0.0
        return 0.0 if (value, kind_of(node)) in self.start.evaluation.readers else bytes * DRIVEN


MOST_ALONE = 0.5  #: share of the original that a run without nodes takes, at most


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """The original graph, what it takes as a whole in seconds, and its groups: how many of each, and one of them."""

    seconds: float
    evaluation: Evaluation
    keys: Mapping[Key, int]
    groups: Mapping[Key, Group]
    #: the sum over known groups, by how many groups were known
    _parts: dict[int, float] = field(default_factory=dict)

    def part(self, known: Mapping[Key, Info], excused: Collection[Key]) -> float:
        """Seconds of the groups that are known, each by itself."""
        found = self._parts.get(len(known))
        if found is None:
            bodies = (
                (known[key].body, count) for key, count in self.keys.items() if key in known and key not in excused
            )
            found = sum(count * body for body, count in bodies if body < inf)
            self._parts.clear()
            self._parts[len(known)] = found
        return found

    def share(self, part: float, alone: Callable[[], float]) -> float:
        """Ratio of the whole's time to the sum of its groups' times.

        Not all of it where the known groups, `part` in sum, take longer than the whole without a run without nodes (`alone`).

        A group by itself does not find in the caches what another one left there, and two spells of a machine are not alike.
        """
        if part <= (1 - MOST_ALONE) * self.seconds:
            return 1.0
        inside = self.seconds - min(alone(), MOST_ALONE * self.seconds)
        return min(1.0, inside / max(part, MEASURE_LEAST))


class Prices(Protocol):
    """Costs as evaluations and targets ask for them: those of `dslc.cost.model.CostModel`."""

    rules: Rules
    samples: Samples
    keys: Keys
    timer: GroupTimer
    lowerings: Lowerings
    caches: Caches
    start: Start | None

    @property
    def share(self) -> float: ...
    def believed(self, seconds: float) -> float: ...
    def most(self, group: Group) -> float: ...
    def guess(self, group: Group) -> float: ...
    def known(self, key: Key) -> Info | None: ...
    def infos(self, groups: Sequence[Group]) -> list[Info]: ...
    def timed(self, group: Group, turn: str = "") -> Info: ...
    def is_view(self, group: Group) -> bool: ...
    def groups(
        self,
        nodes: Sequence[Node],
        args_of: Arguments,
        uses: Callable[[Value], int],
        among: Collection[Node] | None = None,
        known: Sequence[Lowered] = (),
    ) -> list[Group]: ...


Layed = tuple[Info, Port]


class Evaluation:
    """A graph divided into groups with their costs. `cost` is their sum, in seconds.

    Where the model knows what the whole original takes, only those groups are measured that the graph has more or fewer of; the rest
    is the original's own time. What a rewrite then touches is measured when it is asked for.
    """

    def __init__(self, model: Prices, graph: Graph, seconds: float | None = None) -> None:
        """`seconds`: what the graph takes as a whole, where that is known; nothing is measured then."""
        self._model = model
        self.graph = graph
        self._nodes = working_nodes(graph.outputs)
        self._position = {node: k for k, node in enumerate(self._nodes)}
        self._uses = Counter([*graph.outputs, *(arg for node in self._nodes for arg in node.args)])
        self._users: dict[Value, list[Node]] = {}
        for node in self._nodes:
            for arg in node.args:
                if not arg.node.constant:
                    self._users.setdefault(arg, []).append(node)
        self.groups = model.groups(self._nodes, lambda node: node.args, self._uses.__getitem__)
        self._packed = packed(self.groups)
        #: bytes of the weights that are read, once for each kind of reader
        self.weights = bytes_of(self._packed)
        self._ports = [port_of(group) for group in self.groups]
        self._group_of = {node: k for k, group in enumerate(self.groups) for node in group.nodes}
        start = model.start
        self.infos: list[Info | None]
        if seconds is not None:
            self.infos, self._sum = [model.known(model.keys.of(group)) for group in self.groups], seconds
            self.cost = seconds
            return
        if not start:
            self.infos = list(model.infos(self.groups))
            self.cost = self._sum = sum(info.body for info in self.infos if info) + self._changes()
            return
        keys = [model.keys.of(group) for group in self.groups]
        more = Counter(keys)
        more.subtract(start.keys)
        self.infos = [
            model.infos([group])[0] if more[key] else model.known(key)
            for group, key in zip(self.groups, keys, strict=True)
        ]
        bodies = {key: info.body for key, info in zip(keys, self.infos, strict=True) if info}
        for key, group in start.groups.items():
            if more[key] and key not in bodies:
                bodies[key] = model.infos([group])[0].body
        #: what the sums of groups say; what is measured alone may add up to more than the whole takes
        self._sum = start.seconds + sum(count * bodies[key] for key, count in more.items() if count)
        if self._sum < inf:
            start.evaluation.refresh()
            self._sum += self._changes() - start.evaluation._changes() + model.caches.spill(self.weights)
        self.cost = model.believed(self._sum)

    def refresh(self) -> None:
        """Takes over what was measured in the meantime."""
        self.infos = [self._model.known(self._model.keys.of(group)) for group in self.groups]

    def _changes(
        self, gone: Collection[int] = (), new: Sequence[Layed] = (), now: Callable[[Value], Value] = lambda v: v
    ) -> float:
        """Seconds for changes of layout, as far as groups are known."""
        kept = [
            (info or Info(0.0), port)
            for k, (info, port) in enumerate(zip(self.infos, self._ports, strict=True))
            if k not in gone
        ]
        every = [*kept, *new]
        return layout_cost(every, self.graph.outputs, now) if any(info.leave > 0 for info, _ in every) else 0.0

    def _measured(self, k: int) -> Info:
        """Return the cost of a group of the graph, measured where it is not known."""
        found = self.infos[k]
        if not found:
            (found,) = self._model.infos([self.groups[k]])
            self.infos[k] = found
        return found

    def after(self, new: Mapping[Value, Value], least: float = 0.0) -> tuple[float, float]:
        """The cost of the graph with values replaced, and the part of its cost that this concerns, in seconds.

        Only the groups around what is replaced are divided and looked up anew. A replacement that holds what it replaces keeps it.
        Where all that it concerns takes no more than `least`, it cannot save more either, and new groups are not measured, nor those
        that they replace where these are small by far: the cost is then the graph's own.
        """
        change, touched, gone, fresh = self._divided(new)
        nearby = self._layouts_near(touched)
        if least > 0 and sum(self._model.most(self.groups[k]) for k in gone) + nearby <= least:
            return self.cost, 0.0
        old = [self._measured(k) for k in gone]
        concerned = sum(info.body for info in old)
        if least > 0 and sum(info.alone for info in old) + nearby <= least:
            return self.cost, concerned
        infos = self._model.infos(fresh)
        cost = self._sum - concerned + sum(info.body for info in infos)
        if any(_in_blocks(info) for info in (*infos, *old)):
            if sorted(map(_layout, infos)) != sorted(map(_layout, old)):
                # what neighbours do about layouts is part of what the rewrite changes
                for k in touched:
                    self._measured(k)
            layed = [(info, port_of(group)) for info, group in zip(infos, fresh, strict=True)]
            cost += self._changes(set(gone), layed, change.now) - self._changes()
        cost += self._model.caches.spill(self._weights_after(gone, fresh)) - self._model.caches.spill(self.weights)
        return self._model.believed(cost), self._model.share * concerned

    def _divided(self, new: Mapping[Value, Value]) -> tuple[_Change, list[int], list[int], list[Group]]:
        """Split a replacement into its change, the groups around it, those removed and those added."""
        change = _Change(self, {old: value for old, value in new.items() if old != value})
        touched = change.touched()
        members = [node for k in touched for node in self.groups[k].nodes if node not in change.removed]
        ordered = change.ordered([*members, *change.added])
        groups = self._model.groups(ordered, change.args, change.uses, change.moved, change.whole(touched))
        same = {(group.nodes, group.args) for group in groups}
        gone = [k for k in touched if (self.groups[k].nodes, self.groups[k].args) not in same]
        before = {(self.groups[k].nodes, self.groups[k].args) for k in touched}
        return change, touched, gone, [group for group in groups if (group.nodes, group.args) not in before]

    def _weights_after(self, gone: Sequence[int], fresh: Sequence[Group]) -> int:
        """Bytes of the weights that are read with other groups in the place of some."""
        less, more = packed(self.groups[k] for k in gone), packed(fresh)
        lost = bytes_of(one for one, count in less.items() if self._packed[one] + more[one] <= count)
        return self.weights - lost + bytes_of(one for one in more if one not in self._packed)

    @cached_property
    def readers(self) -> frozenset[tuple[Value, str]]:
        """Large weights with what reads them."""
        return frozenset((value, kind) for value, (kind, _) in self._packed)

    def hoped(self, new: Mapping[Value, Value]) -> float:
        """Bound the seconds that replacing values may save, by operations and bytes alone: an order for the search, no estimate."""
        _, _, gone, fresh = self._divided(new)
        guess = self._model.guess
        return sum(guess(self.groups[k]) for k in gone) - sum(map(guess, fresh))

    def _layouts_near(self, touched: Sequence[int]) -> float:
        """Seconds of known changes of layout nearby, which a rewrite may save beside what it replaces."""
        near = [info for k in touched if (info := self.infos[k])]
        return sum(info.leave + sum(info.enters) for info in near)

    @cached_property
    def dearest(self) -> Mapping[str, float]:
        """Map each operator of the graph to the seconds of the dearest group with one of its applications.

        A group that was not measured yet counts as the most that it may cost.
        """
        out: dict[str, float] = {}
        for group, info in zip(self.groups, self.infos, strict=True):
            most = info.alone if info else self._model.most(group)
            for node in group.nodes:
                if isinstance(node, Call):
                    out[node.op] = max(most, out.get(node.op, 0.0))
        return out

    def likeness(self, nodes: Mapping[int, Node]) -> tuple[object, ...]:
        """Equal where the same operators at the same types stand in the same groups: a rewrite there gains the same."""
        groups = {n: self.groups[self._group_of[n]] for n in nodes.values() if n in self._group_of}
        homes = tuple(
            (self._model.keys.of(groups[n]), groups[n].nodes.index(n)) if n in groups else None for n in nodes.values()
        )
        place = {node: site for site, node in nodes.items()}
        wiring = tuple(tuple(place.get(arg.node, -1) for arg in node.args) for node in nodes.values())
        uses = tuple(tuple(self._uses[value] for value in node.values) for node in nodes.values())
        around = self._model.lowerings.near(
            nodes.values(), lambda node: node.args, lambda value: self._users.get(value, ())
        )
        beside = tuple(self._model.keys.of(self.groups[k]) for k in sorted({self._group_of[n] for n in around}))
        return (tuple(nodes), homes, wiring, uses, beside)


def _in_blocks(info: Info) -> bool:
    return info.leave > 0 or bool(info.enters) or info.blocked is not None


def _layout(info: Info) -> tuple[tuple[bool, ...], bool, bool]:
    """The layout part of a group's cost."""
    return tuple(seconds > 0 for seconds in info.enters), info.leave > 0, info.blocked is not None


class _Change:
    """Groups and nodes that a replacement adds and removes, and the users of values afterwards."""

    def __init__(self, state: Evaluation, subst: dict[Value, Value]) -> None:
        self._state = state
        self._subst = subst
        self._delta = Counter[Value]()
        self.added: dict[Node, None] = {}
        #: what may run as one with what changed, known as soon as `touched` is
        self.moved: Collection[Node] = ()
        self._broken: Collection[int] = ()
        self.removed: set[Node] = set()
        for old, value in subst.items():
            self._delta[old] -= state._uses[old]
            self._delta[value] += state._uses[old]
        self._add()
        self._remove()

    def args(self, node: Node) -> Values:
        if node in self.added:
            return node.args
        return tuple(self._subst.get(arg, arg) for arg in node.args)

    def now(self, value: Value) -> Value:
        """The value that stands for another one."""
        return self._subst.get(value, value)

    def uses(self, value: Value) -> int:
        return self._state._uses[value] + self._delta[value]

    def _add(self) -> None:
        stack = [value.node for value in self._subst.values()]
        while stack:
            node = stack.pop()
            if node.constant or node in self._state._position or node in self.added:
                continue
            self.added[node] = None
            for arg in node.args:
                self._delta[arg] += 1
                stack.append(arg.node)

    def _remove(self) -> None:
        stack = [value.node for value in self._subst]
        while stack:
            node = stack.pop()
            present = node in self.added or (node in self._state._position and node not in self.removed)
            if not present or isinstance(node, Input) or any(self.uses(value) > 0 for value in node.values):
                continue
            for arg in self.args(node):
                self._delta[arg] -= 1
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
        self._pieces(near)
        return sorted({state._group_of[node] for node in near if node in state._group_of})

    def _pieces(self, near: dict[Node, None]) -> None:
        """Adds what runs as one with what changed, now or before, and the neighbours of that: they may divide differently too."""
        state, users = self._state, self._users_now()
        changed = self._changed()
        broken = {state._group_of[node] for node in (*changed, *self.removed) if node in state._group_of}
        while True:
            pieces = [group.nodes for k in sorted(broken) if (group := state.groups[k]).fused > 1]
            before = [node for nodes in pieces for node in nodes if node not in self.removed]
            moved = state._model.lowerings.near((*changed, *before), self.args, users)
            more = {k for node in moved if (k := state._group_of.get(node)) is not None and state.groups[k].fused > 1}
            if more <= broken:
                break
            broken |= more
        self.moved, self._broken = {*before, *moved}, broken
        for node in (*before, *moved):
            near[node] = None
            near.update((arg.node, None) for arg in self.args(node))
            for value in node.values:
                for user in users(value):
                    near[user] = None
                    near.update((arg.node, None) for arg in self.args(user))

    def whole(self, touched: Sequence[int]) -> list[Lowered]:
        """Fused groups that are still whole after a change."""
        groups = [self._state.groups[k] for k in touched if k not in self._broken]
        return [Lowered("", group.nodes[: group.fused]) for group in groups if group.fused > 1]

    def _changed(self) -> dict[Node, None]:
        """The nodes that are new, read something else, or whose results are used more or less often."""
        out = dict(self.added)
        for value in self._delta:
            out[value.node] = None
        for old in self._subst:
            out.update(dict.fromkeys(self._state._users.get(old, ())))
        return {node: None for node in out if node not in self.removed}

    def _users_now(self) -> Callable[[Value], Sequence[Node]]:
        """Users of a value after the change."""
        state = self._state
        more: dict[Value, list[Node]] = {}
        for node in self.added:
            for arg in node.args:
                more.setdefault(arg, []).append(node)
        for old, value in self._subst.items():
            more.setdefault(value, []).extend(state._users.get(old, ()))

        def users(value: Value) -> list[Node]:
            return [one for one in (*state._users.get(value, ()), *more.get(value, ())) if one not in self.removed]

        return users

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

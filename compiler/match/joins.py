"""Parts of a pattern: each is matched by itself once, and put together by the tensors and names that they share.

Whatever a part is joined with, it is not looked for again: a rule with two results on a thousand products matches a thousand products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np

from dslc.ir.dtype import DType
from dslc.ir.graph import Node, Value
from dslc.match.attributes import same_set
from dslc.match.guards import freeze
from dslc.match.index import Index
from dslc.match.rule import CompiledRule, PatternPart, Placed
from dslc.match.substitutions import Near, PartSubstitution
from dslc.match.types import equal
from dslc.semantics.env import AttrSet

#: whole numbers below this are floats of single precision
_EXACT = 1 << 24


PAIRS = 8  #: pairs of ways for each node of the index, beyond which all that depends on one thing is looked at together
FEW = 16  #: ways that are looked at one by one

#: the ways of a part in an index
Find: TypeAlias = Callable[[PatternPart], Iterable[PartSubstitution]]


class Joins:
    """The parts of a rule that has several, one after the other.

    The rarest goes first, then what shares something with parts before it, then the rarest of the others.
    """

    def __init__(self, rule: CompiledRule, index: Index, rarest: Sequence[Placed], find: Find) -> None:
        left, order = list(rarest[1:]), [rarest[0]]
        while left:
            near = [one for one in left if any(_shares(one, other) for other in order)]
            order.append(near[0] if near else left[0])
            left.remove(order[-1])
        self.order = tuple(order)
        self._rule, self._index, self._find = rule, index, find
        self._partners: list[_JoinPartners] = []

    def ways(self) -> Iterator[tuple[PartSubstitution, ...]]:
        """The ways of all parts that go together, in the `order` of the parts."""
        for way in self._find(self.order[0].part):
            near = way.near()
            yield from self._with_others((way,), (near,), near.below, near.bits)

    def _with_others(
        self, ways: tuple[PartSubstitution, ...], nears: tuple[Near, ...], below: int, bits: int
    ) -> Iterator[tuple[PartSubstitution, ...]]:
        at = len(ways)
        if at > len(self._partners):
            self._partners.append(
                _JoinPartners(self._rule, self.order[: at + 1], list(self._find(self.order[at].part)), self._index)
            )
        beside = self._partners[at - 1]
        if at + 1 == len(self.order):
            for way, _ in beside.joining(ways, nears, below, bits):
                yield (*ways, way)
            return
        for way, near in beside.joining(ways, nears, below, bits):
            yield from self._with_others((*ways, way), (*nears, near), below | near.below, bits | near.bits)


def _shares(one: Placed, other: Placed) -> bool:
    return not set(one.variables).isdisjoint(other.variables) or not set(one.sites).isdisjoint(other.sites)


class _JoinPartners:
    """The ways of the last of some parts beside those of the others, which are matched first."""

    def __init__(
        self, rule: CompiledRule, order: Sequence[Placed], ways: Sequence[PartSubstitution], index: Index
    ) -> None:
        *before, own = order
        self._index, self._top = index, own.part.top
        self._tensors, self._sites, self._names = (
            _shared(before, own, what) for what in ("variables", "sites", "names")
        )
        there = {root: (at, k) for at, one in enumerate(before) for k, root in enumerate(one.roots)}
        here = {root: k for k, root in enumerate(own.roots) if root not in there}
        self._fresh = tuple(here.values())
        self._after = [(*there[i], here[j]) for i, j in rule.ordered if i in there and j in here]
        self._until = [(*there[j], here[i]) for i, j in rule.ordered if j in there and i in here]
        self._groups: dict[Any, _Group] = {}
        self._near: dict[PartSubstitution, Near] = {}
        self._comparable: dict[Any, list[PartSubstitution]] = {}
        for way in ways:
            state = way.state
            places = (
                *[state.values[name] for _, _, name in self._tensors],
                *[(state.nodes[site], state.results[site]) for _, _, site in self._sites],
            )
            names = tuple([_comparable(state.names[name]) for _, _, name in self._names])
            self._comparable.setdefault((places, names), []).append(way)

    def joining(
        self, before: Sequence[PartSubstitution], nears: Sequence[Near], below: int, bits: int
    ) -> Iterator[tuple[PartSubstitution, Near]]:
        """Yield the substitutions that a combination can be joined with.

        They agree with it, neither makes what the other replaces, and of exchangeable results they are in one order.

        `below` is all that the tensors of the combination are computed from, `bits` where what it replaces is. In a chain of ten
        thousand products none can be computed beside another: that is seen for all of them at once.
        """
        group = self._group(before)
        if not group:
            return
        known, fresh = self._near, self._fresh
        taken = {number for way in before for number in way.numbers}
        least = [(nears[at].ranks[k], own) for at, k, own in self._after]
        most = [(nears[at].ranks[k], own) for at, k, own in self._until]
        for way in group.beside(below, nears):
            near = known.get(way)
            if near is None:
                near = known[way] = way.near()
            ranks = near.ranks
            for rank, k in least:
                if rank > ranks[k]:
                    break
            else:
                for rank, k in most:
                    if rank < ranks[k]:
                        break
                else:
                    for k in fresh:
                        if way.numbers[k] in taken:
                            break
                    else:
                        if (below | near.below) & (bits | near.bits) and _several((*before, way)):
                            continue
                        yield way, near

    def _group(self, before: Sequence[PartSubstitution]) -> _Group | None:
        names = [before[at].state.names[name] for at, name, _ in self._names]
        places = (
            *[before[at].state.values[name] for at, name, _ in self._tensors],
            *[(before[at].state.nodes[site], before[at].state.results[site]) for at, site, _ in self._sites],
        )
        key = (places, tuple([freeze(value) for value in names]))
        found = self._groups.get(key)
        if not found:
            near = self._comparable.get((places, tuple([_comparable(value) for value in names])), ())
            wanted = [(value, name) for value, (_, _, name) in zip(names, self._names, strict=True)]
            agreeing = [way for way in near if all(agree(value, way.state.names[name]) for value, name in wanted)]
            found = self._groups[key] = _Group(agreeing, self._top, self._index)
        return found if found.ways else None


def _several(ways: Sequence[PartSubstitution]) -> bool:
    """Return whether what is replaced comes from more calls than one: only then can it be in the way of itself."""
    return len({call for way in ways for call in way.calls}) > 1


def _shared(before: Sequence[Placed], own: Placed, what: str) -> tuple[tuple[int, Any, Any], ...]:
    """Find names that the last part shares with others: the first of these to have one, and its names in both parts' states."""

    def called(one: Placed) -> dict[Any, Any]:
        return dict(zip(getattr(one, what), getattr(one.part, what), strict=True))

    mine = called(own)
    out: dict[Any, tuple[int, Any, Any]] = {}
    for at, one in enumerate(before):
        for name, theirs in called(one).items():
            if name in mine:
                out.setdefault(name, (at, theirs, mine[name]))
    return tuple(out.values())


class _Group:
    """Ways that agree in what they share with others. Many are kept in layers: in each at most one for every call the part can be."""

    def __init__(self, ways: Sequence[PartSubstitution], top: int, index: Index) -> None:
        # by place, wherever a search of an e-graph begins
        self.ways = sorted([(index.position[way.state.nodes[top]], way) for way in ways], key=itemgetter(0))
        self._index = index
        self._layers: list[_Layer] = []
        if len(ways) > FEW:
            for place, way in self.ways:
                layer = next((layer for layer in self._layers if place not in layer.at), None)
                if not layer:
                    layer = _Layer()
                    self._layers.append(layer)
                layer.at[place] = way
                layer.places |= 1 << place

    def beside(self, below: int, nears: Sequence[Near]) -> Iterator[PartSubstitution]:
        """The ways whose calls are not among `below`, and of very many only those that need nothing that is replaced."""
        if not self._layers:
            for place, way in self.ways:
                if not below >> place & 1:
                    yield way
            return
        large = len(self.ways) ** 2 > PAIRS * len(self._index.position)
        roots = [value for near in nears for value in near.replaced] if large else []
        left = [(layer.places & ~(below | layer.needing(self._index, roots)), layer) for layer in self._layers]
        every = 0
        for places, _ in left:
            every |= places
        while every:
            lowest = every & -every
            every ^= lowest
            place = lowest.bit_length() - 1
            for places, layer in left:
                if places & lowest:
                    yield layer.at[place]


class _Layer:
    """Ways by the place of the call that the part is, and these places as bits."""

    def __init__(self) -> None:
        self.at: dict[int, PartSubstitution] = {}
        self.places = 0
        self._needing: Mapping[Node, int] | None = None

    def needing(self, index: Index, roots: Sequence[Value]) -> int:
        """The places of the ways with a tensor that is computed from one of the roots."""
        if not roots:
            return 0
        if self._needing is None:
            marks: dict[Value, int] = {}
            for place, one in self.at.items():
                for value in _inside(one.state.values.values(), index):
                    marks[value] = marks.get(value, 0) | 1 << place
            self._needing = index.needing(marks)
        bits = 0
        for root in roots:
            bits |= self._needing.get(root.node, 0)
        return bits


def _inside(values: Iterable[Value], index: Index) -> Iterator[Value]:
    """Values of the index; for one that was only built, those that it is built from."""
    for value in values:
        if value.node in index.position:
            yield value
        else:
            yield from _inside(value.node.args, index)


def agree(a: Any, b: Any) -> bool:
    """Return whether two values of a name are the same."""
    if a is b or a == b:
        return True
    if isinstance(a, AttrSet) and isinstance(b, AttrSet):
        return same_set(a, b)
    return equal(a, b)


def _comparable(value: Any) -> Any:
    """The same for all values that agree: as a list of one number and the number do, and numbers that differ by rounding."""
    if type(value) is int and -_EXACT < value < _EXACT:
        return value
    if isinstance(value, tuple):
        parts = [_comparable(part) for part in value]
        return parts[0] if parts and all(part == parts[0] for part in parts) else tuple(parts)
    if isinstance(value, str | DType):
        return value
    if isinstance(value, int | float):
        rounded = float(np.float32(value))
        return int(rounded) if rounded.is_integer() else rounded
    return None

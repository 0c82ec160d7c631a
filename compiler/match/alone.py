"""Parts of a pattern: each is matched by itself once, and put together by the tensors and names that they share.

Whatever a part is joined with, it is not looked for again: a rule with two results on a thousand products matches a thousand products.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dslc.ir.dtype import DType
from dslc.ir.graph import Node, Value
from dslc.match.attributes import same_set
from dslc.match.guards import freeze
from dslc.match.index import Index
from dslc.match.rule import CompiledRule
from dslc.match.state import State
from dslc.match.types import equal
from dslc.match.ways import Way
from dslc.semantics.env import AttrSet

#: whole numbers below this are floats of single precision
_EXACT = 1 << 24
#: pairs of ways for each node of the index beyond which what depends on what is looked at for all together
PAIRS = 8
#: so many ways are looked at one by one
_FEW = 16


class Beside:
    """The ways of a part beside those of other parts, which are matched first: `before` is one combination of them.

    All ways of one part have the same variables, sites and names.
    """

    def __init__(self, rule: CompiledRule, top: int, ways: Sequence[Way], before: Sequence[Way], index: Index) -> None:
        self.top, self._index = top, index
        own = ways[0].state if ways else State()
        self._tensors = _first([way.state.values for way in before], own.values)
        self._sites = _first([way.state.nodes for way in before], own.nodes)
        self._names = _first([way.state.names for way in before], own.names)
        self._alike: dict[Any, list[Way]] = {}
        self._groups: dict[Any, _Group] = {}
        for way in ways:
            state = way.state
            places = self._places([state] * len(before))
            self._alike.setdefault((places, tuple([_alike(state.names[name]) for name, _ in self._names])), []).append(way)
        roots = [] if not ways else list(ways[0].roots)
        self._fresh = [k for k in roots if all(k not in way.roots for way in before)]
        where = {k: at for at, way in enumerate(before) for k in way.roots}
        self._after = [(where[i], i, j) for i, j in rule.ordered if i in where and j in self._fresh]
        self._until = [(where[j], j, i) for i, j in rule.ordered if j in where and i in self._fresh]

    def joining(self, before: Sequence[Way], below: int, bits: int) -> Iterator[Way]:
        """The ways that a combination can be joined with: they agree with it, neither makes what the other replaces, and of
        exchangeable results they are in one order.

        `below` is all that the tensors of the combination are computed from, `bits` where what it replaces is. In a chain of ten
        thousand products none can be computed beside another: that is seen for all of them at once.
        """
        group = self._group(before)
        if group is None:
            return
        taken = {value for way in before for value in way.results.values()}
        least = max([before[at].ranks[i] for at, i, _ in self._after], default=-1)
        for way in group.beside(below, before):
            if self._after and any(before[at].ranks[i] > way.ranks[j] for at, i, j in self._after):
                continue
            if self._until and any(way.ranks[i] > before[at].ranks[j] for at, j, i in self._until):
                continue
            if any(way.results[k] in taken for k in self._fresh):
                continue
            if (below | way.below) & (bits | way.bits) and len({call for one in (*before, way) for call in one.calls}) > 1:
                continue
            yield way

    def _group(self, before: Sequence[Way]) -> _Group | None:
        states = [way.state for way in before]
        places = self._places(states)
        names = [states[at].names[name] for name, at in self._names]
        key = (places, tuple([freeze(value) for value in names]))
        found = self._groups.get(key)
        if found is None:
            near = self._alike.get((places, tuple([_alike(value) for value in names])), ())
            wanted = [(name, value) for (name, _), value in zip(self._names, names, strict=True)]
            agreeing = [way for way in near if all(agree(value, way.state.names[name]) for name, value in wanted)]
            found = self._groups[key] = _Group(agreeing, self.top, self._index)
        return found if found.ways else None

    def _places(self, states: Sequence[State]) -> tuple[Any, ...]:
        """What stands in the places that are shared."""
        tensors = [states[at].values[name] for name, at in self._tensors]
        sites = [(states[at].nodes[site], states[at].results[site]) for site, at in self._sites]
        return (*tensors, *sites)


def _first(known: Sequence[Mapping[Any, Any]], own: Mapping[Any, Any]) -> list[tuple[Any, int]]:
    """What is shared, with the first that has it."""
    out: dict[Any, int] = {}
    for at, one in enumerate(known):
        for name in one:
            if name in own:
                out.setdefault(name, at)
    return sorted(out.items())


class _Group:
    """Ways that agree in what they share with others. Many are kept in layers: in each at most one for every call the part can be."""

    def __init__(self, ways: Sequence[Way], top: int, index: Index) -> None:
        self.ways = [(index.position[way.state.nodes[top]], way) for way in ways]
        self._index = index
        self._layers: list[_Layer] = []
        if len(ways) > _FEW:
            for place, way in self.ways:
                layer = next((layer for layer in self._layers if place not in layer.at), None)
                if layer is None:
                    layer = _Layer()
                    self._layers.append(layer)
                layer.at[place] = way
                layer.places |= 1 << place

    def beside(self, below: int, before: Sequence[Way]) -> Iterator[Way]:
        """The ways whose calls are not among `below`, and of very many only those that need nothing that is replaced."""
        if not self._layers:
            for place, way in self.ways:
                if not below >> place & 1:
                    yield way
            return
        large = len(self.ways) ** 2 > PAIRS * len(self._index.position)
        roots = [value for way in before for value in way.replaced] if large else []
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
        self.at: dict[int, Way] = {}
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
    """Whether two values of a name are the same."""
    if a is b or a == b:
        return True
    if isinstance(a, AttrSet) and isinstance(b, AttrSet):
        return same_set(a, b)
    return equal(a, b)


def _alike(value: Any) -> Any:
    """The same for all values that agree: as a list of one number and the number do, and numbers that differ by rounding."""
    if type(value) is int and -_EXACT < value < _EXACT:
        return value
    if isinstance(value, tuple):
        parts = [_alike(part) for part in value]
        return parts[0] if parts and all(part == parts[0] for part in parts) else tuple(parts)
    if isinstance(value, str | DType):
        return value
    if isinstance(value, int | float):
        rounded = float(np.float32(value))
        return int(rounded) if rounded.is_integer() else rounded
    return None

"""Parts of a pattern that share no tensor: each is matched by itself, and put together by the names that they share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dslc.ir.dtype import DType
from dslc.ir.graph import Node, Value
from dslc.match.attributes import same_set
from dslc.match.index import Index
from dslc.match.state import State
from dslc.match.types import equal
from dslc.semantics.env import AttrSet

#: whole numbers below this are floats of single precision
_EXACT = 1 << 24
#: pairs of ways for each node of the index beyond which what depends on what is looked at for all together
PAIRS = 8


class Alone:
    """The ways in which a part matches by itself, in the order in which they are found."""

    def __init__(self, top: int, states: Sequence[State], index: Index) -> None:
        self._top = top
        self._states = states
        self._index = index
        self._names = sorted(set.intersection(*(set(state.names) for state in states))) if states else []
        self._by_names: dict[tuple[str, ...], dict[tuple[Any, ...], _Group]] = {}

    def agreeing(self, state: State, roots: Sequence[Value]) -> Iterator[State]:
        """The ways whose names have the values that they have in a state, and which neither make what it needs nor need its `roots`.

        In a chain of ten thousand products none can be computed beside another: that is seen for all of them at once.
        """
        shared = tuple([name for name in self._names if name in state.names])
        groups = self._by_names.get(shared)
        if groups is None:
            groups = self._by_names[shared] = self._grouped(shared)
        group = groups.get(_key(state, shared))
        if group is None:
            return
        for one in group.beside(self._index.below(state.values.values()), roots):
            names = one.names
            if all(agree(value, names[name]) for name, value in state.names.items() if name in names):
                yield one

    def _grouped(self, names: tuple[str, ...]) -> dict[tuple[Any, ...], _Group]:
        out: dict[tuple[Any, ...], _Group] = {}
        for one in self._states:
            out.setdefault(_key(one, names), _Group(self._index)).add(one, self._top)
        return out


class _Group:
    """Ways with the same names, in layers: in each at most one way for every call that the part can be."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._count = 0
        self._layers: list[_Layer] = []

    def add(self, one: State, top: int) -> None:
        place = self._index.position[one.nodes[top]]
        layer = next((layer for layer in self._layers if place not in layer.at), None)
        if layer is None:
            layer = _Layer()
            self._layers.append(layer)
        layer.at[place] = one
        layer.places |= 1 << place
        self._count += 1

    def beside(self, below: int, roots: Sequence[Value]) -> Iterator[State]:
        """The ways whose calls are not among `below`, and in a large group only those that need none of the `roots`."""
        large = self._count**2 > PAIRS * len(self._index.position)
        left = [(layer.places & ~below & ~(layer.needing(self._index, roots) if large else 0), layer) for layer in self._layers]
        every = 0
        for places, _ in left:
            every |= places
        while every:
            lowest = every & -every
            every ^= lowest
            place = lowest.bit_length() - 1
            yield from (layer.at[place] for places, layer in left if places & lowest)


class _Layer:
    """Ways by the place of the call that the part is, and these places as bits."""

    def __init__(self) -> None:
        self.at: dict[int, State] = {}
        self.places = 0
        self._needing: Mapping[Node, int] | None = None

    def needing(self, index: Index, roots: Sequence[Value]) -> int:
        """The places of the ways with a tensor that is computed from one of the roots."""
        if self._needing is None:
            marks: dict[Value, int] = {}
            for place, one in self.at.items():
                for value in _inside(one.values.values(), index):
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


def joined(state: State, part: State) -> State:
    """Two parts together; where both know a name, it is as in the first."""
    return State(
        {**state.values, **part.values},
        {**part.names, **state.names},
        {**state.nodes, **part.nodes},
        {**state.results, **part.results},
        {**state.wraps, **part.wraps},
        (*state.pending, *part.pending),
        {**state.taken, **part.taken},
        {**state.places, **part.places},
    )


def agree(a: Any, b: Any) -> bool:
    """Whether two values of a name are the same."""
    if a is b or a == b:
        return True
    if isinstance(a, AttrSet) and isinstance(b, AttrSet):
        return same_set(a, b)
    return equal(a, b)


def _key(state: State, names: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple([_alike(state.names[name]) for name in names])


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

"""Parts of a pattern that share no tensor: each is matched by itself, and put together by the names that they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dslc.ir.dtype import DType
from dslc.ir.graph import Value
from dslc.match.attributes import same_set
from dslc.match.index import Index
from dslc.match.state import State
from dslc.match.types import equal
from dslc.semantics.env import AttrSet

#: whole numbers below this are floats of single precision
_EXACT = 1 << 24


class Alone:
    """The ways in which a part matches by itself, in the order in which they are found."""

    def __init__(self, top: int, plain: bool, states: Sequence[State], index: Index) -> None:
        """`plain`: whether all that the top depends on are its tensors and what it stands for, and nothing that it leaves aside."""
        self._top = top
        self._plain = plain
        self._states = states
        self._index = index
        self._names = sorted(set.intersection(*(set(state.names) for state in states))) if states else []
        self._by_names: dict[tuple[str, ...], dict[tuple[Any, ...], _Group]] = {}

    def agreeing(self, state: State, roots: Sequence[Value]) -> Iterator[State]:
        """The ways whose names have the values that they have in a state, and which neither need its `roots` nor make what it needs.

        In a chain of ten thousand products none can be computed beside another: that is seen for all of them at once.
        """
        shared = tuple([name for name in self._names if name in state.names])
        groups = self._by_names.get(shared)
        if groups is None:
            groups = self._by_names[shared] = self._grouped(shared)
        group = groups.get(_key(state, shared))
        if group is None:
            return
        left = group.places & ~self._index.below(state.values.values())
        if self._plain and left:
            related = self._index.above(roots)
            for root in roots:
                related &= ~group.holding.get(root, 0)
            left &= ~related
        while left:
            lowest = left & -left
            left ^= lowest
            for one in group.at[lowest.bit_length() - 1]:
                names = one.names
                if all(agree(value, names[name]) for name, value in state.names.items() if name in names):
                    yield one

    def _grouped(self, names: tuple[str, ...]) -> dict[tuple[Any, ...], _Group]:
        out: dict[tuple[Any, ...], _Group] = {}
        for one in self._states:
            out.setdefault(_key(one, names), _Group()).add(one, self._top, self._index)
        return out


class _Group:
    """Ways with the same names: their tops' places as bits, the ways at each, and at which places a value belongs to the part."""

    def __init__(self) -> None:
        self.places = 0
        self.at: dict[int, list[State]] = {}
        self.holding: dict[Value, int] = {}

    def add(self, one: State, top: int, index: Index) -> None:
        place = index.position[one.nodes[top]]
        self.places |= 1 << place
        self.at.setdefault(place, []).append(one)
        for node in one.nodes.values():
            for value in index.results(node):
                self.holding[value] = self.holding.get(value, 0) | 1 << place


def joined(state: State, part: State) -> State:
    """Two parts together; where both know a name, it is as in the first."""
    return State(
        {**state.values, **part.values},
        {**part.names, **state.names},
        {**state.nodes, **part.nodes},
        {**state.results, **part.results},
        {**state.wraps, **part.wraps},
        (*state.pending, *part.pending),
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

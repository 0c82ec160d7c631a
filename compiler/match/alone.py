"""Parts of a pattern that share no tensor: each is matched by itself, and put together by the names that they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dslc.ir.dtype import DType
from dslc.match.attributes import same_set
from dslc.match.state import State
from dslc.match.types import equal
from dslc.semantics.env import AttrSet

#: whole numbers below this are floats of single precision
_EXACT = 1 << 24


class Alone:
    """The ways in which a part matches by itself, in the order in which they are found."""

    def __init__(self, states: Sequence[State]) -> None:
        self._states = states
        self._names = sorted(set.intersection(*(set(state.names) for state in states))) if states else []
        self._by_names: dict[tuple[str, ...], dict[tuple[Any, ...], list[State]]] = {}

    def agreeing(self, state: State) -> Iterator[State]:
        """The ways whose names have the values that they have in a state."""
        shared = tuple([name for name in self._names if name in state.names])
        groups = self._by_names.get(shared)
        if groups is None:
            groups = self._by_names[shared] = {}
            for one in self._states:
                groups.setdefault(_key(one, shared), []).append(one)
        for one in groups.get(_key(state, shared), ()):
            names = one.names
            for name, value in state.names.items():
                if name in names and not agree(value, names[name]):
                    break
            else:
                yield one


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

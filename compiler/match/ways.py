"""Ways in which a part of a pattern matches: a state, with what is asked of it again for everything that it is joined with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslc.ir.graph import Call, Value
from dslc.match.guards import freeze
from dslc.match.index import Index
from dslc.match.outline import kind_at
from dslc.match.parts import Part
from dslc.match.state import AttributeEquals, NumberEquals, Pending, State


class Way:
    """A part of a left side in an index, in the names of the part.

    `tensors` are its variables and named results, `codes` their numbers in the index; `look` stands for all that guards and right sides
    can ask of them, but for which of them are the same. Ways of equal `identity` put the same tensors into the same places. `roots` are
    what is replaced, `calls` what gives it; `results` the same, but just the part of a longer associative call. `constant`: all that is
    replaced is.
    """

    __slots__ = (
        "_below", "_index", "_ranks", "_replaced", "calls", "codes", "constant", "identity", "look", "results", "roots", "state", "tensors"
    )

    def __init__(self, part: Part, index: Index, state: State) -> None:
        self.state, self._index = state, index
        values, results, names, number = state.values, state.results, state.names, index.memory.codes
        tensors = [values[name] for name in part.variables]
        tensors += [results[p.site][p.output] for p in part.results]
        look = (
            tuple([kind_at(value, index) for value in tensors]),
            tuple([freeze(names[name]) for name in part.binds]),
            tuple([_asked(item) for item in state.pending]),
        )
        self.look = part.looks.setdefault(look, len(part.looks))
        self.tensors = tuple(tensors)
        self.codes = codes = tuple([number.setdefault(value, len(number)) for value in tensors])
        roots = self.results = tuple([results[p.site][p.output] for p in part.roots])
        chosen: list[Any] = []
        if state.wraps:
            # of a longer associative call the whole is replaced
            whole = {site: index.results(wrap.node)[0] for site, wrap in state.wraps.items()}
            roots = tuple([whole.get(p.site, value) for p, value in zip(part.roots, roots, strict=True)])
            chosen = [(site, frozenset([wrap.operands[k] for k in wrap.chosen])) for site, wrap in state.wraps.items()]
        self.roots = roots
        self.constant = all([value.node.constant for value in roots])
        self.identity = (*[number.setdefault(value, len(number)) for value in roots], *codes[: len(part.variables)], *chosen)
        self.calls: tuple[Call, ...] = tuple([state.nodes[p.site] for p in part.roots])
        self._ranks: tuple[int, ...] | None = None
        self._below: int | None = None
        self._replaced: tuple[tuple[Value, ...], int] | None = None

    @property
    def below(self) -> int:
        """All that the part's tensors are computed from, as bits by position."""
        if self._below is None:
            self._below = self._index.below(self.state.values.values())
        return self._below

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the `calls`."""
        if self._ranks is None:
            rank = self._index.rank
            self._ranks = tuple([rank[call] for call in self.calls])
        return self._ranks

    @property
    def replaced(self) -> tuple[tuple[Value, ...], int]:
        """A value of each of the `calls` whose results are replaced, and where these are, as bits by position."""
        if self._replaced is None:
            values = tuple([self._index.results(call)[0] for call in dict.fromkeys(self.calls)])
            bits = 0
            for value in values:
                bits |= 1 << self._index.position[value.node]
            self._replaced = values, bits
        return self._replaced


class Ways:
    """The ways of a part, looked for as far as they are asked for."""

    def __init__(self, source: Iterator[Way]) -> None:
        self._known: list[Way] = []
        self._source = source
        self.broken = False

    def __iter__(self) -> Iterator[Way]:
        known, at = self._known, 0
        while True:
            while at < len(known):
                yield known[at]
                at += 1
            try:
                found = next(self._source, None)
            except BaseException:
                # an index may end a search: what comes after is not known
                self.broken = True
                raise
            if found is None:
                return
            known.append(found)


def _asked(item: Pending) -> Any:
    if isinstance(item, NumberEquals):
        return (item.quoted, freeze(item.number))
    node = item.node
    call = (node.op, node.tag, tuple([arg.node.types[arg.index] for arg in node.args]))
    if isinstance(item, AttributeEquals):
        return (item.quoted, freeze(item.actual), call)
    return (call, item.attrs)


def joined(state: State, part: State) -> State:
    """Two parts together; what both know is as in the first."""
    known = state.nodes
    return State(
        {**state.values, **part.values},
        {**part.names, **state.names},
        {**part.nodes, **known},
        {**part.results, **state.results},
        {**part.wraps, **state.wraps},
        (*state.pending, *part.pending),
        {**{site: found for site, found in part.taken.items() if site not in known}, **state.taken},
        {**{site: found for site, found in part.places.items() if site not in known}, **state.places},
    )


__all__ = ["Way", "Ways", "joined"]

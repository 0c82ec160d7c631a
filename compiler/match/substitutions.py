"""Ways in which a part of a pattern matches: a state, with what is asked of it again for everything that it is joined with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from dslc.ir.graph import Call, Values
from dslc.match.guards import freeze
from dslc.match.index import Index
from dslc.match.prefilter import known_at
from dslc.match.rule import PatternPart
from dslc.match.state import AttributeEquals, MatchState, NumberEquals, Pending


class PartSubstitution:
    """A part of a left side in an index, in the names of the part.

    `tensors` are its variables and named results, `codes` their numbers in the index; `look` stands for all that guards and right sides
    can ask of them, but for which of them are the same. Ways of equal `identity` put the same tensors into the same places. `roots` are
    what is replaced, `calls` what gives it, `numbers` those of the results, of a longer associative call just those of the part.
    `constant`: all that is replaced is.
    """

    __slots__ = (
        "_index",
        "calls",
        "codes",
        "constant",
        "identity",
        "numbers",
        "roots",
        "signature",
        "state",
        "tensors",
    )

    def __init__(self, part: PatternPart, index: Index, state: MatchState) -> None:
        self.state, self._index = state, index
        values, results, names = state.values, state.results, state.names
        tensors = [values[name] for name in part.variables]
        tensors += [results[p.site][p.output] for p in part.results]
        known = [known_at(value, index) for value in tensors]
        signature = (
            tuple([kind for _, kind in known]),
            tuple([freeze(names[name]) for name in part.binds]),
            tuple([_asked(item) for item in state.pending]),
        )
        self.signature = part.signatures.setdefault(signature, len(part.signatures))
        self.tensors = tuple(tensors)
        self.codes = codes = tuple([code for code, _ in known])
        roots = tuple([results[p.site][p.output] for p in part.roots])
        numbers = self.numbers = tuple([known_at(value, index)[0] for value in roots])
        chosen: list[Any] = []
        if state.wraps:
            # of a longer associative call the whole is replaced
            whole = {site: index.results(wrap.node)[0] for site, wrap in state.wraps.items()}
            roots = tuple([whole.get(p.site, value) for p, value in zip(part.roots, roots, strict=True)])
            numbers = tuple([known_at(value, index)[0] for value in roots])
            chosen = [(site, frozenset([wrap.operands[k] for k in wrap.chosen])) for site, wrap in state.wraps.items()]
        self.roots = roots
        self.constant = all(value.node.constant for value in roots)
        self.identity = (*numbers, *codes[: len(part.variables)], *chosen)
        self.calls: tuple[Call, ...] = tuple([state.nodes[p.site] for p in part.roots])

    def near(self) -> Near:
        """Compute the properties that decide about joining with others; not kept, as bits of large graphs are long."""
        index = self._index
        replaced = tuple([index.results(call)[0] for call in dict.fromkeys(self.calls)])
        bits = 0
        for value in replaced:
            bits |= 1 << index.position[value.node]
        rank = index.rank
        return Near(index.below(self.state.values.values()), bits, tuple([rank[call] for call in self.calls]), replaced)


class Near(NamedTuple):
    """Properties of a substitution that decide about joining it with others.

    `below` is all that its tensors are computed from, `bits` the places of the replaced values, both as bits by position; `ranks` are
    those of its calls, `replaced` has a value of each.
    """

    below: int
    bits: int
    ranks: tuple[int, ...]
    replaced: Values


class LazySubstitutions:
    """The ways of a part, looked for as far as they are asked for."""

    def __init__(self, source: Iterator[PartSubstitution]) -> None:
        self._known: list[PartSubstitution] = []
        self._source = source
        self.broken = False

    def __iter__(self) -> Iterator[PartSubstitution]:
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
            if not found:
                return
            known.append(found)


def _asked(item: Pending) -> Any:
    if isinstance(item, NumberEquals):
        return (item.quoted, freeze(item.number))
    node = item.node
    call = (node.op, node.tag, tuple([arg.type_or_none for arg in node.args]))
    if isinstance(item, AttributeEquals):
        return (item.quoted, freeze(item.actual), call)
    return (call, item.attrs)


def joined(state: MatchState, part: MatchState) -> MatchState:
    """Two parts together; what both know is as in the first."""
    known = state.nodes
    return MatchState(
        {**state.values, **part.values},
        {**part.names, **state.names},
        (*state.pending, *part.pending),
        {**part.nodes, **known},
        {**part.results, **state.results},
        {**part.wraps, **state.wraps},
        {**{site: found for site, found in part.taken.items() if site not in known}, **state.taken},
        {**{site: found for site, found in part.places.items() if site not in known}, **state.places},
    )

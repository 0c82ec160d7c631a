"""Ways in which a part of a pattern matches: a state with what is asked of it again for everything that it is joined with."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from dslc.ir.graph import Call, Value
from dslc.match.index import Index
from dslc.match.rule import CompiledRule
from dslc.match.state import State


class Way:
    """A part of a rule's left side in an index.

    `tensors` are the variables and named results of the part, `codes` their numbers in the index. `look` stands for all that guards and
    right sides can ask of them, which of them are the same aside; ways with equal `identity` put the same tensors into the same places.
    `roots` are what the rule replaces, by the numbers of its results.
    """

    def __init__(
        self, rule: CompiledRule, index: Index, state: State, tensors: tuple[Value, ...], codes: tuple[int, ...], look: int,
        identity: Any, roots: Mapping[int, Value],
    ) -> None:
        self._rule, self._index = rule, index
        self.state, self.tensors, self.codes, self.look, self.identity, self.roots = state, tensors, codes, look, identity, roots
        self.constant = all(value.constant for value in roots.values())

    @cached_property
    def results(self) -> dict[int, Value]:
        """As `roots`; of a part of a longer associative call just that part."""
        found = self.state.results
        return {k: found[p.site][p.output] for k, (_, p) in enumerate(self._rule.left.roots) if p.site in found}

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """The calls whose results are replaced."""
        nodes = self.state.nodes
        return tuple(dict.fromkeys([nodes[p.site] for _, p in self._rule.left.roots if p.site in nodes]))

    @cached_property
    def replaced(self) -> tuple[Value, ...]:
        """A value of each of the `calls`."""
        return tuple([self._index.results(call)[0] for call in self.calls])

    @cached_property
    def bits(self) -> int:
        """Where the `replaced` values are, as bits by position."""
        bits = 0
        for value in self.replaced:
            bits |= 1 << self._index.position[value.node]
        return bits

    @cached_property
    def below(self) -> int:
        """All that the part's tensors are computed from, as bits by position."""
        return self._index.below(self.state.values.values())

    @cached_property
    def ranks(self) -> dict[int, int]:
        """The ranks of the calls that the results come from."""
        nodes, rank = self.state.nodes, self._index.rank
        return {k: rank[nodes[p.site]] for k, (_, p) in enumerate(self._rule.left.roots) if p.site in nodes}


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

"""Finding the places of a graph where a rule applies."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dslc.errors import Span
from dslc.ir.graph import Call, Value, Values
from dslc.match.cases import Cases, GuardCase, cases_of, state_of
from dslc.match.guards import freeze
from dslc.match.index import Index
from dslc.match.rule import CompiledRule, Placed
from dslc.match.state import MatchState
from dslc.match.structure import ways_of
from dslc.match.substitutions import PartSubstitution
from dslc.semantics.env import Mismatch


@dataclass(frozen=True, eq=False)
class Match:
    """One place where a rule applies, with a value for every name.

    `ways` are the parts of the left side as they matched, which `order` names; `number` is that of the `choice`. The `case` is that of
    all matches with this one's guard key, `leaves` are the tensors that tell them apart.
    """

    rule: CompiledRule
    index: Index
    order: tuple[Placed, ...]
    ways: tuple[PartSubstitution, ...]
    cases: Cases
    case: GuardCase
    leaves: Values
    number: int

    @functools.cached_property
    def state(self) -> MatchState:
        """All parts together."""
        return state_of(self.order, self.ways)

    @functools.cached_property
    def calls(self) -> tuple[Call, ...]:
        """The calls that the left side's sites are."""
        return tuple([call for way in self.ways for call in way.state.nodes.values()])

    @property
    def roots(self) -> tuple[tuple[str, Value], ...]:
        """The values that would be replaced, by the names of the rule's outputs."""
        return tuple([(name, value) for (name, _), value in zip(self.rule.left.roots, self.replaced, strict=True)])

    @property
    def replaced(self) -> list[Value]:
        """The values that would be replaced, in the order of the rule's outputs."""
        pairs = zip(self.order, self.ways, strict=True)
        found = {k: value for part, way in pairs for k, value in zip(part.roots, way.roots, strict=True)}
        return [found[k] for k in range(len(found))]

    @property
    def names(self) -> Mapping[str, Any]:
        """Attributes, sizes, packs, element types and terms by name."""
        return self.case.names

    @property
    def choice(self) -> Mapping[str, Any]:
        """The values of `search` parameters."""
        return self.case.choices[self.number]

    @property
    def variables(self) -> Mapping[str, Value]:
        return self.state.values

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for equal matches: the same rule at the same place with the same values."""
        variables = tuple(sorted(self.state.values.items(), key=lambda item: item[0]))
        names = tuple(sorted((name, freeze(value)) for name, value in self.choice.items()))
        return (self.rule.name, tuple(value for _, value in self.roots), variables, names)

    def __str__(self) -> str:
        places = ", ".join(f"{name} = node {self.index.position[value.node]}" for name, value in self.roots)
        return f"{self.rule.name} at {places}"


def find_matches(
    rule: CompiledRule,
    index: Index,
    *,
    limit: int | None = None,
    constants: bool = False,
    refused: Callable[[MatchState, str, Span | None], bool] | None = None,
) -> Iterator[Match]:
    """The matches of a rule, lazily and in a deterministic order; no two are equal.

    Args:
        limit: at most so many.
        constants: also where only weights are computed, which costs nothing when the model runs.
        refused: is told why a place where the structure fits is no match, and the guard that does not hold; true ends the search.
    """
    order, found = ways_of(rule, index)
    if not order:
        return
    seen: set[Any] = set()
    cases = cases_of(rule)
    count = 0
    for ways in found:
        if not constants and ways[0].constant and all(way.constant for way in ways):
            if refused and refused(state_of(order, ways), "only weights are computed there, once and for all", None):
                return
            continue
        identity = tuple([way.identity for way in ways])
        if identity in seen:
            continue
        seen.add(identity)
        leaves, case = cases.of(order, ways)
        if not isinstance(case, GuardCase):
            reason, span = (case.reason, case.span) if isinstance(case, Mismatch) else (str(case), None)
            if refused and refused(state_of(order, ways), reason, span):
                return
            continue
        for number in range(len(case.choices)):
            yield Match(rule, index, order, ways, cases, case, leaves, number)
            count += 1
            if limit is not None and count >= limit:
                return

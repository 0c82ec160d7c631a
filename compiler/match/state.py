"""States of partial matches. States are immutable: a branch of the search copies the few entries it changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from dslc.errors import Span
from dslc.ir.graph import Call, Value, Values
from dslc.match.pattern import Quoted, Site
from dslc.records import record


@record
class AttributeEquals:
    """Attribute `name` of `node` must have the expression's value (`at`: one entry of a list)."""

    node: Call
    name: str
    at: int | None
    quoted: Quoted
    actual: Any


@record
class NumberEquals:
    """The constant `value` must be the expression's number everywhere."""

    value: Value
    number: Any
    quoted: Quoted


@record
class Complete:
    """Attributes that the pattern does not name must have their declared defaults; `attrs` are those that it does name."""

    node: Call
    attrs: tuple[str, ...]


Pending: TypeAlias = AttributeEquals | NumberEquals | Complete


@record
class Wrap:
    """A site that matched some operands of a longer associative call: the others stay around the replacement."""

    node: Call
    operands: Values
    chosen: tuple[int, ...]


Places: TypeAlias = tuple[tuple[int, ...], ...]
_NOTHING: Mapping[Any, Any] = MappingProxyType({})


class MatchState(NamedTuple):
    """`values` are tensor variables; `names` attributes, sizes, element types and terms; `results` the values of matched sites."""

    values: Mapping[str, Value] = _NOTHING
    names: Mapping[str, Any] = _NOTHING
    nodes: Mapping[int, Call] = _NOTHING
    results: Mapping[int, Values] = _NOTHING
    wraps: Mapping[int, Wrap] = _NOTHING
    pending: tuple[Pending, ...] = ()
    #: the operands of calls that were taken apart further than they stand there, by site
    taken: Mapping[int, Values] = _NOTHING
    #: which operands stand for each argument of a site, where it isn't the first for the first and so on
    places: Mapping[int, Places] = _NOTHING

    def with_variable(self, name: str, value: Value, names: Mapping[str, Any]) -> MatchState:
        values = {**self.values, name: value}
        return MatchState(values, names, self.nodes, self.results, self.wraps, self.pending, self.taken, self.places)

    def with_names(self, names: Mapping[str, Any], pending: tuple[Pending, ...]) -> MatchState:
        return MatchState(self.values, names, self.nodes, self.results, self.wraps, pending, self.taken, self.places)

    def with_site(
        self,
        site: int,
        node: Call,
        results: Values,
        places: Places,
        operands: Values | None = None,
        wrap: Wrap | None = None,
    ) -> MatchState:
        plain = all(at == (k,) for k, at in enumerate(places))
        return MatchState(
            self.values,
            self.names,
            {**self.nodes, site: node},
            {**self.results, site: results},
            {**self.wraps, site: wrap} if wrap else self.wraps,
            self.pending,
            self.taken if operands is None or operands == node.args else {**self.taken, site: operands},
            self.places if plain else {**self.places, site: places},
        )


@dataclass(slots=True)
class Trace:
    """Keeps the failure with the most matched sites and tensors; of equals the first."""

    score: tuple[int, int, int] = (-1, -1, -1)
    state: MatchState = field(default_factory=MatchState)
    reason: str = "no place in the graph was tried"
    span: Span | None = None
    values: tuple[tuple[str, str], ...] = ()

    def stopped(self, state: MatchState, site: Site | None, reason: Callable[[], str]) -> None:
        """A structural failure: at a site, or at a tensor below it."""
        score = (0, len(state.results), len(state.values) + len(state.names))
        if score > self.score:
            self.score, self.state, self.reason, self.values = score, state, reason(), ()
            self.span = site.span if site else None

    def refused(self, state: MatchState, reason: str, span: Span | None, values: tuple[tuple[str, str], ...]) -> None:
        """The structure fits, and a type, a guard or the replacement does not."""
        score = (1, len(state.results), len(values))
        if score > self.score:
            self.score, self.state, self.reason, self.span, self.values = score, state, reason, span, values

    def rejected(self, state: MatchState, reason: str, span: Span | None) -> None:
        """Everything on the left holds, and the replacement cannot be used."""
        if self.score < (2, 0, 0):
            self.score, self.state, self.reason, self.span, self.values = (2, 0, 0), state, reason, span, ()

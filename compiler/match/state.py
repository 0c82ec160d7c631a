"""States of partial matches. States are immutable: a branch of the search copies the few entries it changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from dslc.errors import Span
from dslc.ir.graph import Call, Node, Value, Values
from dslc.match.pattern import Quoted
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


@record
class Missed:
    """A call of the pattern, by its site, that a place has not: what stands there, and why it does not fit.

    `span` is what fails where it is no call.
    """

    site: int
    node: Node | None
    reason: Callable[[], str]
    span: Span | None = None


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
    pending: tuple[Pending, ...] = ()
    nodes: Mapping[int, Call] = _NOTHING
    results: Mapping[int, Values] = _NOTHING
    wraps: Mapping[int, Wrap] = _NOTHING
    #: the operands of calls that were taken apart further than they stand there, by site
    taken: Mapping[int, Values] = _NOTHING
    #: which operands stand for each argument of a site, where it isn't the first for the first and so on
    places: Mapping[int, Places] = _NOTHING
    #: none of a match
    missed: tuple[Missed, ...] = ()

    def with_names(self, names: Mapping[str, Any], pending: tuple[Pending, ...]) -> MatchState:
        return MatchState(self.values, names, pending, *self[3:])

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
            *self[:3],
            {**self.nodes, site: node},
            {**self.results, site: results},
            {**self.wraps, site: wrap} if wrap else self.wraps,
            self.taken if operands is None or operands == node.args else {**self.taken, site: operands},
            self.places if plain else {**self.places, site: places},
            self.missed,
        )

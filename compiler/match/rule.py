"""Compiled substitutions: one direction of a rule, ready to be matched and applied."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dslc.errors import Span
from dslc.match.outline import Outline, outlines
from dslc.match.parts import Placed, placed, whole
from dslc.match.pattern import Frame, Side
from dslc.match.types import QuickType
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.library import Rules
from dslc.syntax import tree as t


class TypesLike(Protocol):
    """Element types, such as `dslc.prove.verdict.Types`."""

    def fits(self, names: Mapping[str, Any]) -> bool:
        """Whether the names of a match have these."""

    def missed(self, every: Sequence[Any], names: Mapping[str, Any]) -> str:
        """Why a match that has none of `every`, these among them, is refused."""


@dataclass(frozen=True, slots=True)
class TermGuard:
    """`pointwise(f)` or `linear(f)`: what a term variable must be."""

    predicate: str
    term: str
    span: Span


@dataclass(frozen=True, eq=False)
class CompiledRule:
    """One direction of a substitution.

    `name` is the rule's identity in every report (`std.merge_matmuls`; `std.rule^-1` for the reverse of a two-way rule).
    `types` are the parameters' types, `conditions` the guards of the left side (those of a two-way rule hold in both directions),
    `right` the statements that build the replacement. `ordered` lists pairs of results that may be exchanged without changing
    the rule, so that only one order is tried; `fixed` (site, i, j) arguments of commutative sites that may be exchanged; `constants`
    the variables that a guard wants to be constant. `admitted`: the element types for which the rule may be used, where not for all
    that its types and guards admit.
    """

    name: str
    rules: Rules
    definition: SubstitutionDef
    reverse: bool
    frame: Frame
    left: Side
    right: tuple[t.GraphStatement, ...]
    types: Mapping[str, t.TypeExpr]
    quick: Mapping[str, QuickType]
    conditions: tuple[t.Expr, ...]
    term_guards: tuple[TermGuard, ...]
    lets: tuple[t.Let | t.LetMany, ...]
    functions: Mapping[str, t.Function]
    ordered: tuple[tuple[int, int], ...]
    fixed: frozenset[tuple[int, int, int]]
    constants: frozenset[str]
    admitted: tuple[TypesLike, ...] | None = None

    @functools.cached_property
    def outlines(self) -> tuple[Outline, ...]:
        """What each site of the left side can be at all."""
        predicates: dict[str, frozenset[str]] = {}
        for guard in self.term_guards:
            predicates[guard.term] = predicates.get(guard.term, frozenset()) | {guard.predicate}
        return outlines(self.rules, self.left, dict(self.quick), self.constants, predicates)

    @functools.cached_property
    def parts(self) -> tuple[Placed, ...]:
        """What is under each top of the left side; equal parts are one for all rules."""
        return placed(self)

    @functools.cached_property
    def whole(self) -> Placed:
        """The left side as one part."""
        return whole(self)

    @property
    def span(self) -> Span:
        return self.definition.syntax.span

    @property
    def partial(self) -> bool:
        return self.definition.syntax.partial

    def __str__(self) -> str:
        return self.name

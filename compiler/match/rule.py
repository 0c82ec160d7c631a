"""Compiled substitutions: one direction of a rule, ready to be matched and applied."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from dslc.errors import Span
from dslc.ir.dtype import DTYPES
from dslc.match.pattern import (
    Frame,
    Pattern,
    Quoted,
    Result,
    Side,
    Variable,
)
from dslc.match.prefilter import SitePrefilter, prefilters
from dslc.match.state import MatchState
from dslc.match.symmetry import attribute_text
from dslc.match.types import QuickType
from dslc.records import record
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.library import Rules, rules_cache
from dslc.syntax import tree as t


class TypesLike(Protocol):
    """Element types, such as `dslc.prove.verdict.Types`."""

    def fits(self, names: Mapping[str, Any]) -> bool:
        """Return whether the names of a match have these."""

    def missed(self, every: Sequence[Any], names: Mapping[str, Any]) -> str:
        """Describe why a match that has none of `every`, these among them, is refused."""


@record
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
    def prefilters(self) -> tuple[SitePrefilter, ...]:
        """The prefilter of each site of the left side."""
        predicates: dict[str, frozenset[str]] = {}
        for guard in self.term_guards:
            predicates[guard.term] = predicates.get(guard.term, frozenset()) | {guard.predicate}
        return prefilters(self.rules, self.left, dict(self.quick), self.constants, predicates)

    @functools.cached_property
    def parts(self) -> tuple[Placed, ...]:
        """The part under each top of the left side; equal parts are one for all rules."""
        return tuple([_Reader(self, (top,)).placed(rules_cache(self.rules, "parts")) for top in self.left.tops])

    @functools.cached_property
    def whole(self) -> Placed:
        """The left side as one part, in the rule's own names."""
        return _Reader(self, self.left.tops).placed({})

    @property
    def span(self) -> Span:
        return self.definition.span

    @property
    def partial(self) -> bool:
        return self.definition.syntax.partial

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, eq=False)
class PatternPart:
    """A part as it stands in the first rule that has it, whose names its states use.

    `binds` are the names of attributes, terms and numbers; `results` those that have names, `roots` those that are replaced;
    `ordered` pairs of roots that may be exchanged. `looks` numbers all that guards and right sides can ask of its tensors and names.
    """

    rule: CompiledRule
    top: int
    variables: tuple[str, ...]
    sites: tuple[int, ...]
    names: tuple[str, ...]
    binds: tuple[str, ...]
    results: tuple[Result, ...]
    roots: tuple[Result, ...]
    ordered: tuple[tuple[int, int], ...]
    signatures: dict[Any, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A part in a rule: the rule's variables, sites and names in the order of the part's, and the numbers of its results."""

    part: PatternPart
    top: int
    variables: tuple[str, ...]
    sites: tuple[int, ...]
    names: tuple[str, ...]
    roots: tuple[int, ...]

    def own(self, state: MatchState) -> MatchState:
        """A state of the part in the names of the rule."""
        part = self.part
        if part.variables == self.variables and part.sites == self.sites and part.names == self.names:
            return state
        site = dict(zip(part.sites, self.sites, strict=True))
        return MatchState(
            _called(state.values, dict(zip(part.variables, self.variables, strict=True))),
            _called(state.names, dict(zip(part.names, self.names, strict=True))),
            state.pending,
            _called(state.nodes, site),
            _called(state.results, site),
            _called(state.wraps, site),
            _called(state.taken, site),
            _called(state.places, site),
        )


def _called(found: Mapping[Any, Any], names: Mapping[Any, Any]) -> dict[Any, Any]:
    """Entries by other names."""
    return {names[old]: value for old, value in found.items()}


def _as_it_is(quoted: Quoted) -> Quoted:
    # what is evaluated belongs to its rule
    return quoted


class _Reader:
    """A part as nested tuples, in which its own names are numbers by the order in which they first occur."""

    def __init__(self, rule: CompiledRule, tops: Sequence[int]) -> None:
        self._rule, self._tops = rule, tops
        self._variables: dict[str, int] = {}
        self._sites: dict[int, int] = {}
        self._names: dict[str, int] = {}
        self._binds: dict[str, None] = {}
        self._named = {p for p in rule.left.names.values() if isinstance(p, Result)}
        self._roots = [pattern for _, pattern in rule.left.roots]

    def placed(self, pool: dict[Any, PatternPart]) -> Placed:
        rule = self._rule
        text = tuple([self._site(top) for top in self._tops])
        here = [
            p
            for site in self._sites
            for p in sorted({*self._roots, *self._named}, key=lambda p: p.output)
            if p.site == site
        ]
        roots = tuple([p for p in here if p in self._roots])
        numbers = tuple([self._roots.index(p) for p in roots])
        ordered = tuple(
            [(numbers.index(i), numbers.index(j)) for i, j in rule.ordered if i in numbers and j in numbers]
        )
        own = (tuple(self._variables), tuple(self._sites), tuple(self._names))
        part = pool.get((text, ordered))
        if not part:
            results = tuple([p for p in here if p in self._named])
            part = pool[text, ordered] = PatternPart(
                rule, self._tops[0], *own, tuple(self._binds), results, roots, ordered
            )
        return Placed(part, self._tops[0], *own, numbers)

    def _name(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))

    def _bind(self, name: str) -> int:
        self._binds.setdefault(name)
        return self._name(name)

    def _site(self, number: int) -> tuple[Any, ...]:
        site = self._rule.left.sites[number]
        at = self._sites[number] = len(self._sites)
        term: tuple[Any, ...] = ()
        if site.term is not None:
            guards = frozenset(guard.predicate for guard in self._rule.term_guards if guard.term == site.term)
            term = (self._bind(site.term), guards)
        named = tuple(sorted(p.output for p in self._named if p.site == number))
        replaced = tuple(sorted(p.output for p in self._roots if p.site == number))
        return (
            at,
            site.operator,
            term,
            tuple([(name, attribute_text(pattern, self._bind, _as_it_is)) for name, pattern in site.attrs]),
            None if site.rest is None else self._bind(site.rest),
            site.outputs,
            (site.commutative, site.associative, site.inverse),
            (named, replaced),
            tuple(sorted((i, j) for of, i, j in self._rule.fixed if of == number)),
            tuple([self._argument(arg) for arg in site.args]),
        )

    def _argument(self, pattern: Pattern) -> tuple[Any, ...]:
        if isinstance(pattern, Variable):
            known = self._variables.get(pattern.name)
            if known is not None:
                return ("variable", known)
            self._variables[pattern.name] = len(self._variables)
            quick = self._rule.quick.get(pattern.name)
            return ("variable", pattern.name in self._rule.constants, self._type(quick) if quick else None)
        if isinstance(pattern, Result):
            known = self._sites.get(pattern.site)
            return ("result", pattern.output, known if known is not None else self._site(pattern.site))
        if pattern.literal is not None:
            return ("number", repr(pattern.literal))
        if pattern.bare is not None:
            self._bind(pattern.bare)
        return ("quoted", pattern.quoted)

    def _type(self, quick: QuickType) -> tuple[Any, ...]:
        dtype = quick.dtype if quick.dtype in DTYPES else self._name(quick.dtype)
        before, after = (
            [self._name(d) if isinstance(d, str) else ("size", d) for d in dims] for dims in (quick.before, quick.after)
        )
        return (dtype, tuple(before), self._name(quick.pack) if quick.pack else quick.pack, tuple(after))

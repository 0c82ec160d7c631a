"""Patterns: what one side of a substitution looks for, compiled from the syntax tree.

A side becomes operator sites (calls), whose arguments are tensor variables, results of other sites, or numbers. Functions
(`let f(x) = e`) are expanded; expressions that only stand for numbers stay expressions, together with the frame whose names they use.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dslc.errors import Span
from dslc.records import record
from dslc.semantics.definitions import Module, OperatorDef
from dslc.syntax import tree as t


@dataclass(frozen=True, eq=False)
class Frame:
    """The names that an expression sees: the rule itself (`caller` is None), or the parameters of an expanded function.

    `operator` is set where an abbreviating operator is expanded: then `lets` are what its statements name.
    """

    module: Module
    arguments: Mapping[str, t.Expr] = field(default_factory=dict)
    caller: Frame | None = None
    operator: OperatorDef | None = None
    lets: Mapping[str, tuple[t.Expr, int]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Quoted:
    """An expression to be evaluated later. `needs` are the names of the rule that it uses."""

    expr: t.Expr
    frame: Frame
    needs: frozenset[str]

    @property
    def span(self) -> Span:
        return self.expr.span


# ---- what an attribute must be ---------------------------------------------------------------------------------


@record
class Bound:
    """A bare name: takes the value, or must be equal to what it has."""

    name: str


@record
class Literal:
    """A number, string or bool; also stands for every entry of a list."""

    value: Any


@record
class Rest:
    """`*u` in a list: all entries that the others leave."""

    name: str


@record
class Entries:
    """A list pattern with at most one `Rest`."""

    elements: tuple[AttrPattern | Rest, ...]


@record
class Equal:
    """An expression, compared once its names are known."""

    quoted: Quoted


@record
class Default:
    """Not named: the declared default."""


AttrPattern: TypeAlias = Bound | Literal | Entries | Equal | Default


# ---- what a tensor must be -------------------------------------------------------------------------------------


@record
class Variable:
    """A parameter of the rule: any tensor of its type."""

    name: str


@record
class Number:
    """A constant with this number everywhere; a bare unknown name (`bare`) takes the number. `literal` is None for an expression."""

    quoted: Quoted
    literal: Any = None
    bare: str | None = None


@record
class Result:
    """Output `output` of a site."""

    site: int
    output: int = 0


Pattern: TypeAlias = Variable | Number | Result
# a site, or an argument, and the sites from there up
Path: TypeAlias = tuple[Pattern | int, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Site:
    """A call. `operator` is None where the term variable `term` stands for it; `outputs` is how many results have names."""

    id: int
    operator: str | None
    term: str | None
    args: tuple[Pattern, ...]
    attrs: tuple[tuple[str, AttrPattern], ...]
    rest: str | None
    outputs: int
    span: Span
    commutative: bool = False
    associative: bool = False
    inverse: str | None = None

    @property
    def label(self) -> str:
        return self.operator or f"{self.term} (any operator)"

    @functools.cached_property
    def open_attrs(self) -> tuple[tuple[str, AttrPattern], ...]:
        """The attributes that literals alone don't decide."""
        return tuple((name, pattern) for name, pattern in self.attrs if not isinstance(pattern, Literal))

    @functools.cached_property
    def given(self) -> tuple[str, ...]:
        """The attributes that the pattern names."""
        return tuple(name for name, pattern in self.attrs if not isinstance(pattern, Default))

    @functools.cached_property
    def takes_defaults(self) -> bool:
        """Return whether attributes must have defaults that only the operator's own types say."""
        return (self.operator is None and self.rest is None) or any(isinstance(p, Default) for _, p in self.attrs)


@dataclass(frozen=True, eq=False)
class Side:
    """One side of a rule as a pattern.

    `names` are the intermediates and results by the names that the rule gives them; `tops` are the sites that no other site uses,
    with the results among them; `roots` the results, in the order of the rule's outputs; `spelled` the expanded operators, whose types
    and guards must hold.
    """

    sites: tuple[Site, ...]
    names: Mapping[str, Pattern]
    roots: tuple[tuple[str, Result], ...]
    tops: tuple[int, ...]
    variables: frozenset[str]
    binds: frozenset[str]
    spelled: tuple[Frame, ...] = ()

    @functools.cached_property
    def operators(self) -> frozenset[str]:
        """The operators of its sites."""
        return frozenset(site.operator for site in self.sites if site.operator is not None)

    @functools.cached_property
    def paths(self) -> Mapping[int, tuple[Path, ...]]:
        """For every top: its sites and leaves, each with the sites on the way up from there, the top last."""
        return {top: tuple(self.below(top)) for top in self.tops}

    def below(self, site: int, above: tuple[int, ...] = ()) -> Iterator[Path]:
        """A site with its leaves and the sites below it."""
        path = (site, *above)
        yield site, path
        for arg in self.sites[site].args:
            if isinstance(arg, Result):
                yield arg, path
                yield from self.below(arg.site, path)
            elif isinstance(arg, Variable):
                yield arg, path

"""Symmetries of a pattern: results or arguments that may change places without changing what the pattern says.

Of such matches only one order is tried: `merge(A, B)` and `merge(B, A)` are one find.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, TypeVar

from dslc.match.names import free_names, renamed
from dslc.match.pattern import (
    AttrPattern,
    Bound,
    Entries,
    Equal,
    Frame,
    Literal,
    Number,
    Pattern,
    Quoted,
    Rest,
    Result,
    Side,
    Variable,
)
from dslc.syntax import tree as t

_T = TypeVar("_T")


def symmetries(
    side: Side, types: Mapping[str, t.TypeExpr], conditions: Sequence[t.Expr], lets: Sequence[t.Let | t.LetMany]
) -> tuple[tuple[tuple[int, int], ...], frozenset[tuple[int, int, int]]]:
    """Pairs of positions among the roots whose exchange is only a renaming; and such arguments of commutative sites: (site, i, j)."""
    roots = [root for _, root in side.roots]

    def text(roots: Sequence[Result], flipped: tuple[int, int, int] | None = None) -> tuple[Any, ...]:
        return _Signature(side, types, conditions, lets, flipped).of(roots)

    results = [(i, j) for i, j in combinations(range(len(roots)), 2) if roots[i].site != roots[j].site]
    commutative = [site for site in side.sites if site.commutative]
    arguments = [(site.id, i, j) for site in commutative for i, j in combinations(range(len(site.args)), 2)]
    plain = text(roots) if results or arguments else ()
    ordered = tuple(pair for pair in results if text(_exchanged(roots, *pair)) == plain)
    return ordered, frozenset(each for each in arguments if text(roots, each) == plain)


def _exchanged(items: Sequence[_T], i: int, j: int) -> list[_T]:
    out = list(items)
    out[i], out[j] = out[j], out[i]
    return out


def attribute_text(
    pattern: AttrPattern | Rest, bind: Callable[[str], Any], quoted: Callable[[Quoted], Any]
) -> tuple[Any, ...]:
    """An attribute's pattern as nested tuples, its names and expressions as the two functions give them."""
    match pattern:
        case Bound(name) | Rest(name):
            return (type(pattern).__name__, bind(name))
        case Literal(value):
            return ("literal", repr(value))
        case Entries(elements):
            return ("entries", *[attribute_text(element, bind, quoted) for element in elements])
        case Equal():
            return ("quoted", quoted(pattern.quoted))
    return ("default",)


@dataclass
class _Signature:
    """A pattern as nested tuples, its own names replaced by the order in which they first occur, two arguments `flipped`."""

    side: Side
    types: Mapping[str, t.TypeExpr]
    conditions: Sequence[t.Expr]
    lets: Sequence[t.Let | t.LetMany]
    flipped: tuple[int, int, int] | None
    order: dict[str, str] = field(default_factory=dict)
    sites: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        side = self.side
        self._own = side.variables.union(side.names, side.binds, free_names((*self.types.values(), *self.conditions)))

    def of(self, roots: Sequence[Result]) -> tuple[Any, ...]:
        shown = []
        for root in roots:
            for name, pattern in self.side.names.items():
                if pattern == root:
                    self._rename(name)
            shown.append(self._pattern(root))
        others = [self._pattern(pattern) for pattern in self.side.names.values()]
        types = [
            (name, renamed(self.types[old], self._rename)) for old, name in [*self.order.items()] if old in self.types
        ]
        conditions = sorted(repr(renamed(condition, self._rename)) for condition in self.conditions)
        return shown, sorted(map(repr, others)), types, conditions, renamed(tuple(self.lets), self._rename)

    def _rename(self, name: str) -> str:
        return self.order.setdefault(name, f"?{len(self.order)}") if name in self._own else name

    def _pattern(self, pattern: Pattern) -> tuple[Any, ...]:
        if isinstance(pattern, Variable):
            return ("variable", self._rename(pattern.name))
        if isinstance(pattern, Number):
            return ("number", self._quoted(pattern.quoted))
        seen = self.sites.get(pattern.site)
        if seen is not None:
            return ("result", seen, pattern.output)
        number = self.sites[pattern.site] = len(self.sites)
        site, args = self.side.sites[pattern.site], self.side.sites[pattern.site].args
        if self.flipped is not None and self.flipped[0] == pattern.site:
            args = tuple(_exchanged(args, *self.flipped[1:]))
        return (
            "site",
            number,
            pattern.output,
            site.operator or self._rename(site.term or ""),
            tuple(map(self._pattern, args)),
            tuple((name, attribute_text(attr, self._rename, self._quoted)) for name, attr in site.attrs),
            site.rest and self._rename(site.rest),
        )

    def _quoted(self, quoted: Quoted) -> tuple[Any, ...]:
        return self._expression(quoted.expr, quoted.frame)

    def _expression(self, expr: t.Expr, frame: Frame) -> tuple[Any, ...]:
        if not frame.caller:
            return ("own", renamed(expr, self._rename))
        used = sorted(free_names(expr) & set(frame.arguments))
        inner = tuple((name, self._expression(frame.arguments[name], frame.caller)) for name in used)
        return ("inner", renamed(expr, lambda name: name), inner)

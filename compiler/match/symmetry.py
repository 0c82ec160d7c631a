"""Symmetries of a pattern: results or arguments that may change places without changing what the pattern says.

Of such matches only one order is tried: `merge(A, B)` and `merge(B, A)` are one find.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from dslc.match.names import free_names, renamed
from dslc.match.pattern import (
    AttrPattern,
    Bound,
    Default,
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


def exchangeable(
    side: Side, types: Mapping[str, t.TypeExpr], conditions: Sequence[t.Expr], lets: Sequence[t.Let | t.LetMany]
) -> tuple[tuple[int, int], ...]:
    """Pairs of positions among the roots whose exchange is only a renaming."""
    roots = [pattern for _, pattern in side.roots]
    if len(roots) < 2:
        return ()
    plain = _Signature(side, types, conditions, lets).of(roots, None)
    out = []
    for i, j in itertools.combinations(range(len(roots)), 2):
        swapped = list(roots)
        swapped[i], swapped[j] = roots[j], roots[i]
        if roots[i].site != roots[j].site and _Signature(side, types, conditions, lets).of(swapped, None) == plain:
            out.append((i, j))
    return tuple(out)


def interchangeable_arguments(
    side: Side, types: Mapping[str, t.TypeExpr], conditions: Sequence[t.Expr], lets: Sequence[t.Let | t.LetMany]
) -> frozenset[tuple[int, int, int]]:
    """(site, i, j): arguments of a commutative site whose exchange is only a renaming."""
    roots = [pattern for _, pattern in side.roots]
    candidates = [
        (site.id, i, j)
        for site in side.sites
        if site.commutative
        for i, j in itertools.combinations(range(len(site.args)), 2)
    ]
    if not candidates:
        return frozenset()
    plain = _Signature(side, types, conditions, lets).of(roots, None)
    return frozenset(c for c in candidates if _Signature(side, types, conditions, lets).of(roots, c) == plain)


class _Signature:
    """A pattern as nested tuples, its own names replaced by the order in which they first occur."""

    def __init__(
        self,
        side: Side,
        types: Mapping[str, t.TypeExpr],
        conditions: Sequence[t.Expr],
        lets: Sequence[t.Let | t.LetMany],
    ) -> None:
        self._side = side
        self._types = types
        self._conditions = conditions
        self._lets = lets
        own = set(side.variables) | set(side.names) | set(side.binds)
        for type in types.values():
            own |= free_names(type)
        for condition in conditions:
            own |= free_names(condition)
        self._own = own
        self._order: dict[str, str] = {}
        self._sites: dict[int, int] = {}
        self._flipped: tuple[int, int, int] | None = None

    def of(self, roots: Sequence[Pattern], flipped: tuple[int, int, int] | None) -> tuple[Any, ...]:
        self._flipped = flipped
        by_pattern: dict[Pattern, list[str]] = {}
        for name, pattern in self._side.names.items():
            by_pattern.setdefault(pattern, []).append(name)
        shown = []
        for root in roots:
            for name in by_pattern.get(root, ()):
                self._rename(name)
            shown.append(self._pattern(root))
        others = [self._pattern(pattern) for pattern in self._side.names.values()]
        types = [
            (name, renamed(self._types[old], self._rename))
            for old, name in list(self._order.items())
            if old in self._types
        ]
        conditions = sorted(repr(renamed(condition, self._rename)) for condition in self._conditions)
        lets = [renamed(let, self._rename) for let in self._lets]
        return (tuple(shown), tuple(sorted(map(repr, others))), tuple(types), tuple(conditions), tuple(lets))

    def _rename(self, name: str) -> str:
        return self._order.setdefault(name, f"?{len(self._order)}") if name in self._own else name

    def _pattern(self, pattern: Pattern) -> tuple[Any, ...]:
        if isinstance(pattern, Variable):
            return ("variable", self._rename(pattern.name))
        if isinstance(pattern, Number):
            return ("number", self._quoted(pattern.quoted))
        assert isinstance(pattern, Result)
        seen = self._sites.get(pattern.site)
        if seen is not None:
            return ("result", seen, pattern.output)
        number = self._sites[pattern.site] = len(self._sites)
        site = self._side.sites[pattern.site]
        args = list(site.args)
        if self._flipped is not None and self._flipped[0] == pattern.site:
            _, i, j = self._flipped
            args[i], args[j] = args[j], args[i]
        return (
            "site",
            number,
            pattern.output,
            site.operator or self._rename(site.term or ""),
            tuple(self._pattern(arg) for arg in args),
            tuple((name, self._attribute(attr)) for name, attr in site.attrs),
            None if site.rest is None else self._rename(site.rest),
        )

    def _attribute(self, attr: AttrPattern | Rest) -> tuple[Any, ...]:
        if isinstance(attr, Bound | Rest):
            return (type(attr).__name__, self._rename(attr.name))
        if isinstance(attr, Literal):
            return ("literal", repr(attr.value))
        if isinstance(attr, Entries):
            return ("entries", tuple(self._attribute(element) for element in attr.elements))
        if isinstance(attr, Equal):
            return ("equal", self._quoted(attr.quoted))
        assert isinstance(attr, Default)
        return ("default",)

    def _quoted(self, quoted: Quoted) -> tuple[Any, ...]:
        return self._expression(quoted.expr, quoted.frame)

    def _expression(self, expr: t.Expr, frame: Frame) -> tuple[Any, ...]:
        if frame.caller is None:
            return ("own", renamed(expr, self._rename))
        used = sorted(free_names(expr) & set(frame.arguments))
        inner = tuple((name, self._expression(frame.arguments[name], frame.caller)) for name in used)
        return ("inner", renamed(expr, lambda name: name), inner)

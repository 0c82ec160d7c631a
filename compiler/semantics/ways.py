"""Application of derivations in a search: to one expression, to two beside each other, to one and its consumer, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

from dslc.semantics.walk import names_in
from dslc.syntax import tree as t


class SearchWay(Enum):
    """The expressions that one direction of a rule rewrites."""

    ALONE = "one expression"
    BESIDE = "two expressions, neither of which needs the other"
    LINKED = "an expression, and the next one, which reads it"


class Never(Enum):
    """Reason why no search applies one direction of a rule."""

    MANY = "it rewrites more than two expressions"
    UNNAMED = "one of its two expressions has no name"
    BACKWARDS = "its first expression reads the second one, which has to stand before it"
    NAMES = "it gives a name to what is an expression of its own already"


def way_of(left: Sequence[t.Formula], right: Sequence[t.Formula]) -> SearchWay | Never:
    """Application of a rule with this left side in a search, or the reason for none."""
    if len(left) == 1:
        return Never.NAMES if _only_names(left[0], right) else SearchWay.ALONE
    if len(left) > 2:
        return Never.MANY
    first, second = left
    if first.name is None or second.name is None:
        return Never.UNNAMED
    if _reads(first, second.name):
        return Never.BACKWARDS
    return SearchWay.LINKED if _reads(second, first.name) else SearchWay.BESIDE


def _reads(formula: t.Formula, name: str) -> bool:
    return name in names_in(formula.scope)


def _only_names(left: t.Formula, right: Sequence[t.Formula]) -> bool:
    """Return whether the right side is the left one with names for scopes inside of it."""
    if len(right) < 2 or right[-1].name != left.name:
        return False
    named = {formula.name: formula.scope for formula in right[:-1] if formula.name is not None}
    return bool(_inlined(right[-1].scope, named) == left.scope)


def _inlined(node: Any, named: dict[str, t.Expr]) -> Any:
    """An expression with scopes in the place of their names: `P[x]` → `{[x] f(x)}[x]`."""
    if isinstance(node, tuple):
        return tuple(_inlined(each, named) for each in node)
    if not is_dataclass(node) or isinstance(node, type):
        return node
    if isinstance(node, t.Subscript) and isinstance(node.base, t.Name) and node.base.id in named and not node.other:
        return t.Nested(span=node.span, scope=_braced(named[node.base.id]), other=None, subs=_inlined(node.subs, named))
    changed = {each.name: _inlined(getattr(node, each.name), named) for each in fields(node) if each.name != "span"}
    return replace(node, **changed)


def _braced(scope: t.Expr) -> t.Expr:
    """The traversal of a scope in braces."""
    return scope.scope if isinstance(scope, t.Nested) and scope.subs is None else scope

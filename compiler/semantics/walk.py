"""Walking expressions of the syntax tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from dslc.errors import Span
from dslc.syntax import tree as t

N = TypeVar("N", bound=t.Node)


def nodes(kind: type[N], root: Any) -> Iterator[N]:
    """The nodes of one kind below a syntax node, in the order of `t.walk`."""
    return (node for node in t.walk(root) if isinstance(node, kind))


def names_in(root: Any) -> set[str]:
    """The names that an expression reads, dotted ones whole."""
    return {node.id for node in nodes(t.Name, root)}


def span_of(at: t.Node | Span | None) -> Span | None:
    """Position of a finding that is said of a node, or of a place itself."""
    return at.span if isinstance(at, t.Node) else at


def dims_of(type: t.TypeExpr | None) -> tuple[t.Expr, ...]:
    """The declared dimensions of a type; none where it has none, or there is no type."""
    return (type.dims or ()) if type else ()


def pack_name(element: t.Expr) -> str | None:
    """The name of a pack: `*S` → `S`; None for everything else."""
    return element.value.bare if isinstance(element, t.Pack) else None


def binders_of(places: Iterable[t.Place] | None) -> list[t.Binder]:
    """The iterators of places, merged dimensions taken apart: `[i, (g, c)]` → `i, g, c`."""
    return [each for one in places or () for each in (one.places if isinstance(one, t.TuplePlace) else (one,))]


def conditions_in(statements: Iterable[t.Node]) -> tuple[t.Expr, ...]:
    """The conditions of all `where` statements among some."""
    return tuple(each for one in statements if isinstance(one, t.Where) for each in one.conditions)


def terms_in(statements: Iterable[t.Node]) -> tuple[t.Signature, ...]:
    """The terms that statements declare."""
    return tuple(each for one in statements if isinstance(one, t.TermDecl) for each in one.signatures)


def tags_in(statements: Iterable[t.Node]) -> list[str]:
    """The words of all `tags` among some statements."""
    return [name for one in statements if isinstance(one, t.Tags) for name in one.names]


def named_by(guard: str, conditions: Iterable[t.Expr]) -> frozenset[str]:
    """The names that guards such as `constant(X)` are about."""
    guards = (each for each in conditions if isinstance(each, t.Call) and each.function == guard)
    return frozenset(arg.id for guard in guards for arg in guard.args if isinstance(arg, t.Name))

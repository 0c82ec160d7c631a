"""Free names of expressions, and expressions as comparable tuples with their names replaced."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from dslc.syntax import tree as t


def free_names(node: Any, functions: Mapping[str, t.Function] | None = None) -> frozenset[str]:
    """Names that are used and not bound inside: variables, called functions and `**a`; `a.stride` counts as `a`.

    Args:
        node: an expression or a type.
        functions: local `let f(x) = e`; a call of one needs what its body needs.
    """
    local = functions or {}
    out: set[str] = set()
    _collect(node, frozenset(), local, out, frozenset())
    return frozenset(out)


def _collect(
    node: Any, bound: frozenset[str], local: Mapping[str, t.Function], out: set[str], opened: frozenset[str]
) -> None:
    if isinstance(node, tuple):
        for part in node:
            _collect(part, bound, local, out, opened)
    elif isinstance(node, t.Name):
        head = node.id.partition(".")[0]
        if head not in bound:
            out.add(head)
    elif isinstance(node, t.Call):
        function = local.get(node.function)
        if function is not None and node.function not in opened:
            _collect(function.body, frozenset(function.params), local, out, opened | {node.function})
        elif node.function not in bound:
            out.add(node.function)
        if node.rest is not None and node.rest not in bound:
            out.add(node.rest)
        _collect(node.args, bound, local, out, opened)
        for keyword in node.kwargs:
            _collect(keyword.value, bound, local, out, opened)
    elif isinstance(node, t.Reduction):
        inner = _binders(node.binders, bound, local, out, opened)
        _collect((node.where, node.body), inner, local, out, opened)
    elif isinstance(node, t.Traversal):
        inner = bound
        for place in node.places:
            inner = _binders(place.places if isinstance(place, t.TuplePlace) else (place,), inner, local, out, opened)
        _collect((node.where, node.body), inner, local, out, opened)
    elif isinstance(node, t.ForAll):
        _collect(node.domain, bound, local, out, opened)
        _collect(node.body, bound | {node.name}, local, out, opened)
    elif isinstance(node, t.TypeExpr):
        out.add(node.name)
        _collect(node.dims or (), bound, local, out, opened)
    elif isinstance(node, t.Node):
        for field in dataclasses.fields(node):
            if field.name != "span":
                _collect(getattr(node, field.name), bound, local, out, opened)


def _binders(
    binders: tuple[t.Binder, ...],
    bound: frozenset[str],
    local: Mapping[str, t.Function],
    out: set[str],
    opened: frozenset[str],
) -> frozenset[str]:
    for binder in binders:
        _collect(binder.range, bound, local, out, opened)
        bound = bound | {binder.name}
    return bound


def renamed(node: Any, rename: Callable[[str], str]) -> Any:
    """A syntax tree as nested tuples, with every name passed through `rename` (spans vanish)."""
    if isinstance(node, tuple):
        return tuple(renamed(part, rename) for part in node)
    if isinstance(node, t.Name):
        head, dot, rest = node.id.partition(".")
        return ("Name", rename(head) + dot + rest)
    if isinstance(node, t.Node):
        parts: list[Any] = [type(node).__name__]
        for field in dataclasses.fields(node):
            if field.name == "span":
                continue
            value = getattr(node, field.name)
            called = field.name in {"name", "function"} and not isinstance(node, t.Keyword)
            if isinstance(value, str) and (called or field.name == "rest"):
                value = rename(value)
            parts.append(renamed(value, rename))
        return tuple(parts)
    return node

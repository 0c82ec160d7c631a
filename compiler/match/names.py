"""Free names of expressions, and expressions as comparable tuples with their names replaced."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dslc.semantics.walk import binders_of
from dslc.syntax import tree as t


def free_names(node: Any, functions: Mapping[str, t.Function] | None = None) -> frozenset[str]:
    """Names that are used and not bound inside: variables, called functions and `**a`; `a.stride` counts as `a`.

    Args:
        node: an expression or a type.
        functions: local `let f(x) = e`; a call of one needs what its body needs.
    """
    names: set[str] = set()

    def collect(node: Any, bound: frozenset[str], opened: frozenset[str]) -> None:
        match node:
            case tuple():
                for part in node:
                    collect(part, bound, opened)
            case t.Name():
                names.update({node.head} - bound)
            case t.Call(name, args, kwargs, rest):
                function = (functions or {}).get(name)
                if function and name not in opened:
                    collect(function.body, frozenset(function.params), opened | {name})
                elif name not in bound:
                    names.add(name)
                names.update(({rest} if rest is not None else set()) - bound)
                collect((args, tuple(keyword.value for keyword in kwargs)), bound, opened)
            case t.Reduction(_, binders, where, body):
                inside(binders, (where, body), bound, opened)
            case t.Traversal(places, where, body):
                inside(binders_of(places), (where, body), bound, opened)
            case t.ForAll(name, domain, body):
                inside([t.Binder(False, name, domain, span=node.span)], body, bound, opened)
            case t.Node():
                if isinstance(node, t.TypeExpr):
                    names.add(node.name)
                collect(tuple(t.children(node)), bound, opened)

    def inside(binders: Iterable[t.Binder], bodies: Any, bound: frozenset[str], opened: frozenset[str]) -> None:
        for binder in binders:
            collect(binder.range, bound, opened)
            bound |= {binder.name}
        collect(bodies, bound, opened)

    collect(node, frozenset(), frozenset())
    return frozenset(names)


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

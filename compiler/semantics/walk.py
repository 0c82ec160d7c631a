"""Walking expressions of the syntax tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from dslc.syntax.tree import Node

# the attributes of each kind of node that may hold others
_PARTS: dict[type[Node], tuple[str, ...]] = {}


def walk_expr(root: Any) -> Iterator[Node]:
    """Every node below a syntax node (or a tuple of them), parents first, in the order of the text."""
    stack: list[Any] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack.extend(reversed(node))
        elif isinstance(node, Node):
            yield node
            kind = type(node)
            if kind not in _PARTS:
                # reversed: what is on the stack last is taken first
                _PARTS[kind] = tuple(f.name for f in reversed(fields(kind)) if f.name not in {"span", "source"})
            for name in _PARTS[kind]:
                value = getattr(node, name)
                if isinstance(value, tuple | Node):
                    stack.append(value)

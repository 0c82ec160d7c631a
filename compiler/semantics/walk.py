"""Walking expressions of the syntax tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from dslc.syntax.tree import Node


def walk_expr(root: Any) -> Iterator[Node]:
    """Every node below a syntax node (or a tuple of them), parents first, in the order of the text."""
    stack: list[Any] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack.extend(reversed(node))
        elif isinstance(node, Node):
            yield node
            stack.extend(
                value
                for field in reversed(fields(node))
                if field.name not in {"span", "source"} and isinstance(value := getattr(node, field.name), tuple | Node)
            )

"""Sizes and attributes that no tensor can have: ONNX and every runtime count in 64 bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from dslc.semantics.checks.names import CheckReport
from dslc.semantics.definitions import Module
from dslc.semantics.library import Rules
from dslc.semantics.walk import nodes
from dslc.syntax import tree as t

_LIMIT = 1 << 63  #: numbers of 64 bits end here


def check_numbers(rules: Rules, modules: frozenset[Module], report: CheckReport) -> None:
    """E0329 for whole numbers of 2^63 and more where a size, an attribute or a range stands; results of equations may be larger."""
    for module in rules.modules:
        if module in modules and any(node.value >= _LIMIT for node in nodes(t.Int, module.file.items)):
            for number in _counts(module.file, False):
                report.add("E0329", f"{number.value} does not fit 64 bits, as sizes and attributes must", number)


def _counts(node: t.Node, counts: bool) -> Iterator[t.Int]:
    """The numbers that are too large, in places that `counts` or something in them does."""
    if isinstance(node, t.Int):
        if counts and node.value >= _LIMIT:
            yield node
        return
    if isinstance(node, t.Unary) and isinstance(node.operand, t.Int) and node.operand.value == _LIMIT:
        return  # -2^63 is the lowest of 64 bits
    for entry in fields(node):
        value = getattr(node, entry.name)
        inner = counts or isinstance(node, t.TypeExpr | t.Attr | t.Keyword | t.Binder | t.Search)
        if isinstance(node, t.Reduction) and entry.name == "body":
            inner = False
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, t.Node):
                yield from _counts(part, inner)

"""Checks of names within one file: definitions, exports, tensors that are also sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslc.errors import Diagnostic, Label, Span, closest, instead, suggested
from dslc.syntax import tree as t

_DEFINING = (t.Operator, t.Function, t.Property, t.Substitution, t.Derivation, t.Lowering, t.Ruleset)


def _at(node: t.Node, name: str) -> Span:
    """Position of a name in a statement that holds it as text only."""
    text = re.sub(r"#[^\n]*", lambda comment: " " * len(comment[0]), node.span.text)
    # An item's own name follows its keyword; the names of a list follow theirs.
    found = re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", text)
    if not found:
        return node.span
    return Span(node.span.source, node.span.start + found.start(), node.span.start + found.end())


def _definitions(file: t.File) -> Iterator[Diagnostic]:
    seen: dict[str, t.Node] = {}
    for item in file.items:
        if not isinstance(item, _DEFINING):
            continue
        first = seen.setdefault(item.name, item)
        if first is not item:
            label = Label(_at(first, item.name), "first defined here")
            yield Diagnostic(
                "E0204", f"`{item.name}` is defined twice in this file", _at(item, item.name), secondary=(label,)
            )


def _exports(file: t.File) -> Iterator[Diagnostic]:
    defined = {item.name for item in file.items if isinstance(item, _DEFINING)}
    for export in file.header.exports:
        for name in export.names:
            if name.startswith("_"):
                hint = "a name that begins with `_` is private to its file"
                yield Diagnostic("E0206", f"`{name}` is private and cannot be exported", _at(export, name), hint=hint)
            elif name not in defined:
                close, place = closest(name, defined), _at(export, name)
                message, fix = f"this file defines no `{name}` to export", instead(place, name, close)
                yield Diagnostic("E0210", message, place, hint=suggested(close), fix=fix)


def _sizes(type: t.TypeExpr | None) -> Iterator[t.Name]:
    """The names that a type gives to sizes and packs."""
    for dim in (type.dims or ()) if type else ():
        parts = dim.slots if isinstance(dim, t.TupleExpr) else (dim,)
        for part in parts:
            name = part.value if isinstance(part, t.Pack) else part
            if isinstance(name, t.Name):
                yield name


def _two_things(file: t.File) -> Iterator[Diagnostic]:
    for item in file.items:
        if not isinstance(item, t.Operator | t.Substitution | t.Property | t.Lowering):
            continue
        params = {param.name: param for param in item.params}
        outputs = item.outputs if isinstance(item, t.Operator) else ()
        for param in (*item.params, *outputs):
            for size in _sizes(param.type):
                if size.id in params:
                    label = Label(_at(params[size.id], size.id), "the tensor")
                    message = f"`{size.id}` names a tensor and a size"
                    yield Diagnostic("E0213", message, size.span, secondary=(label,))


def check_names(file: t.File) -> list[Diagnostic]:
    """Mistakes in names that need no other file: E0204, E0206, E0210, E0213."""
    return [*_exports(file), *_definitions(file), *_two_things(file)]

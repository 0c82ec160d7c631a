"""Copies of libraries in which every operator has another name; ONNX mappings and rules' names stay."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from dslc.semantics.definitions import Module, OperatorDef
from dslc.semantics.library import Rules
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import FUNCTIONS_1, REDUCTIONS

PREFIX = "zz_"
_Edit = tuple[int, str]


def renamed(rules: Rules, folder: Path) -> Path:
    """Writes a copy of each library into a folder of its name within `folder`, which it returns."""
    for module in rules.modules:
        own = folder / module.library
        own.mkdir(parents=True, exist_ok=True)
        source = module.file.source
        edits = dict(_edits(module))
        text = source.text
        for at in sorted(edits, reverse=True):
            assert text.startswith(edits[at], at), (source.path, at, edits[at])
            text = text[:at] + PREFIX + text[at:]
        (own / Path(source.path).name).write_text(text, encoding="utf-8")
    return folder


def _edits(module: Module) -> Iterator[_Edit]:
    operators = {name for name, found in module.names.items() if isinstance(found, OperatorDef)}
    header = module.file.header
    for line in (*header.imports, *header.exports):
        every = operators | {name for alias in module.aliases.values() for name in alias.names}
        for found in re.finditer(r"(?<![.\w])\w+", _code(line)):
            if found.group() in every & set(getattr(line, "names", None) or ()):
                yield line.span.start + found.start(), found.group()
    for item in module.file.items:
        if isinstance(item, t.Operator):
            found = re.compile(r"operator\s+").match(item.span.text)
            assert found is not None
            yield item.span.start + found.end(), item.name
        if isinstance(item, t.PropertyIs):
            for word in re.finditer(r"\w+", _code(item)):
                if word.group() in operators and word.start() > len("property"):
                    yield item.span.start + word.start(), word.group()
            continue
        if isinstance(item, t.Test) and item.name in operators:
            found = re.compile(r"test\s+").match(item.span.text)
            assert found is not None
            yield item.span.start + found.end(), item.name
        yield from _calls(item, module, graph=not isinstance(item, t.Function))


def _code(node: t.Node) -> str:
    """The node's text with comments blanked out."""
    return re.sub(r"#[^\n]*", lambda found: " " * len(found.group()), node.span.text)


def _calls(node: Any, module: Module, graph: bool) -> Iterator[_Edit]:
    """`graph` says whether calls are applied to tensors here; `exp` on values is the scalar function."""
    if isinstance(node, tuple):
        for part in node:
            yield from _calls(part, module, graph)
        return
    if not isinstance(node, t.Node):
        return
    if isinstance(node, t.Call):
        scalar = node.function in FUNCTIONS_1 | REDUCTIONS and not graph
        name = node.function.rsplit(".", 1)[-1]
        if isinstance(module.lookup(node.function), OperatorDef) and not scalar:
            yield node.span.start + len(node.function) - len(name), name
        yield from _calls(node.args, module, graph)
        yield from _calls(node.kwargs, module, False)
        return
    if isinstance(node, t.Equation | t.Let):
        yield from _calls(node.value, module, graph and node.target.places is None)
        return
    if isinstance(node, t.Traversal | t.Where | t.Attr | t.Const | t.ListExpr | t.Search):
        graph = False
    for field in fields(node):
        if field.name != "span":
            yield from _calls(getattr(node, field.name), module, graph)

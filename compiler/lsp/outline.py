"""A document at a glance: its items as symbols, the colours of its words, and what may be done with each rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lsprotocol import types as lsp

from dslc.lsp.hover import rule_named, status_text
from dslc.lsp.names import Occurrence
from dslc.lsp.session import DocumentView
from dslc.lsp.texts import EditorPlaces
from dslc.lsp.view import named_at
from dslc.syntax import tree as t

_KINDS: dict[type[t.Node], lsp.SymbolKind] = {
    t.Operator: lsp.SymbolKind.Function, t.Function: lsp.SymbolKind.Function, t.Property: lsp.SymbolKind.Interface,
    t.PropertyIs: lsp.SymbolKind.Interface, t.Substitution: lsp.SymbolKind.Class, t.Derivation: lsp.SymbolKind.Class,
    t.Lowering: lsp.SymbolKind.Method, t.OnnxDef: lsp.SymbolKind.EnumMember, t.Test: lsp.SymbolKind.Event,
    t.Ruleset: lsp.SymbolKind.Namespace,
}  # fmt: skip
_WORDS: dict[type[t.Node], str] = {
    t.Operator: "operator", t.Function: "let", t.Property: "property", t.PropertyIs: "property", t.Substitution: "substitution",
    t.Derivation: "derivation", t.Lowering: "lowering", t.OnnxDef: "onnx", t.Test: "test", t.Ruleset: "ruleset",
}  # fmt: skip

#: what words are coloured as: the form of an occurrence -> a type of tokens and its modifiers
TOKEN_TYPES = (
    "function",
    "parameter",
    "variable",
    "property",
    "type",
    "typeParameter",
    "namespace",
    "class",
    "enumMember",
    "keyword",
)
TOKEN_MODIFIERS = ("declaration", "defaultLibrary", "readonly")
_FORMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "operator": ("function", ()), "function": ("function", ()), "builtin": ("function", ("defaultLibrary",)),
    "parameter": ("parameter", ()), "variable": ("variable", ()), "iterator": ("variable", ("readonly",)),
    "property": ("property", ()), "type": ("type", ()), "size": ("typeParameter", ()), "module": ("namespace", ()),
    "rule": ("class", ()), "onnx": ("enumMember", ()), "constant": ("variable", ("readonly", "defaultLibrary")),
    "keyword": ("keyword", ()), "tag": ("property", ()),
}  # fmt: skip


def symbols(view: DocumentView, places: EditorPlaces) -> list[lsp.DocumentSymbol]:
    """The items of a document, with their attributes and outputs."""
    out = []
    for item in view.pieces.file.items:
        span = view.pieces.span(item.span)
        name = item.op if isinstance(item, t.OnnxDef) else item.name
        start, end = named_at(view.source.text, span.start, span.end, name)
        inner = [
            lsp.DocumentSymbol(
                one.name, lsp.SymbolKind.Property, places.of(view.pieces.span(one.span)), places.of(view.pieces.span(one.span)),
                detail=one.type.span.text,
            )
            for one in (item.statements if isinstance(item, t.Operator) else ())
            if isinstance(one, t.Attr)
        ]  # fmt: skip
        word = _WORDS[type(item)]
        out.append(
            lsp.DocumentSymbol(
                name or word, _KINDS[type(item)], places.range(span.start, span.end), places.range(start, end), detail=word,
                children=inner,
            )
        )  # fmt: skip
    return out


def tokens(words: Sequence[Occurrence], places: EditorPlaces) -> list[int]:
    """The words of a document as the protocol has them: each relative to the one before it."""
    out: list[int] = []
    line = column = 0
    for word in words:
        if word.form not in _FORMS:
            continue
        kind, modifiers = _FORMS[word.form]
        start, end = places.position(word.start), places.position(word.end)
        marks = sum(
            1 << TOKEN_MODIFIERS.index(each) for each in (*modifiers, *(("declaration",) if word.defines else ()))
        )
        out += [start.line - line, start.character - (column if start.line == line else 0), end.character - start.character,
                TOKEN_TYPES.index(kind), marks]  # fmt: skip
        line, column = start.line, start.character
    return out


def lenses(view: DocumentView, places: EditorPlaces) -> Iterator[lsp.CodeLens]:
    """Above each rule its status, its tests and its proof; above an operator its tests."""
    path, uri = str(view.document.path), view.document.uri
    for item in view.pieces.file.items:
        if not isinstance(item, t.Operator | t.Substitution | t.Property | t.Derivation | t.Lowering):
            continue
        span = view.pieces.span(item.span)
        start, end = named_at(view.source.text, span.start, span.end, item.name)
        at = places.range(start, end)
        rule = rule_named(view.rules, path, item.name) if view.rules is not None else None
        if rule is not None and view.rules is not None and isinstance(item, t.Substitution | t.Property):
            yield lsp.CodeLens(
                at, lsp.Command(status_text(view.rules, rule), "dslc.status", arguments=[uri, item.name])
            )
        if not isinstance(item, t.Derivation | t.Lowering):
            yield lsp.CodeLens(at, lsp.Command("run tests", "dslc.test", arguments=[uri, item.name]))
        if isinstance(item, t.Substitution | t.Property):
            yield lsp.CodeLens(at, lsp.Command("verify", "dslc.verify", arguments=[uri, item.name]))

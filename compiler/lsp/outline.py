"""A document at a glance: its items as symbols, the colours of its words, and what may be done with each rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lsprotocol import types as lsp

from dslc.lsp.hover import rule_named, status_text
from dslc.lsp.names import Occurrence, named_at
from dslc.lsp.session import DocumentView
from dslc.lsp.texts import EditorPlaces
from dslc.syntax import tree as t

#: how an item is shown, and its keyword
_KINDS: dict[type[t.Node], str] = {
    t.Operator: "Function operator", t.Function: "Function let", t.Property: "Interface property",
    t.PropertyIs: "Interface property", t.Substitution: "Class substitution", t.Derivation: "Class derivation",
    t.Lowering: "Method lowering", t.OnnxDef: "EnumMember onnx", t.Test: "Event test",
    t.Ruleset: "Namespace ruleset",
}  # fmt: skip

#: what words are coloured as: the form of an occurrence -> a type of tokens and its modifiers, where it is no such type itself
TOKEN_TYPES = tuple(
    "function parameter variable property type typeParameter namespace class enumMember keyword".split()
)
TOKEN_MODIFIERS = tuple("declaration defaultLibrary readonly".split())
_FORMS = {
    "operator": "function", "builtin": "function defaultLibrary", "iterator": "variable readonly", "size": "typeParameter",
    "module": "namespace", "rule": "class", "onnx": "enumMember", "constant": "variable readonly defaultLibrary", "tag": "property",
}  # fmt: skip


def symbols(view: DocumentView) -> list[lsp.DocumentSymbol]:
    """The items of a document, with their attributes and outputs."""
    out, places = [], view.places
    for span, item in view.items:
        name = item.op if isinstance(item, t.OnnxDef) else item.name
        inner = []
        for one in item.statements if isinstance(item, t.Operator) else ():
            if isinstance(one, t.Attr):
                at, typed = places.of(view.pieces.span(one.span)), one.type.span.text
                inner.append(lsp.DocumentSymbol(one.name, lsp.SymbolKind.Property, at, at, detail=typed))
        kind, word = _KINDS[type(item)].split()
        at = places.range(*named_at(view.source.text, span.start, span.end, name))
        out.append(
            lsp.DocumentSymbol(name or word, lsp.SymbolKind[kind], places.of(span), at, detail=word, children=inner)
        )
    return out


def tokens(words: Sequence[Occurrence], places: EditorPlaces) -> list[int]:
    """The words of a document as the protocol has them: each relative to the one before it."""
    out: list[int] = []
    line = column = 0
    for word in words:
        kind, *modifiers = _FORMS.get(word.form, word.form).split()
        start, end = places.position(word.start), places.position(word.end)
        marks = word.defines | sum(1 << TOKEN_MODIFIERS.index(each) for each in modifiers)
        out += [start.line - line, start.character - (column if start.line == line else 0), end.character - start.character,
                TOKEN_TYPES.index(kind), marks]  # fmt: skip
        line, column = start.line, start.character
    return out


def lenses(view: DocumentView) -> Iterator[lsp.CodeLens]:
    """Above each rule its status, its tests and its proof; above an operator its tests."""
    path, uri, rules = str(view.document.path), view.document.uri, view.rules
    for span, item in view.items:
        if not isinstance(item, t.Operator | t.Substitution | t.Property):
            continue
        at = view.places.range(*named_at(view.source.text, span.start, span.end, item.name))
        proved = isinstance(item, t.Substitution | t.Property)
        texts = [("run tests", "dslc.test"), *([("verify", "dslc.verify")] if proved else [])]
        if proved and rules and (rule := rule_named(rules, path, item.name)):
            texts.insert(0, (status_text(rules, rule), "dslc.status"))
        for text, command in texts:
            yield lsp.CodeLens(at, lsp.Command(text, command, arguments=[uri, item.name]))

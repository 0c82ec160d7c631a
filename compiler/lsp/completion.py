"""Completions: what may be typed at a place."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp

from dslc.errors import DslcError
from dslc.lsp.cursor import Cursor
from dslc.lsp.declarations import declared_in
from dslc.lsp.names import BUILTIN
from dslc.lsp.session import DocumentView, EditorSession
from dslc.lsp.signatures import doc_of, signature
from dslc.semantics.checks.names import imports
from dslc.semantics.definitions import FunctionDef, OperatorDef
from dslc.semantics.installed import find_library, libraries
from dslc.semantics.library import standard
from dslc.semantics.walk import nodes
from dslc.syntax import tree as t
from dslc.syntax.scan import HEADER_WORDS, ITEM_WORDS
from dslc.syntax.vocabulary import ATTRIBUTE_TYPES, CONSTANTS, DTYPE_NAMES, TRAITS

#: words that begin a statement, by the item that they stand in
_STATEMENTS: dict[str, str] = {
    "operator": "attr where let onnx example tags verify",
    "substitution": "where let const term search tags correct verify trusted",
    "property": "where let term holds trusted",
    "derivation": "index term map set tensor where expr search tags verify",
    "lowering": "expr match where let cost call template onnx tags verify",
    "test": "given expect fires silent derives where",
    "ruleset": "include exclude always",
}
_K = lsp.CompletionItemKind


def complete(session: EditorSession, view: DocumentView, offset: int) -> list[lsp.CompletionItem]:
    """The completions at an offset of a document, each name once."""
    found: dict[str, lsp.CompletionItem] = {}
    for item in _Completions(session, view, offset).items():
        found.setdefault(item.label, item)
    return list(found.values())


def _named(
    names: Iterable[str], kind: lsp.CompletionItemKind, order: str = "", **rest: Any
) -> Iterator[lsp.CompletionItem]:
    """Names of one kind; `order` says where they stand among others."""
    return (
        lsp.CompletionItem(name, kind=kind, sort_text=f"{order}{name}" if order else None, **rest) for name in names
    )


class _Completions(Cursor):
    """The completions at a place."""

    def __init__(self, session: EditorSession, view: DocumentView, offset: int) -> None:
        super().__init__(view, offset)
        self.session = session

    # ---- where ---------------------------------------------------------------------------------------------------

    def items(self) -> Iterator[lsp.CompletionItem]:
        last, third = self.last(), self.last(3).text
        if self.in_text:
            return
        head = self._header()
        if head is not None:
            yield from head
        elif last.text == "." and self.last(2).kind == "word":
            yield from self._of(self.last(2).text)
        elif last.text == "onnx":
            yield from _named(onnx_nodes(), _K.EnumMember)
        elif last.text == ":" and third in {"attr", "(", ",", "given", "->", "*"}:
            yield from _named(sorted(DTYPE_NAMES | ATTRIBUTE_TYPES), _K.TypeParameter)
        else:
            begins = _STATEMENTS.get(self.word, "").split() if self.word else sorted(ITEM_WORDS | HEADER_WORDS)
            yield from _named(begins, _K.Keyword)
            if self.word == "property" and last.text == "is":
                yield from _named(sorted(TRAITS), _K.Keyword)
            yield from self._attributes()
            yield from self._locals()
            yield from self._visible()
            yield from _named(sorted(BUILTIN), _K.Function, "3")
            yield from _named(sorted(CONSTANTS | {*"if else and or not forall in".split()}), _K.Keyword, "3")
            yield from self._importable()

    # ---- the header ----------------------------------------------------------------------------------------------

    def _header(self) -> Iterable[lsp.CompletionItem] | None:
        """Libraries, files and their names behind `import`; the file's own names behind `export`."""
        at = next((k for k in range(len(self.tokens) - 1, -1, -1) if self.tokens[k].line_start
                   and self.tokens[k].text in HEADER_WORDS | ITEM_WORDS), -1)  # fmt: skip
        if at < 0 or self.tokens[at].text not in {"import", "export"} or self.word:
            return None
        rest = [token.text for token in self.tokens[at + 1 :]]
        if self.tokens[at].text == "export":
            own = (i for i in self.view.pieces.file.items if not isinstance(i, t.Test | t.PropertyIs | t.OnnxDef))
            return _named((item.name for item in own if item.name and not item.name.startswith("_")), _K.Function)
        before = "".join(rest).partition("(")[0]
        if "(" in rest:
            return None if ")" in rest else self._names_of(before)
        if rest[-1:] not in ([], ["."]):
            return None
        rests = (name[len(before) :] for name in sorted(libraries()) if name.startswith(before))
        files = (path.stem for path in self._files(before))
        return _named((*rests, *files), _K.Module)

    def _files(self, module: str) -> list[Path]:
        """The files of a library, or the one that a name means."""
        own = self.view.document.path
        folder, rest = (own.parent, module[1:]) if module.startswith(".") else find_library(module)
        path = (folder or own / module) / rest.replace(".", "/")
        return [
            one for one in (sorted(path.glob("*.rules")) or [Path(f"{path}.rules")]) if one.is_file() and one != own
        ]

    def _names_of(self, module: str) -> Iterator[lsp.CompletionItem]:
        """The names that a file or a library defines."""
        for path in self._files(module):
            try:
                items = self.session.files.tree(path.resolve()).items
            except DslcError:
                continue
            for item in items:
                if isinstance(item, t.Operator | t.Function) and not item.name.startswith("_"):
                    yield lsp.CompletionItem(item.name, kind=_K.Function, detail=signature(item)[0])

    # ---- names ---------------------------------------------------------------------------------------------------

    def _of(self, head: str) -> Iterator[lsp.CompletionItem]:
        """Names behind a dot: a call's attributes, or a library's names."""
        module = self.view.module
        if self.item is not None and module is not None:
            owner = declared_in(self.item).rests.get(head)
            found = module.lookup(owner) if owner is not None else None
            if isinstance(found, OperatorDef):
                yield from _attributes_of(found)
        if module and head in module.aliases:
            others = module.aliases[head].names.items()
            own = (
                name for name, one in others if isinstance(one, OperatorDef | FunctionDef) and one.module is not module
            )
            yield from _named(own, _K.Function)

    def _attributes(self) -> Iterator[lsp.CompletionItem]:
        """The attributes of the operator whose call is open here, as `name=`."""
        call, module = self.call(), self.view.module
        found = module.lookup(call[0]) if call and module else None
        if call and isinstance(found, OperatorDef) and not call[1][-1]:
            for item in _attributes_of(found):
                if [item.label, "="] not in (one[:2] for one in call[1]):
                    item.insert_text, item.sort_text = f"{item.label}=", f"0{item.label}"
                    yield item

    def _locals(self) -> Iterator[lsp.CompletionItem]:
        """Tensors, attributes, sizes and iterators of the item at hand; all of its words up to here where it cannot be read yet."""
        if self.item is None:
            words = {token.text for token in self.tokens if token.kind == "word" and token.start >= self.begin}
            yield from _named(sorted(words - ITEM_WORDS), _K.Variable, "1")
            return
        known = declared_in(self.item)
        yield from _named(sorted(known.attributes), _K.Property, "1")
        for name, form in known.locals.items():
            yield from _named([name], _K.Variable, "1", detail=form)
        params = [param for param in getattr(self.item, "params", ()) if isinstance(param, t.Param)]
        sizes = (node.id.partition(".")[0] for param in params for node in nodes(t.Name, param))
        yield from _named(sizes, _K.TypeParameter, "1", detail="size")

    def _visible(self) -> Iterator[lsp.CompletionItem]:
        """The operators and functions that the file has or imports."""
        module = self.view.module
        for name, one in (module.names if module else {}).items():
            if isinstance(one, OperatorDef | FunctionDef):
                label, _ = signature(one.syntax)
                yield from _named([name], _K.Function, "2", detail=label, documentation=doc_of(one.syntax))

    def _importable(self) -> Iterator[lsp.CompletionItem]:
        """The standard library's operators that the file does not import yet, each with the import that it needs."""
        module = self.view.module
        if not module or not self.word or module.library == "std":
            return
        for name, one in ((op.short, op) for op in standard().operators.values()):
            if name not in module.names and not name.startswith("_"):
                fix = imports(module.file, name)
                span = self.session.files.span(fix.span)
                edit = lsp.TextEdit(self.session.places(span.source).of(span), fix.text)
                yield lsp.CompletionItem(
                    name, kind=_K.Function, detail=f"import std ({name})", documentation=signature(one.syntax)[0],
                    sort_text=f"4{name}", additional_text_edits=[edit],
                )  # fmt: skip


def _attributes_of(operator: OperatorDef) -> Iterator[lsp.CompletionItem]:
    for attr in operator.attrs:
        yield lsp.CompletionItem(attr.name, kind=_K.Property, detail=attr.span.text)


@functools.cache
def onnx_nodes() -> tuple[str, ...]:
    """The names of ONNX's operators."""
    import onnx

    return tuple(sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}))

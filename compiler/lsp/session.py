"""The state of a server: the open documents, what their libraries define, and all rule files that may speak of a name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlparse

from lsprotocol import types as lsp

from dslc.checking.files import Edited
from dslc.errors import DslcError, SourceText, Span
from dslc.lsp.texts import EditorPlaces, EditorText
from dslc.semantics.definitions import Module
from dslc.semantics.installed import libraries
from dslc.semantics.library import Rules, load_many
from dslc.syntax import tree as t
from dslc.syntax.pieces import Pieces

FILES = 2000  #: rule files of the folders that an editor has open which are looked through for a name


_SKIPPED = frozenset("node_modules __pycache__ build dist site-packages".split())


def path_of(uri: str) -> Path:
    """The file of a URI; a document that is in no file yet counts as one beside the server."""
    parsed = urlparse(uri)
    if parsed.scheme == "file":
        name = unquote(parsed.path)
        if os.name == "nt":
            name = name.lstrip("/")
        return Path(os.path.abspath(name)).resolve()
    name = (Path(unquote(parsed.path or uri)).name or "untitled").removesuffix(".rules")
    return Path.cwd().resolve() / f"{name}.rules"


@dataclass(frozen=True)
class Document:
    """An open document: `uri` as its editor writes it."""

    uri: str
    path: Path
    text: EditorText
    version: int | None


@dataclass(frozen=True)
class DocumentView:
    """A document as it can be asked about now: its text in pieces, and what could last be loaded of its file."""

    document: Document
    pieces: Pieces
    rules: Rules | None
    module: Module | None

    @property
    def source(self) -> SourceText:
        return self.pieces.file.source

    @property
    def items(self) -> Iterator[tuple[Span, t.Item]]:
        """The items that can be read, with their places in the text."""
        return ((self.pieces.span(item.span), item) for item in self.pieces.file.items)

    @property
    def places(self) -> EditorPlaces:
        return EditorPlaces(self.source, self.document.text.encoding)


@dataclass(eq=False)
class EditorSession:
    """The documents of one editor. Paths are resolved."""

    encoding: str = "utf-16"
    folders: list[Path] = field(default_factory=list)
    files: Edited = field(default_factory=Edited)
    documents: dict[Path, Document] = field(default_factory=dict)
    _loaded: dict[Path, tuple[Pieces, Rules]] = field(default_factory=dict)
    _world: tuple[object, tuple[Rules, ...]] | None = None

    # ---- documents -----------------------------------------------------------------------------------------------

    def open(self, uri: str, text: str, version: int | None) -> Document:
        path = path_of(uri)
        document = self.documents[path] = Document(uri, path, EditorText(text, self.encoding), version)
        self.files.edit(path, document.text.source)
        return document

    def change(
        self, uri: str, changes: list[lsp.TextDocumentContentChangeEvent], version: int | None
    ) -> Document | None:
        """Edits a document; None where none of that name is open."""
        known = self.documents.get(path_of(uri))
        if not known:
            return None
        text = known.text.changed(changes)
        document = self.documents[known.path] = Document(known.uri, known.path, text, version)
        self.files.edit(document.path, text.source)
        return document

    def close(self, uri: str) -> Document | None:
        path = path_of(uri)
        self.files.close(path)
        self._loaded.pop(path, None)
        return self.documents.pop(path, None)

    # ---- what they define ----------------------------------------------------------------------------------------

    def view(self, uri: str) -> DocumentView | None:
        """A document with what it means, as it was when it last had a meaning."""
        document = self.documents.get(path_of(uri))
        if not document:
            return None
        pieces = self.files.texts[document.path]
        known = self._loaded.get(document.path)
        if known is None or known[0] is not pieces:
            try:
                known = (pieces, self.files.load_readable(document.path))
                self._loaded[document.path] = known
            except (DslcError, OSError):
                pass
        rules = known[1] if known is not None else None
        return DocumentView(document, pieces, rules, self.module_of(rules, document.path))

    def reload(self) -> None:
        """Forgets what was loaded: something beside the rule files has changed, such as their locks."""
        self._loaded.clear()
        self._world = None

    @staticmethod
    def module_of(rules: Rules | None, path: Path) -> Module | None:
        """The module that a file is."""
        modules = rules.modules if rules else ()
        return next((one for one in modules if Path(one.path) == path), None)

    def world(self) -> tuple[Rules, ...]:
        """The rules of all files in the editor's folders and of all installed libraries, as far as they can be loaded."""
        stamp = (tuple(self.files.texts.items()), tuple(self._stamps()))
        if self._world is not None and self._world[0] == stamp:
            return self._world[1]
        found = [rules for name in libraries() if (rules := self._load([name]))]
        known = {Path(module.path) for rules in found for module in rules.modules}
        own = [path for path in dict.fromkeys([*self.documents, *self._own_files()]) if path not in known]
        together = self._load(own) if own else None
        several = [together] if together else map(self._load, ([path] for path in own))
        found += [each for each in several if each]
        self._world = (stamp, tuple(found))
        return self._world[1]

    def _load(self, names: list[str] | list[Path]) -> Rules | None:
        try:
            return load_many(names, files=self.files)
        except (DslcError, OSError):
            return None

    def _own_files(self) -> Iterator[Path]:
        count = 0
        for folder in self.folders:
            for place, inner, names in os.walk(folder):
                inner[:] = sorted(name for name in inner if not name.startswith(".") and name not in _SKIPPED)
                for name in sorted(names):
                    if name.endswith(".rules"):
                        count += 1
                        if count > FILES:
                            return
                        yield (Path(place) / name).resolve()

    def _stamps(self) -> Iterator[tuple[str, float]]:
        for path in self._own_files():
            try:
                yield str(path), path.stat().st_mtime
            except OSError:
                continue

    # ---- places --------------------------------------------------------------------------------------------------

    def places(self, source: SourceText) -> EditorPlaces:
        return EditorPlaces(source, self.encoding)

    def uri(self, path: str | Path) -> str:
        """The URI of a file, as the editor writes it."""
        document = self.documents.get(Path(path))
        return document.uri if document else Path(os.path.abspath(path)).as_uri()

    def location(self, span: Span) -> lsp.Location:
        """A place as editors write it."""
        whole = self.files.span(span)
        return lsp.Location(self.uri(whole.source.path), self.places(whole.source).of(whole))

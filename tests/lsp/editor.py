"""An editor for tests: the client of pytest-lsp, with a `dslc lsp` of its own."""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, TypeVar

from lsprotocol import types as lsp
from pygls.protocol import default_converter
from pytest_lsp import LanguageClient, client_capabilities
from pytest_lsp.client import DEFAULT_CLIENT_FEATURES, register_lsp_features

from tests.lsp import forked

T = TypeVar("T")
#: seconds that an answer may take on a busy machine
LONGEST = 60.0


@cache
def server() -> tuple[str, ...]:
    """The arguments of Python for a server: a fork of one process, where there are sockets without a file."""
    if sys.platform != "linux":
        return "-m", "dslc", "lsp"
    name = f"dslc-tests-{os.getpid()}"
    # it ends with this process, whose end of its input is the only one
    started = Popen([sys.executable, "-P", forked.__file__, "serve", name], stdin=PIPE, stdout=PIPE)
    assert started.stdout is not None
    started.stdout.readline()
    atexit.register(started.communicate)
    return "-I", "-S", forked.__file__, "ask", name


class Editor:
    """An editor with one folder open. `place` finds positions by text, where `|` is the cursor."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.client = LanguageClient(converter_factory=default_converter)
        self.versions: dict[str, int] = {}
        self.texts: dict[str, str] = {}
        self.published: dict[str, list[tuple[float, lsp.PublishDiagnosticsParams]]] = {}

        def published(ls: Any, params: lsp.PublishDiagnosticsParams) -> None:
            self.published.setdefault(params.uri, []).append((time.perf_counter(), params))

        register_lsp_features(
            self.client, {**DEFAULT_CLIENT_FEATURES, lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS: published}
        )

    async def start(self) -> None:
        await self.client.start_io(sys.executable, *server(), env=dict(os.environ))
        capabilities = client_capabilities("visual-studio-code")
        folders = [lsp.WorkspaceFolder(self.folder.as_uri(), "tests")]
        await self.client.initialize_session(
            lsp.InitializeParams(capabilities=capabilities, root_uri=self.folder.as_uri(), workspace_folders=folders)
        )

    async def stop(self) -> None:
        await self.client.shutdown_session()
        await self.client.stop()

    # ---- texts ---------------------------------------------------------------------------------------------------

    def open(self, name: str | Path, text: str | None = None) -> str:
        path = self.folder / name
        if text is None:
            text = path.read_bytes().decode()
        uri = path.as_uri()
        self.versions[uri], self.texts[uri] = 1, text
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(lsp.TextDocumentItem(uri, "dslc", 1, text)))
        return uri

    def close(self, uri: str) -> None:
        self.client.text_document_did_close(lsp.DidCloseTextDocumentParams(lsp.TextDocumentIdentifier(uri)))

    def write(self, uri: str, text: str) -> None:
        """Another text for a document."""
        self._change(uri, text, lsp.TextDocumentContentChangeWholeDocument(text))

    def type(self, uri: str, at: int, typed: str, gone: int = 0) -> None:
        """Types at an offset, over the next `gone` characters."""
        old = self.texts[uri]
        span = lsp.Range(position(old, at), position(old, at + gone))
        self._change(uri, old[:at] + typed + old[at + gone :], lsp.TextDocumentContentChangePartial(span, typed))

    def _change(self, uri: str, text: str, change: Any) -> None:
        self.texts[uri] = text
        self.versions[uri] += 1
        document = lsp.VersionedTextDocumentIdentifier(uri=uri, version=self.versions[uri])
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, [change]))

    # ---- asking --------------------------------------------------------------------------------------------------

    def at(self, uri: str, marked: str) -> dict[str, Any]:
        """The parameters of a request at the `|` in a piece of a document's text."""
        before, after = marked.split("|")
        found = self.texts[uri].index(before + after)
        return {
            "text_document": lsp.TextDocumentIdentifier(uri),
            "position": position(self.texts[uri], found + len(before)),
        }

    async def diagnostics(
        self, uri: str, want: Callable[[list[lsp.Diagnostic]], bool] | None = None
    ) -> list[lsp.Diagnostic]:
        """What is published of the newest version: the first that is wanted, else the last before nothing comes for a while."""
        until = time.perf_counter() + LONGEST
        while time.perf_counter() < until:
            told = [one for _, one in self.published.get(uri, []) if one.version == self.versions[uri]]
            if told and (want is None or want(list(told[-1].diagnostics))):
                return list(told[-1].diagnostics)
            await asyncio.sleep(0.005)
        raise AssertionError(f"no such diagnostics of {uri}: {self.published.get(uri, [])[-1:]}")

    def codes(self, found: list[lsp.Diagnostic]) -> list[str]:
        return [str(one.code) for one in found]


def position(text: str, offset: int) -> lsp.Position:
    """A position as the protocol counts it: lines end in LF, CRLF or CR, columns count UTF-16."""
    lines = re.split(r"\r\n|\r|\n", text[:offset])
    return lsp.Position(len(lines) - 1, len(lines[-1].encode("utf-16-le")) // 2)


def edited(text: str, edits: list[lsp.TextEdit]) -> str:
    """A text after edits."""
    starts = [0, *(m.end() for m in re.finditer(r"\r\n|\r|\n", text))]

    def offset(at: lsp.Position) -> int:
        if at.line >= len(starts):
            return len(text)
        line = text[starts[at.line] :].encode("utf-16-le")[: 2 * at.character]
        return starts[at.line] + len(line.decode("utf-16-le"))

    for edit in sorted(edits, key=lambda one: offset(one.range.start), reverse=True):
        text = text[: offset(edit.range.start)] + edit.new_text + text[offset(edit.range.end) :]
    return text


def with_editor(folder: Path, does: Callable[[Editor], Awaitable[T]]) -> T:
    """What is done with an editor that has a folder open."""

    async def session() -> T:
        editor = Editor(folder)
        await editor.start()
        try:
            return await asyncio.wait_for(does(editor), 10 * LONGEST)
        finally:
            await editor.stop()

    return asyncio.run(session())

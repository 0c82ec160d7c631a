"""The server itself: requests and notifications of the Language Server Protocol, each answered by the module that knows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer

from dslc.errors import Diagnostic, DslcError, SourceText
from dslc.lsp.commands import run
from dslc.lsp.completion import complete
from dslc.lsp.cursor import Cursor
from dslc.lsp.edits import actions, declared, formatted, renamed, uses
from dslc.lsp.hints import hints
from dslc.lsp.hover import hover, rule_named, status_text
from dslc.lsp.names import Occurrence, word_at, words
from dslc.lsp.outline import TOKEN_MODIFIERS, TOKEN_TYPES, lenses, symbols, tokens
from dslc.lsp.session import DocumentView, EditorSession, path_of
from dslc.lsp.signatures import signature_help
from dslc.version import __version__

PAUSE = 0.03  #: seconds without a key before what takes long is looked at; the first look begins at once


_LOG = logging.getLogger("dslc.lsp")
# a request that is refused is answered with the reason: it is no failure of the server
logging.getLogger("pygls.protocol.json_rpc").addFilter(
    lambda one: not (one.exc_info and isinstance(one.exc_info[1], JsonRpcInvalidParams))
)


#: registers the answer to a request or notification, with options
Answers: TypeAlias = Callable[..., Callable[[Any], Any]]


class Server(LanguageServer):
    """A language server for rule files. All of its work is done in one thread, a definition at a time between two messages."""

    def __init__(self) -> None:
        super().__init__("dslc", __version__, text_document_sync_kind=lsp.TextDocumentSyncKind.Incremental)
        self.session = EditorSession()
        self._running: dict[Path, asyncio.Task[None]] = {}
        self._told: dict[Path, set[str]] = {}

    # ---- diagnostics ---------------------------------------------------------------------------------------------

    def check(self, path: Path) -> None:
        """Begins to look at a document, and then at the open ones that it concerns; what is under way for them ends."""
        files = self.session.files
        for each in [
            path,
            *(other for other in self.session.documents if other != path and files.concerns(other, path)),
        ]:
            running = self._running.pop(each, None)
            if running is not None:
                running.cancel()
            self._running[each] = asyncio.ensure_future(self._checked(each, first=each == path))

    async def _checked(self, path: Path, first: bool) -> None:
        if not first:
            await asyncio.sleep(PAUSE * 4)
        shown: tuple[Diagnostic, ...] | None = None
        try:
            for look in self.session.files.looks(path):
                if look.findings is not shown:
                    shown = look.findings
                    self.publish(path, look.findings)
                await asyncio.sleep(0 if shown is not None else PAUSE)
        except asyncio.CancelledError:
            raise
        except Exception:  # a bug in a check is no reason to leave the editor alone
            _LOG.exception("checking %s failed", path)

    def publish(self, path: Path, findings: Iterable[Diagnostic]) -> None:
        """Shows what was found by a look at one document, in it and in files that it imports and that are not open."""
        by_file: dict[str, list[lsp.Diagnostic]] = {self.session.uri(path): []}
        for one in findings:
            where = Path(one.span.source.path) if one.span else Path(one.path) if one.path else path
            if where != path and where in self.session.documents:
                continue  # it says so itself
            by_file.setdefault(self.session.uri(where), []).append(self._diagnostic(one))
        gone = self._told.get(path, set()) - by_file.keys()
        self._told[path] = set(by_file)
        document = self.session.documents.get(path)
        for uri, found in [*by_file.items(), *((uri, []) for uri in gone)]:
            version = document.version if document and uri == document.uri else None
            self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, found, version))

    def forget(self, path: Path) -> None:
        """Ends what is under way for a document, and takes back what was said."""
        running = self._running.pop(path, None)
        if running is not None:
            running.cancel()
        for uri in self._told.pop(path, set()):
            self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))

    def _diagnostic(self, one: Diagnostic) -> lsp.Diagnostic:
        start = lsp.Position(0, 0)
        place = self.session.places(one.span.source).of(one.span) if one.span else lsp.Range(start, start)
        said = filter(None, (one.message, one.label, one.counterexample, one.hint and f"help: {one.hint}"))
        related = [
            lsp.DiagnosticRelatedInformation(self.session.location(label.span), label.message)
            for label in one.secondary
        ]
        tags = [lsp.DiagnosticTag.Unnecessary] if one.code in {"W0005", "W0007", "W0016"} else None
        severity = lsp.DiagnosticSeverity[one.severity.replace("note", "information").title()]
        return lsp.Diagnostic(place, "\n".join(said), severity, one.code, None, "dslc", tags, related)


def server() -> Server:
    """A server that knows all that it can do."""
    made = Server()

    def answers(method: str, options: Any = None) -> Callable[[Any], Any]:
        """Input that cannot be understood has no answer."""

        def registered(answer: Any) -> Any:
            @made.feature(method, options)
            def _answered(ls: LanguageServer, params: Any = None) -> Any:
                try:
                    return answer(params)
                except (DslcError, OSError, RecursionError) as failure:
                    _LOG.error("no answer to %s: %s", method, failure)
                    return None

            return answer

        return registered

    _documents(made, answers)
    _questions(made, answers)
    _edits(made, answers)
    _commands(made)
    return made


def _about(made: Server, answers: Answers, of_word: bool = False) -> Answers:
    """Registers answers about a document, `answer(view, params)`, or about a word in it with a meaning: `answer(view, word, params)`.

    Null where there is none.
    """

    def about(method: str, options: Any = None) -> Callable[[Any], Any]:
        def registered(answer: Any) -> Any:
            @answers(method, options)
            def found(params: Any) -> Any:
                view = made.session.view(params.text_document.uri)
                if not view or not of_word:
                    return answer(view, params) if view else None
                word = word_at(words(made.session, view), view.places.offset(params.position))
                return answer(view, word, params) if word else None

            return answer

        return registered

    return about


def _documents(made: Server, answers: Answers) -> None:
    """Notifications of documents, and their diagnostics."""
    session = made.session

    @answers(lsp.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    def folders_changed(_params: Any) -> None:
        session.folders = [path_of(uri) for uri in made.workspace.folders]

    @answers(lsp.INITIALIZED)
    def initialized(params: Any) -> None:
        encoding = made.server_capabilities.position_encoding
        session.encoding = str(getattr(encoding, "value", encoding) or "utf-16")
        folders_changed(params)
        if not session.folders and made.workspace.root_uri:
            session.folders = [path_of(made.workspace.root_uri)]

    @answers(lsp.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: lsp.DidOpenTextDocumentParams) -> None:
        one = params.text_document
        made.check(session.open(one.uri, one.text, one.version).path)

    @answers(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: lsp.DidChangeTextDocumentParams) -> None:
        document = session.change(params.text_document.uri, list(params.content_changes), params.text_document.version)
        if document:
            made.check(document.path)

    @answers(lsp.TEXT_DOCUMENT_DID_SAVE)
    def saved(params: lsp.DidSaveTextDocumentParams) -> None:
        path = path_of(params.text_document.uri)
        if path in session.documents:
            made.check(path)

    @answers(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: lsp.DidCloseTextDocumentParams) -> None:
        document = session.close(params.text_document.uri)
        if document:
            made.forget(document.path)

    @answers(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def files_changed(_params: lsp.DidChangeWatchedFilesParams) -> None:
        session.reload()
        for path in session.documents:
            made.check(path)


def _questions(made: Server, answers: Answers) -> None:
    """Answers about what stands in a document, and what may be typed."""
    session, about, about_word = made.session, _about(made, answers), _about(made, answers, of_word=True)

    def location(source: SourceText, one: Occurrence) -> lsp.Location:
        return lsp.Location(session.uri(source.path), session.places(source).range(one.start, one.end))

    @about_word(lsp.TEXT_DOCUMENT_HOVER)
    def hovered(view: DocumentView, word: Occurrence, params: lsp.HoverParams) -> lsp.Hover | None:
        text = hover(view, word)
        if text is None:
            return None
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text), view.places.range(word.start, word.end))

    @about_word(lsp.TEXT_DOCUMENT_DEFINITION)
    def defined(view: DocumentView, word: Occurrence, params: lsp.DefinitionParams) -> list[lsp.Location]:
        symbol = word.symbol
        if not symbol:
            return []
        if symbol.kind == "module":
            return [lsp.Location(session.uri(symbol.path), lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0)))]
        if symbol.kind == "onnx":
            clauses = view.rules.onnx.get(symbol.name, ()) if view.rules else ()
            return [session.location(clause.syntax.span) for clause in clauses]
        return [location(source, one) for source, one in declared(session, view, symbol)]

    @about_word(lsp.TEXT_DOCUMENT_REFERENCES)
    def referred(view: DocumentView, word: Occurrence, params: lsp.ReferenceParams) -> list[lsp.Location]:
        if not word.symbol:
            return []
        found = uses(session, view, word.symbol, params.context.include_declaration)
        return [location(source, one) for source, one in found]

    @about_word(lsp.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT)
    def highlighted(
        view: DocumentView, word: Occurrence, params: lsp.DocumentHighlightParams
    ) -> list[lsp.DocumentHighlight]:
        own = (one for one in words(session, view) if one.symbol == word.symbol is not None)
        return [lsp.DocumentHighlight(view.places.range(one.start, one.end)) for one in own]

    # what one function answers
    about(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=[".", "(", ","]))(
        lambda view, asked: lsp.CompletionList(False, complete(session, view, view.places.offset(asked.position)))
    )
    about(lsp.TEXT_DOCUMENT_SIGNATURE_HELP, lsp.SignatureHelpOptions(["(", ","], ["="]))(
        lambda view, asked: signature_help(Cursor(view, view.places.offset(asked.position)))
    )
    about(lsp.TEXT_DOCUMENT_INLAY_HINT)(
        lambda view, asked: list(hints(view, *map(view.places.offset, (asked.range.start, asked.range.end))))
    )
    about(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)(lambda view, _: symbols(view))
    about(lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, lsp.SemanticTokensLegend(list(TOKEN_TYPES), list(TOKEN_MODIFIERS)))(
        lambda view, _: lsp.SemanticTokens(tokens(words(session, view), view.places))
    )
    about(lsp.TEXT_DOCUMENT_CODE_LENS)(lambda view, _: list(lenses(view)))
    about(lsp.TEXT_DOCUMENT_FORMATTING)(lambda view, _: formatted(view))


def _edits(made: Server, answers: Answers) -> None:
    """Edits that the server makes when it is asked to."""
    session, about, about_word = made.session, _about(made, answers), _about(made, answers, of_word=True)

    @about_word(lsp.TEXT_DOCUMENT_PREPARE_RENAME)
    def may_be_renamed(
        view: DocumentView, word: Occurrence, params: lsp.PrepareRenameParams
    ) -> lsp.PrepareRenamePlaceholder | None:
        if not word.symbol or word.symbol.kind in {"onnx", "module"}:
            return None
        return lsp.PrepareRenamePlaceholder(view.places.range(word.start, word.end), word.symbol.name)

    about_word(lsp.TEXT_DOCUMENT_RENAME, lsp.RenameOptions(prepare_provider=True))(
        lambda view, word, asked: renamed(session, view, word, asked.new_name)
    )

    @about(lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions([lsp.CodeActionKind.QuickFix]))
    def mended(view: DocumentView, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        # what was published may be of an earlier text: the places of this one are needed
        findings = session.files.look(view.document.path).findings
        start, end = view.places.offset(params.range.start), view.places.offset(params.range.end)
        return actions(view, findings, params.context.diagnostics, start, end)


def _commands(made: Server) -> None:
    """Commands of lenses."""

    def runs(command: str) -> None:
        @made.command(f"dslc.{command}")
        async def ran(ls: LanguageServer, uri: str, name: str = "") -> dict[str, Any]:
            path = path_of(uri)
            document = made.session.documents.get(path)
            saved = path.read_bytes().decode("utf-8", "replace") if path.is_file() else None
            result = await run(command, path, name)
            kind = lsp.MessageType.Info if result.ok else lsp.MessageType.Warning
            note = "" if document is None or saved == document.text.raw else " (of the file as it is saved)"
            made.session.reload()
            asked = made.client_capabilities.workspace
            if asked is not None and asked.code_lens is not None and asked.code_lens.refresh_support:
                made.workspace_code_lens_refresh(None)
            made.window_log_message(lsp.LogMessageParams(kind, result.text))
            made.window_show_message(lsp.ShowMessageParams(kind, f"{name}: {result.last}{note}"))
            return {"ok": result.ok, "text": result.text}

    runs("test")
    runs("verify")

    @made.command("dslc.status")
    def status(ls: LanguageServer, uri: str, name: str) -> str | None:
        view = made.session.view(uri)
        if view is None or view.rules is None:
            return None
        rule = rule_named(view.rules, str(view.document.path), name)
        if not rule:
            return None
        text = f"{name}: {status_text(view.rules, rule)}"
        made.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Info, text))
        return text

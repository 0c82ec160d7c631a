"""Edits that the server writes: the formatter's, another name everywhere, and those that mend or ignore a diagnostic."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams

from dslc.checking.suppression import comment_for
from dslc.errors import Diagnostic, DslcError, SourceText
from dslc.lsp.names import Occurrence, Symbol, everywhere, of_module, words
from dslc.lsp.session import DocumentView, EditorSession
from dslc.syntax.parser import RESERVED
from dslc.syntax.printer import format_source

_NAME = re.compile(r"[A-Za-z_]\w*", re.A)
#: kinds of symbols that other files may name
SHARED = frozenset("operator function rule attribute output".split())


class NotRenamed(JsonRpcInvalidParams):
    """The reason why a name stays as it is."""


def formatted(view: DocumentView) -> list[lsp.TextEdit]:
    """The edits that `dslc fmt` makes, line by line; none where the text cannot be read."""
    source, places = view.source, view.places
    try:
        text = format_source(source)
    except DslcError:
        return []
    before, after = source.text.splitlines(keepends=True), text.splitlines(keepends=True)
    # there are more ends of lines than those of editors
    if len(before) > len(source.line_starts):
        return [lsp.TextEdit(places.range(0, len(source.text)), _ends(view, text))]
    starts = list(accumulate(map(len, before), initial=0))
    return [
        lsp.TextEdit(places.range(starts[a], starts[b]), _ends(view, "".join(after[c:d])))
        for kind, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        if kind != "equal"
    ]


def _ends(view: DocumentView, text: str) -> str:
    return text.replace("\n", view.document.text.newline)


def uses(
    session: EditorSession, view: DocumentView, symbol: Symbol, declaration: bool = True
) -> Iterator[tuple[SourceText, Occurrence]]:
    """Occurrences of a symbol: in its item for what is local, else in all files that can be loaded."""
    found = [(view.source, one) for one in words(session, view) if one.symbol == symbol]
    if symbol.kind in SHARED:
        others = ((module.file.source, one) for module, one in everywhere(session, symbol))
        found += [(source, one) for source, one in others if source.path != view.source.path]
    return (each for each in found if declaration or not each[1].defines)


def declared(session: EditorSession, view: DocumentView, symbol: Symbol) -> Iterator[tuple[SourceText, Occurrence]]:
    """Occurrences that define a symbol."""
    if symbol.path in ("", view.source.path):
        yield from ((view.source, one) for one in words(session, view) if one.symbol == symbol and one.defines)
        return
    module = session.module_of(view.rules, Path(symbol.path))
    if module and view.rules:
        found = of_module(session, module, view.rules)
        yield from ((module.file.source, one) for one in found if one.symbol == symbol and one.defines)


def renamed(session: EditorSession, view: DocumentView, word: Occurrence, name: str) -> lsp.WorkspaceEdit:
    """Another name for what a word means, wherever it is named.

    Raises:
        NotRenamed: it has no name of its own here, the new one is none, is taken, or files outside of the editor would change.
    """
    symbol = word.symbol
    if not symbol or symbol.kind in {"onnx", "module"}:
        raise NotRenamed("this word is no name of yours")
    if not _NAME.fullmatch(name) or name in RESERVED:
        raise NotRenamed(f"`{name}` is no name that something may have")
    if name == symbol.name:
        return lsp.WorkspaceEdit({})
    found: dict[str, list[tuple[SourceText, Occurrence]]] = {}
    for source, one in uses(session, view, symbol):
        found.setdefault(source.path, []).append((source, one))
    for path in [*found, *([symbol.path] if symbol.path else [])]:
        if Path(path) not in session.documents and not any(Path(path).is_relative_to(one) for one in session.folders):
            raise NotRenamed(f"`{symbol.name}` is also named in {path}, which is not in a folder that is open")
    if symbol.kind in SHARED and not any(one.defines for places in found.values() for _, one in places):
        raise NotRenamed(f"the file that defines `{symbol.name}` cannot be read")
    _apart(session, view, symbol, name, found)
    changes = {}
    for path, places in found.items():
        at = session.places(places[0][0])
        changes[session.uri(path)] = [lsp.TextEdit(at.range(one.start, one.end), name) for _, one in places]
    return lsp.WorkspaceEdit(changes)


def _apart(
    session: EditorSession,
    view: DocumentView,
    symbol: Symbol,
    name: str,
    found: dict[str, list[tuple[SourceText, Occurrence]]],
) -> None:
    """Raises NotRenamed where the new name means something else at one of the places."""
    if symbol.kind in {"local", "attribute", "output"}:
        for one in words(session, view):
            if view.source.text[one.start : one.end] == name and one.symbol and _near(one.symbol, symbol):
                raise NotRenamed(f"`{name}` has another meaning in the same item")
        return
    for path in found:
        pieces = session.files.texts.get(Path(path))
        text = pieces.file.source.text if pieces else next(source.text for source, _ in found[path])
        if re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", re.sub(r'#[^\n]*|"""[\s\S]*?"""', "", text)):
            raise NotRenamed(f"`{name}` is a name in {Path(path).name} already")


def _near(one: Symbol, symbol: Symbol) -> bool:
    """Return whether two names may meet: in one item, or both visible in the file."""
    if one.kind == symbol.kind:
        return one.owner == symbol.owner
    return one.kind in {"local", "attribute", "output", "operator", "function"}


def actions(
    view: DocumentView,
    findings: Iterable[Diagnostic],
    published: Sequence[lsp.Diagnostic],
    start: int,
    end: int,
) -> list[lsp.CodeAction]:
    """Actions that mend the findings at [start, end), or ignore a warning there. `published`: findings as the editor knows them."""
    out, places = [], view.places
    for finding in findings:
        span = finding.span
        if not span or span.source.path != view.source.path or span.start > end or span.end < start:
            continue
        about = [one for one in published if one.code == finding.code and one.range == places.of(span)]
        if finding.fix and finding.fix.span.source.path == view.source.path:
            edit = lsp.TextEdit(places.of(finding.fix.span), _ends(view, finding.fix.text))
            out.append(_action(view, fix_title(finding), edit, about, preferred=True))
        if finding.severity == "warning" and finding.code != "W0016":
            edit = lsp.TextEdit(*_ignoring(view, finding))
            out.append(_action(view, f"ignore {finding.code} on this line", edit, about, preferred=False))
    return out


def fix_title(finding: Diagnostic) -> str:
    """The effect of a finding's edit, in a few words."""
    assert finding.fix
    old, new = finding.fix.span.text.strip(), finding.fix.text.strip()
    if not new:
        return f"remove `{_short(old)}`"
    return f"replace `{_short(old)}` by `{_short(new)}`" if old else f"insert `{_short(new)}`"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 40 else f"{line[:37]}..."


def _ignoring(view: DocumentView, finding: Diagnostic) -> tuple[lsp.Range, str]:
    """The edit that ignores a warning: a comment at the end of its line, or a part of the comment that is there."""
    assert finding.span
    line, _ = finding.span.source.position(finding.span.start)
    end = view.source.line_starts[line - 1] + len(view.source.line(line).rstrip())
    here = next((c for c in view.pieces.file.comments if c.span.start < end <= c.span.end and not c.own_line), None)
    if here:
        at = here.span.start
        return view.places.range(at, at), f"# dslc: ignore {finding.code} "
    return view.places.range(end, end), comment_for(finding.code)


def _action(
    view: DocumentView, title: str, edit: lsp.TextEdit, about: list[lsp.Diagnostic], preferred: bool
) -> lsp.CodeAction:
    change = lsp.WorkspaceEdit({view.document.uri: [edit]})
    return lsp.CodeAction(title, lsp.CodeActionKind.QuickFix, diagnostics=about, is_preferred=preferred, edit=change)

"""No text is too broken for an answer: std's files cut off anywhere and edited at random, asked everything at random places."""

from __future__ import annotations

import contextlib
import random
from importlib import resources
from pathlib import Path

import pytest

from dslc.lsp.completion import complete
from dslc.lsp.edits import NotRenamed, actions, formatted, renamed
from dslc.lsp.hover import hover
from dslc.lsp.names import word_at, words
from dslc.lsp.outline import lenses, symbols, tokens
from dslc.lsp.session import EditorSession
from tests.checking.test_incremental import edits

STD = Path(str(resources.files("dslc.rules"))) / "std"
FILES = sorted(STD.glob("*.rules"))
#: what stands for itself only on a screen, or is no text at all
ODD = [
    "",
    "\x00",
    "\ufeff",
    "é🙂\u2028",
    "\r\r\n",
    '"""',
    "}" * 40,
    "import .",
    "operator",
    "dslc 1\noperator f(",
    "# dslc: ignore",
]


def ask(session: EditorSession, uri: str, drawn: random.Random) -> None:
    """Everything that an editor asks, at a few places."""
    view = session.view(uri)
    assert view is not None
    places, found = session.places(view.source), words(session, view)
    length = len(view.source.text)
    symbols(view)
    list(lenses(view))
    data = tokens(found, places)
    assert len(data) % 5 == 0 and all(number >= 0 for number in data)
    formatted(view)
    findings = session.files.look(view.document.path).findings
    actions(view, findings, [], 0, length)
    for one in findings:
        if one.span is not None and one.span.source.path == view.source.path:
            at = places.of(one.span)
            assert (at.start.line, at.start.character) <= (at.end.line, at.end.character)
    for _ in range(3):
        offset = drawn.randrange(length + 1)
        complete(session, view, offset)
        word = word_at(found, offset)
        if word is not None and word.symbol is not None and word.symbol.kind == "local":
            hover(view, word)
            with contextlib.suppress(NotRenamed):
                renamed(session, view, word, "another")


@pytest.mark.parametrize("path", FILES[::5], ids=lambda path: path.stem)
def test_files_that_are_cut_off_and_edited(path: Path) -> None:
    session, drawn = EditorSession(), random.Random(path.stem)
    text = path.read_text("utf-8")
    session.open(path.as_uri(), text, 1)
    ask(session, path.as_uri(), drawn)
    cuts = [text[: drawn.randrange(len(text))] + drawn.choice(ODD) for _ in range(1)]
    for edited in [*cuts, *edits(text, 2, seed=len(text)), drawn.choice(ODD)]:
        session.open(path.as_uri(), edited.replace("\n", drawn.choice(["\n", "\r\n"])), 2)
        ask(session, path.as_uri(), drawn)


def test_a_name_inside_an_item_is_renamed_alone(tmp_path: Path) -> None:
    body = 'operator {}(X: T[N]) -> Y: T[N] {{\n  """Of X."""\n  attr k: int = 0\n  Y[i] = X[i] * k  # X\n}}\n'
    text = "dslc 1\n" + body.format("f") + body.format("g")
    session, uri = EditorSession(), (tmp_path / "own.rules").as_uri()
    view = session.open(uri, text, 1) and session.view(uri)
    assert view is not None
    word = word_at(words(session, view), text.index("X: T[N]"))
    assert word is not None
    (changes,) = (renamed(session, view, word, "Input").changes or {}).values()
    lines = text.splitlines()
    assert [lines[one.range.start.line][one.range.start.character] for one in changes] == ["X", "X"]
    assert {one.range.start.line for one in changes} == {1, 4}

"""What an editor shows while rules are typed: signatures, texts of the language's own words, types that are not written, imports."""

from __future__ import annotations

import random
import re
from importlib import resources
from pathlib import Path

import pytest
from lsprotocol import types as lsp

from dslc.lsp.completion import complete
from dslc.lsp.cursor import Cursor
from dslc.lsp.hints import hints
from dslc.lsp.hover import hover
from dslc.lsp.names import word_at, words
from dslc.lsp.session import DocumentView, EditorSession
from dslc.lsp.signatures import signature_help
from tests.lsp.editor import edited

STD = Path(str(resources.files("dslc.rules"))) / "std"
HEAD = """dslc 1
import std (add, concat, conv, matmul, relu)
import std.layout as layout
let twice(x, y) = 2 * x + y

substitution typed(X: T[N, C, *D], K: T[F, C, *R]) -> Y {
"""


def opened(text: str, path: Path = STD / "typed.rules") -> tuple[EditorSession, DocumentView, int]:
    """A document with a text, and the offset of `|` in it."""
    session = EditorSession()
    session.open(path.as_uri(), text.replace("|", "", 1), 1)
    view = session.view(path.as_uri())
    assert view is not None
    return session, view, text.find("|")


def typed(text: str) -> tuple[str, str] | None:
    """What is called at `|`, and the parameter that is typed there."""
    _, view, offset = opened(text)
    found = signature_help(Cursor(view, offset))
    if found is None:
        return None
    shown = found.signatures[0]
    parameters = [str(one.label) for one in shown.parameters or ()]
    assert found.active_parameter is not None and all(one in shown.label for one in parameters)
    return shown.label, [*parameters, ""][found.active_parameter]


@pytest.mark.parametrize(
    ("text", "name", "parameter"),
    [
        ("  Y = conv(|", "conv", "X: T[N, (G, C), *D]"),
        ("  Y = conv(X, |", "conv", "K: T[(G, F), C, *R]"),
        # behind the inputs come the attributes, first those that are not given yet
        ("  Y = conv(X, K, |", "conv", "stride: int[rank(D)] = 1"),
        ("  Y = conv(X, K, stride=2, |", "conv", "pads: int[2 * rank(D)] = 0"),
        ("  Y = conv(X, K, dilation=|", "conv", "dilation: int[rank(D)] = 1"),
        ("  Y = conv(X,\n    K,  # (\n    pads=[1, |", "conv", "pads: int[2 * rank(D)] = 0"),
        ("  Y = conv(X, K, no_such=|", "conv", ""),
        ("  Y = conv(X, K, **a|", "conv", ""),
        # nested calls, and what is associative
        ("  Y = conv(relu(|), K)\n  =>\n  Y = conv(X, K)\n}\n", "relu", "X: T[*S]"),
        ("  Y = conv(relu(X), |", "conv", "K: T[(G, F), C, *R]"),
        ("  Y = add(X, X, X, |", "add", "B: T[*R]"),
        ("  Y = layout.transpose(X, |", "transpose", "perm: permutation = reversed(range(rank(S)))"),
        # functions: the language's, those of the file, and those of the item that is being typed
        ("  where rank(D) == take(drop(D, 1), |", "take", "n"),
        ("  let o = max(1, 2, 3, |", "max", "..."),
        ("  let o = sum(|", "sum", "l"),
        ("  where floating(|", "floating", "T"),
        ("  let o = twice(1, |", "twice", "y"),
        ("  let own(a, b) = a\n  let o = own(1, |", "own", "b"),
        ("  term f(A), g(A, B)\n  Y = g(X, |", "g", "B"),
        # a statement ends a call that was left open
        ("  Y = conv(X, K\n  where len(|", "len", "l"),
    ],
)
def test_the_signature_of_what_is_called(text: str, name: str, parameter: str) -> None:
    found = typed(HEAD + text)
    assert found is not None
    assert (found[0].partition("(")[0], found[1]) == (name, parameter)


@pytest.mark.parametrize(
    "text",
    [
        "  Y = conv(X, K)|", "  Y = conv|(X)", "  Y = conv(X)[|",
        "  Y = (|", "  Y = unknown(add(X, X), |", "  Y = conv(X, K\n  where |",
        '  trusted "conv(|"', '  trusted "conv(|', "  # conv(|", '  """conv(|"""', '  """conv(|', "  let own(|a) = a",
    ],
)  # fmt: skip
def test_no_signature_where_nothing_is_called(text: str) -> None:
    assert typed(HEAD + text) is None


def test_a_signature_has_all_attributes_and_the_documentation() -> None:
    _, view, offset = opened(HEAD + "  Y = conv(|")
    found = signature_help(Cursor(view, offset))
    assert found is not None
    (shown,) = found.signatures
    assert shown.label.startswith("conv(X: T[N, (G, C), *D], K: T[(G, F), C, *R], stride: int[rank(D)] = 1, pads: ")
    assert shown.label.endswith(" -> Y: T[N, (G, F), *O]") and "groups: int = 1" in shown.label
    assert "Cross-correlation" in str(shown.documentation)
    # completion shows the same
    session, view, offset = opened(HEAD + "  Y = con|")
    (offered,) = [one for one in complete(session, view, offset) if one.label == "conv"]
    assert offered.detail == shown.label


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("  Y[*i] = m|ax(X[*i], 0)", "max(a, b, ...)"), ("  Y[*i] = su|m[k: 3] X[*i]", "sum(l)"),
        ("  where f|loating(T)", "floating(T)"),
        ("  wh|ere rank(S) == 2", "where condition, ..."), ("  attr to: d|type", "an element type"),
        ("  where d|type(X) == f32", "the element type of a tensor"), ("  verify numerics = re|associates", "another order"),
    ],
)  # fmt: skip
def test_words_of_the_language_say_what_they_mean(line: str, said: str) -> None:
    body = "" if "Y[" in line else "  Y[*i] = X[*i]\n"
    session, view, offset = opened(f"dslc 1\noperator f(X: T[*S]) -> Y: T[*S] {{\n{line}\n{body}}}\n")
    word = word_at(words(session, view), offset)
    assert word is not None
    assert said in (hover(view, word) or "")


def shown_types(text: str) -> str:
    """A text with the types that an editor shows in it."""
    _, view, _ = opened(text)
    found = [lsp.TextEdit(lsp.Range(one.position, one.position), str(one.label)) for one in hints(view, 0, len(text))]
    return edited(text, found)


def test_types_that_are_not_written_are_shown() -> None:
    shown = """dslc 1
import std (add, matmul, mul, relu, transpose)
operator feed_forward(X: T[*L, M, K], A: T[K, N], B: T[N, K]) -> Y<: T[*L, M, K]> {
  \"\"\"Two products.\"\"\"
  let hidden<: T[*L, M, N]> = relu(matmul(X, A))
  let count = 2 * N
  let E[m: M, k: K] = A[k, 0] * m
  Y = add(X, matmul(hidden, B))
}
substitution transposed(A: T[M, K], B: T[K, N]) -> Y<: T[N, M]> {
  P<: T[M, N]> = matmul(A, B)
  Y = mul(transpose(P, perm=[1, 0]), c)
  =>
  Q<: T[N, K]> = transpose(B, perm=[1, 0])
  Y = mul(matmul(Q, transpose(A, perm=[1, 0])), c)
}
substitution several(A: f32[M, K], B: f32[K, N]) -> Y<: f32[M, N]>, Z<: f32[M, K]> {
  Y = relu(matmul(A, B))
  Z = relu(A)
  =>
  Y = relu(matmul(A, B))
  Z = relu(A)
}
"""
    text = re.sub("<: .*?>", "", shown)
    assert shown_types(text) == re.sub("<(: .*?)>", r"\1", shown)
    # the same item before it is formatted
    assert shown_types(text.replace("P = ", "P= ")) == re.sub(
        "<(: .*?)>", r"\1", shown.replace("P<: T[M, N]> = ", "P= ")
    )


def test_no_type_is_shown_that_attributes_or_ranks_change() -> None:
    text = """dslc 1
import std (conv, reduce_sum, reshape, transpose)
operator turned(X: T[M, N]) -> Y {
  \"\"\"Turned, or not.\"\"\"
  attr turn: bool
  Y = transpose(X, perm=[1, 0]) if turn else X
}
operator turned_late(X: T[M, N]) -> Y {
  \"\"\"The attribute that turns it is the last one to change.\"\"\"
  attr turn: bool
  attr a: axes
  attr b: axes
  attr c: axes
  Y = transpose(X, perm=[1, 0]) if turn else X
}
operator summed(X: T[*S]) -> Y {
  \"\"\"Some axes.\"\"\"
  attr over: axes
  Y = reduce_sum(X, axes=over)
}
operator backwards(X: T[*S]) -> Y {
  \"\"\"All axes.\"\"\"
  Y = transpose(X)
}
substitution windows(X: T[N, C, *D], K: T[F, C, *R]) -> Y {
  P = conv(X, K, **a)
  Y = reshape(P, shape=s)
  =>
  Y = reshape(conv(X, K, **a), shape=s)
}
"""
    assert shown_types(text) == text


def labels(text: str, path: Path) -> list[str]:
    session, view, offset = opened(text, path)
    return [one.label for one in complete(session, view, offset)]


def test_modules_of_libraries_and_their_names_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "installed" / "acme.nets").mkdir(parents=True)
    own = 'dslc 1\n{}export still\n\noperator still(X: T[*S]) -> Y: T[*S] {{\n  """X."""\n  Y[*s] = X[*s]\n}}\n'
    (tmp_path / "installed" / "acme.nets" / "nets.rules").write_text(own.format("library acme.nets 1.0.0\n"))
    (tmp_path / "beside.rules").write_text(own.format(""))
    monkeypatch.setenv("DSLC_PATH", str(tmp_path / "installed"))
    path = tmp_path.resolve() / "typed.rules"
    assert {"attention", "attention_rules", "conv"} <= set(labels("dslc 1\nimport std.att|", path))
    assert "beside" not in labels("dslc 1\nimport std.|", path)
    assert {"std", "acme.nets"} <= set(labels("dslc 1\nimport |", path))
    assert labels("dslc 1\nimport acme.|", path) == ["nets"]
    assert labels("dslc 1\nimport acme.nets.|", path) == ["nets"]
    assert labels("dslc 1\nimport .|", path) == ["beside"]
    assert labels("dslc 1\nimport no.such.|", path) == []
    assert labels("dslc 1\nimport .beside (|", path) == labels("dslc 1\nimport acme.nets.nets (|", path) == ["still"]
    assert "rotary" in labels("dslc 1\nimport std.attention (|", path)
    assert "rotary" in labels("dslc 1\nimport std (add, |", path)


@pytest.mark.parametrize("path", sorted(STD.glob("*.rules"))[::7], ids=lambda path: path.stem)
def test_every_place_of_a_text_that_is_cut_off_has_an_answer(path: Path) -> None:
    drawn, text = random.Random(path.stem), path.read_text("utf-8")
    for _ in range(4):
        session, view, _ = opened(
            text[: drawn.randrange(len(text))] + drawn.choice(["", "(", '"""', "max(", "]", "import std."]), path
        )
        length = len(view.source.text)
        list(hints(view, 0, length))
        for offset in (length, *(drawn.randrange(length + 1) for _ in range(20))):
            signature_help(Cursor(view, offset))
            complete(session, view, offset)
        for word in words(session, view)[:: 1 + length // 200]:
            hover(view, word)

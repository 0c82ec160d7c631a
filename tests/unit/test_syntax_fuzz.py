"""Mutated rule files never crash the parser or the formatter: they parse, or they are reported."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from dslc.diagnostics.registry import pages
from dslc.diagnostics.render import FORMATS, render
from dslc.errors import DslcError, SourceText
from dslc.syntax.names import check_names
from dslc.syntax.parser import decode, parse, parse_with_errors
from dslc.syntax.printer import format_source

ROOT = Path(__file__).parents[2]
#: items of all kinds, small enough to be parsed hundreds of times
TEXTS = [
    "\n".join(("dslc 1", *block))
    for path in sorted((ROOT / "rules").rglob("*.rules"))
    for block in [path.read_text("utf-8").splitlines()[1:60]]
]
PIECES = [
    *"{}[]()=,:*+-/.\"#'\n\0",
    '"""',
    "=>",
    "where",
    "operator f",
    "let",
    "dslc 1",
    "sum[",
    "é",
    "1.0",
    "_",
    "in",
    "}" * 3,
]


@st.composite
def broken(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        kind = draw(st.integers(0, 3))
        if kind == 0:
            text = text[:at] + draw(st.sampled_from(PIECES)) + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + draw(st.integers(1, 30)) :]
        elif kind == 2:
            other = draw(st.integers(0, len(text)))
            text = text[:at] + text[other : other + draw(st.integers(1, 40))] + text[at:]
        else:
            text = text[:at] + draw(st.sampled_from(PIECES)) + text[at + 1 :]
    return text


@given(broken())
@settings(max_examples=60)
def test_broken_text(text: str) -> None:
    source = SourceText("broken.rules", text)
    file, findings = parse_with_errors(source)
    findings += check_names(file)
    for finding in findings:
        assert finding.code in pages()
        assert finding.span is not None
        assert 0 <= finding.span.start <= finding.span.end <= len(text)
    for form in FORMATS:
        render(findings, form, color=True)
    try:
        formatted = format_source(source)
    except DslcError as failure:
        assert failure.diagnostics
        return
    again = parse(SourceText("again", formatted))
    assert again == parse(source)
    assert sorted(c.text for c in again.comments) == sorted(c.text for c in file.comments)
    assert format_source(SourceText("again", formatted)) == formatted


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@settings(max_examples=100)
def test_any_bytes(data: bytes) -> None:
    try:
        parse(decode(data, "x.rules"))
    except DslcError as failure:
        assert failure.diagnostics

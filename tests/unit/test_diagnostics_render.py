"""Diagnostics as people and programs read them."""

from __future__ import annotations

import json

from dslc.diagnostics.render import as_json, concise, full, github, render, sarif
from dslc.errors import Diagnostic, Label, SourceText, Span

SOURCE = SourceText("acme/conv.rules", "dslc 1\n# ...\n  Y = conv(X, K, pads=p)\n  =>\n  Y = conv(B, K)\n")


def span(text: str) -> Span:
    at = SOURCE.text.index(text)
    return Span(SOURCE, at, at + len(text))


CHANGED = Diagnostic(
    "E0312",
    "the replacement changes the shape of `Y`",
    span("conv(B, K)"),
    label="`Y` is T[N*d*d, F] here",
    secondary=(Label(span("conv(X, K, pads=p)"), "`Y` is T[N, F] here"),),
    counterexample="N=1 H=5 d=2",
    hint="wrap it in `batch_to_space(..., block=[d, d])`",
)
WARNING = Diagnostic("W0005", "`p` is never used", span("pads=p"), severity="warning")
MODEL = Diagnostic("E0801", "not an ONNX model: 50% is missing,\nat least", path="a:b.onnx")


def test_full_is_the_form_that_the_documentation_shows() -> None:
    assert (
        full([CHANGED])
        == """\
error[E0312]: the replacement changes the shape of `Y`
 --> acme/conv.rules:5:7
  |
3 |   Y = conv(X, K, pads=p)
  |       ------------------ `Y` is T[N, F] here
5 |   Y = conv(B, K)
  |       ^^^^^^^^^^ `Y` is T[N*d*d, F] here
  = counterexample: N=1 H=5 d=2
  = help: wrap it in `batch_to_space(..., block=[d, d])`

1 error; `dslc explain E0312` says more
"""
    )


def test_full_counts_and_names_an_error_first() -> None:
    assert full([WARNING, CHANGED, MODEL]).splitlines()[-1] == "2 errors, 1 warning; `dslc explain E0312` says more"
    assert full([]) == ""
    assert "\x1b[1;31merror[E0312]" in full([CHANGED], color=True)
    assert "\x1b" not in full([CHANGED, WARNING, MODEL])


def test_labels_of_one_line_share_it_and_of_another_file_stand_apart() -> None:
    other = SourceText("b.rules", "dslc 1\n")
    labels = (Label(span("K, pads"), "here too"), Label(Span(other, 0, 4), "and there"))
    text = full([Diagnostic("E0204", "twice", span("conv(X"), secondary=labels)])
    assert text.count("Y = conv(X, K, pads=p)") == 1
    assert "::: b.rules:1:1" in text


def test_what_a_terminal_would_act_on_is_not_printed() -> None:
    source = SourceText("x", "dslc 1\nlet f(x) = \x1b[31m\0x\n")
    text = full([Diagnostic("E0102", "a character", Span(source, 18, 19))])
    assert "\x1b" not in text and "\0" not in text


def test_concise() -> None:
    assert concise([CHANGED, MODEL]).splitlines()[0] == (
        "acme/conv.rules:5:7: E0312 the replacement changes the shape of `Y`"
    )


def test_json() -> None:
    first, last = json.loads(as_json([CHANGED, MODEL]))
    assert (first["code"], first["start"], first["end"]) == (
        "E0312",
        {"line": 5, "column": 7},
        {"line": 5, "column": 17},
    )
    assert first["secondary"][0]["line"] == 3
    assert (last["path"], "start" in last) == ("a:b.onnx", False)
    assert json.loads(as_json([])) == []


def test_github_escapes_what_would_end_a_command() -> None:
    lines = github([CHANGED, WARNING, MODEL]).splitlines()
    assert lines[0].startswith("::error file=acme/conv.rules,line=5,col=7,endLine=5,endColumn=17,title=dslc E0312::")
    assert lines[1].startswith("::warning ")
    assert lines[2] == "::error file=a%3Ab.onnx,title=dslc E0801::not an ONNX model: 50%25 is missing,%0Aat least"


def test_sarif_names_rules_and_places() -> None:
    log = json.loads(sarif([CHANGED, WARNING, MODEL]))
    run = log["runs"][0]
    assert log["version"] == "2.1.0"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["E0312", "E0801", "W0005"]
    region = run["results"][0]["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 5, "startColumn": 7, "endLine": 5, "endColumn": 17}
    assert [run["tool"]["driver"]["rules"][r["ruleIndex"]]["id"] for r in run["results"]] == ["E0312", "W0005", "E0801"]


def test_render_knows_all_forms() -> None:
    assert render([CHANGED], "concise") == concise([CHANGED])

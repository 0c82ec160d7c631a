"""The grammar and the parser on right input: strict LALR, spans, comments, several errors in one run."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from dslc.errors import DslcError, SourceText
from dslc.syntax import tree as t
from dslc.syntax.kept import parse_kept
from dslc.syntax.parser import grammar, parse, parse_with_errors, read_source

ROOT = Path(__file__).parents[2]


def body(text: str) -> t.Expr:
    item = parse(SourceText("x", f"dslc 1\nlet f(x) = {text}\n")).items[0]
    assert isinstance(item, t.Function)
    return item.body


def test_the_grammar_is_lalr_in_strict_mode() -> None:
    """No conflicts between rules, and no two terminals that match the same text without an order."""
    assert grammar(strict=True).parse("dslc 1\n", start="start") is not None


def test_all_of_the_standard_library_parses() -> None:
    kinds = {type(item) for path in (ROOT / "rules").rglob("*.rules") for item in parse_kept(read_source(path)).items}
    assert {t.Operator, t.Function, t.Property, t.PropertyIs, t.Substitution, t.OnnxDef, t.Test, t.Ruleset} <= kinds


def test_precedence() -> None:
    reduction = body("sum[k] a * b + c")
    assert isinstance(reduction, t.Binary) and reduction.op == "+"
    assert isinstance(reduction.left, t.Reduction)
    assert body("a - b - c") == body("(a - b) - c") != body("a - (b - c)")
    assert body("-x ^ 2") == body("-(x ^ 2)")
    assert body("not a == b and c") == body("(not (a == b)) and c")
    assert body("a if b else c if d else e") == body("a if b else (c if d else e)")
    assert isinstance(body("a.stride >= 1 and std.f(x) >= 2"), t.Binary)
    chain = body("0 <= x < n")
    assert isinstance(chain, t.Compare) and chain.ops == ("<=", "<")


@pytest.mark.parametrize(
    "text", ["(a + b) * c", "f(x, k=1)[i, other=0]", "{[i: 2] x[i]}", "a if (b) else (c)", "(a) + (b)"]
)
def test_spans_cover_what_was_written(text: str) -> None:
    assert body(text).span.text == text


def test_spans_of_operands_and_partial_chains() -> None:
    chain = body("(a) + b * (c) - d")
    assert isinstance(chain, t.Binary) and isinstance(chain.left, t.Binary)
    assert chain.left.span.text == "(a) + b * (c)"
    assert chain.left.right.span.text == "b * (c)"


def test_every_node_lies_in_its_parent() -> None:
    for path in sorted((ROOT / "rules").rglob("*.rules"))[::3]:
        for node in t.walk(parse(read_source(path))):
            for child in t.children(node):
                assert node.span.start <= child.span.start <= child.span.end <= node.span.end


def test_walks_leave_no_node_out() -> None:
    for path in sorted((ROOT / "rules").rglob("*.rules"))[1::3]:
        for node in t.walk(parse(read_source(path))):
            held = [getattr(node, one.name) for one in fields(node)]
            inside = [part for one in held for part in (one if isinstance(one, tuple) else (one,))]
            assert list(map(id, t.children(node))) == [id(part) for part in inside if isinstance(part, t.Node)]


def test_comments_are_kept_with_their_places() -> None:
    file = parse(SourceText("x", "# one\ndslc 1 # two\nlet f(x) = x # three"))
    assert [(c.text, c.own_line, c.span.start) for c in file.comments] == [
        ("# one", True, 0),
        ("# two", False, 13),
        ("# three", False, 32),
    ]


def test_one_broken_item_costs_one_item() -> None:
    good = "let {}(x) = x\n"
    text = "dslc 1\n" + good.format("a") + "let b(x) = (\n" + good.format("c") + "let d(x) = ]\n" + good.format("e")
    file, findings = parse_with_errors(SourceText("x", text))
    assert [item.name for item in file.items if isinstance(item, t.Function)] == ["a", "c", "e"]
    assert [finding.code for finding in findings] == ["E0103", "E0104"]
    with pytest.raises(DslcError) as caught:
        parse(SourceText("x", text))
    assert len(caught.value.diagnostics) == len(findings)


def test_an_onnx_definition_holds_its_lets() -> None:
    text = "dslc 1\nonnx A(X)\n  let a = 1\nlet b = 2\n  where a == b\n  = X\nlet f(x) = x\nonnx B(X) = X\n"
    kinds = [type(item) for item in parse(SourceText("x", text)).items]
    assert kinds == [t.OnnxDef, t.Function, t.OnnxDef]


def test_keywords_may_name_what_others_named() -> None:
    text = (
        "dslc 1\nimport .index (gather)\nonnx F(X) since 1 { index = 1, where = 2, set = x } = onnx.Where(X, limit=1)\n"
    )
    assert parse(SourceText("x", text)).header.imports[0].module == "index"


def test_equality_ignores_layout() -> None:
    one, two = "dslc 1\nlet f(x)=x+1", "dslc 1 # c\n\nlet f( x ) =\n  (x + 1)\n"
    assert parse(SourceText("a", one)) == parse(SourceText("b", two))

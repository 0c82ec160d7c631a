"""The sources of the documentation's site: what is made of libraries, options and docstrings, and that every link leads somewhere."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import dslc
from docs.site import build, index
from docs.site.markdown import anchors, links, relinked, slug, table
from docs.site.mathematics import all_equations, equation, outside
from dslc.cli.main import COMMANDS
from dslc.diagnostics.registry import pages as diagnostic_pages
from dslc.semantics.library import Rules, load
from dslc.syntax import tree as t

ROOT = Path(__file__).parents[2]
OWN = '''dslc 1
library acme.filters 0.1.0
import std (add)
# An <b>operator</b> of somebody's.
operator filtered(X: T[*S], W: T[*S]) -> Y: T[*S] {
  """Of *somebody* who <script>alert(1)</script> writes | in tables."""
  attr share: float = 0.5
  where share > 0
  let a = share if share < 1 else 1
  Y[*i] = X[*i] * (a + W[*i]) / sqrt(abs(X[*i])) - 1e-5
  example filtered([1.0], [0.5]) == [1.0]
}
substitution same(X: T[*S]) -> Y {
  Y = add(X, X)
  =>
  Y = add(X, X)
}
'''


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return build.pages(libraries=("std", "pet"))


def test_every_link_leads_to_a_page_and_a_heading(pages: dict[str, str]) -> None:
    assert build.broken(pages) == []
    assert sum(len(links(text)) for text in pages.values()) > 2000


def test_a_link_that_leads_nowhere_is_found(pages: dict[str, str]) -> None:
    text = "[a](no.md) [b](language.md#no-such) [c](#here) `[d](no.md)` [e](https://x.y)\n# Here\n"
    found = build.broken({**pages, "glossary.md": text})
    assert [one.partition(" links to ")[2] for one in found if one.startswith("glossary.md")] == [
        "no.md", "language.md#no-such, and language.md has no such heading",
    ]  # fmt: skip
    pages = {place: text for place, text in pages.items() if place != "papers.md"}
    assert "the navigation names papers.md" in build.broken(pages)


def test_every_operator_and_rule_has_its_section(pages: dict[str, str], std: Rules) -> None:
    for table_ in (std.operators, std.substitutions, std.laws):
        for name, definition in table_.items():
            place = index.page_of(definition.module)
            assert slug(index.short(name, definition.module)) in anchors(pages[place]), name
    assert all(f"`{onnx}`" in pages["index/onnx.md"] for onnx in std.onnx)
    norm = pages["index/std/norm.md"]
    assert "`LayerNormalization` | 17 and newer" in norm and "| `epsilon` | `float` | `1e-5` |" in norm
    assert "[`std.fold_batch_norm`](../../index/std/conv_rules.md#fold_batch_norm)" in norm
    assert re.search(r"## fold_batch_norm\n.*?\| status \| proved", pages["index/std/conv_rules.md"], re.S)


def test_every_equation_is_well_formed_mathematics(std: Rules) -> None:
    count = 0
    for op in std.operators.values():
        for text in all_equations(op.syntax.statements):
            tree = ElementTree.fromstring(text)
            count += 1
            for node in tree.iter():
                # MathML fixes how many parts these have
                assert len(node) == {"mfrac": 2, "msub": 2, "msup": 2, "munder": 2, "msqrt": 1}.get(
                    node.tag, len(node)
                ), text
    assert count > 280


def test_an_equation_says_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "own.rules").write_text(OWN)
    (op,) = [one for one in load(tmp_path / "own.rules").operators.values() if one.module.library == "acme.filters"]
    let, last = all_equations(op.syntax.statements)
    assert "".join(ElementTree.fromstring(let).itertext()) == "a={shareif\u00a0share<11otherwise"
    # the sum keeps its parentheses, the fraction and the root need none
    assert "".join(ElementTree.fromstring(last).itertext()) == "Yi=Xi·(a+Wi)|Xi|−10−5"


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("X[i] - (X[i] - X[i])", "Xi−(Xi−Xi)"),
        ("(X[i] - X[i]) - X[i]", "Xi−Xi−Xi"),
        ("(sum[k: 2] X[k]) * 2", "(∑k<2Xk)·2"),
        ("2 * (sum[k: 2] X[k])", "2·(∑k<2Xk)"),
        ("(X[i] + 1) ^ 2", "(Xi+1)2"),
        ("-(X[i] + 1)", "−(Xi+1)"),
        ("X[i // 2 % 2]", "X⌊i2⌋mod2"),
        ("X[i - 1, other=0]", "Xi−1"),
    ],
)
def test_parentheses_stand_where_they_are_needed(tmp_path: Path, written: str, printed: str) -> None:
    (tmp_path / "own.rules").write_text(f"dslc 1\noperator own(X: T[N]) -> Y: T[N] {{\n  Y[i] = {written}\n}}\n")
    (op,) = load(tmp_path / "own.rules").operators.values()
    (line,) = [one for one in op.syntax.statements if isinstance(one, t.Equation)]
    assert "".join(ElementTree.fromstring(equation(line)).itertext()) == f"Yi={printed}"
    assert outside(line) == (["X is 0 outside of its bounds"] if "other" in written else [])


def test_what_a_stranger_writes_becomes_no_markup(tmp_path: Path) -> None:
    (tmp_path / "own.rules").write_text(OWN)
    found = index.index_of((str(tmp_path / "own.rules"),), thorough=True)
    (text,) = [index.of_module(found, one) for one in found.rules.modules if one.library == "acme.filters"]
    assert "<script>" not in text and "<b>" not in re.sub("```.*?```", "", text, flags=re.S)
    assert "in bounds: proved" in text and "| status | not proved yet |" in text
    assert len({line.count(" | ") for line in table(("a", "b"), [("x|y", "z\nw")]).strip().splitlines()} - {0}) == 1


def test_references_are_whole(pages: dict[str, str]) -> None:
    commands = pages["reference/commands.md"]
    assert re.findall(r"^## dslc (\S+)$", commands, re.M) == list(COMMANDS)
    assert "--strict-floats" in commands and "--mutant-limit" in commands
    python = pages["reference/python.md"]
    assert re.findall(r"^## dslc\.(\w+)$", python, re.M) == [name for name in dslc.__all__ if not name.startswith("__")]
    assert "| `budget` |" in python and ">>> import dslc" in python
    assert all(f"[{code}](" in pages["reference/errors.md"] for code in diagnostic_pages())


def test_links_to_files_that_are_no_pages_lead_to_the_repository() -> None:
    text = "[a](src/x.py) [b](#b) [c](https://x.y) `[d](e)`\n```\n[f](g)\n```\n"
    assert relinked(text, lambda target: None).startswith("a [b](#b) [c](https://x.y)")
    assert "[a](U/src/x.py)" in relinked(text, lambda target: f"U/{target}") and "[f](g)" in relinked(
        text, lambda target: None
    )
    assert "https://x.y/blob/main/LICENSE" not in build.pages(repository="", libraries=("pet",))["index.md"]


def test_papers_name_modules_that_exist() -> None:
    rows = re.findall(r"^\| [^|]+ \| [^|]+ \| (`[^|]+) \|$", (ROOT / "docs" / "papers.md").read_text("utf-8"), re.M)
    named = [module for row in rows for module in re.findall(r"`([^`]+)`", row)]
    assert len(named) > 20
    assert [one for one in named if not ((ROOT / "compiler" / one).exists() or (ROOT / one).exists())] == []


def test_every_page_that_is_written_is_in_the_navigation() -> None:
    named = [place for places in build.NAVIGATION.values() for place in places]
    assert len(named) == len(set(named))
    written = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert written | set(build.OTHERS.values()) <= set(named)


def test_rules_are_coloured_by_the_editors_grammar() -> None:
    pytest.importorskip("pygments")
    from pygments import lexers
    from pygments.token import Error, Keyword, Name

    from docs.site import lexer

    lexer.register()
    rules = lexers.get_lexer_by_name("rules")
    for path in sorted((ROOT / "rules" / "std").glob("*.rules")):
        text = path.read_text("utf-8")
        found = list(rules.get_tokens(text))
        assert "".join(part for _, part in found) == text and not [one for one in found if one[0] is Error], path
    assert [one for one in rules.get_tokens("operator own(X: f32[N]) -> Y {}") if one[0] in Keyword or one[0] in Name.Function] == [
        (Keyword.Declaration, "operator"), (Name.Function, "own"), (Keyword.Type, "f32"),
    ]  # fmt: skip
    assert "".join(part for _, part in rules.get_tokens('"""never ends\n§ 1')) == '"""never ends\n§ 1\n'


def test_operator_pages_tell_guards_from_equations_and_count_as_dslc_list_does(
    pages: dict[str, str], std: Rules
) -> None:
    page = pages["index/std/attention.md"].partition("## attention_causal")[0]
    assert (
        "Where `broadcast([N, H, M, S], R) == [N, H, M, S]`, `floating(T)`:" in page and "<mi>floating</mi>" not in page
    )
    assert f"| in {index.index_of(('std',)).operators['std.attention'].used_by} rules |" in page
    assert not [place for place, text in pages.items() if re.search(r"^\|  \|", text, re.M)], "a table without a head"
    # code is as it is written: no bar or star in it has a backslash
    assert "[full|concise|" in pages["reference/commands.md"] and "`*D`" in pages["index/std/conv.md"]


INSTALLED = all(importlib.util.find_spec(name) for name in ("mkdocs", "material"))


@pytest.mark.skipif(not INSTALLED, reason="needs the extra `docs`")
def test_mkdocs_builds_the_site_strictly(pages: dict[str, str], tmp_path: Path) -> None:
    build.write(tmp_path, pages)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(tmp_path / "mkdocs.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "html" / "index" / "std" / "norm.html").read_text("utf-8")
    assert '<span class="kd">operator</span>' in page and 'data-md-color-scheme="slate"' in page
    assert (tmp_path / "html" / "report.png").is_file()

"""Every code that is used has a page, and the examples on the pages are right about themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dslc
from dslc.diagnostics.registry import pages
from dslc.errors import SourceText
from dslc.syntax.parser import parse_with_errors

DOCS = Path(__file__).parents[2] / "docs"
CODE = re.compile(r'"([EW]\d{4})"')
EXAMPLES = [
    pytest.param(page.code, kind, text, id=f"{page.code}-{kind}-{number}")
    for page in pages().values()
    for kind, texts in (("wrong", page.wrong), ("right", page.right))
    for number, text in enumerate(texts)
]


def test_every_used_code_has_a_page() -> None:
    used = {
        code: path.name
        for path in Path(dslc.__file__).parent.rglob("*.py")
        for code in CODE.findall(path.read_text("utf-8"))
    }
    assert used
    assert {code: name for code, name in used.items() if code not in pages()} == {}


def test_titles_differ_and_codes_are_in_order() -> None:
    found = list(pages().values())
    assert len({page.title for page in found}) == len(found)
    assert [page.code for page in found] == sorted(page.code for page in found)


@pytest.mark.parametrize("name", ["diagnostics.md", "language.md"])
def test_the_documentation_lists_every_block_by_the_title_of_its_page(name: str) -> None:
    titles = []
    for page in sorted((Path(dslc.__file__).parent / "diagnostics" / "pages").glob("*.md")):
        title, block = re.findall(r"\A# (.+) \((\w+)\)\n", page.read_text("utf-8"))[0]
        titles.append((block, title))
    rows = re.findall(r"^\| \[?`([EW]\d*)`.* \| (.+) \|$", (DOCS / name).read_text("utf-8"), re.M)
    assert [(block, title.lower()) for block, title in rows] == [(block, title.lower()) for block, title in titles]


@pytest.mark.parametrize(("code", "kind", "text"), EXAMPLES)
def test_syntax_examples(code: str, kind: str, text: str) -> None:
    """A wrong example of block E01 has its code and no other; every other example parses."""
    _, findings = parse_with_errors(SourceText("page", text))
    own = kind == "wrong" and (code.startswith("E01") or code == "E0205")
    assert {finding.code for finding in findings} == ({code} if own else set()), findings

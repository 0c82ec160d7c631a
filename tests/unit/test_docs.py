"""What the documentation shows in the language is in the language."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dslc.syntax import vocabulary

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md"]


def test_links_between_pages_lead_to_files() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize(
    ("heading", "words"),
    [
        ("Element types", vocabulary.DTYPE_NAMES),
        ("Constants", vocabulary.CONSTANTS),
        ("Functions of one value", vocabulary.FUNCTIONS_1),
        ("Functions of several values", vocabulary.FUNCTIONS_N | {vocabulary.CONVERT}),
        ("Reductions", vocabulary.REDUCTIONS - vocabulary.FUNCTIONS_N),
        ("Index functions", vocabulary.INDEX_FUNCTIONS),
        ("Questions for guards", vocabulary.PREDICATES),
        ("Attribute types", vocabulary.ATTRIBUTE_TYPES),
        ("Traits", vocabulary.TRAITS),
        ("Keywords", vocabulary.KEYWORDS),
    ],
)
def test_vocabulary_is_the_documented_one(heading: str, words: frozenset[str]) -> None:
    page = (ROOT / "grammar" / "vocabulary.md").read_text("utf-8")
    section = re.search(rf"^### {heading}\n(.*?)(?=^##|\Z)", page, re.M | re.S)
    assert section is not None
    block = re.search(r"^```text\n(.*?)^```$", section[1], re.M | re.S)
    listed = re.findall(r"^\| `([a-z_]+)", section[1], re.M) + (block[1].split() if block else [])
    assert sorted(listed) == sorted(words)


def test_every_sentence_about_security_has_its_test() -> None:
    """The tests that the page names exist; a sentence that promises something without one stands under what must be trusted."""
    page = (ROOT / "docs" / "security.md").read_text("utf-8")
    named = re.findall(r"`(\w+/test_\w+\.py)(?:::(\w+))?`", page)
    assert len(named) > 20
    for file, test in named:
        assert (f"def {test}(" if test else "def test_") in (ROOT / "tests" / file).read_text("utf-8"), (file, test)
    promises = re.findall(r"^- .*?(?=^- |^\n|^#|\Z)", page.partition("## What must")[0], re.M | re.S)
    free = ("It may make dslc compute", "It is data")
    assert [
        one for one in promises if "test_" not in one and not one.startswith(tuple(f"- {each}" for each in free))
    ] == []

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
        ("Functions of several values", vocabulary.FUNCTIONS_N),
        ("Reductions", vocabulary.REDUCTIONS),
        ("Index functions", vocabulary.INDEX_FUNCTIONS),
        ("Questions for guards", vocabulary.PREDICATES),
        ("Attribute types", vocabulary.ATTRIBUTE_TYPES),
        ("Traits", vocabulary.TRAITS),
        ("Keywords", vocabulary.KEYWORDS),
    ],
)
def test_vocabulary_is_the_documented_one(heading: str, words: frozenset[str]) -> None:
    page = (ROOT / "docs" / "language.md").read_text("utf-8")
    section = re.search(rf"^### {heading}\n(.*?)(?=^##)", page, re.M | re.S)
    assert section is not None
    block = re.search(r"^```text\n(.*?)^```$", section[1], re.M | re.S)
    listed = block[1].split() if block else re.findall(r"^\| `([a-z_]+)", section[1], re.M)
    assert sorted(listed) == sorted(words)

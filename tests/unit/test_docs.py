"""What the documentation shows in the language is in the language."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dslc.errors import Source
from dslc.syntax.parser import parse

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md"]
BLOCKS = [
    pytest.param(text, id=f"{page.name}-{number}")
    for page in PAGES
    for number, text in enumerate(re.findall(r"^```rules\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S))
]


@pytest.mark.parametrize("text", BLOCKS)
def test_every_rules_block_parses(text: str) -> None:
    assert parse(Source("<documentation>", text)).header.language == 1


def test_links_between_pages_lead_to_files() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"

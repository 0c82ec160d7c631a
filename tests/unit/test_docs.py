"""What the documentation shows in the language is in the language."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dslc.cli.main import run as command_line
from dslc.syntax import vocabulary

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md"]
# The page on libraries shows an import from a sibling file, which must exist.
SIBLING = "dslc 1\nexport winograd_conv\noperator winograd_conv(X: T[*S]) -> Y: T[*S] { Y[*i] = X[*i] }\n"


def test_every_rules_block_passes_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each as a library of its own in one run, since each of them reads the standard library; warnings may remain."""
    files = []
    for page in PAGES:
        for number, text in enumerate(re.findall(r"^```rules\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)):
            folder = tmp_path / f"{page.stem}{number}"
            folder.mkdir()
            (folder / "winograd.rules").write_text(SIBLING, "utf-8")
            files.append(folder / f"{page.stem.lower()}{number}.rules")
            files[-1].write_text(text, "utf-8")
            for name, template in re.findall(r"^`(\S+\.j2)`.*?^```cpp\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S):
                (folder / name).write_text(template, "utf-8")
    assert len(files) > 5
    code = command_line(["check", "--output-format", "concise", *map(str, files)])
    assert code == 0, capsys.readouterr()



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

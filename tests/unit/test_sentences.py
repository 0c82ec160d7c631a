"""Sentences are short: at most 35 words in what users read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import dslc
from dslc.search.options.option import options
from dslc.search.options.settings import Settings
from tests.unit.test_numbers_of_modules import modules

ROOT = Path(__file__).parents[2]
MOST = 35


def sentences(text: str) -> Iterator[str]:
    """The sentences of Markdown; code in a line is one word, a cell of a table and an item of a list end a sentence."""
    text = re.sub(r"^```.*?^```|<!--.*?-->", "", text, flags=re.S | re.M)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "X", text))
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|]|\d+\.) ?)", text):
        for cell in block.strip().strip("|").split(" | "):
            yield from re.split(r"(?<=[.!?:;])\s+(?=[A-Z*(\"]|dslc\b)", " ".join(cell.split()))


def words(sentence: str) -> int:
    return len(re.findall(r"\w[\w'’-]*", sentence))


def long(text: str) -> list[str]:
    return [one for one in sentences(text) if words(one) > MOST]


def test_long_sentences_are_found() -> None:
    assert long("Few words, `and some code`. W" + "word " * 35 + "end.\n\n| " + "cell " * 36 + "| x |") == [
        "W" + "word " * 35 + "end.", ("cell " * 36).strip(),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "page",
    sorted([*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md"), ROOT / "grammar" / "vocabulary.md"]),
    ids=lambda page: page.stem,
)
def test_pages_have_short_sentences(page: Path) -> None:
    assert long(page.read_text("utf-8")) == []


def test_explanations_of_codes_and_options_have_short_sentences() -> None:
    pages = sorted((Path(dslc.__file__).parent / "diagnostics" / "pages").rglob("*.md"))
    assert pages
    assert [one for page in pages for one in long(page.read_text("utf-8"))] == []
    assert [one for _, about in options(Settings) for one in long(f"{about.help}\n\n{about.more}")] == []


#: a docstring is a noun phrase or begins with a verb in the imperative
QUESTIONS = re.compile(r"(What|Whether|Who|Whom|Whose|Whoever|Whatever|Which|How|That|Those|Where|When|Why)\b")
#: code is no person
PERSONS = re.compile(r"\b(who|whom|nobody|somebody|anybody|everybody|he|him|his|she|gives up|gave up)\b")


def asked(text: str) -> Iterator[str]:
    """The docstrings of a module that begin with a question, or take code for a person."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            found = ast.get_docstring(node) or ""
            if QUESTIONS.match(found) or PERSONS.search(found):
                yield found.partition("\n")[0]


def test_questions_and_persons_are_found() -> None:
    assert list(asked('"""Whether it is."""\ndef f():\n    """Ask who knows."""\ndef g():\n    """Return whether it is."""\n')) == [
        "Whether it is.", "Ask who knows.",
    ]  # fmt: skip


def test_docstrings_are_phrases_about_code() -> None:
    assert [f"{path}: {one}" for path, text in modules() for one in asked(text)] == []

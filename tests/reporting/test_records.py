"""What commands print: JSON that says its format, and tables whose cells are text."""

from __future__ import annotations

import io
import json
from math import inf, nan

import pytest
from rich.console import Console

from dslc.reporting.records import record_text
from dslc.terminal import print_table


def test_an_object_begins_with_its_format() -> None:
    text = record_text("bench", {"ratio": 2.0, "low": -inf, "each": ({"high": nan},)})
    assert text.startswith('{\n  "format": "dslc bench 1"') and text.endswith("}\n")
    assert json.loads(text) == {"format": "dslc bench 1", "ratio": 2.0, "low": None, "each": [{"high": None}]}


def test_a_list_has_none() -> None:
    assert json.loads(record_text("list", [{"a": 1}])) == [{"a": 1}]


def test_a_record_of_no_command_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        record_text("nobody", {})


@pytest.mark.parametrize(("lines", "marks"), [("all", "┏┓│"), ("head", "─"), ("none", "")])
def test_cells_are_text_whatever_brackets_they_have(lines: str, marks: str) -> None:
    out = io.StringIO()
    print_table(
        ("name", "count"),
        [("[red]x[/red]", "1"), ("y", "20")],
        numbers={"count"},
        lines=lines,
        on=Console(file=out, width=60),
    )  # type: ignore[arg-type]
    text = out.getvalue()
    assert "[red]x[/red]" in text and all(mark in text for mark in marks)
    rows = [line.strip(" │") for line in text.splitlines() if "x" in line or "20" in line]
    assert [row[-2:] for row in rows] == [" 1", "20"]
    assert bool(marks) == any(mark in text for mark in "─━")


def test_a_table_without_titles_has_no_head() -> None:
    out = io.StringIO()
    print_table(("", ""), [("a", "b")], lines="none", on=Console(file=out, width=60))
    assert out.getvalue().split() == ["a", "b"]

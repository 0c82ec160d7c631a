"""A bar tells how far a command is, and nothing where nobody looks."""

from __future__ import annotations

import sys

import pytest

from dslc.terminal import CommandBar, counts_text


def test_counts_stand_in_the_order_of_their_names() -> None:
    assert counts_text({"tested": 1, "proved": 12}) == "12 proved, 1 tested"
    assert counts_text({}) == ""


def test_into_a_pipe_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with CommandBar("proving", quiet=False) as bar:
        bar.tell(3, 7, "3 proved")
        assert (bar.done, bar.title) == (3, "proving")
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_counts_and_stages(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    with CommandBar("", quiet=False, stays=True) as bar:
        bar.tell(1, 4, "first", "enumerating")
        bar.tell(2, 2, "second", "proving")
        assert (bar.done, bar.title) == (2, "proving")
    shown = capsys.readouterr().err
    assert "proving" in shown and "2/2" in shown and "second" in shown
    with CommandBar("proving", quiet=True) as bar:
        bar.tell(1, 2, "no")
    assert capsys.readouterr().err == ""

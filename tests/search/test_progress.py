"""What is shown while `dslc optimize` works."""

from __future__ import annotations

import io
import time

import pytest

from dslc.cli import progress as shown
from dslc.cost.clock import Clock
from tests.tuned import tuned


class Terminal(io.StringIO):
    """A stderr that is a terminal, or not."""

    def __init__(self, tty: bool) -> None:
        super().__init__()
        self.tty = tty

    def isatty(self) -> bool:
        return self.tty


def during(
    monkeypatch: pytest.MonkeyPatch, tty: bool, budget: float, quiet: bool = False, verbose: bool = False
) -> str:
    """What is written while a phase blocks for a third of a second."""
    stderr = Terminal(tty)
    monkeypatch.setattr("sys.stderr", stderr)
    tuned(monkeypatch, "cli.progress", lines=0.05)
    with shown.progress(Clock(budget), quiet, verbose) as told:
        told.phase("comparing outputs")
        told.best(1.25, 7)
        time.sleep(0.33)
    return stderr.getvalue()


def test_without_a_terminal_there_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = during(monkeypatch, tty=False, budget=60.0).splitlines()
    assert len(lines) >= 3
    assert all("comparing outputs" in line and "1.25x predicted" in line for line in lines)
    moments = [float(line.split()[0]) for line in lines]
    assert moments == sorted(moments) and moments[-1] > moments[0]


def test_the_clock_of_the_bar_goes_on_while_a_phase_blocks_and_when_the_budget_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = []
    tuned(monkeypatch, "cli.progress", looks=0.05)
    stderr = Terminal(True)
    monkeypatch.setattr("sys.stderr", stderr)
    from rich.progress import Progress as Bar

    update = Bar.update

    def seen(self: Bar, task: object, **fields: object) -> None:
        looks.append((fields["seconds"], fields["completed"]))
        update(self, task, **fields)  # type: ignore[arg-type]

    monkeypatch.setattr(Bar, "update", seen)
    with shown.progress(Clock(0.1), False, False) as told:
        told.phase("timing")
        time.sleep(0.33)
    assert len(looks) >= 3
    assert looks[-1][0] > 0.1 and looks[-1][1] < 0.1


def test_quiet_shows_nothing_and_verbose_every_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    assert during(monkeypatch, tty=False, budget=60.0, quiet=True) == ""
    assert "comparing outputs\n" in during(monkeypatch, tty=False, budget=60.0, verbose=True)

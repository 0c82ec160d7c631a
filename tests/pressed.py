"""Ctrl-C for tests of what it does: as Python's handler sees it, and no signal, which would be the whole test run's."""

from __future__ import annotations

import signal


def press(number: signal.Signals = signal.SIGINT) -> None:
    """Calls who handles a signal, at this place of the program; the fixture `interrupts` sees to that somebody does."""
    handler = signal.getsignal(number)
    assert callable(handler), f"nobody handles {number.name}"
    handler(number, None)

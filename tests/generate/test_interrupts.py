"""Ctrl-C in the middle of a generation."""

from __future__ import annotations

import signal
import weakref
from pathlib import Path
from typing import Any

import pytest

import dslc.generate.library
from dslc.cli.main import run
from dslc.generate.interrupts import Interrupts
from tests.pressed import press


class _Anything:
    pass


@pytest.mark.usefixtures("interrupts")
def test_an_interruption_inside_a_callback_is_not_lost() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        interrupts.look()
        one = _Anything()
        seen = weakref.ref(one, lambda _: press())
        del one
        assert seen() is None
        with pytest.raises(KeyboardInterrupt):
            interrupts.look()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("interrupts")
def test_an_interrupted_generation_says_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(settings: Any, progress: Any) -> None:
        progress("terms of 3 operators", 10, 0, "")
        press()

    monkeypatch.setattr(dslc.generate.library, "generate", interrupted)
    out = tmp_path / "out.rules"
    assert run(["generate", "ewadd", "-o", str(out)]) == 130
    said = capsys.readouterr().err
    assert "(terms of 3 operators)" in said and "the same command goes on" in said
    assert not out.exists()

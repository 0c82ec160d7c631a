"""Kernels compiled beside whatever else runs: they are there when asked for, and nothing is compiled while something is measured."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dslc.codegen.host.background import BackgroundCompiler
from dslc.codegen.host.compiler import NAMES, Compiler
from dslc.codegen.host.library import build, library_folder
from dslc.processes.process import Job
from tests.codegen.kernels import broken, endless, halves, total

pytestmark = pytest.mark.skipif(not any(map(shutil.which, NAMES)), reason="there is no C++ compiler")


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    """Waits for something; an AssertionError where it does not come."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def kept(folder: Path) -> int:
    return len(list((library_folder(folder) / "objects").glob("[!.]*.o")))


def test_what_was_compiled_ahead_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with BackgroundCompiler(tmp_path) as ahead:
        # one that does not compile is somebody else's to tell, and holds up nobody
        ahead.add([broken(), halves(), total()])
        until(lambda: kept(tmp_path) == 2)
    started: list[str] = []
    start = Compiler.start

    def told(self: Compiler, source: Path, target: Path, *more: str, **limits: float) -> Job:
        started.append(source.name)
        return start(self, source, target, *more, **limits)

    monkeypatch.setattr(Compiler, "start", told)
    library = build([halves(), total()], tmp_path)
    assert set(library.kernels) == {"k_halves", "k_total"}
    assert not {"k_halves.cpp", "k_total.cpp"} & set(started)


def test_nothing_is_compiled_while_something_is_measured(tmp_path: Path) -> None:
    with BackgroundCompiler(tmp_path) as ahead:
        with ahead.halted():
            ahead.add([halves()])
            time.sleep(0.5)
            with ahead.halted():
                pass
            assert kept(tmp_path) == 0
        until(lambda: kept(tmp_path) == 1)


def test_a_compiler_that_runs_is_ended(tmp_path: Path) -> None:
    began = time.monotonic()
    with BackgroundCompiler(tmp_path) as ahead:
        ahead.add([endless(), halves()])
        time.sleep(0.2)
    assert time.monotonic() - began < 30 and kept(tmp_path) == 0
    ahead.add([halves()])
    assert kept(tmp_path) == 0


KILLED = """
import sys
from pathlib import Path
from dslc.codegen.host.compiler import started
running = started(("sh", "-c", "sleep 300 & wait"), Path(sys.argv[1]), 300, 1 << 32)
if sys.argv[2] == "halted":
    running.halt()
print(running.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no groups of processes")
@pytest.mark.parametrize("how", ["halted", "running"])
def test_compilers_end_with_a_process_that_is_killed(tmp_path: Path, how: str) -> None:
    call = [sys.executable, "-c", KILLED, str(tmp_path), how]
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        group = int(process.stdout.readline())
        assert not gone(group)
        process.kill()
        process.wait()
    until(lambda: gone(group))


def gone(group: int) -> bool:
    """Whether no process of a group runs; those that ended and that nobody has asked about do not count."""
    states = subprocess.run(["ps", "-eo", "pgid=,stat="], capture_output=True, text=True, check=True).stdout.split("\n")
    return not any(
        line.split()[0] == str(group) and not line.split()[1].startswith("Z") for line in states if line.strip()
    )


def test_where_there_is_no_compiler_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with BackgroundCompiler(tmp_path) as ahead:
        ahead.add([halves()])
    assert not (tmp_path / "kernels").exists()

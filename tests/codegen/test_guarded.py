"""Kernels stay in their memory, at the vectors of this machine: random groups, and sums whose lengths differ from row to row."""

from __future__ import annotations

import subprocess
import sys

from tests.codegen.groups import needs_compiler


@needs_compiler
def test_nothing_is_touched_around_tensors_and_rows() -> None:
    command = [sys.executable, "-m", "tests.codegen.guarded", "--one", "--groups", "16"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, f"{done.returncode} {done.stdout.splitlines()[-1:]}\n{done.stderr[-3000:]}"
    # it was more than a few
    assert done.stdout.count("at ") > 50

"""A part of a processor for a command and all that it starts."""

from __future__ import annotations

import os
import sys

from benchmarks import throttle

SPIN = "import os, time\nend = time.monotonic() + 0.8\nwhile time.monotonic() < end: pass\nprint(sum(os.times()[:2]))"
BELOW = f"import subprocess, sys\nsys.exit(subprocess.run([sys.executable, '-c', {SPIN!r}]).returncode)"
HALTED = (
    "import os, signal, subprocess, sys, time\n"
    "one = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    # once is not enough where both stop it at one moment
    "for _ in range(3):\n    one.send_signal(signal.SIGSTOP)\n    time.sleep(0.1)\ntime.sleep(0.5)\n"
    "print(open(f'/proc/{one.pid}/stat').read().rpartition(')')[2].split()[0])\none.kill()"
)


def test_a_command_and_what_it_starts_get_their_share() -> None:
    for code in (SPIN, BELOW):
        done = throttle.run([sys.executable, "-c", code], 0.3)
        assert done.code == 0 and float(done.out) < 0.6 * 0.8 and done.seconds >= 0.8


def test_what_the_command_has_stopped_stays_so() -> None:
    if os.path.exists("/proc/self/stat"):
        assert throttle.run([sys.executable, "-c", HALTED], 0.5).out.strip() == "T"


def test_a_command_that_fails_is_told() -> None:
    done = throttle.run([sys.executable, "-c", "import sys; sys.exit('no')"], 0.5)
    assert (done.code, done.err.strip()) == (1, "no")

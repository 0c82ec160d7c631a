"""Tests and proofs, each by the command line in a process of its own."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from dslc.records import record

LONGEST = 600  #: seconds that a run may take before it is ended


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@record
class Ran:
    """The outcome of a command: whether it ended well, and its output."""

    ok: bool
    text: str

    @property
    def last(self) -> str:
        """Its last line, which says how it ended."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        return lines[-1] if lines else "nothing was printed"


async def run(command: str, path: Path, name: str) -> Ran:
    """Runs `dslc test` or `dslc verify` for one name of a file."""
    only = {"test": "-k", "verify": "--rule"}[command]
    words = [sys.executable, "-m", "dslc", command, str(path), *([only, name] if name else [])]
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), LONGEST)
    except (TimeoutError, asyncio.CancelledError) as ended:
        process.kill()
        if isinstance(ended, asyncio.CancelledError):
            raise
        return Ran(False, f"ended after {LONGEST} s")
    return Ran(process.returncode == 0, _COLOURS.sub("", out.decode("utf-8", "replace")))

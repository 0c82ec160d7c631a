"""The entry point of the console script: nothing heavy is imported before Ctrl-C is one line."""

from __future__ import annotations

import sys
import time
from typing import NoReturn


def main() -> NoReturn:
    """`dslc`; Ctrl-C while it is still loaded ends it with exit code 130, and what loading takes is part of a budget."""
    began = time.monotonic()
    try:
        from dslc.cli.main import main as command
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    command(began)

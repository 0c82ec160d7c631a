"""The entry point of the console script: nothing heavy is imported before Ctrl-C is one line."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """`dslc`; Ctrl-C while it is still loaded ends it with exit code 130."""
    try:
        from dslc.cli.main import main as command
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    command()

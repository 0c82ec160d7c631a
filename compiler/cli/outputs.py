"""Outputs of commands: findings, and files, which are looked at before anything else is done."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dslc.errors import Diagnostic


def say_findings(findings: Sequence[Diagnostic], form: str = "full", err: bool = True) -> None:
    """Prints findings in one of the forms of `dslc check`."""
    from dslc.diagnostics.render import render, wants_color
    from dslc.terminal import say

    say(render(findings, form, color=wants_color(sys.stderr if err else sys.stdout)), err)


def apart(path: Path, others: Sequence[Path]) -> None:
    """Raises DslcError E0908 where a file that is written would be one of the others."""
    from dslc.errors import error

    if path.resolve() in {other.resolve() for other in others}:
        raise error("E0908", f"{path} is named twice", path=str(path), hint="give each file its own name")


def writable(*paths: Path | None) -> None:
    """Raises DslcError E0903 where a file cannot be written."""
    from dslc.errors import error
    from dslc.store import is_stream

    for path in filter(None, paths):
        folder = path.parent
        if is_stream(path) and os.access(path, os.W_OK):
            continue
        if path.is_dir():
            raise error("E0903", f"{path} is a folder", path=str(path))
        if not folder.is_dir():
            raise error("E0903", f"there is no folder {folder}", path=str(path), hint=f"`mkdir -p {folder}` makes it")
        probe = folder / f".{path.name}.{os.getpid()}.probe"
        try:
            probe.touch()
            probe.unlink()
        except OSError as problem:
            raise error("E0903", f"cannot write into {folder}: {problem.strerror}", path=str(path)) from None

"""`dslc check`: every mistake in rule files and libraries that can be found without running them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import click
from click import argument

from dslc.checking.fixes import checked, files_of, fixed
from dslc.cli.options import form_option, option
from dslc.cli.outputs import say_findings
from dslc.diagnostics.render import FORMATS
from dslc.errors import DslcError

PAUSE = 0.2  #: seconds between two looks at the times of files


def _watch(names: Sequence[str], once: Callable[[], int]) -> NoReturn:
    """Checks again whenever a file of what is named has changed, until it is interrupted."""

    def stamps() -> dict[Path, float]:
        found = {}
        with suppress(DslcError, OSError):
            for path in files_of(names):
                for beside in path.resolve().parent.glob("*.rules"):
                    found[beside] = beside.stat().st_mtime
        return found

    seen: dict[Path, float] | None = None
    while True:
        now = stamps()
        if now != seen:
            seen = now
            if sys.stdout.isatty():
                click.clear()
            try:
                once()
            except DslcError as failure:
                say_findings(failure.diagnostics, err=False)
            sys.stdout.flush()
            click.echo("watching for changes; Ctrl-C ends this", err=True)
        time.sleep(PAUSE)


@click.command()
@argument("names", nargs=-1, required=True, metavar="FILES|FOLDERS|LIBRARIES")
@option("--overlaps", "overlapping", is_flag=True, help="Also list rules that match the same graphs.")
@option("--fix", "fixing", is_flag=True, help="Apply the fixes that findings suggest, and report what is left.")
@option("--watch", "watching", is_flag=True, help="Check again whenever a file changes, until Ctrl-C.")
@form_option(*FORMATS[1:])
def command(names: tuple[str, ...], overlapping: bool, fixing: bool, watching: bool, output_format: str) -> int:
    """Report mistakes in rule files and libraries. The exit code is 1 if there are errors; warnings alone leave it at 0."""

    def once() -> int:
        for mended in fixed(names) if fixing else ():
            for one in mended.mended:
                click.echo(f"fixed {one}", err=True)
        found = checked(names, overlapping)
        say_findings(found.diagnostics, output_format, err=False)
        if not found.diagnostics and output_format == "full":
            click.echo(str(found), err=True)
        return int(not found.ok)

    if watching:
        files_of(names)
        _watch(names, once)
    return once()

"""`dslc check`: every mistake in rule files and libraries that can be found without running them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dslc.checking.files import check_files
from dslc.cli.fmt import rule_files
from dslc.cli.options import form_option
from dslc.cli.terminal import say
from dslc.diagnostics.render import FORMATS, render, wants_color
from dslc.errors import Diagnostic, DslcError
from dslc.store import write_file
from dslc.syntax.parser import read_source

if TYPE_CHECKING:
    from dslc.checking.fixes import Mended


PAUSE = 0.2  #: seconds between two looks at the times of files


def files_of(names: Sequence[str]) -> list[Path]:
    """The files that paths and names of installed libraries stand for.

    Raises:
        DslcError: E0902 or E0203 where there is no such thing.
    """
    out: list[Path] = []
    for name in names:
        path = Path(name)
        if not path.exists() and path.suffix != ".rules" and "/" not in name:
            from dslc.semantics.installed import find_library

            folder, rest = find_library(name)
            if folder is None:
                message = f"no file, folder or installed library is named `{name}`"
                raise DslcError([Diagnostic("E0203", message, path=name)], exit_code=2)
            out += [folder / (rest.replace(".", "/") + ".rules")] if rest else sorted(folder.glob("*.rules"))
        else:
            out += rule_files([name])
    return out


@dataclass(frozen=True, slots=True)
class Checked:
    """What `dslc check` finds in some rule files, in the order of their places; `str` gives the text that it prints."""

    files: tuple[Path, ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def ok(self) -> bool:
        """Whether there is no error; warnings may be left."""
        return not any(finding.severity == "error" for finding in self.diagnostics)

    def __str__(self) -> str:
        if not self.diagnostics:
            return f"{len(self.files)} file{'s' * (len(self.files) != 1)} checked, nothing found"
        return render(self.diagnostics, "full").rstrip()


def checked(names: Sequence[str], overlapping: bool = False) -> Checked:
    """The findings in files, folders and libraries. Raises DslcError as `files_of`."""
    paths = files_of(names)
    # a file that is named stands for itself; of a folder or a library every file is meant
    folders = {path.parent for name in names if not Path(name).is_file() for path in files_of([name])}
    return Checked(tuple(paths), tuple(check_files(paths, overlapping, sorted(folders))))


def fixed(names: Sequence[str]) -> list[Mended]:
    """Makes the edits that findings come with, in files on the disk. Raises DslcError as `files_of`, and E0903."""
    from dslc.checking.fixes import mend
    from dslc.checking.incremental import Edited

    out = []
    files = Edited()
    for path in files_of(names):
        whole = path.resolve()
        try:
            text = read_source(whole).text
        except DslcError:
            continue  # it is said when the file is checked
        files.edit(whole, text)
        mended = mend(files, whole)
        files.close(whole)
        if mended.text != text:
            write_file(path, mended.text)
            out.append(mended)
    return out


def _watch(names: Sequence[str], once: Callable[[], int]) -> int:
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
                say(render(failure.diagnostics, "full", color=wants_color(sys.stdout)))
            sys.stdout.flush()
            click.echo("watching for changes; Ctrl-C ends this", err=True)
        time.sleep(PAUSE)


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="FILES|FOLDERS|LIBRARIES")
@click.option("--overlaps", "overlapping", is_flag=True, help="Also list rules that match the same graphs.")
@click.option("--fix", "fixing", is_flag=True, help="Make the edits that findings come with, and report what is left.")
@click.option("--watch", "watching", is_flag=True, help="Check again whenever a file changes, until Ctrl-C.")
@form_option(*FORMATS[1:])
def command(names: tuple[str, ...], overlapping: bool, fixing: bool, watching: bool, output_format: str) -> int:
    """Report mistakes in rule files and libraries. Warnings alone leave the exit code at 0."""

    def once() -> int:
        for mended in fixed(names) if fixing else ():
            for one in mended.mended:
                click.echo(f"fixed {one}", err=True)
        found = checked(names, overlapping)
        say(render(found.diagnostics, output_format, color=wants_color(sys.stdout)))
        if not found.diagnostics and output_format == "full":
            click.echo(str(found), err=True)
        return int(not found.ok)

    return _watch(names, once) if watching else once()

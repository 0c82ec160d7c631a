"""`dslc fmt`: the one layout of rule files."""

from __future__ import annotations

import difflib
import sys

import click

from dslc.errors import Diagnostic, DslcError, SourceText
from dslc.outside import in_stream
from dslc.store import rule_files, write_file
from dslc.syntax.parser import decode, read_source
from dslc.syntax.printer import format_source
from dslc.terminal import say


def _diff(source: SourceText, text: str) -> str:
    before, after = source.text.splitlines(keepends=True), text.splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, after, f"{source.path} (now)", f"{source.path} (formatted)"))


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILES|FOLDERS|-")
@click.option("--check", is_flag=True, help="Write nothing, and exit with 1 if a file would change.")
@click.option("--diff", is_flag=True, help="Write nothing, and print what would change.")
def command(paths: tuple[str, ...], check: bool, diff: bool) -> int:
    """Format rule files in place; `-` formats standard input to standard output."""
    findings: list[Diagnostic] = []
    changed = total = 0
    if "-" in paths:
        if len(paths) > 1:
            raise click.UsageError("`-` cannot be combined with files.")
        source = decode(sys.stdin.buffer.read(), "<stdin>")
        text = format_source(source)
        if not (check or diff):
            # a file stays what it is
            say(in_stream(text) if sys.stdout.isatty() else text)
        if diff:
            click.echo(_diff(source, text), nl=False)
        return int((check or diff) and text != source.text)
    for path in rule_files(paths):
        total += 1
        try:
            raw = path.read_bytes() if path.is_file() else b""
            source = read_source(path)
            text = format_source(source)
        except DslcError as failure:
            findings += failure.diagnostics
            continue
        if text.encode() == raw:
            continue
        changed += 1
        if diff:
            click.echo(_diff(source, text), nl=False)
        if check:
            click.echo(f"would format {path}", err=True)
        elif not diff:
            write_file(path, text)
            click.echo(f"formatted {path}", err=True)
    if findings:
        raise DslcError(findings)
    left = total - changed
    word = "would be formatted" if check or diff else "formatted"
    click.echo(
        f"{changed} file{'s' * (changed != 1)} {word}, {left} left as {'it is' if left == 1 else 'they are'}", err=True
    )
    return int(changed > 0 and (check or diff))

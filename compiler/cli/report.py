"""`dslc report REPORT.json -o OUT.html`: a page to look at."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("report")
@click.argument("report", metavar="REPORT.json", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), metavar="OUT.html", help="Where to write."
)
def command(report: Path, output: Path) -> None:
    """Turn a report of `dslc optimize --report REPORT.json` into one self-contained page."""
    from dslc.cli.outputs import apart, writable
    from dslc.errors import error
    from dslc.report import read
    from dslc.store import write_file

    apart(output, [report])
    writable(output)
    try:
        found = read(report.read_text("utf-8"))
    except ValueError:
        raise error("E0914", "it is no report of `dslc optimize --report FILE.json`", path=str(report)) from None
    write_file(output, found.to_html())
    click.echo(f"written: {output}")

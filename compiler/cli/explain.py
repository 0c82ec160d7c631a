"""`dslc explain`: the page of a diagnostic's code, or what a library says about a rule or an operator."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dslc.cli.options import rules_option
from dslc.diagnostics.registry import pages
from dslc.errors import error

if TYPE_CHECKING:
    from dslc.report import Turn

SHARE = 1e-3  #: share of what the graph takes; a step that saves less saves nothing


def story_of(path: Path) -> str:
    """The way to a result as a report of `dslc optimize --report` has it, line by line.

    A line has a rule, its gain, and the later step that it made possible.

    Raises:
        DslcError: E0914 for a file that is no report.
        OSError: it cannot be read.
    """
    from dslc.report import read

    try:
        report = read(path.read_text("utf-8"))
    except ValueError:
        raise error("E0914", "it is no report of `dslc optimize --report FILE.json`", path=str(path)) from None
    notes = (f"note: {note}" for note in (*report.warnings, *report.notes))
    return "\n".join((report.summary(), report.terms(), *_steps(report.story), *notes)) + "\n"


def _steps(story: Sequence[Turn]) -> Iterator[str]:
    """A line for each step; one that saves nothing comes with the next one that does."""
    saves = [one.gain_ms > SHARE * (one.predicted_ms + one.gain_ms) for one in story]
    for k, one in enumerate(story):
        gain, left = one.gain_ms, one.predicted_ms
        if saves[k]:
            text = f"saves {gain:.4g} ms, {left:.4g} ms are left (predicted)"
        else:
            text = f"costs {-gain:.4g} ms, and " if -gain > SHARE * left else "saves nothing, and "
            text += f"makes step {saves.index(True, k) + 1} possible" if any(saves[k:]) else "leads to nothing else"
        yield f"{k + 1:3}. {one.rule}{f' at {one.count} places' if one.count > 1 else ''}: {text}"


def _explain_code(code: str) -> str:
    known = pages()
    if code not in known:
        raise error("E0909", f"there is no code {code}", hint="`dslc explain --list` names all codes")
    page = known[code]
    text = re.sub(r"^```rules (wrong|right)\n", lambda m: f"{m[1].capitalize()}:\n\n", page.text, flags=re.M)
    lines, inside = [], False
    for line in text.splitlines():
        if line in ("Wrong:", "Right:"):
            inside = True
            lines.append(line)
        elif line == "```":
            inside = False
            lines.append("")
        else:
            lines.append(f"    {line}" if inside and line else line)
    return f"{code}: {page.title}\n\n" + "\n".join(lines).rstrip() + "\n"


@click.command()
@click.argument("name", required=False)
@click.option("--list", "listing", is_flag=True, help="List all error and warning codes.")
@rules_option("Look in this library or .rules file.")
def command(name: str | None, listing: bool, rules: tuple[str, ...]) -> None:
    """Explain an error code (E0101), a rule or operator (std.conv), or the steps of an optimization from its report (REPORT.json)."""
    if listing:
        for page in pages().values():
            click.echo(f"{page.code}  {page.title}")
        return
    if name is None:
        raise click.UsageError("name a code, a rule, an operator or a report, or use --list.")
    if name.endswith(".json"):
        click.echo(story_of(Path(name)), nl=False)
        return
    if re.fullmatch(r"[EeWw]\d+", name):
        click.echo(_explain_code(name.upper()), nl=False)
        return
    from dslc.cli.explain_rule import explain_rule

    click.echo(explain_rule(name, rules), nl=False)

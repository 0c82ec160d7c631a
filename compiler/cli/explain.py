"""`dslc explain`: the page of a diagnostic's code, or what a library says about a rule or an operator."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import click

from dslc.cli.options import rules_option
from dslc.diagnostics.registry import pages
from dslc.errors import Diagnostic, DslcError


def _explain_code(code: str) -> str:
    known = pages()
    if code not in known:
        close = difflib.get_close_matches(code, known, n=1)
        hint = f"did you mean {close[0]}?" if close else "`dslc explain --list` names all codes"
        raise DslcError([Diagnostic("E0909", f"there is no code {code}", hint=hint)], exit_code=2)
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
@click.option("--list", "listing", is_flag=True, help="List all codes.")
@rules_option("Another library or .rules file to look in.")
def command(name: str | None, listing: bool, libraries: tuple[str, ...]) -> None:
    """Explain a diagnostic's code (E0101), a rule or an operator by its name (std.conv), or how a result came about by its report
    (REPORT.json)."""
    if listing:
        for page in pages().values():
            click.echo(f"{page.code}  {page.title}")
        return
    if name is None:
        raise click.UsageError("Give a code, a rule, an operator or a report.")
    if name.endswith(".json"):
        from dslc.cli.told import story_of

        click.echo(story_of(Path(name)), nl=False)
        return
    if re.fullmatch(r"[EeWw]\d+", name):
        click.echo(_explain_code(name.upper()), nl=False)
        return
    from dslc.cli.explain_rule import explain_rule

    click.echo(explain_rule(name, libraries), nl=False)

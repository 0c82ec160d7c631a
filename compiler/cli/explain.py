"""`dslc explain`: the page of a diagnostic's code, or what a library says about a rule or an operator."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from dslc.cli.options import rules_option
from dslc.diagnostics.registry import pages
from dslc.errors import error

SHARE = 1e-3  #: share of what the graph takes; a step that saves less saves nothing


def story_of(path: Path) -> str:
    """The way to a result as a report of `dslc optimize --report` has it, line by line.

    A line has a rule, its gain, and the later step that it made possible.

    Raises:
        DslcError: E0914 for a file that is no report.
        OSError: it cannot be read.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
        lines = [_outcome(data), *_steps(data["story"])]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise error("E0914", "it is no report of `dslc optimize --report FILE.json`", path=str(path)) from None
    lines += [f"note: {note}" for note in data.get("notes", ())]
    return "\n".join(lines) + "\n"


def _outcome(data: Mapping[str, Any]) -> str:
    model, before, after = str(data["model"]), data["before_ms"], data["after_ms"]
    if data["kept_original"]:
        return f"{model}: the original is kept: {data['reason']}"
    if before is None or after is None:
        return model
    return f"{model}: {before:.3g} ms -> {after:.3g} ms, {data['ratio']:.2f} times as fast"


def _steps(story: list[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each step; one that saves nothing comes with the next one that does."""
    gains = [float(one["gain_ms"]) for one in story]
    saves = [gain > SHARE * (float(one["predicted_ms"]) + gain) for one, gain in zip(story, gains, strict=True)]
    for k, (one, gain) in enumerate(zip(story, gains, strict=True)):
        count, left = int(one["count"]), float(one["predicted_ms"])
        if saves[k]:
            text = f"saves {gain:.4g} ms, {left:.4g} ms are left (predicted)"
        else:
            text = f"costs {-gain:.4g} ms, and " if -gain > SHARE * left else "saves nothing, and "
            text += f"makes step {saves.index(True, k) + 1} possible" if any(saves[k:]) else "leads to nothing else"
        yield f"{k + 1:3}. {one['rule']}{f' at {count} places' if count > 1 else ''}: {text}"


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

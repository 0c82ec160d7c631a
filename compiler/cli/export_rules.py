"""`dslc export-rules`: substitutions over TASO's operators as a file of TASO."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dslc.errors import Diagnostic, DslcError
from dslc.store import write_file
from dslc.terminal import say


@click.command()
@click.argument("name", metavar="FILE.rules|LIBRARY")
@click.option("--to", "form", type=click.Choice(("taso",)), required=True, help="Whose format is written.")
@click.option("-o", "--output", "out", type=click.Path(path_type=Path), required=True, metavar="OUT")
@click.option("--skip", is_flag=True, help="Leave out what the format cannot express, instead of stopping.")
def command(name: str, form: str, out: Path, skip: bool) -> int:
    """Write substitutions for another project.

    A rule that needs more than its format can say is reported, and nothing is written; exit code 1.
    """
    from dslc.checking.fixes import files_of
    from dslc.diagnostics.render import full, wants_color
    from dslc.foreign.exporter import export_rule
    from dslc.foreign.reverses import in_source_order
    from dslc.foreign.rule import ForeignRule
    from dslc.foreign.taso import write
    from dslc.semantics.definitions import SubstitutionDef
    from dslc.semantics.library import load_many

    paths = files_of([name])
    rules = load_many(["taso", "std", *paths])
    asked = {str(path.resolve()) for path in paths}
    exported: dict[str, list[tuple[SubstitutionDef, tuple[ForeignRule, ...]]]] = {}
    findings: list[Diagnostic] = []
    wider: list[str] = []
    count = 0
    for sub in rules.substitutions.values():
        place = str(sub.module.place)
        if place not in asked:
            continue
        count += 1
        try:
            exported.setdefault(place, []).append((sub, export_rule(rules, sub, wider)))
        except DslcError as problem:
            findings += problem.diagnostics
    if findings:
        say(full(findings, color=wants_color(sys.stderr)), err=True)
        if not skip:
            click.echo(
                f"nothing was written: {len(findings)} of {count} rules cannot be expressed (--skip leaves them out)",
                err=True,
            )
            return 1
    found = [rule for each in exported.values() for rule in in_source_order(each)]
    write_file(out, write(found))
    for each in wider:
        message = (
            f"warning: {each}: {form}'s format has no place for its types, and it is wrong for other kernels or groups"
        )
        click.echo(message, err=True)
    click.echo(
        f"{out}: {len(found)} rules" + (f", {len(findings)} of {count} substitutions left out" if findings else "")
    )
    return 0

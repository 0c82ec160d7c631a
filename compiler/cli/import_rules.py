"""`dslc import-rules`: rule files of TASO, TENSAT and FlexFlow as a library of proved substitutions."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Literal

import click

from dslc.cli.fmt import replace
from dslc.errors import Diagnostic, DslcError

_FORMS = ("taso", "tensat", "flexflow")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--from", "form", type=click.Choice(_FORMS), required=True, help="Whose format the file has.")
@click.option("-o", "--output", "out", type=click.Path(path_type=Path), required=True, metavar="OUT.rules")
@click.option("--pairs/--no-pairs", default=None, help="TENSAT: two lines are one rule (else found out from the file).")
@click.option(
    "--numbering",
    type=click.Choice(("taso", "flexflow")),
    default=None,
    help="Protobuf: whose numbers (else found out from the file).",
)
@click.option(
    "--axes",
    type=click.Choice(("outer", "inner")),
    default=None,
    help="FlexFlow: which axis parallel dimension 0 is, the outermost or the innermost (else found out from the file).",
)
@click.option(
    "--guards/--no-guards", default=True, show_default=True, help="Look for a guard for each wrong rule (seconds each)."
)
@click.option(
    "--workers",
    "--jobs",
    "workers",
    type=click.IntRange(0, 256),
    default=2,
    show_default=True,
    help="Processes that prove.",
)
@click.option(
    "--limit",
    "--timeout",
    "limit",
    type=click.FloatRange(0.1),
    default=30.0,
    show_default=True,
    help="Seconds for one prover and rule.",
)
@click.option("--output-format", "shown", type=click.Choice(("full", "json")), default="full", show_default=True)
def command(
    file: Path,
    form: str,
    out: Path,
    pairs: bool | None,
    numbering: Literal["taso", "flexflow"] | None,
    axes: Literal["outer", "inner"] | None,
    guards: bool,
    workers: int,
    limit: float,
    shown: str,
) -> int:
    """Import the rules of another project.

    Each is proved, or left out with the reason; wrong ones come with a counterexample. What is left out stands as a
    comment at the end of OUT.rules. Exit code 1 where the file cannot be read; wrong rules in it are no failure.
    """
    from dslc.foreign.formats import read_rules
    from dslc.foreign.importing import OUTCOMES, as_json, import_rules, imported_text

    if out.suffix != ".rules" or not out.stem.isidentifier():
        name = re.sub(r"\W+", "_", out.name.removesuffix(".rules")).strip("_") or "imported"
        name = name if name.isidentifier() else f"rules_{name}"
        hint = f"NAME has letters, digits and `_`, as it is a name in the language: `{out.with_name(name + '.rules')}` works"
        message = f"{out} is no name of a rule file: it is NAME.rules"
        raise DslcError([Diagnostic("E0906", message, path=str(out), hint=hint)], exit_code=2)
    if out.exists() and file.exists() and out.samefile(file):
        raise DslcError([Diagnostic("E0908", f"{out} would overwrite the input", path=str(out))], exit_code=2)
    if not out.resolve().parent.is_dir():
        raise DslcError([Diagnostic("E0903", f"cannot write {out}: no such folder", path=str(out))])
    rules = read_rules(form, file, pairs, numbering)

    def progress(done: int, total: int) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r{done} of {total} rules", nl=done == total, err=True)

    found = import_rules(rules, form, out, workers, limit, progress, guards, axes)
    replace(out, imported_text(found, form, file.name))
    if shown == "json":
        click.echo(json.dumps(as_json(found), indent=2))
        return 0
    click.echo(f"{len(rules)} rules of {file.name}; {out} holds those that are proved")
    counts = found.counts()
    for outcome in OUTCOMES:
        if counts[outcome]:
            click.echo(f"  {outcome:<13}{counts[outcome]:>7}")
    sizes = sum("of the file only" in rule.note for rule in found.rules)
    if sizes:
        click.echo(f"{sizes} of those proved are for the kernel sizes of the file only")
    if found.unknown:
        click.echo(
            "operators without a counterpart: " + ", ".join(f"{k} ({n})" for k, n in found.unknown.most_common())
        )
    left_out = sum(rule.left_out for rule in found.rules)
    if left_out:
        click.echo(f"{left_out} operators that only distribute tensors were left out")
    for rule in found.rules:
        if rule.wider is not None:
            click.echo(f"{rule.name}: proved, but {rule.note.rpartition('; ')[2]}")
        if rule.outcome in {"guarded", "rejected", "undecided", "unbound", "impossible"}:
            click.echo(f"{rule.name}: {rule.outcome}" + (f": {rule.reason}" if rule.reason else ""))
    return 0

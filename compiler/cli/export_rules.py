"""`dslc export-rules`: substitutions over TASO's operators as a file of TASO."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import click

from dslc.errors import Diagnostic, DslcError, error
from dslc.store import write_file
from dslc.terminal import CommandBar

SHOWN = 3  #: errors that are shown without --verbose


@click.command()
@click.argument("name", metavar="FILE.rules|LIBRARY")
@click.option("--to", "form", type=click.Choice(("taso",)), required=True, help="The format to write.")
@click.option(
    "-o", "--output", "out", type=click.Path(path_type=Path), required=True, metavar="OUT", help="Where to write."
)
@click.option("--skip", is_flag=True, help="Leave out rules that the format cannot express, instead of stopping.")
@click.option("-v", "--verbose", is_flag=True, help="Show each rule that cannot be exported.")
def command(name: str, form: str, out: Path, skip: bool, verbose: bool) -> int:
    """Write substitutions in the format of another project.

    Unless --skip is given, a rule that the format cannot express is an error: nothing is written, and the exit code is 1.
    """
    from dslc.checking.fixes import files_of
    from dslc.cli.outputs import say_findings, writable
    from dslc.foreign.exporter import export_rule
    from dslc.foreign.reverses import in_source_order
    from dslc.foreign.rule import ForeignRule
    from dslc.foreign.taso import write
    from dslc.semantics.library import load_many

    writable(out)
    paths = files_of([name])
    rules = load_many(["taso", "std", *paths])
    found: list[ForeignRule] = []
    findings: list[Diagnostic] = []
    wider: list[str] = []
    count = 0
    with CommandBar("exporting", quiet=False) as bar:
        for path in paths:
            exported = []
            for sub in rules.substitutions.values():
                if sub.module.place == path.resolve():
                    count += 1
                    bar.tell(count, 0, sub.name)
                    try:
                        exported.append((sub, export_rule(rules, sub, wider)))
                    except DslcError as problem:
                        findings += problem.diagnostics
            found += in_source_order(exported)
    if findings:
        if shown := findings if verbose else findings[: 0 if skip else SHOWN]:
            say_findings(shown)
        # a cause goes up to the name of what is missing
        causes = Counter(re.split(r"[`:]", one.message.partition(": ")[2])[0].strip() for one in findings)
        told = "; ".join(f"{n}: {cause}" for cause, n in causes.most_common())
        more = f" ({told}); -v shows each" * (len(shown) < len(findings))
        click.echo(f"{len(findings)} of {count} rules cannot be exported{more}", err=True)
        if not skip:
            click.echo("nothing was written; --skip writes the others", err=True)
            return 1
    if not found:
        raise error("E1002", f"{name} has no rule to export", hint="nothing was written")
    write_file(out, write(found))
    for each in wider:
        click.echo(f"warning: {each} is exported without its types, and is wrong for other kernels or groups", err=True)
    click.echo(f"{out}: {len(found)} rule{'s' * (len(found) != 1)}")
    return 0

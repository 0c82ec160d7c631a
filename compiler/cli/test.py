"""`dslc test`: the tests and examples of rule files, and their laws and substitutions at random sizes."""

from __future__ import annotations

import click
from click import argument

from dslc.cli.options import form_option, option
from dslc.terminal import CommandBar


@click.command()
@argument("names", nargs=-1, metavar="[FILE|LIBRARY]...")
@option(
    "--only", "-k", "patterns", multiple=True, metavar="NAME", help="Run only what has this name; `conv*` is a pattern."
)
@option(
    "--trials",
    default=3,
    type=click.IntRange(min=0),
    help="Random instances of each law and substitution; 0 leaves them out.",
)
@option("--seed", default=0, help="Seed of the random instances.")
@option("--verbose", "-v", is_flag=True, help="Also print what passed.")
@form_option("concise", "json", "github", "sarif", help="How failures are printed.")
def command(
    names: tuple[str, ...], patterns: tuple[str, ...], trials: int, seed: int, verbose: bool, output_format: str
) -> int:
    """Run the `test` and `example` blocks of rule files or libraries (default: std).

    Both sides of every law and substitution are also compared at random sizes modulo 2147483647. Exit code 1 where something fails.
    """
    from dslc.api.rules import test
    from dslc.cli.outputs import say_findings

    quiet = output_format in {"json", "sarif"}
    if not (names or quiet):
        click.echo("testing std; name a file or a library to test others", err=True)
    with CommandBar("testing", quiet):
        found = test(names or ("std",), names=patterns, trials=trials, seed=seed)
    if verbose and output_format == "full":
        kinds = {"example": "examples", "field": "modulo p", "floats": "float64", "partial": "types only"}
        for one in found.outcomes:
            how = f"{kinds.get(one.status, one.status)}, {one.seconds:.2f} s"
            click.echo(f"{'passed' if one.passed else 'FAILED'}  {one.name}  ({how})")
    if output_format in {"json", "sarif"} or found.diagnostics:
        say_findings(found.diagnostics, output_format, output_format == "full")
    if output_format in {"full", "concise"}:
        click.echo(found.summary)
    return int(bool(found.diagnostics))

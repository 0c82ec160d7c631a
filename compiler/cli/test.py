"""`dslc test`: the tests and examples of rule files, and their laws and substitutions at random sizes."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from dslc.interpret.check_rule import Outcome


@click.command()
@click.argument("names", nargs=-1, metavar="[FILE|LIBRARY]...")
@click.option("--only", "-k", "patterns", multiple=True, metavar="NAME", help="Only what has this name; `conv*` is a pattern.")
@click.option(
    "--trials", default=3, show_default=True, type=click.IntRange(min=0), help="Random instances of each law and substitution."
)
@click.option("--seed", default=0, show_default=True, help="Seed of the random instances.")
@click.option("--verbose", "-v", is_flag=True, help="Print what passed, too.")
@click.option(
    "--output-format",
    type=click.Choice(["full", "concise", "json", "github", "sarif"]),
    default="full",
    show_default=True,
    help="The form in which failures are printed.",
)
def command(
    names: tuple[str, ...], patterns: tuple[str, ...], trials: int, seed: int, verbose: bool, output_format: str
) -> int:
    """Run the `test` and `example` blocks of rule files or libraries (default: std).

    Both sides of every law and substitution are also compared at random sizes modulo 2147483647. Exit code 1 where something fails.
    """
    from dslc.cli.rule_tests import run_tests
    from dslc.diagnostics.render import render, wants_color
    from dslc.errors import Diagnostic, DslcError
    from dslc.semantics.library import load_many, modules_of

    wanted = names or ("std",)
    rules = load_many(wanted)
    start = time.perf_counter()
    outcomes = run_tests(rules, patterns or None, modules_of(rules, wanted), seed, trials)
    if patterns and not outcomes:
        raise DslcError([Diagnostic("E0909", f"nothing is named {', '.join(patterns)}")], exit_code=2)
    findings = [diagnostic for outcome in outcomes for diagnostic in outcome.diagnostics]
    if verbose and output_format == "full":
        for outcome in outcomes:
            click.echo(_line(outcome))
    if output_format in {"json", "sarif"} or findings:
        text = render(findings, output_format, color=wants_color(sys.stderr))
        click.echo(text, nl=False, err=output_format == "full")
    if output_format in {"full", "concise"}:
        failed = sum(not outcome.passed for outcome in outcomes)
        click.echo(f"{len(outcomes) - failed} passed, {failed} failed in {time.perf_counter() - start:.1f} s")
    return 0 if not findings else 1


def _line(outcome: Outcome) -> str:
    kinds = {"example": "examples", "test": "test", "field": "modulo p", "floats": "float64", "partial": "types only"}
    how = kinds.get(outcome.status, outcome.status)
    return f"{'passed' if outcome.passed else 'FAILED'}  {outcome.name}  ({how}, {outcome.seconds:.2f} s)"

"""`dslc test`: the tests and examples of rule files, and their laws and substitutions at random sizes."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from dslc.cli.options import form_option
from dslc.cli.terminal import say

if TYPE_CHECKING:
    from dslc.errors import Diagnostic
    from dslc.interpret.check_rule import CaseOutcome


@dataclass(frozen=True, slots=True)
class Tested:
    """What became of the tests and examples of rule files, and of their laws and rules at random sizes; `seconds` for all of them."""

    outcomes: tuple[CaseOutcome, ...]
    seconds: float

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Why those that failed did."""
        return tuple(one for outcome in self.outcomes for one in outcome.diagnostics)

    @property
    def failed(self) -> tuple[CaseOutcome, ...]:
        return tuple(outcome for outcome in self.outcomes if not outcome.passed)

    @property
    def ok(self) -> bool:
        """Whether all passed."""
        return not self.failed

    @property
    def summary(self) -> str:
        """`12 passed, 1 failed in 0.3 s`."""
        return f"{len(self.outcomes) - len(self.failed)} passed, {len(self.failed)} failed in {self.seconds:.1f} s"

    def __repr__(self) -> str:
        return f"<Tested: {self.summary}>"

    def __str__(self) -> str:
        from dslc.diagnostics.render import render

        return "\n".join([*([render(self.diagnostics, "full")] if self.diagnostics else []), self.summary])


def tested(names: Sequence[str], patterns: Collection[str] = (), trials: int = 3, seed: int = 0) -> Tested:
    """Runs what rule files and libraries say of themselves.

    Raises:
        DslcError: E0909 where nothing has one of the names `patterns`, and as loading does.
    """
    from dslc.cli.rule_tests import run_tests
    from dslc.errors import Diagnostic, DslcError
    from dslc.semantics.library import load_many, modules_of

    rules = load_many(names)
    start = time.perf_counter()
    outcomes = run_tests(rules, patterns or None, modules_of(rules, names), seed, trials)
    if patterns and not outcomes:
        raise DslcError([Diagnostic("E0909", f"nothing is named {', '.join(patterns)}")], exit_code=2)
    return Tested(tuple(outcomes), time.perf_counter() - start)


@click.command()
@click.argument("names", nargs=-1, metavar="[FILE|LIBRARY]...")
@click.option(
    "--only", "-k", "patterns", multiple=True, metavar="NAME", help="Only what has this name; `conv*` is a pattern."
)
@click.option(
    "--trials",
    default=3,
    show_default=True,
    type=click.IntRange(min=0),
    help="Random instances of each law and substitution.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the random instances.")
@click.option("--verbose", "-v", is_flag=True, help="Print what passed, too.")
@form_option("concise", "json", "github", "sarif", help="The form in which failures are printed.")
def command(
    names: tuple[str, ...], patterns: tuple[str, ...], trials: int, seed: int, verbose: bool, output_format: str
) -> int:
    """Run the `test` and `example` blocks of rule files or libraries (default: std).

    Both sides of every law and substitution are also compared at random sizes modulo 2147483647. Exit code 1 where something fails.
    """
    from dslc.diagnostics.render import render, wants_color

    found = tested(names or ("std",), patterns, trials, seed)
    if verbose and output_format == "full":
        for outcome in found.outcomes:
            click.echo(_line(outcome))
    if output_format in {"json", "sarif"} or found.diagnostics:
        text = render(found.diagnostics, output_format, color=wants_color(sys.stderr))
        say(text, err=output_format == "full")
    if output_format in {"full", "concise"}:
        click.echo(found.summary)
    return int(bool(found.diagnostics))


def _line(outcome: CaseOutcome) -> str:
    kinds = {"example": "examples", "test": "test", "field": "modulo p", "floats": "float64", "partial": "types only"}
    how = kinds.get(outcome.status, outcome.status)
    return f"{'passed' if outcome.passed else 'FAILED'}  {outcome.name}  ({how}, {outcome.seconds:.2f} s)"

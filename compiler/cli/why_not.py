"""`dslc why-not`: why a rule does not apply to a model."""

from __future__ import annotations

from pathlib import Path

import click
from click import IntRange, argument

from dslc.cli.options import NEW_FILE, bind_option, option, rules_option, time_option
from dslc.cli.outputs import apart, writable


@click.command()
@argument("rule")
@argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
@option(
    "--target",
    "targets",
    multiple=True,
    metavar="OPERATOR",
    help="RULE is a call: why it is no program of this operator.",
)
@option("--node", metavar="NAME", help="With --target, where RULE is a model: the node (or the result) of this name.")
@option("--max-depth", type=IntRange(0, 16), default=3, help="With --target: derivations in a row.")
@time_option("--budget", help="With --target: time of searching.", default="20s", least=0.1)
@rules_option()
@option("--trust-lock", is_flag=True, help="Believe what a dslc.lock says of unchanged rules, whoever wrote it.")
@option("--steps", type=IntRange(0, 2), default=2, help="Other rules that may come before.")
@bind_option()
@option(
    "--report",
    type=NEW_FILE,
    metavar="PAGE.html",
    help="Also draw the place in the model, and mark the call that fails.",
)
def command(
    rule: str, model: Path | None, rules: tuple[str, ...], steps: int, bind: dict[str, int], targets: tuple[str, ...],
    node: str | None, max_depth: int, budget: float, trust_lock: bool, report: Path | None,
) -> None:  # fmt: skip
    """Say why RULE does not apply to MODEL: the closest match, and the first thing that fails there.

    Then the rules that could come before it, so that it applies. Where it applies, what keeps `dslc optimize` from using it: its
    status, the model's opset, a missing kernel or the price.

    Of a two-way rule both directions are looked for; RULE^-1 is only the reverse.

    With --target, RULE is what `dslc derive` takes: a call, FILE.rules::NAME, or a model with --node. Why no derivation leads to
    the operator, by the expression that came nearest: which iterators have no place, or what sizes, types or padding do not fit.
    """
    if targets:
        from dslc.api.derivations import misses

        if model or report:
            raise click.UsageError("with --target, only a call, or a model with --node NAME; and no --report.")
        for line in misses(rule, targets, rules, bind, node, max_depth, budget):
            click.echo(line)
        return
    if not model:
        raise click.UsageError("a RULE and a MODEL, or a call with --target OPERATOR.")
    from dslc.api.rules import page_of_reasons, why_not
    from dslc.store import write_file

    if report:
        if report.suffix.lower() not in (".html", ".htm"):
            raise click.BadParameter(f"'{report}' is no page (.html).", param_hint="'--report'")
        apart(report, [model])
        writable(report)
    found = why_not(rule, model, rules=rules, bind=bind, steps=steps, trust_lock=trust_lock)
    for one in found:
        click.echo(str(one))
    if report:
        write_file(report, page_of_reasons(found, model.name))

"""`dslc mutants`: programs that are almost an operator or a region, where they differ, and what corrects them (PET)."""

from __future__ import annotations

from typing import Any

import click
from click import FloatRange, IntRange

from dslc.cli.options import bind_option, form_option, option, print_record, rules_option, time_option


@click.command()
@click.argument("call")
@rules_option("Also use the partial rules of this library or .rules file.")
@option("--node", metavar="NAME", help="CALL is a model; take the node, or the result, of this name.")
@bind_option("Size of a symbolic dimension, or in an operator's type.")
@option("--depth", type=IntRange(min=1), default=4, help="Largest number of operators and layout changes in a mutant.")
@option("--limit", type=FloatRange(0, 1), default=0.25, metavar="SHARE",
        help="Largest share of a result that a correction may recompute.")  # fmt: skip
@time_option("--budget", default="20s", least=0.1, help="Time limit for search and proofs.")
@option("--all", "every", is_flag=True, help="List every mutant, not only the ten cheapest.")
@form_option()
def command(call: str, output_format: str, **given: Any) -> None:
    """List programs that almost compute CALL, and their corrections.

    CALL is, for example, "conv(X: f32[1, 64, 33, 33], K: f32[64, 64, 3, 3], dilation=[4, 4], pads=[4, 4, 4, 4])".

    It may also be nested calls, FILE.rules::NAME, or a model with --node NAME. For each mutant, dslc prints which share of the
    result differs, whether the rest is proved equal, how the difference is corrected, and the estimated time.
    """
    from dslc.api.mutants import mutants

    found = mutants(call, **given)
    if output_format == "json":
        print_record("mutants", found.to_dict())
    else:
        click.echo(str(found))

"""`dslc mutants`: programs that are almost an operator or a region, where they differ, and what corrects them (PET)."""

from __future__ import annotations

from typing import Any

import click
from click import FloatRange, IntRange

from dslc.cli.options import bind_option, form_option, option, print_record, rules_option, time_option


@click.command()
@click.argument("call")
@rules_option("Another library or .rules file, with its partial rules.")
@option("--node", metavar="NAME", help="CALL is a model: the node (or the result) of this name.")
@bind_option("The size of a symbolic dimension, or of an operator's type.")
@option("--depth", type=IntRange(min=1), default=4, help="Operators and changes of layout of a mutant.")
@option("--limit", type=FloatRange(0, 1), default=0.25, metavar="SHARE",
        help="Largest share of a result that may be computed again.")  # fmt: skip
@time_option("--budget", default="20s", least=0.1, help="Time for search and proofs.")
@option("--all", "every", is_flag=True, help="Every mutant, not the ten best.")
@form_option()
def command(call: str, output_format: str, **given: Any) -> None:
    """List mutants of CALL, say "conv(X: f32[1, 64, 33, 33], K: f32[64, 64, 3, 3], dilation=[4, 4], pads=[4, 4, 4, 4])".

    CALL may also be nested calls, FILE.rules::NAME, or a model with --node NAME. Each mutant is printed with the share of the result
    that differs, whether it is proved that nothing else does, how it is corrected, and estimated milliseconds.
    """
    from dslc.api.mutants import mutants

    found = mutants(call, **given)
    if output_format == "json":
        print_record("mutants", found.to_dict())
    else:
        click.echo(str(found))

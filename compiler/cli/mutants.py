"""`dslc mutants`: programs that are almost an operator or a region, where they differ, and what corrects them (PET)."""

from __future__ import annotations

import json
from typing import Any

import click
from click import FloatRange, IntRange

from dslc.cli.options import bind_option, option, rules_option


@click.command()
@click.argument("call")
@rules_option("Another library or .rules file, with its partial rules.")
@option("--node", metavar="NAME", help="CALL is a model: the node (or the result) of this name.")
@bind_option("The size of a symbolic dimension, or of an operator's type.")
@option("--depth", type=IntRange(min=1), default=4, help="Operators and changes of layout of a mutant.")
@option("--limit", type=FloatRange(0, 1), default=0.25, metavar="SHARE",
        help="Largest share of a result that may be computed again.")  # fmt: skip
@option("--budget", type=FloatRange(min=0.1), default=20.0, metavar="S",
        help="Seconds for search and proofs.")  # fmt: skip
@option("--all", "every", is_flag=True, help="Every mutant, not the ten best.")
@option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(call: str, as_json: bool, **given: Any) -> None:
    """List mutants of CALL, say "conv(X: f32[1, 64, 33, 33], K: f32[64, 64, 3, 3], dilation=[4, 4], pads=[4, 4, 4, 4])".

    CALL may also be nested calls, FILE.rules::NAME, or a model with --node NAME. Each mutant is printed with the share of the result
    that differs, whether it is proved that nothing else does, how it is corrected, and estimated milliseconds.
    """
    from dslc.api.mutants import mutants

    found = mutants(call, **given)
    click.echo(json.dumps(found.to_dict(), indent=2) if as_json else str(found))

"""`dslc derive`: the programs that an expression can be computed by, and how each is derived."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click import IntRange

from dslc.cli.options import (
    NEW_FILE,
    bind_option,
    form_option,
    html_option,
    option,
    print_record,
    rules_option,
    time_option,
)
from dslc.cli.outputs import writable
from dslc.semantics.targets import RUNNING


@click.command()
@click.argument("call")
@rules_option("A library or file with derivations, beside EinNet's.")
@option("--no-default-rules", "alone", is_flag=True, help="Without EinNet's derivations.")
@option(
    "--target",
    "targets",
    multiple=True,
    metavar="OPERATOR",
    help="Only programs of this operator, or of this lowering.",
)
@option("--on", multiple=True, type=click.Choice(RUNNING), help="With the lowerings of expressions on this device.")
@option("--node", metavar="NAME", help="CALL is a model: the node (or the result) of this name.")
@bind_option("The size of a symbolic dimension, or of an operator's type.")
@option("--max-depth", type=IntRange(0, 16), default=7, help="Derivations in a row.")
@option("--intensity", type=float, default=4.0, help="Operations per element of a generated operator.")
@time_option("--budget", help="Time for search and proofs.", default="35s", least=0.1)
@option("--max-states", type=IntRange(min=1), metavar="N", help="Expressions to look at: no matter of time.")
@option("--all", "every", is_flag=True, help="Every program, not the ten best.")
@option(
    "-o",
    "--output",
    type=NEW_FILE,
    metavar="FILE.onnx",
    help="Write the first program, or that of --program, with its kernels.",
)
@option("--program", type=IntRange(min=1), default=1, help="The program that -o writes.")
@option(
    "--measure", is_flag=True, help="Measure what is shown on this machine, and the call itself; the fastest first."
)
@html_option("of the programs")
@form_option()
def command(call: str, alone: bool, html: Path | None, output_format: str, **given: Any) -> None:
    """Derive programs for CALL, say "conv(X: f32[1, 512, 7, 7], K: f32[512, 512, 3, 3], pads=[1, 1, 1, 1])".

    CALL may also be FILE.rules::NAME, an operator at the types that it declares, or a model with --node NAME. A tensor is typed where
    it first occurs. Programs are proved equal to the call for all inputs; one that is not yet says so. Prices are estimates.
    """
    from dslc.api.derivations import derive
    from dslc.store import write_file

    writable(html, given["output"])
    found = derive(call, default_rules=not alone, **given)
    if html:
        write_file(html, found.to_html(call))
    if output_format == "json":
        print_record("derive", found.to_dict())
        return
    titles = {f"{number}. {each.title}" for number, each in enumerate(found.programs, 1)}
    for line in str(found).splitlines():
        click.secho(line, bold=line in titles)

"""`dslc diff`: where two programs of equal shapes differ, found modulo p, proved, and by PET's boxes beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click import IntRange

from dslc.cli.options import (
    NEW_FILE,
    binding,
    form_option,
    html_option,
    option,
    print_record,
    rules_option,
    timeout_option,
)
from dslc.cli.outputs import writable


@click.command()
@click.argument("programs", nargs=-1, required=True, metavar="RULE | CALL CALL")
@rules_option()
@option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="X=1,48,38,38",
    help="Shape of a parameter of RULE; may be repeated.",
)
@option(
    "--bind",
    "binds",
    multiple=True,
    metavar="NAME=VALUE",
    help="A size, or an attribute of RULE: d=2, p=[1,1,1,1]; may be repeated.",
)
@option(
    "--node",
    "nodes",
    multiple=True,
    metavar="NAME",
    help="CALL is a model; take the node, or result, of this name. One for each model.",
)
@option("--svg", "drawing", type=NEW_FILE, metavar="FILE", help="Also draw a plane of the set.")
@html_option("of what differs")
@option("--pieces", type=IntRange(min=1), default=1000, help="Largest number of boxes in a set.")
@timeout_option("Time limit of the exact prover.", "10s")
@option("--seed", default=0, help="Seed of the random inputs, and of what is chosen at random for RULE.")
@form_option()
def command(
    programs: tuple[str, ...], shapes: tuple[str, ...], binds: tuple[str, ...], drawing: Path | None, html: Path | None,
    output_format: str, **given: Any,
) -> None:  # fmt: skip
    """Show at which positions two programs differ: both sides of a substitution RULE, or two calls as `dslc derive` takes them.

    dslc diff pet.dilated_conv_to_dense --shape X=1,2,11,13 --bind d=2 --bind p=[2,2,2,2]

    dslc diff "conv(X: f32[1, 8, 14, 14], K: f32[8, 8, 3, 3])" "conv(X, K, dilation=[1, 1])"

    A name that occurs in both calls is one tensor. Sizes of RULE that are not given are chosen at random, preferably so that the
    sides differ in part.
    """
    from dslc.api.differences import diff, title
    from dslc.reporting.plots import svg
    from dslc.store import write_file

    if len(programs) > 2:
        raise click.UsageError("`dslc diff` compares two programs: a rule's sides, or two calls.")
    writable(html, drawing)
    sizes: dict[str, Any] = dict(text.partition("=")[::2] for text in shapes)
    bind = binding(binds) if len(programs) == 2 else dict(text.partition("=")[::2] for text in binds)
    found = diff(*programs, shapes=sizes, bind=bind, **given)
    if output_format == "json":
        if found.instance:
            click.echo(f"at {found.instance}", err=True)
        print_record("diff", found.to_dict())
    else:
        titles = {title(name, each) for name, each in zip(found.names, found.differences, strict=False)}
        for line in str(found).splitlines():
            click.secho(line, bold=line in titles)
    if html:
        write_file(html, found.to_html(programs))
    if drawing and found.differences:
        write_file(drawing, svg(list(found.planes)))
        if output_format == "full":
            click.echo(f"drawn in {drawing}")

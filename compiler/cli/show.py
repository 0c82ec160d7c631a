"""`dslc show`: what follows from an operator's equation."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import click
from click import argument

from dslc.cli.options import form_option, option, print_record, rules_option
from dslc.terminal import console


@click.command()
@argument("operator")
@argument("attributes", nargs=-1, metavar="[ATTRIBUTE=VALUE]...")
@option(
    "--shape", "shapes", multiple=True, metavar="X=1,64,56,56", help="Shape of a parameter; the others are searched."
)
@option("--dtype", "dtypes", multiple=True, metavar="T=f16", help="Element type of a type variable.")
@rules_option("Library or .rules file (default: std).")
@form_option()
def command(
    operator: str, attributes: tuple[str, ...], shapes: tuple[str, ...], dtypes: tuple[str, ...], rules: tuple[str, ...],
    output_format: str,
) -> None:  # fmt: skip
    """Print what follows from an operator's equation: shapes, linearity, iterators, boxes, costs, ONNX clauses.

    OPERATOR is a name of the language (`conv`, `std.conv`, `acme.filters.emphasis` of an installed library) or ONNX's (`MaxPool`).
    Without --shape, small shapes that the types accept are searched.
    """
    from dslc.api.models import attribute_value, shape_value
    from dslc.api.operators import print_facts, show

    sizes = {}
    for name, text in _pairs(shapes, "--shape"):
        try:
            sizes[name] = shape_value(text)
        except ValueError:
            raise click.UsageError(f"`{text}` is no shape: write sizes with commas, such as 1,64,56,56.") from None
    values = {name: attribute_value(text) for name, text in _pairs(attributes, "an attribute")}
    shown = show(operator, shapes=sizes, attributes=values, dtypes=dict(_pairs(dtypes, "--dtype")), rules=rules)
    if output_format == "json":
        print_record("show", shown.facts)
    else:
        wide = sys.stdout.isatty()
        print_facts(console(width=None if wide else 120, soft_wrap=not wide), shown.facts)


def _pairs(texts: Iterable[str], what: str) -> Iterator[tuple[str, str]]:
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"{what} is written NAME=VALUE, and this is `{text}`.")
        yield name.strip(), value.strip()

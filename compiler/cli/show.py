"""`dslc show`: what follows from an operator's equation."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from dslc.cli.options import attribute_value, form_option, rules_option, shape_value
from dslc.cli.terminal import console

if TYPE_CHECKING:
    from rich.console import Console

    from dslc.ir.dtype import DType


@click.command()
@click.argument("operator")
@click.argument("attributes", nargs=-1, metavar="[ATTRIBUTE=VALUE]...")
@click.option(
    "--shape", "shapes", multiple=True, metavar="X=1,64,56,56", help="Shape of a parameter; the others are searched."
)
@click.option("--dtype", "dtypes", multiple=True, metavar="T=f16", help="Element type of a type variable.")
@rules_option("Library or .rules file (default: std).")
@form_option()
def command(
    operator: str,
    attributes: tuple[str, ...],
    shapes: tuple[str, ...],
    dtypes: tuple[str, ...],
    libraries: tuple[str, ...],
    output_format: str,
) -> None:
    """Print what follows from an operator's equation: shapes, linearity, iterators, boxes, costs, ONNX clauses.

    OPERATOR is a name of the language (`conv`, `std.conv`, `acme.filters.emphasis` of an installed library) or ONNX's (`MaxPool`).
    Without --shape, small shapes that the types accept are searched.
    """
    given_shapes = {name: _shape(text) for name, text in (_pair(item, "--shape") for item in shapes)}
    values = {name: attribute_value(text) for name, text in (_pair(item, "an attribute") for item in attributes)}
    types = {name: _dtype(text) for name, text in (_pair(item, "--dtype") for item in dtypes)}
    shown = operator_facts(operator, given_shapes, values, types, libraries)
    if output_format == "json":
        from dslc.reporting.records import record_text

        click.echo(record_text("show", shown.facts), nl=False)
        return
    width = None if sys.stdout.isatty() else 120
    _print(console(width=width, soft_wrap=not sys.stdout.isatty()), shown.facts)


@dataclass(frozen=True, slots=True)
class Shown:
    """What follows from an operator's equation: `facts` are those of `dslc show --output-format json`, `str` its text."""

    facts: dict[str, Any]

    @property
    def name(self) -> str:
        """The operator's qualified name."""
        return str(self.facts["name"])

    def __repr__(self) -> str:
        return f"<Shown {self.facts['signature'].removeprefix('operator ')}>"

    def __str__(self) -> str:
        from io import StringIO

        written = StringIO()
        _print(console(file=written, width=120, soft_wrap=True), self.facts)
        return written.getvalue().strip("\n")


def operator_facts(
    operator: str, given_shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any], types: Mapping[str, DType],
    libraries: Sequence[str],
) -> Shown:  # fmt: skip
    """What follows from an operator's equation, at given shapes, attributes and element types as far as these are given.

    Raises:
        DslcError: E0201 where there is no such operator, E0306 where these do not fit it.
        click.UsageError: it has no such parameter.
    """
    from dslc.errors import Diagnostic, DslcError
    from dslc.inspection.describe import describe
    from dslc.inspection.finding import onnx_operators, operator_named
    from dslc.inspection.samples import sample
    from dslc.semantics.env import Mismatch
    from dslc.semantics.installed import library_of
    from dslc.semantics.library import load_many, standard

    own = library_of(operator)
    named = libraries or ((own,) if own else ())
    rules = load_many(named) if named else standard()
    definition = operator_named(rules, operator)
    unknown = set(given_shapes) - {param.name for param in definition.syntax.params}
    if unknown:
        raise click.UsageError(f"`{definition.short}` has no parameter `{sorted(unknown)[0]}`.")
    try:
        outputs = sample(rules, definition, given_shapes, values, types)
    except Mismatch as problem:
        raise DslcError(
            [
                Diagnostic(
                    "E0306",
                    f"{definition.short}: {problem.reason}",
                    problem.span or definition.syntax.span,
                    hint=problem.hint,
                )
            ]
        ) from None
    facts = describe(rules, definition, outputs)
    others = [one.name for one in onnx_operators(rules, operator) if one is not definition]
    if others:
        facts["also"] = others
    return Shown(facts)


def _pair(text: str, what: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise click.UsageError(f"{what} is written NAME=VALUE, and this is `{text}`.")
    return name.strip(), value.strip()


def _shape(text: str) -> tuple[int, ...]:
    try:
        return shape_value(text)
    except ValueError:
        raise click.UsageError(f"`{text}` is no shape: write sizes with commas, such as 1,64,56,56.") from None


def _dtype(text: str) -> Any:
    from dslc.ir.dtype import DTYPES

    if text not in DTYPES:
        raise click.UsageError(f"`{text}` is no element type; one of {', '.join(DTYPES)}.")
    return DTYPES[text]


def _print(on: Console, facts: dict[str, Any]) -> None:
    on.print(facts["name"], style="bold")
    on.print(f"  {facts['signature']}")
    if facts["doc"]:
        on.print(f"  {' '.join(facts['doc'].split())}", style="dim")
    on.print()
    for line in facts["definition"]:
        on.print(f"  {line}")
    on.print()
    _line(on, "traits", ", ".join(facts["traits"]))
    found = facts["bounds"]
    proofs = f"{found['proved']} for all sizes"
    if found["bounded"]:
        proofs += f", {found['bounded']} at sampled attributes"
    if found["assumed"]:
        proofs += f", {found['assumed']} data-dependent and assumed"
    _line(on, "bounds", f"{found['status']} ({proofs})")
    for text in found["counterexamples"]:
        _line(on, "", text)
    if "arguments" in facts:
        _instance(on, facts)
    _line(on, "also", ", ".join(facts.get("also", ())))
    for clause in facts["onnx"]:
        until = "" if clause["until"] is None else f" to {clause['until'] - 1}"
        _line(on, "onnx", f"{clause['op']}, opset {clause['since']}{until or ' and newer'}: {clause['text']}")


def _line(on: Console, name: str, text: str) -> None:
    from rich.text import Text

    if text:
        on.print(Text.assemble("  ", (f"{name:<10}", "bold"), f" {text}"))


def _instance(on: Console, facts: dict[str, Any]) -> None:
    for name, type in facts["arguments"].items():
        _line(on, "argument", f"{name}: {type}")
    _line(on, "attributes", ", ".join(f"{name} = {value}" for name, value in facts["attributes"].items()))
    for name, type in facts["results"].items():
        _line(on, "result", f"{name}: {type}")
    classes = [" and ".join(group) + (" jointly" if len(group) > 1 else "") for group in facts["linear_in"]]
    _line(on, "linear in", "; ".join(classes) or "nothing")
    _line(on, "pointwise", "yes" if facts["pointwise"] else "no")
    _line(on, "FLOPs", f"{facts['flops']:,}")
    _line(on, "bytes", f"{facts['bytes']:,} read and written")
    for expression in facts["expressions"]:
        _expression(on, expression)
    on.print()


def _expression(on: Console, facts: dict[str, Any]) -> None:
    from dslc.cli.tables import print_table

    on.print()
    on.print(f"  {facts['equation']}")
    rows = []
    for row in facts["iterators"]:
        where = ", ".join(
            f"{each['tensor']}.{each['dim']}" + ("" if each["coefficient"] == 1 else f" x {_coefficient(each)}")
            for each in row["coefficients"]
        )
        rows.append((row["name"], row["extent"], row["kind"], row["in"], where))
    print_table(("iterator", "extent", "kind", "in", "coefficients"), rows, numbers={"extent"}, lines="head", on=on)
    for name, box_ in facts["reads"].items():
        inside = "nothing" if box_ is None else " ".join(f"[{low}, {high}]" for low, high in box_) or "its one element"
        _line(on, "reads", f"{name}: {inside}")
    cut = facts["boxes"]
    if cut is not None:
        points = "; ".join(f"i{k} at {_few(p)}" for k, p in enumerate(cut["splits"]) if p)
        exact = "" if cut["exact"] else ", not uniform inside (a condition joins several iterators)"
        _line(on, "boxes", f"{cut['count']}{' (cut ' + points + ')' if points else ''}{exact}")
    _line(on, "counts", f"{facts['flops']:,} FLOPs, {facts['bytes']:,} bytes")


def _coefficient(each: dict[str, Any]) -> str:
    return "not affine" if each["coefficient"] is None else str(each["coefficient"])


def _few(points: list[int]) -> str:
    shown = [str(point) for point in points[:6]]
    return ", ".join(shown) + (f", ... ({len(points)})" if len(points) > 6 else "")

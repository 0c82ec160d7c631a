"""Facts that follow from an operator's equation, and their text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

from dslc.api.models import libraries_of, whole
from dslc.errors import error
from dslc.inspection.describe import describe
from dslc.inspection.lookup import onnx_operators, operator_named
from dslc.inspection.samples import sample
from dslc.ir.dtype import DTYPES
from dslc.records import record
from dslc.search.options.types import PathLike
from dslc.semantics.env import Mismatch
from dslc.semantics.installed import library_of
from dslc.semantics.library import load_many, standard
from dslc.terminal import console, print_table

if TYPE_CHECKING:
    from rich.console import Console


@record
class Shown:
    """Facts that follow from an operator's equation: `facts` are those of `dslc show --output-format json`, `str` its text."""

    facts: dict[str, Any]

    @property
    def name(self) -> str:
        """The operator's qualified name."""
        return str(self.facts["name"])

    def __repr__(self) -> str:
        return f"<Shown {self.facts['signature'].removeprefix('operator ')}>"

    def __str__(self) -> str:
        written = StringIO()
        print_facts(console(file=written, width=120, soft_wrap=True), self.facts)
        return written.getvalue().strip("\n")


def show(
    operator: str,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    attributes: Mapping[str, Any] | None = None,
    dtypes: Mapping[str, str] | None = None,
    rules: PathLike | Sequence[PathLike] = (),
) -> Shown:
    """Facts that follow from an operator's equation: shapes, linearity, iterators, boxes, costs, ONNX clauses.

    Args:
        operator: its name, qualified or short.
        shapes: of its parameters, by name; small ones that fit are found for the others.
        attributes: values by name.
        dtypes: element types (`f16`) by type variable.
        rules: libraries that have it, in the place of std.

    Returns:
        `.facts`, plain values (FLOPs and bytes are counts); its text is what `dslc show` prints.

    Raises:
        DslcError: E0201 for no operator, E0306 for shapes and attributes that do not fit it, E0906 for what is none.

    Example:
        >>> import dslc
        >>> dslc.show("matmul", shapes={"A": [2, 3], "B": [3, 4]}).facts["flops"]
        48
    """
    types = {}
    for name, one in (dtypes or {}).items():
        if one not in DTYPES:
            raise error("E0906", f"{one!r} is no element type; one of {', '.join(DTYPES)}")
        types[name] = DTYPES[one]
    sizes = {name: tuple(whole(size, f"size of {name}") for size in shape) for name, shape in (shapes or {}).items()}
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in (attributes or {}).items()}
    own = library_of(operator)
    named = libraries_of(rules) or ([own] if own else [])
    known = load_many(named) if named else standard()
    definition = operator_named(known, operator)
    unknown = sizes.keys() - {param.name for param in definition.syntax.params}
    if unknown:
        raise error("E0906", f"`{definition.short}` has no parameter `{min(unknown)}`")
    try:
        outputs = sample(known, definition, sizes, values, types)
    except Mismatch as problem:
        message, span = f"{definition.short}: {problem.reason}", problem.span or definition.span
        raise error("E0306", message, span, hint=problem.hint) from None
    facts = describe(known, definition, outputs)
    others = [one.name for one in onnx_operators(known, operator) if one is not definition]
    return Shown(facts | ({"also": others} if others else {}))


def print_facts(on: Console, facts: dict[str, Any]) -> None:
    """Prints the facts of an operator."""
    on.print(facts["name"], style="bold")
    on.print(f"  {facts['signature']}")
    if facts["doc"]:
        on.print(f"  {' '.join(facts['doc'].split())}", style="dim")
    on.print()
    for line in facts["definition"]:
        on.print(f"  {line}")
    on.print()
    _line(on, "traits", ", ".join(facts["traits"]))
    _line(on, "bounds", bounds_text(facts["bounds"]))
    for text in facts["bounds"]["counterexamples"]:
        _line(on, "", text.removesuffix(": "))
    if "arguments" in facts:
        _instance(on, facts)
    _line(on, "also", ", ".join(facts.get("also", ())))
    for clause in facts["onnx"]:
        until = "" if clause["until"] is None else f" to {clause['until'] - 1}"
        _line(on, "onnx", f"{clause['op']}, opset {clause['since']}{until or ' and newer'}: {clause['text']}")


def bounds_text(found: dict[str, Any]) -> str:
    """The status of an operator's reads, and how many there are of each kind."""
    kinds = {
        "proved": "for all sizes",
        "bounded": "at sampled attributes",
        "assumed": "at positions that are data: assumed",
    }
    counts = [(found[kind], how) for kind, how in kinds.items() if found[kind]]
    text = ", ".join(f"{number} {'read' if number == 1 else 'reads'} {how}" for number, how in counts)
    return f"{found['status']} ({text})" if text else "nothing to prove"


def _line(on: Console, name: str, text: str) -> None:
    from rich.text import Text

    if text:
        on.print(Text.assemble("  ", (f"{name:<10}", "bold"), f" {text}"))


def _instance(on: Console, facts: dict[str, Any]) -> None:
    for name, type in facts["arguments"].items():
        _line(on, "argument", f"{name}: {type}")
    _line(on, "attributes", ", ".join(f"{name} = {value}" for name, value in facts["attributes"].items()))
    _line(on, "sizes", ", ".join(f"{name} = {value}" for name, value in facts["sizes"].items()))
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

    on.print()
    on.print(f"  {facts['equation']}")
    rows = []
    for row in facts["iterators"]:
        where = ", ".join(
            f"{each['tensor']}.{each['dim']}" + ("" if each["coefficient"] == 1 else f" x {_coefficient(each)}")
            for each in row["coefficients"]
        )
        rows.append((row["name"], row["extent"], row["kind"], where or "no tensor"))
    head = ("iterator", "extent", "kind", "moves along (tensor.axis x step)")
    print_table(head, rows, numbers={"extent"}, lines="head", on=on)
    for name, box_ in facts["reads"].items():
        places = ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in box_ or ())
        _line(on, "reads", f"nothing of {name}" if box_ is None else f"{name}[{places}]")
    cut = facts["boxes"]
    if cut is not None:
        points = "; ".join(f"{rows[k][0]} at {_few(p)}" for k, p in enumerate(cut["splits"]) if p)
        exact = "" if cut["exact"] else ", not uniform inside (a condition joins several iterators)"
        _line(on, "boxes", f"{cut['count']}{' (cut ' + points + ')' if points else ''}{exact}")
    _line(on, "counts", f"{facts['flops']:,} FLOPs, {facts['bytes']:,} bytes")


def _coefficient(each: dict[str, Any]) -> str:
    return "not affine" if each["coefficient"] is None else str(each["coefficient"])


def _few(points: list[int]) -> str:
    shown = [str(point) for point in points[:6]]
    return ", ".join(shown) + (f", ... ({len(points)})" if len(points) > 6 else "")

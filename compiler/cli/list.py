"""`dslc list`: what there is, and what of it is meant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from dslc.cli.options import form_option, rules_option

if TYPE_CHECKING:
    from dslc.catalogue.rows import Wanted
    from dslc.semantics.library import Rules

#: what can be listed, and the options that choose among it
_FILTERS = {
    "operators": {"--onnx", "--operator", "--library"},
    "rules": {"--onnx", "--operator", "--library", "--status", "--set", "--kind"},
    "libraries": set[str](),
    "targets": set[str](),
    "strategies": set[str](),
}
_KINDS = ("substitution", "law", "derivation", "lowering")
_STATUSES = ("proved", "bounded", "tested", "trusted", "undecided", "refuted", "unknown")


@click.command("list")
@click.argument("what", type=click.Choice(list(_FILTERS)))
@click.option(
    "--onnx", multiple=True, metavar="NAME", help="Only what has to do with this ONNX operator (Conv, Reduce*)."
)
@click.option(
    "--operator", multiple=True, metavar="NAME", help="Only this operator, or rules that name it (conv, std.reduce_*)."
)
@click.option(
    "--status",
    multiple=True,
    type=click.Choice(_STATUSES),
    help="Only rules of this status; `unknown`: not proved yet.",
)
@click.option("--set", "sets", multiple=True, metavar="RULESET", help="Only rules of this rule set.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(_KINDS), help="Only rules of this kind.")
@rules_option("Library or .rules file (default: std).", ["--library"])
@form_option()
def command(
    what: str,
    onnx: tuple[str, ...],
    operator: tuple[str, ...],
    status: tuple[str, ...],
    sets: tuple[str, ...],
    kinds: tuple[str, ...],
    libraries: tuple[str, ...],
    output_format: str,
) -> None:
    """List operators, rules, libraries, targets or strategies.

    Each filter may be repeated, and takes patterns with `*`. A status is that of a dslc.lock or of your own `dslc verify`;
    in brackets where it is only the word of a library's lock.
    """
    from dslc.catalogue.rows import Wanted

    given = {
        "--onnx": onnx,
        "--operator": operator,
        "--status": status,
        "--set": sets,
        "--kind": kinds,
        "--library": libraries,
    }
    for option, values in given.items():
        if values and option not in _FILTERS[what]:
            raise click.UsageError(f"`{option}` does not choose among {what}.")
    rows = _rows(what, Wanted(onnx, operator, status, sets, kinds), libraries)
    if output_format == "json":
        from dslc.reporting.records import record_text

        click.echo(record_text("list", [asdict(row) for row in rows]), nl=False)
        return
    _print(what, rows)


def _rows(what: str, wanted: Wanted, chosen: Sequence[str]) -> Sequence[Any]:
    from dslc.catalogue import rows as found
    from dslc.inspection.finding import onnx_names
    from dslc.semantics.library import load_many, modules_of

    if what == "libraries":
        return found.all_libraries()
    if what == "targets":
        return found.all_targets()
    if what == "strategies":
        return found.all_strategies()
    named = chosen or ("std",)
    rules = load_many(named)
    of = modules_of(rules, named)
    _known_sets(rules, wanted.sets)
    _known_operators(rules, wanted.operator)
    if what == "operators":
        return wanted.operators(found.operators(rules, of))
    return wanted.rules(found.all_rules(rules, of), onnx_names(rules))


def _known_sets(rules: Rules, sets: Sequence[str]) -> None:
    """Raises DslcError E0909 for a rule set that no library has: nothing would be listed without a word."""
    from fnmatch import fnmatchcase

    from dslc.errors import Diagnostic, DslcError

    names = [form for name in rules.rulesets for form in (name, name.rpartition(".")[2])]
    for one in sets:
        if not any(fnmatchcase(name, one) for name in names):
            hint = "rule sets: " + ", ".join(rules.rulesets)
            raise DslcError([Diagnostic("E0909", f"no rule set is named `{one}`", hint=hint)], exit_code=2)


def _known_operators(rules: Rules, names: Sequence[str]) -> None:
    """Raises DslcError E0201 for a name, not a pattern, that no operator has."""
    from fnmatch import fnmatchcase

    from dslc.errors import Diagnostic, DslcError
    from dslc.inspection.finding import likely

    known = [form for op in rules.operators.values() for form in (op.name, op.short)]
    for one in names:
        if "*" not in one and not any(fnmatchcase(name, one) for name in known):
            raise DslcError(
                [Diagnostic("E0201", f"no operator is named `{one}`", hint=likely(rules, one))], exit_code=2
            )


_COLUMNS = {
    "operators": ("operator", "ONNX", "in rules", ""),
    "rules": ("rule", "kind", "status", "tests", ""),
    "libraries": ("library", "version", "operators", "rules", "where"),
    "targets": ("--on", "lowerings", "", "--device"),
    "strategies": ("--strategy", "", "options"),
}
_NUMBERS = {"in rules", "tests", "operators", "rules", "lowerings"}


def _print(what: str, rows: Sequence[Any]) -> None:
    from dslc.cli.tables import print_table

    if rows:
        print_table(_COLUMNS[what], [_cells(what, row) for row in rows], numbers=_NUMBERS, lines="none")
    click.echo(f"{len(rows)} {what if len(rows) != 1 else _ONE[what]}", err=True)


_ONE = {"operators": "operator", "rules": "rule", "libraries": "library", "targets": "target", "strategies": "strategy"}


def _cells(what: str, row: Any) -> tuple[str, ...]:
    if what == "operators":
        return row.name, ", ".join(row.onnx), str(row.used_by), row.doc
    if what == "rules":
        said = row.status if row.counts or not row.status else f"({row.status})"
        bound = f"{said}: {row.reason}" if row.reason and row.status != "refuted" else said
        return row.name, row.kind, bound, str(row.tests), row.doc
    if what == "libraries":
        return row.name, row.version, str(row.operators), str(row.rules), row.problem or row.path
    if what == "targets":
        return row.on, str(row.lowerings), row.doc, ", ".join(row.sheets)
    return row.name, row.doc, " ".join(row.options)

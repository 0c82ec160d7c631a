"""`dslc list`: what there is, and what of it is meant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import Any

import click
from click import Choice

from dslc.cli.options import form_option, option, print_record, rules_option

#: rows that can be listed: the name of one, the columns, and the options that choose among them
_LISTS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "operators": ("operator", ("operator", "ONNX", "in rules", ""), ("--onnx", "--operator", "--library")),
    "rules": (
        "rule", ("rule", "kind", "status", "tests", ""), ("--onnx", "--operator", "--library", "--status", "--set", "--kind")
    ),
    "libraries": ("library", ("library", "version", "operators", "rules", "where"), ()),
    "targets": ("target", ("--on", "lowerings", "", "--device"), ()),
    "strategies": ("strategy", ("--strategy", "", "options"), ()),
}  # fmt: skip
_NUMBERS = {"in rules", "tests", "operators", "rules", "lowerings"}
_KINDS = ("substitution", "law", "derivation", "lowering")
_STATUSES = ("proved", "bounded", "tested", "trusted", "undecided", "refuted", "unknown")


@click.command("list")
@click.argument("what", type=Choice(list(_LISTS)))
@option("--onnx", multiple=True, metavar="NAME", help="Only what involves this ONNX operator (Conv, Reduce*).")
@option(
    "--operator", multiple=True, metavar="NAME", help="Only this operator, or rules that use it (conv, std.reduce_*)."
)
@option(
    "--status", multiple=True, type=Choice(_STATUSES), help="Only rules with this status; `unknown`: not proved yet."
)
@option("--set", "sets", multiple=True, metavar="RULESET", help="Only rules in this rule set.")
@option("--kind", "kinds", multiple=True, type=Choice(_KINDS), help="Only rules of this kind.")
@rules_option("List this library or .rules file (default: std).", ["--library"])
@form_option()
def command(what: str, rules: tuple[str, ...], output_format: str, **given: tuple[str, ...]) -> None:
    """List operators, rules, libraries, targets or strategies.

    Filters may be repeated, and take patterns with `*`. A status in brackets comes from the library's dslc.lock, and was not
    proved on this machine; `dslc verify` proves it.
    """
    one, columns, filters = _LISTS[what]
    for name, values in {**given, "library": rules}.items():
        flag = f"--{name.removesuffix('s') if name in ('sets', 'kinds') else name}"
        if values and flag not in filters:
            raise click.UsageError(f"`{flag}` does not choose among {what}.")
    rows = _rows(what, given, rules or ("std",))
    if output_format == "json":
        print_record("list", [asdict(row) for row in rows])
        return
    if rows:
        from dslc.terminal import print_table

        print_table(columns, [_CELLS[what](row) for row in rows], numbers=_NUMBERS, lines="none")
    click.echo(f"{len(rows)} {what if len(rows) != 1 else one}", err=True)


def _rows(what: str, given: dict[str, tuple[str, ...]], named: Sequence[str]) -> Sequence[Any]:
    from dslc.catalogue import rows as found
    from dslc.errors import error
    from dslc.inspection.lookup import likely, onnx_names
    from dslc.semantics.library import load_many, modules_of

    if what in ("libraries", "targets", "strategies"):
        return {"libraries": found.all_libraries, "targets": found.all_targets, "strategies": found.all_strategies}[
            what
        ]()
    rules = load_many(named)
    # of a rule set that no library has nothing would be listed without a word
    sets = [form for name in rules.rulesets for form in (name, name.rpartition(".")[2])]
    for one in given["sets"]:
        if not any(fnmatchcase(name, one) for name in sets):
            hint = "rule sets: " + ", ".join(rules.rulesets)
            raise error("E0909", f"no rule set is named `{one}`", hint=hint)
    operators = {form for op in rules.operators.values() for form in (op.name, op.short)}
    for one in given["operator"]:
        if "*" not in one and one not in operators:
            raise error("E0909", f"no operator is named `{one}`", hint=likely(rules, one))
    wanted, modules = found.Wanted(**given), modules_of(rules, named)
    if what == "operators":
        return wanted.operators(found.operators(rules, modules))
    return wanted.rules(found.all_rules(rules, modules), onnx_names(rules))


def _of_rule(row: Any) -> tuple[str, ...]:
    said = row.status if row.counts or not row.status else f"({row.status})"
    bound = f"{said}: {row.reason}" if row.reason and row.status != "refuted" else said
    return row.name, row.kind, bound, str(row.tests), row.doc


_CELLS: dict[str, Callable[[Any], tuple[str, ...]]] = {
    "operators": lambda row: (row.name, ", ".join(row.onnx), str(row.used_by), row.doc),
    "rules": _of_rule,
    "libraries": lambda row: (row.name, row.version, str(row.operators), str(row.rules), row.problem or row.path),
    "targets": lambda row: (row.on, str(row.lowerings), row.doc, ", ".join(row.sheets)),
    "strategies": lambda row: (row.name, row.doc, " ".join(row.options)),
}

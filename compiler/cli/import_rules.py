"""`dslc import-rules`: rule files of TASO, TENSAT and FlexFlow as a library of proved substitutions."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from dslc.cli.options import PATH, form_option, option, print_record, time_option, timeout_option
from dslc.cli.outputs import writable
from dslc.errors import error
from dslc.store import write_file
from dslc.terminal import CommandBar

if TYPE_CHECKING:
    from dslc.foreign.decisions import Import, Outcome

_FORMS = ("taso", "tensat", "flexflow")


LISTED = 10  #: rules of one outcome that are listed one by one; all are in the file, and in the JSON report
IMPORT_RULES_OUTCOMES = 4  #: outcomes whose counts stand beside the bar

_LISTING = ("guarded", "undecided", "rejected", "unbound", "impossible")


@click.command()
@click.argument("file", type=PATH)
@option("--from", "form", type=click.Choice(_FORMS), required=True, help="The project whose format the file has.")
@option("-o", "--output", "out", type=PATH, required=True, metavar="OUT.rules", help="Where to write the proved rules.")
@option(
    "--library",
    metavar="NAME",
    help="Name of the library (default: that of the file, unless dslc has a library of this name).",
)
@option("--force", is_flag=True, help="Overwrite OUT.rules even if it was edited, or is no import.")
@option("--pairs/--no-pairs", default=None, help="TENSAT: read two lines as one rule (default: detected).")
@option(
    "--numbering",
    type=click.Choice(("taso", "flexflow")),
    default=None,
    help="Protobuf: the project that numbered the operators (default: detected).",
)
@option(
    "--axes",
    type=click.Choice(("outer", "inner")),
    default=None,
    help="FlexFlow: whether parallel dimension 0 is the outermost or the innermost axis (default: detected).",
)
@option(
    "--guards/--no-guards", default=True, help="Look for a condition that makes each wrong rule right (seconds each)."
)
@option(
    "--workers",
    "--jobs",
    "workers",
    type=click.IntRange(0, 256),
    default=2,
    help="Number of processes that prove rules.",
)
@timeout_option("Time limit of one prover for one rule.", "30s", "--limit")
@time_option("--budget", help="Stop after this time, and write what is decided by then.")
@option("--no-cache", is_flag=True, help="Decide every rule anew, and keep nothing for the next run.")
@form_option()
@option("-q", "--quiet", is_flag=True, help="Show no progress.")
def command(
    file: Path, form: str, out: Path, library: str | None, force: bool, pairs: bool | None,
    numbering: Literal["taso", "flexflow"] | None, axes: Literal["outer", "inner"] | None, guards: bool, workers: int,
    timeout: float, budget: float | None, no_cache: bool, output_format: str, quiet: bool,
) -> int:  # fmt: skip
    """Import the rules of another project.

    Each rule is proved, or left out with a reason; wrong ones come with a counterexample. Rules that are left out are listed
    in comments at the end of OUT.rules, and proofs are recorded in the dslc.lock beside it. After Ctrl-C, nothing is written,
    and the same command continues where it stopped. Wrong rules in the file don't change the exit code.
    """
    from dslc.folders import cache_folder
    from dslc.foreign.decisions import as_json, imported_text, stamped, write_proofs
    from dslc.foreign.importer import import_rules, read_rules

    _check_output(file, out, force)
    name = _library_name(library, out)
    rules = read_rules(form, file, pairs, numbering)
    if not rules:
        raise error("E1001", "the file holds no rules", path=str(file), hint="nothing was written")
    origin = file.name if re.fullmatch(r"[\w.,+ -]+", file.name) else f"a {form} file"
    cache = None if no_cache else cache_folder() / "import"
    with CommandBar("importing", quiet or output_format == "json") as bar:

        def told(done: int, total: int, counts: Counter[Outcome]) -> None:
            most = counts.most_common(IMPORT_RULES_OUTCOMES)
            bar.tell(done, total, ", ".join(f"{count} {outcome}" for outcome, count in most))

        try:
            found = import_rules(
                rules, form, out, workers, timeout, told, guards, axes, origin=origin, cache=cache, budget=budget, library=name
            )  # fmt: skip
        except KeyboardInterrupt:
            kept = "" if no_cache else "; they are kept, and the same command goes on with the others"
            bar.stop()
            message = f"interrupted: {bar.done} of {len(rules)} rules are decided{kept}. {out} was not written."
            click.echo(message, err=True)
            return 130
    write_file(out, stamped(imported_text(found, form, origin, name if name != out.stem else "")))
    note = write_proofs(out, found.rules)
    if output_format == "json":
        print_record("import-rules", as_json(found))
    else:
        click.echo(f"{len(rules)} rules of {file.name}; {out} holds those that are proved")
        _summary(found)
    if note:
        click.echo(f"note: {note}", err=True)
    left = found.counts()["open"]
    if left:
        again = "" if no_cache else "; the same command goes on with them"
        click.echo(f"warning: {left} rules are open, as the time was up{again}", err=True)
    return 0


def _library_name(wanted: str | None, out: Path) -> str:
    """The name of the library: that of its file, unless dslc knows another library of that name.

    Raises:
        DslcError: E0906 where the wanted name is none.
    """
    from dslc.semantics.installed import find_library

    if wanted is None:
        folder, _ = find_library(out.stem)
        return out.stem if not folder or folder.resolve() == out.resolve().parent else f"{out.stem}_imported"
    if not wanted.isidentifier():
        hint = "a name of the language: letters, digits and `_`"
        raise error("E0906", f"{wanted!r} is no name of a library", hint=hint)
    return wanted


def _check_output(file: Path, out: Path, force: bool) -> None:
    """Checks that OUT can be written at the end, which may be minutes away.

    Raises:
        DslcError: E0906, E0908, E0903 or E0910.
    """
    from dslc.foreign.decisions import is_stamped

    if out.suffix != ".rules" or not out.stem.isidentifier():
        name = re.sub(r"\W+", "_", out.name.removesuffix(".rules")).strip("_") or "imported"
        name = name if name.isidentifier() else f"rules_{name}"
        hint = f"NAME has letters, digits and `_`, as it is a name in the language: `{out.with_name(name + '.rules')}` works"
        message = f"{out} is no name of a rule file: it is NAME.rules"
        raise error("E0906", message, path=str(out), hint=hint)
    if out.exists() and file.exists() and out.samefile(file):
        raise error("E0908", f"{out} would overwrite the input", path=str(out))
    writable(out)
    if out.exists() and not force:
        try:
            mine = is_stamped(out.read_text("utf-8"))
        except (OSError, UnicodeDecodeError):
            mine = False
        if not mine:
            hint = "name another file, or say --force"
            message = f"{out} exists, and is no import or was changed since"
            raise error("E0910", message, path=str(out), hint=hint)


def _summary(found: Import) -> None:
    """A table of the outcomes, and what a user has to know of single rules."""
    from dslc.foreign.decisions import LIVE, MEANING

    counts = found.counts()
    for outcome in MEANING:
        if counts[outcome]:
            click.echo(f"  {outcome:<13}{counts[outcome]:>7}  {MEANING[outcome].partition(': ')[0]}")
    statuses = Counter(rule.verdict.status for rule in found.rules if rule.outcome in LIVE and rule.verdict)
    if statuses["bounded"]:
        words = "for every rank and shape", "within the bounds that the lock states"
        click.echo(f"{statuses['proved']} of those proved are so {words[0]}, {statuses['bounded']} {words[1]}")
    sizes = sum(rule.outcome in LIVE and "of the file only" in rule.note for rule in found.rules)
    if sizes:
        click.echo(f"{sizes} of those proved are for the kernel sizes of the file only")
    if found.unknown:
        click.echo(
            "operators without a counterpart: " + ", ".join(f"{k} ({n})" for k, n in found.unknown.most_common())
        )
    left_out = sum(rule.left_out for rule in found.rules)
    if left_out:
        click.echo(f"{left_out} operators that only distribute tensors were left out")
    for rule in found.rules:
        if rule.wider:
            click.echo(f"{rule.name}: proved, but {rule.note.rpartition('; ')[2]}")
    for outcome in (each for each in MEANING if each in _LISTING):
        rules = [rule for rule in found.rules if rule.outcome == outcome]
        for rule in rules[:LISTED]:
            click.echo(f"{rule.name}: {rule.outcome}" + (f": {rule.reason}" if rule.reason else ""))
        if len(rules) > LISTED:
            click.echo(f"... and {len(rules) - LISTED} more that are {outcome} (--output-format json lists all)")

"""`dslc check`: every mistake in rule files and libraries that can be found without running them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dslc.cli.fmt import rule_files
from dslc.diagnostics.render import FORMATS, render, wants_color
from dslc.errors import Diagnostic, DslcError
from dslc.syntax.names import check_names
from dslc.syntax.parser import parse_with_errors, read_source

if TYPE_CHECKING:
    from dslc.semantics.definitions import Module
    from dslc.semantics.library import Rules


def files_of(names: Sequence[str]) -> list[Path]:
    """The files that paths and names of installed libraries stand for.

    Raises:
        DslcError: E0902 or E0203 where there is no such thing.
    """
    out: list[Path] = []
    for name in names:
        path = Path(name)
        if not path.exists() and path.suffix != ".rules" and "/" not in name:
            from dslc.semantics.installed import find_library

            folder, rest = find_library(name)
            if folder is None:
                message = f"no file, folder or installed library is named `{name}`"
                raise DslcError([Diagnostic("E0203", message, path=name)], exit_code=2)
            out += [folder / (rest.replace(".", "/") + ".rules")] if rest else sorted(folder.glob("*.rules"))
        else:
            out += rule_files([name])
    return out


def _unique(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    seen: dict[tuple[str, str, str], Diagnostic] = {}
    for finding in findings:
        seen.setdefault((finding.code, str(finding.span or finding.path), finding.message), finding)
    return sorted(seen.values(), key=_place)


def _place(finding: Diagnostic) -> tuple[str, int]:
    return (finding.span.source.path, finding.span.start) if finding.span is not None else (finding.path, 0)


def check_files(paths: Sequence[Path], overlapping: bool = False, folders: Iterable[Path] = ()) -> list[Diagnostic]:
    """All findings in some files, by place: syntax and names in each, then imports, then what the rules mean.

    What files mean is only looked at where their syntax and names are right. `overlapping`: also rules that match the same graphs.
    `folders`: those that were asked for as such, so that every file belongs to the folder's library.
    """
    findings: list[Diagnostic] = []
    for path in paths:
        try:
            file, found = parse_with_errors(read_source(path))
        except DslcError as failure:
            findings += failure.diagnostics
            continue
        findings += found or check_names(file)
    if findings:
        return _unique(findings)
    from dslc.semantics.library import load_many

    try:
        rules = load_many(paths, folders)
    except DslcError as failure:
        return _unique(failure.diagnostics)
    from dslc.interpret.check import check_all
    from dslc.semantics.trust import template_of

    asked = {str(path.resolve()) for path in paths}
    modules = [m for m in rules.modules if str(Path(m.file.source.path).resolve()) in asked]
    found = check_all(rules, modules)
    # what cannot be looked for is a mistake of the rule, not of whoever uses it; there an unused tensor is no warning any more
    unmatched = _unmatched(rules, modules, found)
    places = {finding.span for finding in unmatched}
    found = [finding for finding in found if finding.code != "W0005" or finding.span not in places] + unmatched
    from dslc.prove.run.check_laws import wrong_laws

    found += wrong_laws(rules, modules, found)
    if any(rule.syntax.partial and rule.module in modules for rule in rules.substitutions.values()):
        from dslc.prove.partial.rules import one_sided

        found += one_sided(rules, modules, found)
    if any(rule.module in modules for rule in rules.lowerings.values()):
        from dslc.onnx.lowerings import unknown_nodes

        found += unknown_nodes(rules, modules)
    if any(rule.module in modules and template_of(rule) is not None for rule in rules.lowerings.values()):
        from dslc.fuse.template_checks import check_templates

        found += check_templates(rules, modules, found)
    if overlapping:
        from dslc.semantics.checks.overlap import overlaps

        found += overlaps(rules, frozenset(modules))
    return _unique(found)


def _unmatched(rules: Rules, modules: Sequence[Module], found: Sequence[Diagnostic]) -> list[Diagnostic]:
    """E0323 for every rule whose left side binds too little to be looked for in a graph, unless another mistake in it is known."""
    from dslc.match.compile import compile_directions

    wrong = [finding.span for finding in found if finding.severity == "error" and finding.span is not None]
    findings: list[Diagnostic] = []
    for rule in rules.substitutions.values():
        # a mistake in the text of a rule mostly keeps it from being matched as well, and is what is to be mended
        if rule.module in modules and not any(span.starts_in(rule.syntax.span) for span in wrong):
            try:
                compile_directions(rules, rule)
            except DslcError as failure:
                findings += failure.diagnostics
    return findings


@dataclass(frozen=True, slots=True)
class Checked:
    """What `dslc check` finds in some rule files, in the order of their places; `str` gives the text that it prints."""

    files: tuple[Path, ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def ok(self) -> bool:
        """Whether there is no error; warnings may be left."""
        return not any(finding.severity == "error" for finding in self.diagnostics)

    def __str__(self) -> str:
        if not self.diagnostics:
            return f"{len(self.files)} file{'s' * (len(self.files) != 1)} checked, nothing found"
        return render(self.diagnostics, "full").rstrip()


def checked(names: Sequence[str], overlapping: bool = False) -> Checked:
    """The findings in files, folders and libraries. Raises DslcError as `files_of`."""
    paths = files_of(names)
    # a file that is named stands for itself; of a folder or a library every file is meant
    folders = {path.parent for name in names if not Path(name).is_file() for path in files_of([name])}
    return Checked(tuple(paths), tuple(check_files(paths, overlapping, sorted(folders))))


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="FILES|FOLDERS|LIBRARIES")
@click.option("--overlaps", "overlapping", is_flag=True, help="Also list rules that match the same graphs.")
@click.option("--output-format", "form", type=click.Choice(FORMATS), default="full", show_default=True)
def command(names: tuple[str, ...], overlapping: bool, form: str) -> int:
    """Report mistakes in rule files and libraries. Warnings alone leave the exit code at 0."""
    found = checked(names, overlapping)
    click.echo(render(found.diagnostics, form, color=wants_color(sys.stdout)), nl=False)
    if not found.diagnostics and form == "full":
        click.echo(str(found), err=True)
    return int(not found.ok)

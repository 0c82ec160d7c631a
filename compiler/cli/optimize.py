"""`dslc optimize MODEL -o OUT`."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from dataclasses import fields, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dslc import terminal
from dslc.cli.options import form_option, options_of
from dslc.cli.outputs import apart, writable
from dslc.outside import in_line
from dslc.search.options.option import flag
from dslc.search.options.settings import (
    Settings,
    WrongOption,
    options_by_name,
    settings_of,
    strategy_options,
    switched_on,
)

if TYPE_CHECKING:
    from rich.console import Console

    from dslc.report import Report


#: suffixes of files that are pages
PAGES = frozenset((".html", ".htm"))
#: a file without a suffix, as a pipe is, is JSON too
DATA = frozenset((".json", ""))
#: proofs in words
PROOFS = {"exact": "at these shapes", "rule": "for every shape"}


class _Command(click.Command):
    """A command whose options with an optional value never take a model's file for that value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        optional = [one for one in self.params if isinstance(one, click.Option) and one.flag_value == ""]
        bare = {name: one.flag_value for one in optional for name in one.opts}
        told = []
        for arg, after in zip(args, [*args[1:], ""], strict=False):
            told.append(
                f"{arg}={bare[arg]}" if arg in bare and (Path(after).is_file() or after.endswith(".onnx")) else arg
            )
        return super().parse_args(ctx, told)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        abouts = strategy_options() | options_by_name(Settings)
        group = first = "Options"
        rows: dict[str, list[tuple[str, str]]] = {first: [], "Output": []}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)):
                # an option of the command alone is one of the first where it is declared before those of settings
                about = abouts.get(str(param.name))
                group = about.group or group if about else group if group == first else "Output"
                rows.setdefault(group, []).append(record)
        for title, each in rows.items():
            with formatter.section(title):
                formatter.write_dl(each)


@click.command("optimize", cls=_Command)
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write the result to this file.")
@click.option("--dry-run", is_flag=True, help="Print the result and write no model.")
@click.option(
    "--report",
    "report_file",
    type=click.Path(path_type=Path),
    metavar="R.html|R.json",
    help="Also write a report: a page, or JSON, by the suffix.",
)
@options_of(Settings, strategy_options(), switched_on())
@click.option("--in-place", is_flag=True, help="Overwrite the input.")
@click.option("--external-data", is_flag=True, help="Write the weights to a file beside the model.")
@form_option()
@click.option("--explain-budget", is_flag=True, help="Print how the time was spent, and what each part of it gained.")
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@click.option("-v", "--verbose", is_flag=True, help="Print progress, and all notes.")
def command(
    model: Path,
    output: Path | None,
    in_place: bool,
    dry_run: bool,
    external_data: bool,
    report_file: Path | None,
    output_format: str,
    explain_budget: bool,
    quiet: bool,
    verbose: bool,
    **given: Any,
) -> int:
    """Make an ONNX model faster, and print what was gained by which rules.

    The result has the same outputs, and was either measured to be faster than the original on this machine or is the original.
    Ctrl-C ends it with the best so far that can be checked within 5 s, a second one at once.
    """
    from dslc.cost.clock import Clock

    try:
        settings = settings_of({name: value for name, value in given.items() if value is not None})
    except WrongOption as wrong:
        default = next((one.default for one in fields(Settings) if one.name == wrong.name), None)
        raise click.BadParameter(str(wrong), param_hint=flag(wrong.name, wrong.about, default)) from None
    began = click.get_current_context().find_root().obj
    clock = Clock(settings.budget or inf, began=began, phase="starting")
    from dslc.cli.progress import finishing, interrupts, progress
    from dslc.cost.machine import busy
    from dslc.search.pipeline import optimize

    target = destination(model, output, in_place, dry_run)
    written = [model, target] if target else [model]
    for other in (report_file, settings.dump_egraph):
        if other:
            apart(other, written)
            writable(other)
            written.append(other)
    if report_file and report_file.suffix.lower() not in PAGES | DATA:
        raise click.BadParameter(
            f"'{report_file}' is neither a page (.html) nor JSON (.json).", param_hint="'--report'"
        )
    if not quiet and settings.budget and settings.timing and (load := busy()):
        click.echo(
            f"warning: {load}: timing cannot tell small gains from noise; run it again when less is running", err=True
        )
    with interrupts(signal.SIGTERM) as pressed, progress(clock, quiet, verbose) as shown:
        command = shlex.join(["dslc", *sys.argv[1:]])
        settings = replace(
            settings, progress=shown, interrupts=pressed, detailed=report_file is not None, command=command
        )
        try:
            result = optimize(model, settings, clock)
        except BaseException as problem:
            if not pressed() and not isinstance(problem, KeyboardInterrupt):
                raise
            click.echo("interrupted: nothing was kept, nothing was written", err=True)
            return pressed.code
    report = result.report
    with finishing(signal.SIGTERM):
        if target and not (in_place and report.kept_original):
            from dslc.onnx.save import save

            save(result.model, target, folder=model.parent, external_data=external_data or None)
        if report_file:
            from dslc.store import write_file

            write_file(report_file, report.to_html() if report_file.suffix.lower() in PAGES else report.to_json())
    if output_format == "json":
        report = replace(report, details=None)
        click.echo(report.to_json(), nl=False)
    elif not quiet:
        if explain_budget:
            show_budget(report)
        for text in report.warnings:
            click.echo(f"warning: {in_line(text)}", err=True)
        show(report, target, verbose)
    return pressed.code if report.interrupted else 0


def destination(model: Path, output: Path | None, in_place: bool, dry_run: bool) -> Path | None:
    """The file to write, checked before any work; None for none.

    Raises:
        click.UsageError: no output is named, or two are.
        DslcError: E0908 where the output is the input, E0903 where nothing can be written there.
    """
    from dslc.errors import error

    if dry_run and in_place:
        raise click.UsageError("say either --dry-run or --in-place")
    if dry_run:
        return None
    if in_place and output:
        raise click.UsageError("say either --output or --in-place")
    if not output and not in_place:
        raise click.UsageError("say where to write: -o FILE, --in-place, or --dry-run")
    target = output or model
    if not in_place and target.exists() and model.exists() and os.path.samefile(target, model):
        raise error("E0908", f"{target} is the input", path=str(target), hint="name another output, or say --in-place")
    writable(target)
    return target


def show_budget(report: Report) -> None:
    """Prints the use of the budget: by phase, and by generator and candidate."""
    from dslc.terminal import print_table

    console = terminal.console(soft_wrap=True)
    console.print("; ".join(f"{name} {seconds:.1f} s" for name, seconds in report.phases.items()))
    rows = [
        (
            one.name, one.base, f"{one.promise:.1%}", f"{one.gained:.1%}", str(one.turns), f"{one.seconds:.1f}", f"{one.expected:.0f}",
            # what was never asked promised too little for a second
            "done" if one.done else "not finished" if one.turns else "not asked",
        )
        for one in report.asked
    ]  # fmt: skip
    if rows:
        print_table(
            ("generator", "asked about", "may gain", "gained", "turns", "seconds", "usual", ""), rows, on=console
        )


def show(report: Report, target: Path | None, verbose: bool) -> None:
    """The table of what every rule gained, and three lines: the verdict, what it depends on, and where the model is."""
    from dslc.report import faster
    from dslc.terminal import print_table

    console = terminal.console(soft_wrap=True)
    if report.steps:
        # rules that are only applied have no prices
        priced = report.predicted_ratio is not None or any(step.gain_ms for step in report.steps)
        columns = ("rule", "count", *["gain (predicted)"] * priced, "status", "proof")
        rows = [
            (
                one.rule,
                str(one.count),
                *[f"{one.gain_ms:z.4f} ms"] * priced,
                one.status,
                PROOFS.get(one.proof, one.proof),
            )
            for one in report.steps
        ]
        print_table(columns, rows, on=console)
    if len(report.sizes) > 1:
        for size in report.sizes:
            times = f"{size.before_ms:.3g} ms -> {size.after_ms:.3g} ms"
            console.print(f"at {size.names}: {times}, {faster(size.ratio, size.low)}")
    if verbose:
        show_details(report, console)
    console.print(in_line(report.summary()))
    console.print(in_line(report.terms()))
    more = f" ({len(report.notes)} notes: -v)" if report.notes and not verbose else ""
    if target:
        console.print(f"written: {target}{', which is the original' * report.kept_original}{more}")


def show_details(report: Report, console: Console) -> None:
    """The sizes of the model, the places of rules, the use of the time, and all notes."""
    if report.before and report.after and not report.kept_original:
        changes = (
            f"{name} {getattr(report.before, name):,} -> {getattr(report.after, name):,}"
            for name in ("operators", "parameters", "bytes")
        )
        console.print("; ".join(changes))
        types = {name: (report.before.types.get(name, 0), report.after.types.get(name, 0)) for name in
                 sorted({*report.before.types, *report.after.types})}  # fmt: skip
        changed = ", ".join(f"{name} {before} -> {after}" for name, (before, after) in types.items() if before != after)
        if changed:
            console.print(changed)
    for step in report.steps:
        if step.places:
            console.print(f"{step.rule} at {', '.join(step.places)}")
    if report.predicted_ratio is not None:
        console.print(f"predicted: {report.predicted_ratio:.3g}x")
    console.print(f"{report.steps_done} steps, {report.measured} costs measured, {report.seconds:.1f} s; --steps "
                  f"{report.steps_done} repeats the search")  # fmt: skip
    console.print("; ".join(f"{name} {seconds:.1f} s" for name, seconds in report.phases.items()))
    for note in report.notes:
        console.print(f"note: {in_line(note)}")

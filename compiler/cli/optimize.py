"""`dslc optimize MODEL -o OUT`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dslc.cli.options import bindings, seconds_of

if TYPE_CHECKING:
    from dslc.report import Report
    from dslc.search.settings import Mode


@click.command("optimize")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Where to write.")
@click.option("--in-place", is_flag=True, help="Write over the input.")
@click.option("--dry-run", is_flag=True, help="Write nothing.")
@click.option("--rules", multiple=True, metavar="LIB", help="Another library or .rules file; may be repeated.")
@click.option("--only", multiple=True, metavar="RULESET", help="Use this rule set (or rule) and nothing else.")
@click.option("--disable", multiple=True, metavar="RULE", help="Leave a rule out; may be repeated.")
@click.option(
    "--allow", multiple=True, metavar="STATUS", help="Also use rules that are only tested, trusted or undecided; a,b for several."
)
@click.option(
    "--layouts",
    type=click.Choice(["joint", "after", "only", "none"]),
    default="joint",
    show_default=True,
    help="Choose layouts with substitutions, after them, instead of them, or not.",
)
@click.option("--budget", default="60s", show_default=True, metavar="TIME", help="Time for the whole command; 0: only rewrite.")
@click.option("--patience", metavar="TIME", help="End the search after so long without a gain (default: a quarter of the budget).")
@click.option("--steps", type=click.IntRange(min=0), metavar="N", help="Stop after so many steps of the search.")
@click.option("--alpha", type=click.FloatRange(min=1), default=1.05, show_default=True, help="How much worse is explored.")
@click.option("--seed", type=int, default=0, show_default=True, help="Order in which rules are tried.")
@click.option("--bind", multiple=True, metavar="NAME=N", help="Size of a dimension, or INPUT.AXIS=N; N=1,8 for several.")
@click.option("--specialize", is_flag=True, help="Write the bound sizes into the model.")
@click.option("--strict-floats", is_flag=True, help="Without rules that change infinities, NaN or overflows.")
@click.option("--tolerance", type=click.FloatRange(min=0), help="Largest relative error of an output.")
@click.option("--inputs", type=click.Path(path_type=Path), metavar="FILE.npz|DIR", help="Representative inputs.")
@click.option("--threads", type=click.IntRange(min=1), metavar="N", help="Threads of the runtime.")
@click.option("--no-timing", is_flag=True, help="Take the search's choice.")
@click.option("--external-data", is_flag=True, help="Write weights beside the model.")
@click.option("--report", "report_file", type=click.Path(path_type=Path), metavar="R.json", help="The report as JSON.")
@click.option("--cache", type=click.Path(path_type=Path), metavar="DIR", help="Folder of the cost cache.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("-v", "--verbose", is_flag=True, help="Say what is being done.")
def command(
    model: Path,
    output: Path | None,
    in_place: bool,
    dry_run: bool,
    rules: tuple[str, ...],
    only: tuple[str, ...],
    disable: tuple[str, ...],
    allow: tuple[str, ...],
    layouts: Mode,
    budget: str,
    patience: str | None,
    steps: int | None,
    alpha: float,
    seed: int,
    bind: tuple[str, ...],
    specialize: bool,
    strict_floats: bool,
    tolerance: float | None,
    inputs: Path | None,
    threads: int | None,
    no_timing: bool,
    external_data: bool,
    report_file: Path | None,
    cache: Path | None,
    quiet: bool,
    verbose: bool,
) -> int:
    """Make an ONNX model faster, and print what was gained by which rules.

    The result has the same outputs, and was either measured to be faster than the original on this machine or is the original.
    Ctrl-C ends it with the best so far that can be checked within 5 s, a second one at once.
    """
    from dslc.cost.clock import Clock

    seconds = seconds_of(budget, "--budget")
    clock = Clock(seconds or inf)
    from dslc.cli.progress import interrupts, progress
    from dslc.search.pipeline import optimize
    from dslc.search.settings import Settings

    target = destination(model, output, in_place, dry_run)
    if report_file is not None:
        writable(report_file)
    with interrupts() as pressed, progress(clock, quiet, verbose) as shown:
        settings = Settings(
            rules=rules,
            only=only,
            disable=disable,
            allow=allowed(allow),
            layouts=layouts,
            budget=seconds,
            patience=None if patience is None else seconds_of(patience, "--patience"),
            alpha=alpha,
            seed=seed,
            steps=steps,
            tolerance=tolerance,
            bind=bindings(bind),
            inputs=inputs,
            threads=threads,
            timing=not no_timing,
            specialize=specialize,
            strict_floats=strict_floats,
            cache=cache,
            progress=shown,
            interrupts=pressed,
        )
        try:
            result = optimize(model, settings, clock)
        except BaseException as problem:
            if not pressed() and not isinstance(problem, KeyboardInterrupt):
                raise
            click.echo("interrupted: nothing was kept, nothing was written", err=True)
            return 130
    report = result.report
    if target is not None and not (in_place and report.kept_original):
        from dslc.onnx.save import save

        save(result.model, target, folder=model.parent, external_data=external_data or None)
    if report_file is not None:
        write_text(report_file, report.to_json())
    if not quiet:
        show(report, target, verbose)
    return 130 if report.interrupted else 0


def allowed(texts: Sequence[str]) -> tuple[str, ...]:
    """`["tested,trusted"]` as statuses; raises click.BadParameter."""
    found = tuple(dict.fromkeys(status.strip() for text in texts for status in text.split(",")))
    for status in found:
        if status not in {"proved", "bounded", "tested", "trusted", "undecided"}:
            raise click.BadParameter(f"{status!r} is none of tested, trusted and undecided", param_hint="--allow")
    return found


def destination(model: Path, output: Path | None, in_place: bool, dry_run: bool) -> Path | None:
    """Where to write, checked before any work; None for nowhere.

    Raises:
        click.UsageError: no output is named, or two are.
        DslcError: E0908 where the output is the input, E0903 where nothing can be written there.
    """
    from dslc.errors import error

    if dry_run:
        return None
    if in_place and output is not None:
        raise click.UsageError("say either --output or --in-place")
    if output is None and not in_place:
        raise click.UsageError("say where to write: -o FILE, --in-place, or --dry-run")
    target = model if output is None else output
    if not in_place and target.exists() and model.exists() and os.path.samefile(target, model):
        raise error("E0908", f"{target} is the input", path=str(target), hint="name another output, or say --in-place")
    writable(target)
    return target


def writable(path: Path) -> None:
    """Raises DslcError E0903 where a file cannot be written."""
    from dslc.errors import error

    folder = path.parent
    if path.is_dir():
        raise error("E0903", f"{path} is a folder", path=str(path))
    if not folder.is_dir():
        raise error("E0903", f"there is no folder {folder}", path=str(path), hint="nothing was done")
    probe = folder / f".{path.name}.{os.getpid()}.probe"
    try:
        probe.touch()
        probe.unlink()
    except OSError as problem:
        raise error("E0903", f"cannot write into {folder}: {problem.strerror}", path=str(path)) from None


def write_text(path: Path, text: str) -> None:
    """A file that is complete or not there. Raises DslcError E0903."""
    from dslc.errors import error

    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        partial.write_text(text, "utf-8")
        os.replace(partial, path)
    except OSError as problem:
        partial.unlink(missing_ok=True)
        raise error("E0903", f"cannot write {path}: {problem.strerror}", path=str(path)) from None


def show(report: Report, target: Path | None, verbose: bool) -> None:
    """The table of what every rule gained, the sizes of the model, and one line with the outcome."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    if report.steps:
        table = Table("rule", "count", "gain (predicted)", "status", "proved here by")
        for step in report.steps:
            table.add_row(step.rule, str(step.count), f"{step.gain_ms:z.4f} ms", step.status, step.proof)
        console.print(table)
    if report.before is not None and report.after is not None:
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
    if len(report.sizes) > 1:
        for size in report.sizes:
            names = ", ".join(f"{name}={value}" for name, value in size.bind.items())
            times = f"{size.before_ms:.4g} ms -> {size.after_ms:.4g} ms"
            console.print(f"at {names}: {times}, {size.ratio:.3f} [{size.low:.3f}, {size.high:.3f}]")
    if report.max_rel_error is not None and not report.kept_original:
        console.print(f"largest relative error of an output: {report.max_rel_error:.2g}")
    if verbose:
        for step in report.steps:
            if step.places:
                console.print(f"{step.rule} at {', '.join(step.places)}")
        console.print(f"{report.steps_done} steps, {report.measured} costs measured, {report.seconds:.1f} s; --steps "
                      f"{report.steps_done} repeats the search")  # fmt: skip
        console.print("; ".join(f"{name} {seconds:.1f} s" for name, seconds in report.phases.items()))
    for note in report.notes:
        console.print(f"note: {note}")
    console.print(f"target: {report.target}")
    console.print(report.summary())
    if report.interrupted:
        console.print(f"interrupted: {'the original' if report.kept_original else 'the best so far'} was kept")
    if target is not None:
        console.print(f"written: {target}")

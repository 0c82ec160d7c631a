"""`dslc generate`: rules found from nothing but operators, proved, and written as a library."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dslc.cli.bars import CommandBar
from dslc.cli.options import budget_option, rules_option

if TYPE_CHECKING:
    from dslc.generate.library import GeneratedLibrary
    from dslc.generate.settings import GenerationSettings, Progress


@click.command()
@click.argument("operators", nargs=-1, metavar="[OPERATORS]...")
@rules_option("Where the operators are defined (default: taso).")
@click.option(
    "--max-operators",
    "-n",
    default=3,
    show_default=True,
    type=click.IntRange(1, 6),
    help="Operators of the larger side of a rule.",
)
@click.option("--inputs", default="", metavar="NAME=N,...", help="Inputs: count=3,size=4,spatial=5,windows=3+1.")
@click.option("--seed", default=0, show_default=True, help="Seed of the random tensors.")
@click.option(
    "--out", "-o", type=click.Path(path_type=Path, dir_okay=False), default=Path("generated.rules"), show_default=True
)
@click.option("--scheduler", metavar="ADDRESS", help="A Dask scheduler whose workers evaluate terms.")
@click.option(
    "--workers", default=2, show_default=True, type=click.IntRange(1, 256), help="Processes that evaluate terms."
)
@click.option("--provers", default=2, show_default=True, type=click.IntRange(1, 256), help="Processes that prove.")
@click.option(
    "--memory", default="2GB", show_default=True, metavar="BYTES", help="Memory of one worker of a local cluster."
)
@budget_option("Stop after this time, with what was found until then.")
@click.option(
    "--report", type=click.Path(path_type=Path, dir_okay=False), help="Counts, seconds and left-out rules as JSON."
)
@click.option("--no-proof", is_flag=True, help="Keep rules that were tested only.")
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
def command(
    operators: tuple[str, ...], libraries: tuple[str, ...], max_operators: int, inputs: str, seed: int, out: Path,
    scheduler: str | None, workers: int, provers: int, memory: str, budget: float | None, report: Path | None, no_proof: bool,
    quiet: bool,
) -> int:  # fmt: skip
    """Find substitutions between graphs of some OPERATORS (default: all of the library), and write them as a rule library.

    All graphs up to --max-operators are enumerated and compared by what they compute. Interrupted with Ctrl-C, the same command goes
    on where it was.
    """
    from dslc.folders import cache_folder
    from dslc.generate.interrupts import Interrupts
    from dslc.generate.library import generate
    from dslc.generate.settings import GenerationSettings

    settings = GenerationSettings(
        libraries=libraries or ("taso",),
        operators=operators,
        max_operators=max_operators,
        inputs=inputs,
        seed=seed,
        proof=not no_proof,
        budget=budget,
        workers=workers,
        provers=provers,
        scheduler=scheduler,
        resume=cache_folder() / "generate",
        memory=_bytes_of(memory),
    )
    start = time.perf_counter()
    try:
        with Interrupts() as interrupts, CommandBar("", quiet, stays=True) as bar:
            library = generate(settings, _told(bar, interrupts.look))
    except KeyboardInterrupt:
        where = f" ({bar.title})" if bar.title else ""
        message = f"interrupted after {time.perf_counter() - start:.1f} s{where}: {out} was not written."
        click.echo(f"{message} What is finished is kept, and the same command goes on from there.", err=True)
        return 130
    seconds = time.perf_counter() - start
    note = write(library, settings, out, seconds)
    if report is not None:
        from dslc.reporting.records import record_text
        from dslc.store import write_file

        write_file(
            report,
            record_text("generate", {**library.stages.as_json(), "wall_seconds": round(seconds, 3)}),
            parents=True,
        )
    counts = library.stages.counts
    count, steps = len(library.found), ", ".join(f"{n} {name}" for name, n in counts.items())
    click.echo(f"{count} rule{'s' * (count != 1)} in {out} ({steps}; {seconds:.1f} s)")
    if note:
        click.echo(note, err=True)
    if counts.get("left out"):
        click.echo(
            f"{counts['left out']} were left out" + ("" if report is not None else "; --report lists them"), err=True
        )
    return 0


def write(library: GeneratedLibrary, settings: GenerationSettings, out: Path, seconds: float) -> str:
    """Writes the library file, and what was proved into the lock beside it; a note where that is not possible."""
    from dslc.generate.general.naming import named
    from dslc.generate.proofs import write_proofs
    from dslc.generate.rulefile import header_of, library_text
    from dslc.store import write_file

    header = header_of(library.rules, library.families, settings, library.stages, seconds)
    write_file(out, library_text(library.rules, library.found, header, library.statuses, out.parent), parents=True)
    return write_proofs(out, named(library.found), library.verdicts)


def _bytes_of(text: str) -> int:
    """`2GB`, `512MB` or a number of bytes."""
    for unit, factor in (("GB", 1 << 30), ("MB", 1 << 20), ("", 1)):
        if text.upper().endswith(unit):
            number = text[: len(text) - len(unit)].strip()
            if number.isdigit() and int(number) > 0:
                return int(number) * factor
    raise click.BadParameter(f"{text!r} is no size; write 2GB or 512MB", param_hint="--memory")


def _told(bar: CommandBar, look: Callable[[], None]) -> Progress:
    """Shows the stage and its counts on a bar; `look` is called whenever something is told."""

    def told(stage: str, done: int, total: int, text: str) -> None:
        look()
        bar.tell(done, total, text, stage)

    return told

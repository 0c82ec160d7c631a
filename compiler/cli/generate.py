"""`dslc generate`: rules found from nothing but operators, proved, and written as a library."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
from click import IntRange

from dslc.cli.options import NEW_FILE, option, rules_option, time_option
from dslc.terminal import CommandBar


@click.command()
@click.argument("operators", nargs=-1, metavar="[OPERATORS]...")
@rules_option("Where the operators are defined (default: taso).")
@option(
    "--max-operators",
    "-n",
    default=3,
    type=IntRange(1, 6),
    help="Operators of the larger side of a rule.",
)
@option(
    "--inputs",
    default="",
    show_default=False,
    metavar="NAME=N,...",
    help="Inputs: count=3,size=4,spatial=5,windows=3+1.",
)
@option("--seed", default=0, help="Seed of the random tensors.")
@option("--out", "-o", type=NEW_FILE, default=Path("generated.rules"))
@option("--scheduler", metavar="ADDRESS", help="A Dask scheduler whose workers evaluate terms.")
@option("--workers", default=2, type=IntRange(1, 256), help="Processes that evaluate terms.")
@option("--provers", default=2, type=IntRange(1, 256), help="Processes that prove.")
@option("--memory", default="2GB", metavar="BYTES", help="Memory of one worker of a local cluster.")
@time_option("--budget", help="Stop after this time, with what was found until then.")
@option("--report", type=NEW_FILE, help="Counts, seconds and left-out rules as JSON.")
@option("--no-proof", is_flag=True, help="Keep rules that were tested only.")
@option("--quiet", "-q", is_flag=True, help="No progress.")
def command(
    rules: tuple[str, ...], out: Path, memory: str, report: Path | None, no_proof: bool, quiet: bool, **given: Any
) -> int:
    """Find substitutions between graphs of some OPERATORS (default: all of the library), and write them as a rule library.

    All graphs up to --max-operators are enumerated and compared by what they compute. Interrupted with Ctrl-C, the same command goes
    on where it was.
    """
    from dslc.folders import cache_folder
    from dslc.generate.general.naming import named
    from dslc.generate.interrupts import Interrupts
    from dslc.generate.library import generate
    from dslc.generate.proofs import header_of, library_text, write_proofs
    from dslc.generate.settings import GenerationSettings
    from dslc.reporting.records import record_text
    from dslc.store import write_file

    settings = GenerationSettings(
        libraries=rules or ("taso",), proof=not no_proof, resume=cache_folder() / "generate", memory=_bytes_of(memory), **given
    )  # fmt: skip
    start = time.perf_counter()
    try:
        with Interrupts() as interrupts, CommandBar("", quiet, stays=True) as bar:

            def told(stage: str, done: int, total: int, text: str) -> None:
                interrupts.look()
                bar.tell(done, total, text, stage)

            library = generate(settings, told)
    except KeyboardInterrupt:
        where = f" ({bar.title})" if bar.title else ""
        message = f"interrupted after {time.perf_counter() - start:.1f} s{where}: {out} was not written."
        click.echo(f"{message} What is finished is kept, and the same command goes on from there.", err=True)
        return 130
    seconds = time.perf_counter() - start
    header = header_of(library.rules, library.families, settings, library.stages, seconds)
    write_file(out, library_text(library.rules, library.found, header, library.statuses, out.parent), parents=True)
    note = write_proofs(out, named(library.found), library.verdicts)
    if report:
        found = {**library.stages.as_json(), "wall_seconds": round(seconds, 3)}
        write_file(report, record_text("generate", found), parents=True)
    counts, count = library.stages.counts, len(library.found)
    steps = ", ".join(f"{n} {name}" for name, n in counts.items())
    click.echo(f"{count} rule{'s' * (count != 1)} in {out} ({steps}; {seconds:.1f} s)")
    if note:
        click.echo(note, err=True)
    if counts.get("left out"):
        lists = "" if report else "; --report lists them"
        click.echo(f"{counts['left out']} were left out{lists}", err=True)
    return 0


def _bytes_of(text: str) -> int:
    """`2GB`, `512MB` or a number of bytes."""
    for unit, factor in (("GB", 1 << 30), ("MB", 1 << 20), ("", 1)):
        if text.upper().endswith(unit):
            number = text[: len(text) - len(unit)].strip()
            if number.isdigit() and int(number) > 0:
                return int(number) * factor
    raise click.BadParameter(f"{text!r} is no size; write 2GB or 512MB", param_hint="--memory")

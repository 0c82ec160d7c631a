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
@rules_option("The library that defines the operators (default: taso).")
@option(
    "--max-operators",
    "-n",
    default=3,
    type=IntRange(1, 6),
    help="Largest number of operators on one side of a rule.",
)
@option(
    "--inputs",
    default="",
    show_default=False,
    metavar="NAME=N,...",
    help="Random tensors: count=3,size=4,spatial=5,windows=3+1.",
)
@option("--seed", default=0, help="Seed of the random tensors.")
@option("--out", "-o", type=NEW_FILE, default=Path("generated.rules"), help="Where to write the rules.")
@option("--scheduler", metavar="ADDRESS", help="Address of a Dask scheduler whose workers evaluate graphs.")
@option("--workers", default=2, type=IntRange(1, 256), help="Processes that evaluate graphs.")
@option("--provers", default=2, type=IntRange(1, 256), help="Processes that prove.")
@option("--memory", default="2GB", metavar="BYTES", help="Memory limit of each worker of a local cluster.")
@time_option("--budget", help="Stop after this time, and keep what was found.")
@option("--report", type=NEW_FILE, help="Also write counts, times and left-out rules as JSON.")
@option("--no-proof", is_flag=True, help="Also keep rules that were only tested.")
@option("--quiet", "-q", is_flag=True, help="No progress.")
def command(
    rules: tuple[str, ...], out: Path, memory: str, report: Path | None, no_proof: bool, quiet: bool, **given: Any
) -> int:
    """Find equal graphs of some OPERATORS (default: those of the library that have laws), and write them as proved rules.

    Every graph of up to --max-operators operators is compared by what it computes, which takes seconds for a few operators and
    hours for a whole library. After Ctrl-C, the same command continues where it stopped.
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
    if not (settings.operators or quiet):
        said = f"comparing graphs of all operators of {settings.libraries[0]} that have laws; name operators to compare fewer"
        click.echo(said, err=True)
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

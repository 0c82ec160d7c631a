"""`dslc extract FILE.json`: the cheapest programs of an e-graph, by each extractor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dslc.cli.options import form_option, print_record, time_option
from dslc.errors import error

if TYPE_CHECKING:
    from dslc.egraph.extract import Extraction, ExtractionProblem


@click.command("extract")
@click.argument("file", metavar="FILE.json", type=click.Path(path_type=Path))
@time_option("--time-limit", default="20s", help="Time limit of each extractor.")
@form_option()
def command(file: Path, time_limit: float, output_format: str) -> int:
    """Find the cheapest program in an e-graph file (egraph-serialize), with each extractor in turn.

    A cost counts every class of the program once. Each extractor starts from the best program so far, so that none is worse than
    the one before; an extractor that finds no program in time is left out. Ctrl-C prints what was found so far.
    """
    from dslc.egraph.extract.file import read
    from dslc.prove.garbage import gc_paused
    from dslc.terminal import console, print_table

    with gc_paused():
        egraph = read(file)
        problem = egraph.problem()
        rows = _extracted(problem, time_limit)
    if not rows:
        raise error("E1104", "each of its programs costs more than a number holds", path=str(file))
    if output_format == "json":
        entries = []
        for name, found, seconds in rows:
            choice = {egraph.names[number]: one.key for number, one in sorted(problem.named(found).choice.items())}
            known = {"bound": found.bound, "optimal": found.optimal}
            entries.append({"name": name, "cost": found.cost, **known, "seconds": round(seconds, 6), "choice": choice})
        print_record("extract", {"extractors": entries})
        return 0
    notes = [
        "optimal" if one.optimal else f"none is below {one.bound:.6g}" if one.bound > 0 else "" for _, one, _ in rows
    ]
    cells = [
        (name, f"{found.cost:.9g}", str(len(found.choice)), f"{seconds:.3f}", note)
        for (name, found, seconds), note in zip(rows, notes, strict=True)
    ]
    on = console()
    on.print(f"{len(egraph):,} nodes in {len(egraph.rows):,} classes, {len(egraph.roots)} of them roots")
    columns = ("extractor", "cost", "classes", "seconds", "")
    print_table(columns, cells, numbers=columns[1:4], lines="head", on=on)
    return 0


def _extracted(problem: ExtractionProblem, limit: float) -> list[tuple[str, Extraction, float]]:
    """The extraction of each extractor within so many seconds, and the seconds that it took."""
    import time

    from dslc.deadline import Deadline
    from dslc.egraph.extract import EXTRACTORS

    rows: list[tuple[str, Extraction, float]] = []
    best: Extraction | None = None
    for name, extractor in EXTRACTORS.items():
        began = time.monotonic()
        try:
            found = extractor(problem, Deadline.after(limit), best)
        except KeyboardInterrupt:
            # what was found by then counts; without anything there is nothing to say
            if not rows:
                raise
            break
        if not found:
            continue
        rows.append((name, found, time.monotonic() - began))
        if not best or found.cost <= best.cost:
            best = found
    return rows

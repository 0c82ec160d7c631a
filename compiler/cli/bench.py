"""`dslc bench A.onnx B.onnx`: two models timed against each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dslc.cli.options import binding, seconds_of

if TYPE_CHECKING:
    from dslc.cost.timing import Timing


@click.command("bench")
@click.argument("first", metavar="A.onnx", type=click.Path(path_type=Path))
@click.argument("second", metavar="B.onnx", type=click.Path(path_type=Path))
@click.option("--bind", multiple=True, metavar="NAME=N", help="Size of a symbolic dimension, or INPUT.AXIS=N.")
@click.option("--inputs", type=click.Path(path_type=Path), help="Inputs: an .npz file, or a folder of them.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of the runtime.")
@click.option("--budget", default="20s", metavar="TIME", show_default=True, help="Longest time to measure.")
@click.option("--output-format", type=click.Choice(["full", "json"]), default="full", show_default=True)
def command(
    first: Path, second: Path, bind: tuple[str, ...], inputs: Path | None, threads: int | None, budget: str, output_format: str
) -> int:
    """Time two models interleaved, and print medians, minima and the ratio.

    Both run on the same inputs. The ratio says how many times as fast B is; its 95 % interval comes from paired blocks of
    runs. It ends as soon as it is clear which is faster, or with the budget. Exit code 0 whichever is faster.
    """
    from rich.console import Console
    from rich.table import Table

    from dslc.cost.clock import Clock
    from dslc.cost.inputs import tried_inputs
    from dslc.cost.machine import this_machine
    from dslc.cost.process import ModelFile
    from dslc.cost.timing import raced, runs
    from dslc.onnx.reading import read_for_inputs

    clock = Clock(seconds_of(budget, "--budget"))
    model = read_for_inputs(first)
    read_for_inputs(second)
    sizes = binding(bind)
    machine = this_machine(threads)
    files = [ModelFile(str(first)), ModelFile(str(second))]
    tried = list(tried_inputs(model, sizes, inputs, draws=1))
    # one that neither runs on is as good as any other to say why
    feeds = next((one for one in tried if len(tried) > 1 and runs(files, one.feeds[0], machine.threads)), tried[0])
    console = Console(highlight=False, stderr=output_format == "json")
    with console.status("timing ..."):
        timings = raced(files, [str(first), str(second)], feeds.feeds[0], machine.threads, clock)
    if output_format == "json":
        click.echo(_json((first, second), timings, str(machine), feeds.notes))
        return 0
    table = Table("model", "median", "minimum", "blocks")
    for file, timing in zip((first, second), timings, strict=True):
        table.add_row(str(file), f"{timing.median * 1e3:.4g} ms", f"{timing.minimum * 1e3:.4g} ms", str(timing.blocks))
    console.print(table)
    ratio = timings[1].ratio
    verdict = "faster" if ratio.low > 1 else "slower" if ratio.high < 1 else "no faster and no slower"
    sure = f"95 % interval{ratio.ends}" if ratio.ends else "measured too few times for an interval; --budget gives more"
    console.print(f"{second} is {verdict}: {ratio.ratio:.3f} times as fast, {sure}", soft_wrap=True)
    console.print(str(machine))
    for note in feeds.notes:
        console.print(f"note: {note}")
    return 0


def _json(models: Sequence[Path], timings: Sequence[Timing], machine: str, notes: Sequence[str]) -> str:
    """What was measured as JSON: times in milliseconds; the ends of an interval are null where none is known."""
    import json

    ratio = timings[1].ratio
    each = [
        {"model": str(model), "median_ms": timing.median * 1e3, "minimum_ms": timing.minimum * 1e3, "blocks": timing.blocks}
        for model, timing in zip(models, timings, strict=True)
    ]
    low, high = (ratio.low, ratio.high) if ratio.known else (None, None)
    found = {"models": each, "ratio": ratio.ratio, "low": low, "high": high, "machine": machine, "notes": list(notes)}
    return json.dumps(found, indent=2)

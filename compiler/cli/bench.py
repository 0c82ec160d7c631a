"""`dslc bench A.onnx B.onnx`: two models timed against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click import IntRange, argument

from dslc.cli.options import PATH, bind_option, form_option, html_option, option, print_record, time_option
from dslc.cli.outputs import apart, writable
from dslc.codegen.host.processor import NAMES
from dslc.outside import in_line
from dslc.terminal import console, print_table


@click.command("bench")
@argument("first", metavar="A.onnx", type=PATH)
@argument("second", metavar="B.onnx", type=PATH)
@bind_option("Size of a symbolic dimension, or INPUT.AXIS=N.")
@option("--inputs", type=PATH, help="Inputs: an .npz file, or a folder of them.")
@option("--threads", type=IntRange(min=1), help="Threads of the runtime.")
@option(
    "--isa",
    type=click.Choice(NAMES),
    help="Run kernels for a level of instructions, not for all that this machine can do.",
)
@time_option("--budget", help="Longest time to measure.", default="20s")
@html_option("with every pair")
@form_option()
def command(first: Path, second: Path, html: Path | None, output_format: str, **given: Any) -> int:
    """Time two models interleaved, and print medians, minima and the ratio.

    Both run on the same inputs. The ratio says how many times as fast B is; its 95 % interval comes from paired blocks of
    runs, and holds at every look. So it ends as soon as it is clear which is faster, or that neither is by 1 %, or with the
    budget. Exit code 0 whichever is faster.
    """
    from dslc.api.benchmark import bench
    from dslc.store import write_file

    if html:
        apart(html, [first, second])
        writable(html)
    on = console(output_format == "json")
    with on.status("timing ..."):
        found = bench(first, second, **given)
    if html:
        write_file(html, found.to_html())
    if output_format == "json":
        print_record("bench", found.to_dict())
        return 0
    rows = [
        (file, f"{timing.typical * 1e3:.4g} ms", f"{timing.minimum * 1e3:.4g} ms", str(timing.blocks))
        for file, timing in zip(found.models, found.timings, strict=True)
    ]
    print_table(("model", "typical", "minimum", "blocks"), rows, on=on)
    on.print(found.verdict, soft_wrap=True)
    on.print(found.machine)
    for note in found.notes:
        on.print(f"note: {in_line(note)}")
    return 0

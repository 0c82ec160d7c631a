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
@bind_option("Size of a symbolic dimension, or INPUT.AXIS=N; may be repeated.")
@option("--inputs", type=PATH, help="Inputs to run on: an .npz file, or a folder of them (default: random).")
@option("--threads", type=IntRange(min=1), help="Threads of the runtime (default: one per core).")
@option(
    "--isa",
    type=click.Choice(NAMES),
    help="Use kernels for this instruction set, not for all that this machine supports.",
)
@time_option("--budget", help="Time limit.", default="20s")
@html_option("with every pair")
@form_option()
def command(first: Path, second: Path, html: Path | None, output_format: str, **given: Any) -> int:
    """Time two models, interleaved, on the same inputs.

    The result is how many times as fast B is as A, with a 95 % interval from paired blocks of runs. Timing stops as soon as one
    model is clearly faster, or neither is by 1 %, or the budget ends. The exit code is 0 in each case.
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

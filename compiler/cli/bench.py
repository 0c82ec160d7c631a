"""`dslc bench A.onnx B.onnx`: two models timed against each other."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dslc.cli import terminal
from dslc.cli.options import bind_option, binding, budget_option, form_option
from dslc.cli.outputs import apart, writable
from dslc.codegen.host.processor import NAMES
from dslc.outside import in_line

if TYPE_CHECKING:
    from onnx import ModelProto

    from dslc.cost.confidence_sequence import Interval, Timing
    from dslc.cost.inputs import Given


@dataclass(frozen=True, slots=True)
class Benched:
    """Two models timed interleaved on the same inputs.

    `timings` are in seconds, `ratio` says how many times as fast the second model is, with its 95 % interval; `least`: below that share
    of difference neither counts as faster.
    """

    models: tuple[str, str]
    timings: tuple[Timing, Timing]
    machine: str
    notes: tuple[str, ...]
    least: float

    @property
    def ratio(self) -> Interval:
        return self.timings[1].ratio

    @property
    def verdict(self) -> str:
        """Which one is faster, in words."""
        ratio, second = self.ratio, self.models[1]
        sure = f"95 % interval{ratio.ends}" if ratio.ends else "too few pairs for an interval"
        measured = f"{ratio.ratio:.3f} times as fast, {sure}"
        if ratio.low > 1 or ratio.high < 1:
            return f"{second} is {'faster' if ratio.low > 1 else 'slower'}: {measured}"
        if ratio.within(self.least):
            return f"{second} is no faster and no slower: {measured}"
        return f"the budget ended before timing could decide: {second} is {measured}; --budget gives more"

    def __repr__(self) -> str:
        return f"<Benched {self.models[0]} and {self.models[1]}: {self.ratio} times as fast>"

    def __str__(self) -> str:
        times = [f"{model}: median {timing.median * 1e3:.4g} ms, minimum {timing.minimum * 1e3:.4g} ms, {timing.blocks} blocks"
                 for model, timing in zip(self.models, self.timings, strict=True)]  # fmt: skip
        return "\n".join([*times, self.verdict, self.machine, *(f"note: {note}" for note in self.notes)])


def benched(
    first: Path, second: Path, sizes: Mapping[str, int], inputs: Given | None, threads: int | None, isa: str | None, budget: float,
    waiting: AbstractContextManager[object] | None = None,
) -> Benched:  # fmt: skip
    """Times two models; `budget` in seconds, `waiting` is entered while that lasts.

    Raises:
        DslcError: as for inputs, and for what is no model or does not run.
    """
    from dslc.codegen.host.processor import processor, runnable, wanted
    from dslc.cost.clock import Clock
    from dslc.cost.inputs import tried_inputs
    from dslc.cost.machine import this_machine
    from dslc.cost.process import ModelFile
    from dslc.cost.timing import RACING, raced, runs
    from dslc.onnx.protos import read_model

    clock = Clock(budget)
    with wanted(isa):
        runnable(processor())
        model = read_model(first)[0]
        _same_inputs(model, read_model(second)[0], str(first), str(second))
        machine = this_machine(threads)
        files = [ModelFile(str(first)), ModelFile(str(second))]
        tried = list(tried_inputs(model, sizes, inputs, draws=1))
        # one that neither runs on is as good as any other to say why
        feeds = next((one for one in tried if len(tried) > 1 and runs(files, one.feeds[0], machine.threads)), tried[0])
        with waiting or nullcontext():
            timings = raced(files, [str(first), str(second)], feeds.feeds[0], machine.threads, clock)
    return Benched((str(first), str(second)), (timings[0], timings[1]), str(machine), tuple(feeds.notes), RACING.least)


def _same_inputs(model: ModelProto, other: ModelProto, first: str, second: str) -> None:
    """Raises DslcError E0810 where two models do not take the same inputs, by their names and types."""
    from dslc.errors import Diagnostic, DslcError
    from dslc.onnx.inputs import wanted_inputs

    types = [{name: dtype for name, (dtype, _) in wanted_inputs(one).items()} for one in (model, other)]
    findings = [
        *(f"`{name}` is an input of {first} and not of {second}" for name in types[0].keys() - types[1].keys()),
        *(f"`{name}` is an input of {second} and not of {first}" for name in types[1].keys() - types[0].keys()),
        *(f"the input `{name}` has type {types[0][name]} in {first} and {types[1][name]} in {second}"
          for name in types[0].keys() & types[1].keys() if types[0][name] != types[1][name]),
    ]  # fmt: skip
    if findings:
        raise DslcError([Diagnostic("E0810", text, path=second) for text in sorted(findings)])


@click.command("bench")
@click.argument("first", metavar="A.onnx", type=click.Path(path_type=Path))
@click.argument("second", metavar="B.onnx", type=click.Path(path_type=Path))
@bind_option("Size of a symbolic dimension, or INPUT.AXIS=N.")
@click.option("--inputs", type=click.Path(path_type=Path), help="Inputs: an .npz file, or a folder of them.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of the runtime.")
@click.option(
    "--isa",
    type=click.Choice(NAMES),
    help="Run kernels for a level of instructions, not for all that this machine can do.",
)
@budget_option("Longest time to measure.", "20s")
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Also write a page with every pair."
)
@form_option()
def command(
    first: Path, second: Path, binds: tuple[str, ...], inputs: Path | None, threads: int | None, isa: str | None, budget: float,
    html: Path | None, output_format: str,
) -> int:  # fmt: skip
    """Time two models interleaved, and print medians, minima and the ratio.

    Both run on the same inputs. The ratio says how many times as fast B is; its 95 % interval comes from paired blocks of
    runs, and holds at every look. So it ends as soon as it is clear which is faster, or that neither is by 1 %, or with the
    budget. Exit code 0 whichever is faster.
    """
    from dslc.cli.tables import print_table
    from dslc.reporting.records import record_text

    if html is not None:
        apart(html, [first, second])
        writable(html)
    console = terminal.console(output_format == "json")
    found = benched(first, second, binding(binds), inputs, threads, isa, budget, console.status("timing ..."))
    if html is not None:
        _page(html, found)
    if output_format == "json":
        click.echo(record_text("bench", _record(found)), nl=False)
        return 0
    rows = [
        (file, f"{timing.median * 1e3:.4g} ms", f"{timing.minimum * 1e3:.4g} ms", str(timing.blocks))
        for file, timing in zip(found.models, found.timings, strict=True)
    ]
    print_table(("model", "median", "minimum", "blocks"), rows, on=console)
    console.print(found.verdict, soft_wrap=True)
    console.print(found.machine)
    for note in found.notes:
        console.print(f"note: {in_line(note)}")
    return 0


def _page(place: Path, found: Benched) -> None:
    """Writes a page with a plot of every pair."""
    from dslc.reporting.others import page_of_bench
    from dslc.store import write_file

    pairs = [
        {
            "before_ms": one.before * 1e3,
            "after_ms": one.after * 1e3,
            "generation": one.generation,
            "base_first": one.base_first,
        }
        for one in found.timings[1].pairs
    ]
    write_file(place, page_of_bench(_record(found), pairs))


def _record(found: Benched) -> dict[str, Any]:
    """What was measured as values of JSON: times in milliseconds; the ends of an interval are null where none is known."""
    ratio = found.ratio
    each = [
        {"model": model, "median_ms": timing.median * 1e3, "minimum_ms": timing.minimum * 1e3, "blocks": timing.blocks}
        for model, timing in zip(found.models, found.timings, strict=True)
    ]
    low, high = (ratio.low, ratio.high) if ratio.known else (None, None)
    return {
        "models": each,
        "ratio": ratio.ratio,
        "low": low,
        "high": high,
        "machine": found.machine,
        "notes": list(found.notes),
    }

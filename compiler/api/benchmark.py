"""Two models timed against each other."""

from __future__ import annotations

from collections.abc import Mapping
from filecmp import cmp
from typing import Any

from dslc.api.models import Model, file_of, seconds_of, sizes_of, whole, wrong
from dslc.codegen.host.processor import processor, runnable, wanted
from dslc.cost.clock import Clock
from dslc.cost.confidence_sequence import Interval, Timing
from dslc.cost.inputs import Given, check_inputs, tried_inputs
from dslc.cost.machine import this_machine
from dslc.cost.process import ModelFile
from dslc.cost.timing import LEAST, raced, runs
from dslc.onnx.inputs import wanted_inputs
from dslc.onnx.protos import read_model
from dslc.onnx.types import complete_bind
from dslc.records import record
from dslc.reporting.pages import page_of_bench
from dslc.search.options.option import read_inputs
from dslc.search.options.types import InputsLike, Isa


@record
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
        """The faster one, in words."""
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
        times = [f"{model}: typically {timing.typical * 1e3:.4g} ms, minimum {timing.minimum * 1e3:.4g} ms, {timing.blocks} blocks"
                 for model, timing in zip(self.models, self.timings, strict=True)]  # fmt: skip
        return "\n".join([*times, self.verdict, self.machine, *(f"note: {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: times in milliseconds; the ends of an interval are None where none is known."""
        ratio = self.ratio
        low, high = (ratio.low, ratio.high) if ratio.known else (None, None)
        each = [
            {
                "model": model,
                "typical_ms": timing.typical * 1e3,
                "minimum_ms": timing.minimum * 1e3,
                "blocks": timing.blocks,
            }
            for model, timing in zip(self.models, self.timings, strict=True)
        ]
        return {
            "models": each, "verdict": self.verdict, "ratio": ratio.ratio, "low": low, "high": high, "machine": self.machine,
            "notes": list(self.notes),
        }  # fmt: skip

    def to_html(self) -> str:
        """A page with a plot of every pair."""
        pairs = [
            {
                "before_ms": one.before * 1e3, "after_ms": one.after * 1e3, "generation": one.generation,
                "base_first": one.base_first,
            }
            for one in self.timings[1].pairs
        ]  # fmt: skip
        return page_of_bench(self.to_dict(), pairs)


def bench(
    first: Model,
    second: Model,
    *,
    bind: Mapping[str, int] | None = None,
    inputs: InputsLike | None = None,
    threads: int | None = None,
    isa: Isa | None = None,
    budget: float | str = "20s",
) -> Benched:
    """Two models timed interleaved on the same inputs.

    Args:
        bind: sizes of symbolic dimensions by name or `INPUT.AXIS`.
        inputs: an `.npz` file or a folder of them, or arrays by the names of inputs; by default random ones that are valid.
        threads: of the runtime; by default one for each core.
        isa: the level of instructions that kernels are for.
        budget: the longest time to measure; seconds, or a text.

    Returns:
        `.ratio`, how many times as fast the second is with its 95 % interval, `.verdict` in words, and `.timings` in seconds.

    Raises:
        DslcError: E0810 for inputs that do not fit, E0906 for wrong arguments, and for what is no model or does not run.
    """
    try:
        given: Given | None = None if inputs is None else read_inputs(inputs)
    except ValueError as problem:
        raise wrong(str(problem)) from None
    clock, count = Clock(seconds_of(budget)), None if threads is None else whole(threads, "number of threads", 1)
    with file_of(first) as one, file_of(second) as other, wanted(isa):
        runnable(processor())
        model, model_b, sizes = read_model(one)[0], read_model(other)[0], sizes_of(bind)
        complete_bind(model, {name: sizes[name] for name in sizes.keys() - wanted_inputs(model)}, str(one))
        machine = this_machine(count)
        names = (str(one), str(other))
        files = [ModelFile(name) for name in names]
        tried = list(tried_inputs(model, sizes, given, draws=1))
        # one that neither runs on is as good as any other to say why
        feeds = next(
            (each for each in tried if len(tried) > 1 and runs(files, each.feeds[0], machine.threads)), tried[0]
        )
        check_inputs(
            feeds.feeds[0], model_b, str(other), f"both models run on the same inputs, which are those of {one}"
        )
        timings = raced(files, [*names], feeds.feeds[0], machine.threads, clock)
        same = ["both files are the same: what differs is noise"] if cmp(one, other, shallow=False) else []
    return Benched(names, (timings[0], timings[1]), str(machine), (*same, *feeds.notes), LEAST)

"""The original as it runs: its inputs, what it gives for them, and how long that takes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from onnx import ModelProto

from dslc.cost.clock import Clock
from dslc.cost.compare import Comparison, Reference, compare, finite, ran
from dslc.cost.inputs import Inputs, tried_inputs
from dslc.cost.process import ModelFile, PrestartedWorkers, Worker, WorkerFailed
from dslc.cost.timing import MemoryShort, check_memory
from dslc.search.runs.settings import Settings
from dslc.search.runs.tuning import ALONE, ELSEWHERE


class Unusable(Exception):
    """Why a model cannot be searched."""


class Unloadable(Unusable):
    """Why the runtime does not take a model, whatever its inputs are."""


@dataclass(frozen=True, slots=True)
class Original:
    """One choice of sizes: inputs, the outputs for them, and the seconds of a run and of loading it in a new process."""

    inputs: Inputs
    reference: Reference
    seconds: float
    load: float


def original_at(
    model: ModelProto,
    file: ModelFile,
    bind: Mapping[str, int],
    settings: Settings,
    threads: int,
    clock: Clock,
    once: Worker | None = None,
    spares: PrestartedWorkers | None = None,
) -> Original:
    """Runs the original, on inputs that are given or drawn, in every way in which it will have to run later.

    `once` runs it on a single input, and nothing is timed.

    Sizes that neither the model nor `bind` fixes are tried in turn until all of that works; the notes of the inputs name them.

    Raises:
        Unusable: it runs at none of the sizes, in too little memory, not in time, or gives something else each time.
        DslcError: as `tried_inputs`.
    """
    problem, empty = "", None
    for inputs in tried_inputs(model, bind, settings.inputs):
        names = None
        try:
            check_memory([file])
            with nullcontext(once) if once is not None else Worker(threads, clock.until(), spares=spares) as worker:
                began = clock.now()
                names = worker.load(file)
                found = _runs(worker, names, inputs, settings, clock.now() - began, once is not None)
        except MemoryShort as short:
            raise Unusable(f"it can be neither checked nor timed: {short}") from None
        except WorkerFailed as failed:
            if failed.late:
                raise Unusable(f"it did not run within the budget of {settings.budget:g} s") from None
            if names is None:
                # no inputs help where the model itself is refused
                raise Unloadable(f"ONNX Runtime cannot load it: {failed}") from None
            problem = problem or str(failed)
            continue
        if not _empty(found.reference):
            return found
        # where nothing comes out there is nothing to compare: another size may do better
        empty = empty or found
    if empty is not None:
        return empty
    hint = "" if settings.inputs is not None else "; --inputs gives others, --bind other sizes"
    raise Unusable(f"ONNX Runtime cannot run it on {'these' if settings.inputs else 'drawn'} inputs: {problem}{hint}")


def _empty(reference: Reference) -> bool:
    """Whether some output has no element."""
    return any(getattr(value, "size", 1) == 0 for outputs in reference.outputs for value in outputs)


def _runs(worker: Worker, names: list[str], inputs: Inputs, settings: Settings, load: float, once: bool) -> Original:
    if once:
        inputs = replace(inputs, feeds=inputs.feeds[:1], special=())
        return Original(inputs, ran(worker, names, inputs.feeds), 0.0, load)
    reference = ran(worker, names, inputs.feeds)
    first = Reference(reference.names, reference.outputs[:1])
    repeated: Comparison = compare(first, ran(worker, names, inputs.feeds[:1]), settings.tolerance)
    if not repeated.same:
        raise Unusable(f"it differs from itself in two runs ({repeated.problem})")
    feeds: Mapping[str, Any] = inputs.feeds[0]
    worker.ask({"do": "bind", "feeds": dict(feeds)})
    seconds = float(worker.ask({"do": "alone", "seconds": ALONE})["seconds"])
    # last, as a process may die of them; where they give no numbers they tell nothing
    for special in inputs.special:
        # it is run for each result, too; one of fixed sizes has no others
        if special.sizes and (settings.specialize or seconds > ELSEWHERE * settings.budget):
            continue
        try:
            found = ran(worker, names, [special.feeds])
        except WorkerFailed as failed:
            if failed.died:
                break
            continue
        if finite(found):
            inputs = inputs.more(special)
            reference = replace(reference, outputs=(*reference.outputs, *found.outputs))
    return Original(inputs, reference, seconds, load)

"""The original at every choice of sizes: what candidates are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from onnx import ModelProto, ValueInfoProto

from dslc.analysis.counts import known_flops
from dslc.cost.cache import CostCache
from dslc.cost.compare import Comparison, Reference, compare, finite, meaning, ran, silent
from dslc.cost.inputs import Inputs, identity_of, tried_inputs
from dslc.cost.process import ModelFile, Worker, WorkerFailed
from dslc.cost.targets import OwnKernels
from dslc.cost.timing import Goal, MemoryShort, check_memory
from dslc.deadline import TimeUp
from dslc.kernels import generator
from dslc.onnx.context import OpaqueNode
from dslc.onnx.describe import computed_types, digest
from dslc.onnx.inlining import apart
from dslc.onnx.protos import value_info
from dslc.onnx.runtime import known_operators
from dslc.search.options.settings import Settings
from dslc.search.options.strategies import name_of
from dslc.search.runs.benchmark import FinalBenchmark
from dslc.search.runs.contenders import (
    AllowedFunctions,
    Checker,
    ReferenceOutputs,
    Unloadable,
    Unusable,
    folder_of,
    serialized,
    with_kernels,
)
from dslc.search.runs.endings import Ending
from dslc.search.runs.stages import Original, Proven, Referenced, Task
from dslc.search.runs.state import Journal, RunState
from dslc.version import __version__

ALONE = 0.5  #: seconds at most that the time of a whole run of the original is taken for
ELSEWHERE = 0.005  #: share of the budget that the original may take for a run at other sizes to be worth it
MEANT = 1e7  #: operations up to which the original is computed by its operators' equations, where a comparison fails


def reference(proven: Proven, cache: CostCache, run: RunState, once: bool = False) -> Referenced:
    """Runs the original at every choice of sizes, and looks up what an earlier run with the same options did.

    `once`: on a single input each, and nothing is timed or looked up, as nothing is searched.

    Raises:
        Unusable: there is nothing to compare with.
        TimeUp: nothing is left for anything else.
    """
    task, settings = proven.task, proven.task.settings
    run.phase("running the original")
    worker = run.worker if once else None

    def ran(model: ModelProto, file: ModelFile, settings: Settings) -> tuple[Original, ...]:
        return tuple(
            original_at(model, file, bind, settings, task.machine.threads, run, worker)
            for bind in settings.bind or ({},)
        )

    cut: Cut | None = None
    apart, file = "", ModelFile(serialized(task.model), folder_of(task.folder))
    if task.folder and Path(task.where).is_file():
        file = ModelFile(str(Path(task.where).resolve()))
    try:
        originals = ran(task.model, file, settings)
    except Unloadable as reason:
        if settings.apply is None:
            hint = "nothing can be timed, and --apply applies rules around what it does not know"
            raise Unloadable(reason.ending, f"{reason.detail}; {hint}") from None
        apart = reason.detail
        for cut, said in parts(task):
            model = cut(task.model)
            inputs = settings.inputs if len(model.graph.input) == len(task.model.graph.input) else None
            file = ModelFile(serialized(model), folder_of(task.folder))
            with suppress(Unusable):
                originals = ran(model, file, replace(settings, inputs=inputs))
                run.notes.append(said)
                break
        else:
            raise
    run.warn(*(note for one in originals for note in one.inputs.notes))
    run.notes += [f"outputs were also compared at {', at '.join(one.inputs.at)}" for one in originals if one.inputs.at]
    run.warn(
        *(
            f"the output {name} was empty or 0 on all inputs, so comparing it says little (--inputs gives others)"
            for name in silent([one.reference for one in originals])
        )
    )
    if run.clock.until().over:
        raise TimeUp
    # another version of dslc, or of its templates, may make other models and kernels
    identity = "" if once else f"{__version__} {generator()} {digest(task.model, task.folder)}"
    key = (
        "" if once else _key(proven, identity, identity_of([feeds for one in originals for feeds in one.inputs.feeds]))
    )
    run.journal = Journal() if once else _journal(settings, key, cache, run)
    seconds = 0.0 if once else _whole(task, identity, originals[0], cache)
    references = [one.reference for one in originals]
    compared = ReferenceOutputs(
        file, references, [one.inputs for one in originals], settings.tolerance, computed_types(task.imported),
        _meant(task, references[0].names),
    )  # fmt: skip
    functions = AllowedFunctions.BUILT if with_kernels(settings) else AllowedFunctions.NONE
    if settings.portable == "inline":
        functions = AllowedFunctions.INLINE
    elif task.target.kernels is OwnKernels.PLANNED:
        functions = AllowedFunctions.PLAIN
    checker = Checker(
        task.imported.context, task.rules, compared, task.machine.threads, functions, settings.file_growth, settings.apply is not None,
        run.clock.until(), task.size.bytes, worker, run.spares, cut,
    )  # fmt: skip
    load = max(one.load for one in originals)
    feeds = [one.inputs.feeds[0] for one in originals]
    benchmark = FinalBenchmark(
        file, identity, settings.budget, feeds, task.machine, cache, run.clock, load, spares=run.spares
    )
    without = replace(benchmark, original=replace(file, kernels=False), goal=Goal.NO_SLOWER)
    run.referenced = Referenced(proven, file, identity, originals, checker, seconds, key, apart, benchmark, without)
    return run.referenced


def _meant(task: Task, names: tuple[str, ...]) -> Callable[[Mapping[str, Any]], Reference | None]:
    """Return how to compute the original by its operators' equations, where that takes no long time."""
    operations = known_flops(task.imported.graph.outputs)
    if operations is None or operations > MEANT:
        return lambda _: None
    return meaning(task.rules, task.imported.graph, names)


def _key(proven: Proven, identity: str, inputs: str) -> str:
    """Equal for runs that find the same in the same number of steps."""
    task, s = proven.task, proven.task.settings
    used = [rule.name for rule in proven.rules]
    how = (name_of(s.strategy), s.strategy, s.layouts, s.alpha, s.seed)
    options = (how, s.budget, s.patience, used, s.tolerance, s.specialize, s.timing, task.target.name, s.derive, s.trust, s.apply,
               with_kernels(s))  # fmt: skip
    binds = sorted(tuple(sorted(one.items())) for one in s.bind)
    lowerings = task.target.lowerings(task.rules).digest
    return f"searches:{identity}|{task.rules.digest}|{lowerings}|{options}|{binds}|{inputs}|{task.target.fingerprint}"


def _journal(settings: Settings, key: str, cache: CostCache, run: RunState) -> Journal:
    """Return the steps that an earlier run took: one that is repeated stops where that did, so that it writes the same file.

    One that its clock cut short, on a busy machine say, is gone on from: its prices are known, so that its steps take little time.
    """
    earlier = None if settings.steps is not None else cache.verdict(key)
    if earlier is None or not earlier["steps"]:  # there was nothing to search
        return Journal()
    steps: dict[str, list[int]] = earlier["steps"]
    first = next(iter(steps.values()))[0]
    if earlier.get("late"):
        run.note(f"went on from step {first}, where an earlier run with the same options was cut short")
        return Journal(reached=first)
    run.note(f"stopped after step {first}, as an earlier run with the same options did")
    return Journal(steps)


def _whole(task: Task, identity: str, original: Original, cache: CostCache) -> float:
    """Seconds of the original as a whole, the same in a run that is repeated."""
    key, machine = f"whole:{identity}|{identity_of(original.inputs.feeds[:1])}", str(task.machine)
    known = cache.seconds(machine, key)
    if known is None:
        known = original.seconds
        cache.put_seconds(machine, {key: known})
    return known


#: a model as what of it is run
Cut = Callable[[ModelProto], ModelProto]


def parts(task: Task) -> Iterator[tuple[Cut, str]]:
    """Ways to leave out what the runtime does not know, and what there is to say of each.

    A result of unknown type is first assumed to be like the first operand of its node; failing that, what depends on it is left out.
    """
    names = task.imported.context.names
    types = {name: value_info(name, value.type) for value, name in names.items() if value.known}
    likely = dict(types)
    for value, name in names.items():
        like = next((arg.type for arg in value.node.args if arg.known), None)
        if name not in types and like and isinstance(getattr(value.node, "payload", None), OpaqueNode):
            likely[name] = value_info(name, like)
    known = known_operators()
    for guess in (likely, types) if len(likely) > len(types) else (types,):
        _, unknown = apart(task.model, known, guess)
        less = (
            " and what is computed from results of unknown types" if guess is types and len(likely) > len(types) else ""
        )
        what = f"{', '.join(unknown)}{less}" if unknown else "nothing but names of nodes"
        yield (
            partial(_without, known=known, types=guess),
            f"compared part by part: without {what}, which ONNX Runtime cannot run",
        )


def _without(model: ModelProto, known: frozenset[tuple[str, str]], types: dict[str, ValueInfoProto]) -> ModelProto:
    return apart(model, known, types)[0]


def original_at(
    model: ModelProto,
    file: ModelFile,
    bind: Mapping[str, int],
    settings: Settings,
    threads: int,
    run: RunState,
    once: Worker | None,
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
            with nullcontext(once) if once else Worker(threads, run.clock.until(), spares=run.spares) as worker:
                began = run.clock.now()
                names = worker.load(file)
                found = _runs(worker, names, inputs, settings, run.clock.now() - began, once is not None)
        except MemoryShort as short:
            raise Unusable(Ending.TOO_LARGE, str(short)) from None
        except WorkerFailed as failed:
            if failed.late:
                raise Unusable(Ending.TOO_SLOW, f"{settings.budget:g}") from None
            if names is None:
                # no inputs help where the model itself is refused
                raise Unloadable(Ending.UNLOADABLE, str(failed)) from None
            problem = problem or str(failed)
            continue
        if all(getattr(value, "size", 1) for outputs in found.reference.outputs for value in outputs):
            return found
        # where nothing comes out there is nothing to compare: another size may do better
        empty = empty or found
    if empty:
        return empty
    hint = "" if settings.inputs is not None else "; --inputs gives others, --bind other sizes"
    raise Unusable(Ending.UNRUNNABLE, f"{'these' if settings.inputs else 'random'} inputs: {problem}{hint}")


def _runs(worker: Worker, names: list[str], inputs: Inputs, settings: Settings, load: float, once: bool) -> Original:
    if once:
        inputs = replace(inputs, feeds=inputs.feeds[:1], special=())
        return Original(inputs, ran(worker, names, inputs.feeds), 0.0, load)
    reference = ran(worker, names, inputs.feeds)
    first = Reference(reference.names, reference.outputs[:1])
    repeated: Comparison = compare(first, ran(worker, names, inputs.feeds[:1]), settings.tolerance)
    if not repeated.same:
        raise Unusable(Ending.RANDOM, repeated.problem)
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

"""The original at every choice of sizes: what candidates are compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnx import ModelProto

from dslc.analysis.counts import known_flops
from dslc.cost.cache import CostCache
from dslc.cost.compare import Reference, meaning, silent
from dslc.cost.inputs import identity_of
from dslc.cost.process import ModelFile
from dslc.cost.targets import OwnKernels
from dslc.deadline import TimeUp
from dslc.kernels import generator
from dslc.onnx.describe import computed_types, digest
from dslc.search.phases.parts import Cut, parts
from dslc.search.runs.compiling import with_kernels
from dslc.search.runs.contenders import (
    AllowedFunctions,
    Checker,
    ExportOptions,
    ReferenceOutputs,
    folder_of,
    serialized,
)
from dslc.search.runs.originals import Original, Unloadable, Unusable, original_at
from dslc.search.runs.progress import Journal, Run
from dslc.search.runs.settings import Settings
from dslc.search.runs.stages import Proven, Referenced, Task
from dslc.search.runs.tuning import MEANT
from dslc.search.strategies.table import name_of
from dslc.version import __version__


def reference(proven: Proven, cache: CostCache, run: Run, once: bool = False) -> Referenced:
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
            original_at(model, file, bind, settings, task.machine.threads, run.clock, worker, run.spares)
            for bind in settings.bind or ({},)
        )

    cut: Cut = _whole_model
    apart, file = "", _file_of(task)
    try:
        originals = ran(task.model, file, settings)
    except Unloadable as reason:
        cut, apart, file, originals = _in_parts(task, ran, reason, run)
    run.notes += [note for one in originals for note in one.inputs.notes]
    run.notes += [f"outputs are compared at {', at '.join(one.inputs.at)}, too" for one in originals if one.inputs.at]
    run.notes += [
        f"the output {name} had no element, or none that is a number other than 0, on all inputs (--inputs gives others)"
        for name in silent([one.reference for one in originals])
    ]
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
    form = ExportOptions(_functions(task), settings.file_growth, fewest=settings.apply is not None)
    checker = Checker(
        task.imported.context, task.rules, compared, task.machine.threads, form, run.clock.until(), task.size.bytes, worker, run.spares,
        cut,
    )  # fmt: skip
    run.referenced = Referenced(proven, file, identity, originals, checker, seconds, key, apart)
    return run.referenced


def _whole_model(model: ModelProto) -> ModelProto:
    return model


def _in_parts(
    task: Task, ran: Callable[[ModelProto, ModelFile, Settings], tuple[Original, ...]], reason: Unloadable, run: Run
) -> tuple[Cut, str, ModelFile, tuple[Original, ...]]:
    """Run those parts of the original that the runtime takes, where rules are to be applied. Raises Unloadable where it takes none."""
    if task.settings.apply is None:
        raise Unloadable(
            f"{reason}; nothing can be timed, and --apply applies rules around what it does not know"
        ) from None
    for cut, said in parts(task):
        model = cut(task.model)
        inputs = task.settings.inputs if len(model.graph.input) == len(task.model.graph.input) else None
        file = ModelFile(serialized(model), folder_of(task.folder))
        with suppress(Unusable):
            originals = ran(model, file, replace(task.settings, inputs=inputs))
            run.notes.append(said)
            return cut, str(reason), file, originals
    raise reason


def _functions(task: Task) -> AllowedFunctions:
    if task.settings.portable == "inline":
        return AllowedFunctions.INLINE
    if task.target.kernels is OwnKernels.PLANNED:
        return AllowedFunctions.PLAIN
    return AllowedFunctions.BUILT if with_kernels(task.settings) else AllowedFunctions.NONE


def _file_of(task: Task) -> ModelFile:
    if task.folder is not None and Path(task.where).is_file():
        return ModelFile(str(Path(task.where).resolve()))
    return ModelFile(serialized(task.model), folder_of(task.folder))


def _meant(task: Task, names: tuple[str, ...]) -> Callable[[Mapping[str, Any]], Reference | None]:
    """What the original gives by its operators' equations, where that takes no long time."""
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


def _journal(settings: Settings, key: str, cache: CostCache, run: Run) -> Journal:
    """How many steps an earlier run took: one that is repeated stops where that did, so that it writes the same file.

    One that its clock cut short, on a busy machine say, is gone on from: its prices are known, so that its steps take little time.
    """
    earlier = None if settings.steps is not None else cache.verdict(key)
    if earlier is None or not earlier["steps"]:  # nobody had anything to search
        return Journal()
    steps: dict[str, list[int]] = earlier["steps"]
    first = next(iter(steps.values()))[0]
    if earlier.get("late"):
        run.note(f"goes on from the {first} steps at which an earlier run with the same options was cut short")
        return Journal(reached=first)
    run.note(f"stopped after the {first} steps of an earlier run with the same options")
    return Journal(steps)


def _whole(task: Task, identity: str, original: Original, cache: CostCache) -> float:
    """Seconds of the original as a whole, the same in a run that is repeated."""
    key, machine = f"whole:{identity}|{identity_of(original.inputs.feeds[:1])}", str(task.machine)
    known = cache.seconds(machine, key)
    if known is None:
        known = original.seconds
        cache.put_seconds(machine, {key: known})
    return known

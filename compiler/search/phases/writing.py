"""The last stage: the model with what dslc notes in it, and the report."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import metadata
from itertools import chain
from math import inf
from time import localtime, strftime
from types import MappingProxyType

from onnx import ModelProto

from dslc.cost.process import ModelFile, profiled
from dslc.cost.targets import OwnKernels
from dslc.onnx.describe import compared, counts, note, pictured
from dslc.onnx.exporter import export
from dslc.onnx.functions import inlined
from dslc.onnx.runtime import accepted
from dslc.prove.verdict import RuleVerdict
from dslc.report import Counts, Details, Generator, PairMs, PhaseSpan, Report, Sizes, Step, Turn, Without
from dslc.reporting.data import KernelCode, Picture
from dslc.search.candidates.candidate import Candidate
from dslc.search.candidates.export import NameHistory, graph_as_kernels, texts_of
from dslc.search.region_rewrites.validate import Validated
from dslc.search.runs.contenders import Contender
from dslc.search.runs.endings import Ending
from dslc.search.runs.planning import with_plan
from dslc.search.runs.proving import named_rules, proved_again, status_of
from dslc.search.runs.selection import not_standard
from dslc.search.runs.stages import Finished, Optimized, Task
from dslc.search.runs.state import RunState
from dslc.semantics.definitions import DerivationDef, SubstitutionDef
from dslc.semantics.library import Rules
from dslc.semantics.numerics import NONFINITE, keeps_nonfinite
from dslc.syntax.vocabulary import NUMERICS
from dslc.version import __version__

PROFILING = 4.0  #: seconds that profiling the nodes of a model may take
PROFILED = 0.5  #: share of what is left of the budget that profiling may take
EARLY = 0.15  #: share of the budget that a run leaves before its report says why


def write(finished: Finished, run: RunState) -> Optimized:
    """Return the model and the report; where it goes is the caller's matter."""
    task, verdicts = finished.task, finished.verdicts
    report = replace(
        _begun(task), steps_done=run.journal.first, measured=run.measured, ending=finished.ending.name.lower(),
        reason=finished.reason, busy=task.busy, predicted_ratio=finished.predicted, interrupted=finished.interrupted,
    )  # fmt: skip
    if verdicts:
        sizes = tuple(
            Sizes(
                dict(bind), v.before * 1e3, v.after * 1e3, v.ratio.ratio, v.ratio.low, v.ratio.high,
                tuple(PairMs(one.before * 1e3, one.after * 1e3, one.generation, one.base_first) for one in v.rounds),
            )
            for bind, v in zip(task.settings.bind or ({},), verdicts, strict=True)
        )  # fmt: skip
        when = verdicts[0].when
        timed_at = strftime("%Y-%m-%d %H:%M", localtime(when)) if when else ""
        report = replace(report, before_ms=verdicts[0].before * 1e3, sizes=sizes, timed_at=timed_at)
    if finished.contender:
        return _rewritten(finished, finished.contender, report, run)
    report = replace(report, kept_original=True, ratio=1.0, after=report.before)
    if verdicts:
        report = replace(report, after_ms=report.before_ms, ratio_low=1.0, ratio_high=1.0, max_rel_error=0.0)
    model = with_plan(_portable(task, task.model), task, run)
    return Optimized(model, _complete(task, replace(report, details=detailed(task, run, report, model)), run))


def canonical(task: Task, run: RunState) -> Optimized:
    """The model as import and export leave it, where there is no time for anything else."""
    imported = task.imported
    for fewest in (False, True):
        model = export(imported.context, imported.graph, task.rules, growth=task.settings.file_growth, fewest=fewest)
        model = _portable(task, model)
        if len(model.graph.node) <= len(_portable(task, task.model).graph.node):
            break
    else:
        return write(Finished(task, None, Ending.MORE_NODES), run)
    if not accepted(model, task.model):
        return write(Finished(task, None, Ending.REFUSED), run)
    ending = Ending.CANONICAL
    report = replace(_begun(task), kept_original=False, ending=ending.name.lower(), reason=ending, after=size_of(model))
    model = with_plan(model, task, run)
    return Optimized(model, _complete(task, report, run))


def _portable(task: Task, model: ModelProto) -> ModelProto:
    """The model as it is asked for: with functions, or without."""
    return inlined(model) if task.settings.portable == "inline" else model


def size_of(model: ModelProto) -> Counts:
    """Return the counts of a model."""
    return Counts(*counts(model))


def _begun(task: Task) -> Report:
    return Report(task.where, str(task.machine), 0.0, before=task.size, rules=task.rules.digest)


def _rewritten(finished: Finished, contender: Contender, report: Report, run: RunState) -> Optimized:
    assert run.referenced
    task, model, verdicts = finished.task, contender.model, finished.verdicts
    proofs = proved_again(run.referenced, run, contender.candidate)
    places = run.referenced.checker.story.of(contender.candidate).places
    steps = steps_of(contender.candidate, run.referenced.proven.verdicts, proofs, places, task.rules)
    seconds = {one.candidate: timed.after for one in run.checked if (timed := run.timing(one))}
    if verdicts:
        seconds[contender.candidate] = verdicts[0].after
    report = replace(
        report, kept_original=False, max_rel_error=contender.error, steps=steps, after=size_of(model),
        predicted_ratio=report.predicted_ratio or run.predicted(contender.candidate),
        story=story_of(contender.candidate, seconds),
    )  # fmt: skip
    run.notes += [line for step in contender.candidate.path() for line in run.kernels.get(step, ())]
    if loose := nonfinite(steps, task.rules):
        run.note(f"by {', '.join(loose)} {NUMERICS[NONFINITE]}; `--strict-floats` does without")
        report = replace(report, finite_only=True)
    run.clock.enter("writing")
    values = {"dslc.target": str(task.machine), "dslc.rules": ", ".join(step.rule for step in steps)}
    if verdicts:
        after, ratio = verdicts[0].after * 1e3, verdicts[0].ratio
        report = replace(report, after_ms=after, ratio=ratio.ratio, ratio_low=ratio.low, ratio_high=ratio.high)
        values["dslc.ratio"] = str(ratio)
    if finished.alone:
        worst = min(finished.alone, key=lambda one: one.ratio.ratio)
        without = Without(worst.after * 1e3, worst.ratio.ratio, worst.ratio.low, worst.ratio.high)
        report = replace(report, without_library=without)
        values["dslc.ratio_without_library"] = str(worst.ratio)
    if model.ir_version != task.model.ir_version:
        run.note(f"the IR version was raised from {task.model.ir_version} to {model.ir_version}")
    note(model, values)
    model = with_plan(model, task, run)
    report = replace(
        report, details=detailed(task, run, report, model, contender), generators=_generators(run, contender)
    )
    return Optimized(model, _complete(task, report, run))


def _generators(run: RunState, contender: Contender | None = None) -> tuple[Generator, ...]:
    """Return the counts of proposals by generator, and what became of them."""
    path = set(contender.candidate.path()) if contender else set()
    return tuple(
        Generator(
            name, len(one.proposed), sum(bool(each.kernels) for each in one.proposed), len(one.checked),
            sum(each in path for each in one.proposed), round(one.seconds, 3),
        )
        for name, one in run.tallies.items()
    )  # fmt: skip


def _complete(task: Task, report: Report, run: RunState) -> Report:
    """The report with what the run as a whole took, and what there is to say about it."""
    asked = run.unrunnable if task.settings.only else not_standard(run.unrunnable)
    why = "ONNX Runtime cannot run what it builds, or ONNX cannot say it; an operator without an `onnx` clause would be a kernel"
    run.warn(*(f"{name} was not used: {why}" for name in asked))
    for line in chain.from_iterable(run.untaken.values()):
        run.note(line)
    left = run.clock.left()
    early = EARLY * task.settings.budget < left < inf and not report.interrupted
    if run.clock.cuts:
        more = f"; the next step did not fit into the {left:.0f} s that were left" if early else ""
        run.note(f"cut short by the budget of {task.settings.budget:g} s: {', '.join(run.clock.cuts)}{more}")
        if run.clock.starved:
            got = f"{run.clock.processor:.0f} s of processor time in {run.clock.seconds:.0f} s"
            run.note(f"the process got {got}: small gains cannot be told from noise")
    elif early and not run.journal.repeats:
        why = "the search gained nothing any more (--patience)" if run.journal.idle else "nothing was left to try"
        run.note(f"ended {left:.0f} s before its budget: {why}")
    return replace(
        report,
        seconds=round(run.clock.seconds, 3),
        budget=task.settings.budget,
        phases={name: round(seconds, 3) for name, seconds in run.clock.phases.items()},
        cut=run.clock.cuts,
        processor=round(run.clock.processor, 3),
        moments={name: round(seconds, 3) for name, seconds in run.clock.moments.items()},
        warnings=tuple(run.warnings),
        notes=tuple(dict.fromkeys(run.notes)),
        timeline=tuple(PhaseSpan(name, round(begin, 3), round(end, 3)) for name, begin, end in run.clock.timeline()),
        generators=report.generators or _generators(run),
        asked=run.asked,
    )


#: whose versions decide what a run does
PACKAGES = ("onnx", "onnxruntime", "numpy")


def detailed(
    task: Task, run: RunState, report: Report, model: ModelProto, contender: Contender | None = None
) -> Details | None:
    """Return what a page shows; None where it was not asked for.

    `contender` is what was written as `model`, None for the original.
    """
    if not task.settings.detailed:
        return None
    run.phase("profiling")
    replaced: dict[str, list[str]] = {}
    gone = _gone(run.referenced.checker.story, contender.candidate) if contender and run.referenced else ()
    for rule, place in (*gone, *((step.rule, place) for step in report.steps for place in step.places)):
        replaced.setdefault(place, []).append(rule)
    original = pictured(task.model)
    before, after = compared(original, pictured(model), replaced, [step.rule for step in report.steps])
    if run.referenced and task.target.measured and not report.interrupted:
        seconds = min(PROFILING, PROFILED * run.clock.left() / 2)
        before = _with_times(before, task.model, run.referenced.file, run, seconds)
        after = _with_times(after, model, contender.file, run, seconds) if contender else before
    built = task.target.kernels is OwnKernels.BUILT
    kernels = () if not contender or not built else _kernels(task, contender, model)
    processor = str(task.machine.processor) if built else ""
    return Details(before, after, kernels, processor, versions(), task.settings.command, run.plan)


def _gone(names: NameHistory, candidate: Candidate) -> Iterator[tuple[str, str]]:
    """Each step's rule with the nodes of the file that the step left none of."""
    held: set[str] = set()
    for step in candidate.path():
        called = names.of(step).naming.nodes
        left = {called[node].place for node in step.graph.nodes() if node in called and not called[node].rule}
        yield from ((step.rule, place) for place in held - left)
        held = left


def versions() -> dict[str, str]:
    """Versions of dslc, of Python and of what decides what a run does."""
    found = {"dslc": __version__, "Python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _with_times(picture: Picture, model: ModelProto, file: ModelFile, run: RunState, seconds: float) -> Picture:
    """The picture of a model with what its nodes take where the runtime still calls them so."""
    assert run.referenced
    feeds = run.referenced.inputs[0].feeds[0]
    times = profiled(file, feeds, run.referenced.task.machine.threads, seconds)
    # the runtime names nodes that have no name by their place
    placed = {
        f"{node.op_type}_{k}": next(iter(node.output), "") for k, node in enumerate(model.graph.node) if not node.name
    }
    times = tuple(replace(one, name=placed.get(one.name, one.name)) for one in times)
    known: dict[str, float] = {}
    for one in times:
        # what the runtime made of a node has a name of its node's, or of what that gives
        name = one.name.removeprefix("fused ").removesuffix("_nchwc")
        known[name] = known.get(name, 0.0) + one.milliseconds
    timed = (
        next((known[name] for name in (node.name, *node.outputs) if name in known), None) for node in picture.nodes
    )
    nodes = tuple(replace(node, milliseconds=ms) for node, ms in zip(picture.nodes, timed, strict=True))
    return replace(picture, times=times, nodes=nodes)


def _kernels(task: Task, contender: Contender, model: ModelProto) -> tuple[KernelCode, ...]:
    """The C++ of the kernels of a model, with the nodes that run each."""
    context = task.imported.context
    graph = graph_as_kernels(task.rules, contender.candidate.graph, context)
    texts = texts_of(task.rules, graph.outputs, context.opset, contender.candidate.kernels, task.machine.processor)
    users: dict[str, list[str]] = {}
    for node in model.graph.node:
        if node.op_type in texts:
            users.setdefault(node.op_type, []).append(node.name or next(iter(node.output), ""))
    return tuple(KernelCode(name, tuple(nodes), texts[name].text) for name, nodes in users.items())


def steps_of(
    candidate: Candidate, verdicts: Mapping[str, RuleVerdict], validated: Validated, places: Iterable[tuple[str, str]],
    rules: Rules,
) -> tuple[Step, ...]:  # fmt: skip
    """Return for every rule of a candidate's path how often it was applied, what that was predicted to save, its proof, and where.

    `rules` say what it is.
    """
    where: dict[str, dict[str, None]] = {}
    for rule, place in places:
        where.setdefault(rule, {})[place] = None
    total: dict[str, tuple[int, float]] = {}
    for step in candidate.path():
        if step.rule:
            count, gain = total.get(step.rule, (0, 0.0))
            total[step.rule] = (count + step.count, gain + step.gain)
    out = [
        Step(
            name,
            count,
            gain * 1e3,
            _status(name, verdicts, validated),
            validated.how.get(name, ""),
            tuple(where.get(name, ())),
            "\n\n".join(dict.fromkeys(one.syntax.span.text for one in _definitions(name, rules).values())),
        )
        for name, (count, gain) in total.items()
    ]
    return tuple(sorted(out, key=lambda step: -step.gain_ms))


def nonfinite(steps: Iterable[Step], rules: Rules) -> tuple[str, ...]:
    """Return the names of those rules of the steps that say that they change infinities, NaN and overflows."""
    found = {name: one for step in steps for name, one in _definitions(step.rule, rules).items()}
    return tuple(name for name, one in found.items() if not keeps_nonfinite(one.syntax))


def _definitions(step: str, rules: Rules) -> dict[str, SubstitutionDef | DerivationDef]:
    """Return the rules that a step names, as their libraries have them."""
    known: dict[str, SubstitutionDef | DerivationDef] = {**rules.derivations, **rules.substitutions}
    return {one: known[one] for one in named_rules(step) if one in known}


def story_of(candidate: Candidate, measured: Mapping[Candidate, float] = MappingProxyType({})) -> tuple[Turn, ...]:
    """The steps of a candidate's path in their order; `measured` has the seconds of the candidates that were timed."""
    steps = [step for step in candidate.path() if step.rule]
    timed = [measured[step] * 1e3 if step in measured else None for step in steps]
    return tuple(
        [Turn(one.rule, one.count, one.cost * 1e3, one.gain * 1e3, ms) for one, ms in zip(steps, timed, strict=True)]
    )


def _status(name: str, verdicts: Mapping[str, RuleVerdict], validated: Validated) -> str:
    """Return the status of its rules; a step of derivations has no rules, and was proved as it is."""
    status = status_of(name, verdicts)
    return "proved" if status == "undecided" and validated.how.get(name) == "exact" else status

"""The last stage: the model with what dslc notes in it, and the report."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from onnx import ModelProto

from dslc.onnx.describe import counts, note
from dslc.onnx.exporter import export
from dslc.onnx.functions import inlined
from dslc.onnx.runtime import accepted
from dslc.report import Counts, Generator, PairMs, PhaseSpan, Report, Sizes, Without
from dslc.search.phases.details import detailed
from dslc.search.rewrites.candidate import Candidate
from dslc.search.rewrites.rulesets import not_standard
from dslc.search.runs.contenders import Contender
from dslc.search.runs.planning import with_plan
from dslc.search.runs.progress import Run
from dslc.search.runs.proving import proved_again
from dslc.search.runs.stages import Finished, Optimized, Task
from dslc.search.runs.steps import nonfinite, steps_of, story_of
from dslc.search.runs.tuning import EARLY
from dslc.semantics.numerics import NONFINITE
from dslc.syntax.vocabulary import NUMERICS


def write(finished: Finished, run: Run) -> Optimized:
    """The model and the report; where it goes is the caller's matter."""
    report = replace(_measured(finished, run), interrupted=finished.interrupted)
    if finished.contender is None:
        return _original(finished, report, run)
    return _rewritten(finished, finished.contender, report, run)


def _with_plan(model: ModelProto, task: Task, run: Run) -> ModelProto:
    """A model with its plan, where the target has one; what is said of it goes into the notes."""
    if task.target.measured:
        return model
    run.clock.enter("planning")
    planned, notes = with_plan(model, task, run)
    run.notes += notes
    return planned


def canonical(task: Task, run: Run) -> Optimized:
    """The model as import and export leave it, where there is no time for anything else."""
    imported = task.imported
    for fewest in (False, True):
        model = export(imported.context, imported.graph, task.rules, growth=task.settings.file_growth, fewest=fewest)
        model = _portable(task, model)
        if len(model.graph.node) <= len(_portable(task, task.model).graph.node):
            break
    else:
        return write(Finished(task, None, "its canonical form has more nodes"), run)
    if not accepted(model, task.model):
        return write(Finished(task, None, "ONNX Runtime loads it, and refuses its canonical form"), run)
    reason = "canonical form, nothing measured"
    report = replace(_begun(task), kept_original=False, reason=reason, after=size_of(model))
    model = _with_plan(model, task, run)
    return Optimized(model, _complete(task, report, run))


def _portable(task: Task, model: ModelProto) -> ModelProto:
    """The model as it is asked for: with functions, or without."""
    return inlined(model) if task.settings.portable == "inline" else model


def size_of(model: ModelProto) -> Counts:
    return Counts(*counts(model))


def _begun(task: Task) -> Report:
    return Report(task.where, str(task.machine), 0.0, before=task.size, rules=task.rules.digest)


def _measured(finished: Finished, run: Run) -> Report:
    """What was measured, whichever model is written."""
    report, verdicts = _begun(finished.task), finished.verdicts
    if run.explored is not None:
        report = replace(report, steps_done=run.explored.steps, measured=run.explored.measured)
    elif run.journal.begun:
        report = replace(report, steps_done=run.journal.first)
    report = replace(report, reason=finished.reason, predicted_ratio=finished.predicted)
    if not verdicts:
        return report
    binds = finished.task.settings.bind or ({},)
    sizes = tuple(
        Sizes(
            dict(bind),
            v.before * 1e3,
            v.after * 1e3,
            v.ratio.ratio,
            v.ratio.low,
            v.ratio.high,
            tuple(PairMs(one.before * 1e3, one.after * 1e3, one.generation, one.base_first) for one in v.rounds),
        )
        for bind, v in zip(binds, verdicts, strict=True)
    )
    return replace(report, before_ms=verdicts[0].before * 1e3, sizes=sizes)


def _original(finished: Finished, report: Report, run: Run) -> Optimized:
    report = replace(report, kept_original=True, ratio=1.0, after=report.before)
    if finished.verdicts:
        report = replace(report, after_ms=report.before_ms, ratio_low=1.0, ratio_high=1.0, max_rel_error=0.0)
    model = _with_plan(_portable(finished.task, finished.task.model), finished.task, run)
    report = replace(report, details=detailed(finished.task, run, report, model))
    return Optimized(model, _complete(finished.task, report, run))


def _rewritten(finished: Finished, contender: Contender, report: Report, run: Run) -> Optimized:
    assert run.referenced is not None
    task, model, verdicts = finished.task, contender.model, finished.verdicts
    proofs = proved_again(run.referenced, run, contender.candidate)
    places = run.referenced.checker.story.of(contender.candidate).places
    steps = steps_of(contender.candidate, run.referenced.proven.verdicts, proofs, places, task.rules)
    report = replace(
        report, kept_original=False, max_rel_error=contender.error, steps=steps, after=size_of(model),
        story=story_of(contender.candidate, _measured_seconds(contender, finished, run)),
    )  # fmt: skip
    run.notes += [line for step in contender.candidate.path() for line in run.kernels.get(step, ())]
    if loose := nonfinite(steps, task.rules):
        run.note(f"by {', '.join(loose)} {NUMERICS[NONFINITE]}; `--strict-floats` does without")
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
    model = _with_plan(model, task, run)
    report = replace(
        report, details=detailed(task, run, report, model, contender), generators=_generators(run, contender)
    )
    return Optimized(model, _complete(task, report, run))


def _measured_seconds(contender: Contender, finished: Finished, run: Run) -> dict[Candidate, float]:
    """Seconds of the candidates that were timed in this run, and of the one that is written, at the first choice of sizes."""
    judge = run.judges.get(False)
    known = [(one.candidate, None if judge is None else judge.so_far(one)) for one in run.checked]
    found = {candidate: verdict.after for candidate, verdict in known if verdict is not None}
    return found | ({contender.candidate: finished.verdicts[0].after} if finished.verdicts else {})


def _generators(run: Run, contender: Contender | None = None) -> tuple[Generator, ...]:
    """Who offered what, and what became of it."""
    path = set(contender.candidate.path()) if contender is not None else set()
    return tuple(
        Generator(
            name, len(one.proposed), sum(bool(each.kernels) for each in one.proposed), len(one.checked),
            sum(each in path for each in one.proposed), round(one.seconds, 3),
        )
        for name, one in run.tallies.items()
    )  # fmt: skip


def _complete(task: Task, report: Report, run: Run) -> Report:
    """The report with what the run as a whole took, and what there is to say about it."""
    asked = run.unrunnable if task.settings.only else not_standard(run.unrunnable)
    why = "ONNX Runtime cannot run what it builds, or ONNX cannot say it; an operator without an `onnx` clause would be a kernel"
    run.notes += [f"{name} was not used: {why}" for name in asked]
    for line in (line for lines in run.untaken.values() for line in lines):
        run.note(line)
    left = run.clock.left()
    early = EARLY * task.settings.budget < left < inf and not report.interrupted
    if run.clock.cuts:
        more = f"none of it fits into the {left:.0f} s that are left" if early else "more time may find more"
        run.note(f"the budget of {task.settings.budget:g} s cut short: {', '.join(run.clock.cuts)}; {more}")
        if run.clock.starved:
            run.note(f"the process got {run.clock.processor:.0f} s of processor time in {run.clock.seconds:.0f} s")
    elif early and not run.journal.repeats:
        run.note(f"ended {left:.0f} s before its budget: {_why_early(run)}")
    return replace(
        report,
        seconds=round(run.clock.seconds, 3),
        budget=task.settings.budget,
        phases={name: round(seconds, 3) for name, seconds in run.clock.phases.items()},
        cut=run.clock.cuts,
        processor=round(run.clock.processor, 3),
        moments={name: round(seconds, 3) for name, seconds in run.clock.moments.items()},
        notes=tuple(dict.fromkeys(run.notes)),
        timeline=tuple(PhaseSpan(name, round(begin, 3), round(end, 3)) for name, begin, end in run.clock.timeline()),
        generators=report.generators or _generators(run),
        asked=() if run.scheduled is None else tuple(run.scheduled.asked()),
    )


def _why_early(run: Run) -> str:
    idle = run.journal.idle
    return "the search gained nothing any more (--patience)" if idle else "nothing was left to try"

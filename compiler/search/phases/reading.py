"""The first stages: what was asked for, and which rules may be used."""

from __future__ import annotations

from math import inf
from pathlib import Path

from onnx import ModelProto

from dslc.cost.inputs import given_inputs
from dslc.cost.machine import busy
from dslc.deadline import Deadline
from dslc.errors import error
from dslc.folders import cache_folder
from dslc.onnx.functions import inlined
from dslc.onnx.importer import import_model
from dslc.onnx.inputs import wanted_inputs
from dslc.onnx.protos import read_model
from dslc.onnx.pytorch import from_file, is_program_file
from dslc.onnx.types import complete_bind
from dslc.prove.evidence.dependencies import settle_traits, trust_locks
from dslc.prove.verdict import RuleVerdict
from dslc.report import Report
from dslc.search.options.settings import Settings
from dslc.search.phases.writing import size_of
from dslc.search.runs.contenders import with_kernels
from dslc.search.runs.endings import Ending
from dslc.search.runs.selection import (
    LATE,
    AppliedRule,
    applied_rules,
    chosen_rules,
    left_out,
    not_standard,
    statuses,
    usable,
)
from dslc.search.runs.stages import Optimized, Proven, Task
from dslc.search.runs.state import RunState
from dslc.semantics.library import load_many, modules_of, standard
from dslc.semantics.trust import belongs

PROOFS = 0.25  #: share of the budget that proofs of a user's rules may take
WRITING = 0.5  #: seconds that writing the result takes
READ = 0.3  #: part of the time of reading the model that writing takes beside that


def read(source: str | Path | ModelProto, settings: Settings, run: RunState) -> Task:
    """The rules that were asked for, and the model as a graph."""
    run.phase("reading", "reading the model's file")
    began = run.clock.seconds
    if is_program_file(source):
        source = from_file(source)
    model, folder, where = read_model(source)
    run.original = model, where
    taken = run.clock.seconds - began
    if settings.inputs is not None:
        # what is wrong with them is said before any work, and also where nothing runs
        given_inputs(settings.inputs, model)
    run.phase("reading", "reading rules")
    rules = load_many(["std", *settings.rules]) if settings.rules else standard()
    trust_locks(rules, settings.trust_lock)
    settle_traits(rules, until=_proving(run, settings))
    searched = settings.apply is None or settings.budget > 0
    chosen = chosen_rules(rules, settings.only, settings.disable, settings.strict_floats) if searched else []
    applied = (
        () if settings.apply is None else applied_rules(rules, settings.apply, settings.disable, settings.strict_floats)
    )
    for name in settings.trust:
        if not any(belongs(module, name) for module in rules.modules):
            known = ", ".join(dict.fromkeys(module.library for module in rules.modules))
            raise error("E0909", f"no library of these rules is named `{name}`", hint=f"libraries: {known}")
    if settings.rules:
        named = modules_of(rules, map(str, settings.rules))
        derived = settings.derive and with_kernels(settings)
        run.warn(*left_out(rules, list(dict.fromkeys(module.library for module in named)), derived))
    run.phase("reading", "reading the model")
    target = settings.target()
    if target.measured and settings.device is not None:
        run.warn(
            f"--device {settings.device} changes nothing: on {target.name} times are measured, not priced by data sheet"
        )
    began = run.clock.seconds
    values = set(wanted_inputs(model))
    first = settings.bind[0] if settings.bind else {}
    sizes = {name: size for name, size in first.items() if name not in values}
    imported = import_model(source, rules, sizes if settings.specialize else {})
    if not settings.specialize:
        complete_bind(model, sizes, where)
    writing = WRITING + READ * (taken + run.clock.seconds - began)
    return Task(
        settings, model, folder, where, size_of(model), imported, rules, tuple(chosen), target, sizes, writing, applied, busy(),
    )  # fmt: skip


def _proving(run: RunState, settings: Settings) -> Deadline:
    """Return the end of the proofs of rules and laws that are not proved here yet."""
    return run.clock.until().part(most=PROOFS * settings.budget or inf)


def prove_rules(task: Task, run: RunState) -> Proven:
    """The rules that are proved or allowed; what is left out is noted, where a user asked for it."""
    run.phase("proving rules", "looking up proofs")
    settings = task.settings
    definitions = list(dict.fromkeys([rule.definition for rule in (*task.chosen, *(one.rule for one in task.applied))]))
    until = _proving(run, settings)

    def told(done: int, total: int) -> None:
        run.progress.phase(f"proving rules: {done} of {total}")

    verdicts = statuses(task.rules, definitions, cache_folder(settings.cache), settings.allow, told, until)
    used, out = usable(task.chosen, verdicts, settings.allow)
    always = {one.rule.name: one.always for one in task.applied}
    kept, unused = usable([one.rule for one in task.applied], verdicts, settings.allow)
    out |= unused
    if any(verdict.reason == LATE for verdict in out.values()):
        run.cut("proving rules")
    # rules of the standard library were not asked for by name
    asked = list(out) if settings.only or settings.apply else not_standard(out)
    run.warn(*(_why_left_out(name, out[name]) for name in asked))
    return Proven(task, tuple(used), verdicts, tuple([AppliedRule(rule, always[rule.name]) for rule in kept]))


def _why_left_out(name: str, verdict: RuleVerdict) -> str:
    if verdict.status == "refuted":
        return f"{name} was left out: it is refuted; `dslc verify` shows where its sides differ"
    why = f" ({LATE}; `dslc verify` proves it)" if verdict.reason == LATE else ""
    return f"{name} was left out: it is {verdict.status}{why}; `--allow {verdict.status}` uses it"


def unread(settings: Settings, run: RunState) -> Optimized:
    """Return the original, where reading the rules and the model was interrupted.

    Raises:
        KeyboardInterrupt: it was interrupted before the model's file was read.
    """
    if run.original is None:
        raise KeyboardInterrupt
    model, where = run.original
    size = size_of(model)
    report = Report(
        where, str(settings.target().machine), round(run.clock.seconds, 3), ratio=1.0, before=size, after=size, interrupted=True,
        ending=Ending.STOPPED_READING.name.lower(), reason=Ending.STOPPED_READING, warnings=tuple(run.warnings), notes=tuple(run.notes),
        budget=settings.budget,
        phases={name: round(seconds, 3) for name, seconds in run.clock.phases.items()},
    )  # fmt: skip
    return Optimized(inlined(model) if settings.portable == "inline" else model, report)

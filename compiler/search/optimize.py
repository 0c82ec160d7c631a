"""`dslc optimize`: import, search, check, time, and the original where nothing is faster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from onnx import ModelProto

from dslc.analysis.counts import known_flops
from dslc.cost.cache import CostCache
from dslc.cost.clock import Clock, TimeUp
from dslc.cost.compare import Reference
from dslc.cost.inputs import Inputs
from dslc.cost.machine import Target, target
from dslc.cost.measure import Measurer
from dslc.cost.model import CostModel
from dslc.cost.process import ModelFile, WorkerFailed
from dslc.cost.steady import meaning
from dslc.cost.timing import FEWEST, MemoryShort, Times
from dslc.errors import DslcError
from dslc.folders import cache_folder
from dslc.match import CompiledRule
from dslc.onnx.context import Imported
from dslc.onnx.describe import counts, digest, note
from dslc.onnx.exporter import export, node_model
from dslc.onnx.importer import import_model
from dslc.onnx.inputs import wanted_inputs
from dslc.onnx.protos import read_model
from dslc.onnx.runtime import accepted
from dslc.onnx.weakest import computed_types
from dslc.prove.verdict import RuleVerdict
from dslc.report import Counts, Report, Sizes
from dslc.search.candidate import Candidate
from dslc.search.contenders import Checker, Contender, distinct, folder_of, serialized
from dslc.search.hunting import Hunt, Journal, Shares
from dslc.search.judge import Judged, Verdict, judge, winner
from dslc.search.originals import Original, Unusable, original_at
from dslc.search.rulesets import chosen_rules, left_out
from dslc.search.settings import Settings
from dslc.search.sizes import sizes_of
from dslc.search.statuses import LATE, statuses, usable
from dslc.search.steps import steps_of
from dslc.semantics.library import Rules, load_many, modules_of, standard

#: contenders that are timed to the end, after all were timed briefly: for such a part of the time
FINAL, BRIEF = 2, 0.25
#: what rules of a user's may take to be proved, of the budget; and what writing takes, in seconds, with such a part of the time of
#: reading
PROOFS, WRITING, READ = 0.25, 0.5, 0.3
#: measuring again takes such a part of the budget
AGAIN = 0.05
#: operations up to which the original is computed by its operators' equations, where a comparison fails
MEANT = 1e7
#: after Ctrl-C, seconds for checking the best so far
GRACE = 5.0


@dataclass(frozen=True, slots=True)
class Optimized:
    """The written model, and what was found. `model` refers to the same external data as the original."""

    model: ModelProto
    report: Report


def optimize(source: str | Path | ModelProto, settings: Settings, clock: Clock | None = None) -> Optimized:
    """Runs the whole pipeline within the settings' budget, counted by the clock of the command where there is one.

    Raises:
        DslcError: what is wrong with the model, the rules, the inputs or the options.
        KeyboardInterrupt: before the model was read, or a second time; the first one ends the search with the best so far.
    """
    return _Run(source, settings, clock or Clock(settings.budget or inf)).run()


class _Kept(Exception):
    """The original is kept, and why."""


class _Run:
    def __init__(self, source: str | Path | ModelProto, settings: Settings, clock: Clock) -> None:
        self.clock = clock
        self.settings = settings
        self.progress = settings.progress
        self.notes: list[str] = []
        self._phase("reading", "reading rules")
        self.rules: Rules = load_many(["std", *settings.rules]) if settings.rules else standard()
        self.chosen: list[CompiledRule] = chosen_rules(
            self.rules, settings.only, settings.disable, settings.strict_floats
        )
        if settings.rules:
            named = modules_of(self.rules, map(str, settings.rules))
            self.notes += left_out(self.rules, list(dict.fromkeys(module.library for module in named)))
        self.verdicts: dict[str, RuleVerdict] = {}
        self.cost: dict[Candidate, float] = {}
        self.start: Candidate | None = None
        #: seconds of what was measured of the start
        self.part = 0.0
        self.hunt: Hunt | None = None
        self.checker: Checker | None = None
        self.times = Times()
        self.timed: list[Contender] = []
        #: seconds of the search's budget that are kept while costs are measured
        self.keep = 0.0
        #: seconds of loading the model in a new process
        self.load = 0.0
        self._phase("reading", "reading the model")
        self.original, self.folder, self.where = read_model(source)
        self.values = set(wanted_inputs(self.original))
        first = self._dimensions(settings.bind[0]) if settings.bind else {}
        self.imported: Imported = import_model(source, self.rules, first if settings.specialize else {})
        if not settings.specialize:
            import_bind_check(self.original, first, self.where)
        self.target: Target = target(settings.threads)
        self.before = Counts(*counts(self.original))
        self.report = Report(self.where, str(self.target), 0.0, before=self.before, rules=self.rules.digest)
        self.writing = WRITING + READ * clock.seconds

    def _phase(self, name: str, label: str = "") -> None:
        self.clock.enter(name)
        self.progress.phase(label or name)

    def run(self) -> Optimized:
        try:
            try:
                if self.settings.budget == 0:
                    return self._canonical()
                with CostCache(self.settings.cache, self.notes.append) as self.cache:
                    return self._searched()
            except (_Kept, Unusable) as reason:
                return self._keep(str(reason))
            except TimeUp:
                self.clock.cut("comparing outputs")
                return self._keep(f"the budget of {self.settings.budget:g} s left no time to check a rewritten model")
        except KeyboardInterrupt:
            return self._interrupted()
        except Exception:
            if not self.settings.interrupts():
                raise
            return self._interrupted()

    def _dimensions(self, bind: Mapping[str, int]) -> dict[str, int]:
        """The entries of `bind` that are sizes, and not values of integer inputs."""
        return {name: size for name, size in bind.items() if name not in self.values}

    # ---- without searching ----------------------------------------------------------------------------------------

    def _canonical(self) -> Optimized:
        model = export(self.imported.context, self.imported.graph, self.rules)
        if not accepted(model, self.original):
            return self._keep("ONNX Runtime loads it, and refuses its canonical form")
        report = self._finished(
            replace(
                self.report,
                kept_original=False,
                reason="canonical form, nothing measured",
                after=Counts(*counts(model)),
            )
        )
        return Optimized(model, report)

    def _keep(self, reason: str) -> Optimized:
        report = replace(self.report, kept_original=True, reason=reason, ratio=1.0, after=self.report.before, steps=())
        if report.before_ms is not None:
            report = replace(report, after_ms=report.before_ms, ratio_low=1.0, ratio_high=1.0)
        return Optimized(self.original, self._finished(report))

    def _finished(self, report: Report) -> Report:
        if self.hunt is not None:
            asked = self.hunt.unrunnable if self.settings.only else _not_standard(self.hunt.unrunnable)
            self.notes += [f"{name} was not used: ONNX Runtime cannot run what it builds, or ONNX cannot say it" for name in asked]
        if self.clock.cuts:
            self.notes.append(f"the budget of {self.settings.budget:g} s cut short: {', '.join(self.clock.cuts)}")
        return replace(
            report,
            seconds=round(self.clock.seconds, 3),
            budget=self.settings.budget,
            phases={name: round(seconds, 3) for name, seconds in self.clock.phases.items()},
            cut=self.clock.cuts,
            notes=tuple(dict.fromkeys(self.notes)),
        )

    # ---- the search -------------------------------------------------------------------------------------------------

    def _reliable_rules(self) -> None:
        """Leaves out rules that are neither proved nor allowed."""
        self._phase("proving rules", "looking up proofs")
        definitions = list(dict.fromkeys(rule.definition for rule in self.chosen))
        end = min(self.clock.end(), self.clock.now() + PROOFS * self.settings.budget)

        def told(done: int, total: int) -> None:
            self.progress.phase(f"proving rules: {done} of {total}")

        def left() -> float:
            return max(0.0, end - self.clock.now())

        folder = cache_folder(self.settings.cache)
        self.verdicts = statuses(self.rules, definitions, folder, self.settings.allow, told, left)
        self.chosen, out = usable(self.chosen, self.verdicts, self.settings.allow)
        if any(verdict.reason == LATE for verdict in out.values()):
            self.clock.cut("proving rules")
        if not self.settings.only:
            # of the standard library nobody asked for these rules by name
            kept = set(_not_standard(list(out)))
            out = {name: verdict for name, verdict in out.items() if name in kept}
        for name, verdict in out.items():
            if verdict.status == "refuted":
                self.notes.append(f"{name} was left out: it is refuted; `dslc verify` shows where its sides differ")
            else:
                why = f" ({LATE}; `dslc verify` proves it)" if verdict.reason == LATE else ""
                self.notes.append(f"{name} was left out: it is {verdict.status}{why}; `--allow {verdict.status}` uses it")

    def _searched(self) -> Optimized:
        self._reliable_rules()
        file = self._original_file()
        self._phase("running the original")
        originals = self._originals(file)
        inputs = [one.inputs for one in originals]
        self.load = max(one.load for one in originals)
        if self.clock.left() <= 0:
            raise TimeUp
        identity = digest(self.original, self.folder)
        journal, run_key = self._journal(identity)
        whole = self._whole(identity, originals[0])
        measurer = Measurer(self.target, self.cache, self._measuring, lambda: self.clock.within("measuring"))
        repeated = journal.earlier is not None
        try:
            costs = CostModel(self.rules, measurer, self._build, self.imported.context.opset, self._sizes(inputs[0]))
            costs.begin(self.imported.graph, whole)
            self.start = start = Candidate(self.imported.graph, costs.graph_cost(self.imported.graph))
            self.checker = Checker(
                self.imported.context, self.rules, [one.reference for one in originals], inputs, self.target.threads,
                self.settings.tolerance, file, computed_types(self.imported), self._meant(originals[0].reference.names),
                self.clock.left, self.before.bytes,
            )  # fmt: skip
            shares = Shares.of(self.settings.budget, originals[0].load, self.settings.timing)
            self.hunt = Hunt(
                self.rules, self.chosen, self.verdicts, self.settings, self.clock, journal, shares, self._phase, self.notes
            )
            # what is repeated measures nothing new: it ends where it ended before
            self.keep = inf if repeated else self.hunt.shares.search
            contenders = self.hunt.contenders(start, costs, self.checker, self.before)
            # only the prediction of the report rests on it
            self.keep = inf if repeated else max(self.hunt.shares.again, self._share_left() - AGAIN)
            self._predict(costs, contenders)
        finally:
            measurer.close()
        # a search that time cut short before it found anything is no example
        example = bool(contenders) or not any(limits.late for limits in journal.begun)
        if self.settings.steps is None and not repeated and example:
            self.cache.put_verdict(run_key, {"steps": journal.steps})
        self.report = replace(self.report, steps_done=journal.steps[0], measured=measurer.count)
        if not contenders:
            if self.hunt.guilty:
                raise _Kept("no rewritten model gives the same outputs")
            late = any(limits.late for limits in journal.begun)
            raise _Kept("the search found no gain in its time" if late else "no rule predicts a gain")
        return self._judged(file, identity, contenders, inputs)

    def _meant(self, names: tuple[str, ...]) -> Callable[[Mapping[str, Any]], Reference | None]:
        """What the original gives by its operators' equations, where that takes no long time."""
        operations = known_flops(self.imported.graph.outputs)
        if operations is None or operations > MEANT:
            return lambda _: None
        return meaning(self.rules, self.imported.graph, names)

    def _predict(self, costs: CostModel, contenders: Sequence[Contender]) -> None:
        """What the original and the contenders cost, measured again in the same rounds."""
        assert self.start is not None
        every = (self.start, *(one.candidate for one in contenders))
        self.cost = {one: one.cost for one in every}
        if contenders:
            self._phase("measuring", "measuring again")
            try:
                if costs.confirm(*(one.graph for one in every)):
                    self.clock.cut("measuring")
                self.cost = {one: costs.graph_cost(one.graph) for one in every}
            except TimeUp:
                self.clock.cut("measuring")
            self.part = costs.part()

    def _share_left(self) -> float:
        """The part of the budget that is left."""
        return self.clock.left() / self.settings.budget

    def _measuring(self) -> float:
        """Seconds that are left for costs."""
        return 0.0 if self.keep == inf else self.clock.left(self.keep)

    def _original_file(self) -> ModelFile:
        if self.folder is not None and Path(self.where).is_file():
            return ModelFile(str(Path(self.where).resolve()))
        return ModelFile(serialized(self.original), folder_of(self.folder))

    def _originals(self, file: ModelFile) -> list[Original]:
        """Inputs, outputs and time of the original for every choice of sizes."""
        found = [
            original_at(self.original, file, bind, self.settings, self.target.threads, self.clock)
            for bind in self.settings.bind or ({},)
        ]
        for one in found:
            self.notes.extend(one.inputs.notes)
        return found

    def _whole(self, identity: str, original: Original) -> float:
        """Seconds of the original as a whole, the same in a run that is repeated."""
        shapes = sorted((name, str(array.shape)) for name, array in original.inputs.feeds[0].items())
        key = f"whole:{identity}|{shapes}"
        known = self.cache.seconds(str(self.target), key)
        if known is None:
            known = original.seconds
            self.cache.put_seconds(str(self.target), {key: known})
        return known

    def _journal(self, identity: str) -> tuple[Journal, str]:
        """How many steps an earlier run took: one that is repeated stops where that did, so that it writes the same file."""
        s = self.settings
        used = [rule.name for rule in self.chosen]
        options = (s.layouts, s.alpha, s.seed, s.budget, s.patience, used, s.tolerance, s.specialize, s.timing)
        binds = sorted(tuple(sorted(one.items())) for one in s.bind)
        inputs = None if s.inputs is None else str(Path(s.inputs).resolve())
        key = f"search:{identity}|{self.rules.digest}|{options}|{binds}|{inputs}|{self.target}"
        earlier = None if s.steps is not None else self.cache.verdict(key)
        if earlier is None:
            return Journal(), key
        steps = [int(count) for count in earlier["steps"]]
        self.notes.append(f"stopped after the {steps[0]} steps of an earlier run with the same options")
        return Journal(steps), key

    def _sizes(self, inputs: Inputs) -> dict[str, int]:
        """Sizes of the graph's symbolic dimensions at the first choice of sizes."""
        bound = self._dimensions(self.settings.bind[0]) if self.settings.bind else {}
        graph, context = self.imported.graph, self.imported.context
        folder, left = folder_of(self.folder), self.clock.left
        found = sizes_of(graph, context, self.original, folder, inputs.feeds[0], self.target.threads, left)
        return {**bound, **found}

    def _build(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> bytes | None:
        context = self.imported.context
        try:
            model, _ = node_model(outputs, self.rules, context.opset, context.ir_version, inputs=inputs)
        except DslcError:
            return None
        return serialized(model)

    # ---- the last word ------------------------------------------------------------------------------------------------

    def _judged(
        self, file: ModelFile, identity: str, contenders: list[Contender], inputs: Sequence[Inputs]
    ) -> Optimized:
        if not self.settings.timing:
            return self._written(contenders[0], [])
        self._phase("timing")
        # what the budget left undecided may be decided with another one
        key = f"{identity} {self.settings.budget}"
        self.timed = contenders = self._affordable(contenders)
        try:
            if len(contenders) > FINAL:
                brief = self._timing(file, f"brief {key}", contenders, inputs[0], BRIEF).verdicts
                order = sorted(range(len(contenders)), key=lambda k: -brief[k].ratio.ratio)
                self.timed = contenders = [contenders[k] for k in order[:FINAL]]
            judged = [
                self._timing(file, key, contenders, found, 1 / (len(inputs) - k)) for k, found in enumerate(inputs)
            ]
        except MemoryShort as short:
            raise _Kept(f"it cannot be timed against a rewritten model: {short}") from None
        except TimeUp:
            self.clock.cut("timing")
            raise _Kept(f"the budget of {self.settings.budget:g} s left no time to time a rewritten model") from None
        except WorkerFailed as failed:
            raise _Kept(f"timing failed: {failed}") from None
        verdicts = [one.verdicts for one in judged]
        if any(one.cut for one in judged):
            self.clock.cut("timing")
        chosen = winner(verdicts)
        self.report = replace(self.report, before_ms=verdicts[0][0].before * 1e3)
        if chosen is None:
            best = max(verdicts[0], key=lambda verdict: verdict.ratio.ratio)
            self.report = replace(
                self.report,
                predicted_ratio=self._predicted(contenders[0].candidate),
                max_rel_error=0.0,
                sizes=self._per_size([at[0] for at in verdicts]),
            )
            somewhere = next((v for at in verdicts for v in at if v.faster), None)
            if somewhere is not None:
                raise _Kept(f"what is faster at some sizes ({somewhere.ratio} times as fast) is slower at others")
            raise _Kept(f"no rewritten model was measured to be faster (best: {best.ratio} times as fast)")
        return self._written(contenders[chosen], [at[chosen] for at in verdicts])

    def _affordable(self, contenders: list[Contender]) -> list[Contender]:
        """Those that can be timed against each other in what is left: every generation of processes loads all of them."""
        left = self.clock.left() - self.writing

        def takes(generations: int, count: int) -> float:
            return generations * (count + 1) * self.load

        if left < takes(FEWEST, FINAL):
            return contenders[:1]
        if len(contenders) > FINAL and left < takes(FEWEST, FINAL) + takes(2, len(contenders)) / (1 - BRIEF):
            return contenders[:FINAL]
        return contenders

    def _timing(
        self, file: ModelFile, key: str, contenders: Sequence[Contender], inputs: Inputs, part: float
    ) -> Judged:
        """Verdicts within such a part of the time that is left, without that for writing the result."""
        self.times = Times()
        seconds = max(0.0, self.clock.left() - self.writing) * part
        return judge(
            file, key, contenders, inputs.feeds[0], self.target, seconds, self.cache, self.clock, self.times,
            self.load,
        )  # fmt: skip

    def _predicted(self, found: Candidate) -> float:
        """How many times as fast a candidate should be: what it saves of the original, or of what was measured of that where these
        parts by themselves take longer than the whole."""
        assert self.start is not None
        before = self.cost.get(self.start, self.start.cost)
        whole = max(before, self.part)
        return whole / max(whole - before + self.cost.get(found, found.cost), 1e-12)

    def _per_size(self, verdicts: Sequence[Verdict]) -> tuple[Sizes, ...]:
        return tuple(
            Sizes(dict(bind), v.before * 1e3, v.after * 1e3, v.ratio.ratio, v.ratio.low, v.ratio.high)
            for bind, v in zip(self.settings.bind or ({},), verdicts, strict=True)
        )

    def _written(self, contender: Contender, verdicts: Sequence[Verdict], reason: str = "") -> Optimized:
        assert self.hunt is not None
        report = replace(
            self.report,
            kept_original=False,
            reason=reason if verdicts or reason else "the search's choice, not timed",
            predicted_ratio=self._predicted(contender.candidate),
            max_rel_error=contender.error,
            steps=steps_of(contender.candidate, self.verdicts, self.hunt.validated(contender.candidate)),
            after=Counts(*counts(contender.model)),
        )
        self.clock.enter("writing")
        values = {"dslc.target": str(self.target), "dslc.rules": ", ".join(step.rule for step in report.steps)}
        if verdicts:
            first = verdicts[0]
            report = replace(
                report,
                before_ms=first.before * 1e3,
                after_ms=first.after * 1e3,
                ratio=first.ratio.ratio,
                ratio_low=first.ratio.low,
                ratio_high=first.ratio.high,
                sizes=self._per_size(verdicts),
            )
            values["dslc.ratio"] = str(first.ratio)
        if contender.model.ir_version != self.original.ir_version:
            self.notes.append(
                f"the IR version was raised from {self.original.ir_version} to {contender.model.ir_version}"
            )
        note(contender.model, values)
        return Optimized(contender.model, self._finished(report))

    # ---- Ctrl-C -------------------------------------------------------------------------------------------------------

    def _interrupted(self) -> Optimized:
        """The best so far that can still be checked, within seconds; another Ctrl-C ends this too."""
        self.clock.shorten(GRACE)
        self.report = replace(self.report, interrupted=True)
        self._phase("interrupted", "interrupted: checking the best so far")
        if self.timed:
            return self._half_timed()
        found = self._checked_in_time()
        if found is None:
            return self._keep("interrupted before a rewritten model was checked")
        return self._written(found, [], "interrupted: the best so far, its outputs compared, not timed")

    def _half_timed(self) -> Optimized:
        """What was timed so far says which contender is taken, if any."""
        # what is known from an earlier run is not among the times
        all_timed = self.times.complete and len(self.times.samples) == len(self.timed) + 1
        ratios = {k: self.times.interval(k + 1) for k in range(len(self.timed))} if all_timed else {}
        best = max(ratios, key=lambda k: ratios[k].ratio, default=0)
        if ratios and ratios[best].ratio <= 1:
            return self._keep(f"interrupted: what was timed so far is no faster ({ratios[best]} times as fast)")
        said = f"{ratios[best]} times as fast so far" if ratios else "not timed"
        return self._written(self.timed[best], [], f"interrupted while it was timed: {said}")

    def _checked_in_time(self) -> Contender | None:
        """The best candidate that was checked, or is now; of its path the last one that time suffices for."""
        if self.hunt is None or self.checker is None or self.hunt.best is None:
            return None
        if self.hunt.checked:
            return self.hunt.checked[0]
        try:
            for candidate in distinct(self.hunt.best, 3):
                found = self.checker.check(candidate) if candidate.parent is not None else None
                if isinstance(found, Contender) and self.hunt.validated(candidate).usable:
                    return found
        except (TimeUp, MemoryShort):
            pass
        return None


def _not_standard(names: Sequence[str]) -> list[str]:
    """The rules that some library of a user's brought."""
    return [name for name in names if not name.startswith("std.")]


def import_bind_check(model: ModelProto, bind: Mapping[str, int], where: str) -> None:
    """Raises DslcError for sizes of dimensions that the model does not have."""
    from dslc.onnx.types import complete_bind

    complete_bind(model, bind, where)

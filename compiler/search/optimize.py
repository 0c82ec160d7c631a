"""`dslc optimize`: import, search, check, time, and the original where nothing is faster."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from onnx import ModelProto

from dslc.analysis.counts import known_flops
from dslc.cost.cache import CostCache
from dslc.cost.compare import Comparison, Reference, compare, outputs_of
from dslc.cost.inputs import Inputs, drawn_inputs, given_inputs, special_inputs
from dslc.cost.machine import Target, target
from dslc.cost.measure import Measurer
from dslc.cost.model import CostModel
from dslc.cost.process import ModelFile, WorkerFailed
from dslc.cost.steady import meaning
from dslc.cost.timing import MemoryShort
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
from dslc.search.backtrack import backtrack
from dslc.search.candidate import Candidate, Front, Limits
from dslc.search.contenders import Checker, Contender, Disputed, distinct, folder_of, guilty, serialized, with_special
from dslc.search.judge import Verdict, judge, winner
from dslc.search.layouts import layouts_of, without_layouts
from dslc.search.rulesets import chosen_rules
from dslc.search.settings import Settings
from dslc.search.sizes import sizes_of
from dslc.search.statuses import statuses, usable
from dslc.search.steps import status_of, steps_of
from dslc.search.sweep import sweep
from dslc.search.validate import Known, Validated, validate
from dslc.semantics.library import Rules, load_many, standard

#: contenders on the way to the best candidate, and contenders that do without one of its rules
MOST, VARIANTS = 3, 3
VARIANT_STEPS = 3000
#: contenders that are timed to the end, after all were timed briefly
FINAL = 2
#: above so many bytes of weights the best candidate stands alone: each contender holds a copy
HEAVY = 1 << 28
#: rules that may be found guilty before the search gives up
GUILTY = 5
#: seconds for proving the rewrites of one candidate again; what is left then rests on the proofs of its rules
VALIDATION = 30.0
#: operations up to which the original is computed by its operators' equations, where a comparison fails
MEANT = 1e7
#: sizes to try for dimensions that nothing fixes
SIZES = (8, 64, 224, 1)


@dataclass(frozen=True, slots=True)
class Optimized:
    """The written model, and what was found. `model` refers to the same external data as the original."""

    model: ModelProto
    report: Report


def optimize(source: str | Path | ModelProto, settings: Settings) -> Optimized:
    """Runs the whole pipeline.

    Raises:
        DslcError: what is wrong with the model, the rules, the inputs or the options.
    """
    return _Run(source, settings).run()


class _Kept(Exception):
    """The original is kept, and why."""


class _Run:
    def __init__(self, source: str | Path | ModelProto, settings: Settings) -> None:
        self.start = time.monotonic()
        self.settings = settings
        self.progress = settings.progress
        self.notes: list[str] = []
        self.progress.phase("reading rules")
        self.rules: Rules = load_many(["std", *settings.rules]) if settings.rules else standard()
        self.chosen: list[CompiledRule] = chosen_rules(
            self.rules, settings.only, settings.disable, settings.strict_floats
        )
        self.verdicts: dict[str, RuleVerdict] = {}
        self.validated: dict[Candidate, Validated] = {}
        self.overhead = 0.0
        self.cost: dict[Candidate, float] = {}
        self.guilty = False
        self.known: Known = {}
        self.progress.phase("reading the model")
        self.original, self.folder, self.where = read_model(source)
        self.values = set(wanted_inputs(self.original))
        first = self._dimensions(settings.bind[0]) if settings.bind else {}
        self.imported: Imported = import_model(source, self.rules, first if settings.specialize else {})
        if not settings.specialize:
            import_bind_check(self.original, first, self.where)
        self.target: Target = target(settings.threads)
        self.report = Report(
            self.where, str(self.target), 0.0, before=Counts(*counts(self.original)), rules=self.rules.digest
        )

    def run(self) -> Optimized:
        if self.settings.budget == 0:
            return self._canonical()
        try:
            with CostCache(self.settings.cache, self.notes.append) as self.cache:
                return self._searched()
        except _Kept as reason:
            return self._keep(str(reason))
        except KeyboardInterrupt:
            self.report = replace(self.report, interrupted=True)
            return self._keep("interrupted before a rewritten model was checked and timed")

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
        return replace(report, seconds=round(time.monotonic() - self.start, 3), notes=tuple(dict.fromkeys(self.notes)))

    # ---- the search -------------------------------------------------------------------------------------------------

    def _reliable_rules(self) -> None:
        """Leaves out rules that are neither proved nor allowed."""
        self.progress.phase("looking up proofs")
        definitions = list(dict.fromkeys(rule.definition for rule in self.chosen))

        def told(done: int, total: int) -> None:
            self.progress.phase(f"proving rules: {done} of {total}")

        self.verdicts = statuses(self.rules, definitions, cache_folder(self.settings.cache), self.settings.allow, told)
        self.chosen, left = usable(self.chosen, self.verdicts, self.settings.allow)
        if not self.settings.only:
            # of the standard library nobody asked for these rules by name
            left = {name: verdict for name, verdict in left.items() if not name.startswith("std.")}
        for name, verdict in left.items():
            if verdict.status == "refuted":
                self.notes.append(f"{name} was left out: it is refuted; `dslc verify` shows where its sides differ")
            else:
                self.notes.append(f"{name} was left out: it is {verdict.status}; `--allow {verdict.status}` uses it")

    def _searched(self) -> Optimized:
        self._reliable_rules()
        original = self._original_file()
        self.progress.phase("running the original")
        inputs, references = self._references(original)
        limits, run_key = self._limits()
        begun = time.monotonic()
        measurer = Measurer(self.target, self.cache)
        try:
            limits.on_step = self.progress.step
            costs = CostModel(self.rules, measurer, self._build, self.imported.context.opset, self._sizes(inputs[0]))
            self.progress.phase("measuring")
            costs.excuse(self.imported.graph)
            costs.confirm(self.imported.graph)
            start = Candidate(self.imported.graph, costs.graph_cost(self.imported.graph))
            checker = Checker(
                self.imported.context, self.rules, references, inputs, self.target.threads, self.settings.tolerance,
                original, computed_types(self.imported), self._meant(references[0].names),
            )  # fmt: skip
            limits.deadline += time.monotonic() - begun
            contenders = self._contenders(start, costs, limits, checker)
            self.progress.phase("measuring again")
            if contenders:
                costs.confirm(start.graph, *(one.candidate.graph for one in contenders))
            every = (start, *(one.candidate for one in contenders))
            self.cost = {one: costs.graph_cost(one.graph) for one in every}
            self.overhead = costs.overhead
        finally:
            measurer.close()
        if self.settings.steps is None and not self.report.interrupted:
            self.cache.put_verdict(run_key, {"steps": limits.done})
        self.report = replace(self.report, steps_done=limits.done, measured=measurer.count)
        if not contenders:
            raise _Kept("no rewritten model gives the same outputs" if self.guilty else "no rule predicts a gain")
        return self._judged(original, contenders, inputs, start)

    def _original_file(self) -> ModelFile:
        if self.folder is not None and Path(self.where).is_file():
            return ModelFile(str(Path(self.where).resolve()))
        return ModelFile(serialized(self.original), folder_of(self.folder))

    def _references(self, original: ModelFile) -> tuple[list[Inputs], list[Reference]]:
        """Inputs and the original's outputs for every choice of sizes; the original has to repeat itself."""
        inputs: list[Inputs] = []
        references: list[Reference] = []
        for bind in self.settings.bind or ({},):
            found, reference = self._reference(original, bind)
            inputs.append(found)
            references.append(reference)
            self.notes.extend(found.notes)
        again = outputs_of(original, inputs[0].feeds[:1], self.target.threads)
        once = Reference(references[0].names, references[0].outputs[:1])
        repeated = compare(once, again, self.settings.tolerance)
        if not repeated.same:
            raise _Kept(f"it differs from itself in two runs ({repeated.problem})")
        return inputs, references

    def _reference(self, original: ModelFile, bind: Mapping[str, int]) -> tuple[Inputs, Reference]:
        problem = ""
        for size in SIZES:
            if self.settings.inputs is not None:
                found = given_inputs(self.settings.inputs, self.original)
            else:
                found = drawn_inputs(self.original, bind, size)
            try:
                reference = outputs_of(original, found.feeds, self.target.threads)
                others = () if self.settings.inputs is not None else special_inputs(self.original, bind, size)
                return with_special(original, found, reference, others, self.target.threads)
            except MemoryShort as short:
                raise _Kept(f"it can be neither checked nor timed: {short}") from None
            except WorkerFailed as failed:
                problem = str(failed)
            if not found.notes:
                break
        hint = "" if self.settings.inputs is not None else "; --inputs gives others, --bind other sizes"
        raise _Kept(
            f"ONNX Runtime cannot run it on {'these' if self.settings.inputs else 'drawn'} inputs: {problem}{hint}"
        )

    def _meant(self, names: tuple[str, ...]) -> Callable[[Mapping[str, Any]], Reference | None]:
        """What the original gives by its operators' equations, where that takes no long time."""
        operations = known_flops(self.imported.graph.outputs)
        if operations is None or operations > MEANT:
            return lambda _: None
        return meaning(self.rules, self.imported.graph, names)

    def _limits(self) -> tuple[Limits, str]:
        """When to stop. A run that is repeated stops where the first one did, so that it writes the same file."""
        s = self.settings
        used = [rule.name for rule in self.chosen]
        options = (s.layouts, s.alpha, s.seed, s.budget, used, s.tolerance, s.specialize)
        binds = sorted(tuple(sorted(one.items())) for one in s.bind)
        inputs = None if s.inputs is None else str(Path(s.inputs).resolve())
        identity = digest(self.original, self.folder)
        key = f"run:{identity}|{self.rules.digest}|{options}|{binds}|{inputs}|{self.target}"
        deadline = time.monotonic() + s.budget
        if s.steps is not None:
            return Limits(s.steps, inf), key
        earlier = self.cache.verdict(key)
        if earlier is not None:
            self.notes.append(f"stopped after the {earlier['steps']} steps of an earlier run with the same options")
            return Limits(int(earlier["steps"]), time.monotonic() + max(600.0, 10 * s.budget)), key
        return Limits(None, deadline), key

    def _sizes(self, inputs: Inputs) -> dict[str, int]:
        """Sizes of the graph's symbolic dimensions at the first choice of sizes."""
        bound = self._dimensions(self.settings.bind[0]) if self.settings.bind else {}
        graph, context = self.imported.graph, self.imported.context
        folder = folder_of(self.folder)
        return {**bound, **sizes_of(graph, context, self.original, folder, inputs.feeds[0], self.target.threads)}

    def _build(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> bytes | None:
        context = self.imported.context
        try:
            model, _ = node_model(outputs, self.rules, context.opset, context.ir_version, inputs=inputs)
        except DslcError:
            return None
        return serialized(model)

    def _contenders(self, start: Candidate, costs: CostModel, limits: Limits, checker: Checker) -> list[Contender]:
        """Searches, and checks what was found; a rule that changes the outputs is named, left out, and the search goes on."""
        rules = self.chosen
        best = start
        first_steps, late = 0, inf
        front = Front()
        limits.on_built = front.add
        for turn in range(GUILTY):
            self.progress.phase("searching")
            if turn > 0:
                # as many steps again, so that the number of steps alone decides what is found
                limits = replace(limits, steps=first_steps, done=0, stopped=limits.interrupted, deadline=late)
            best = self._search(best, start, rules, costs, limits)
            if turn == 0:
                first_steps, late = limits.done, time.monotonic() + max(60.0, 2 * self.settings.budget)
            if best is start:
                return self._unsearched(checker, start)
            self.progress.phase("comparing outputs")
            checked = self._check(checker, best)
            refuted = self._validate(best) if isinstance(checked, Contender) else None
            if isinstance(checked, Contender) and (refuted is None or refuted.usable):
                if self.report.before is not None and self.report.before.bytes > HEAVY:
                    return [checked]
                more = [one for one in distinct(best, MOST)[1:] if one.parent is not None]
                more += self._variants(best, start, rules, costs, limits)
                # what predictions cannot tell apart: every node has a part in the time that it has not on its own
                small = front.smallest(self.settings.alpha * best.cost)
                more += [small] if small is not None else []
                seen = {hash(best.graph.outputs): checked}
                for one in more:
                    if hash(one.graph.outputs) not in seen:
                        found = self._check(checker, one)
                        if isinstance(found, Contender) and self._validate(one).usable:
                            seen[hash(one.graph.outputs)] = found
                return list(seen.values())
            alone = self._check(checker, start)
            if not isinstance(alone, Contender):
                raise _Kept(f"import and export alone change it: {alone.problem}")
            if isinstance(checked, Comparison):
                blamed = [checker.blame(best, checked.problem)]
            else:
                assert refuted is not None
                blamed = guilty(best, refuted)
            self.guilty = True
            self.notes.extend(f"{one.rule} was left out: {one.problem}" for one in blamed)
            names = {one.rule for one in blamed}
            rules = [rule for rule in rules if rule.name not in names]
            best = blamed[0].before
            while any(step.rule in names for step in best.path()):
                assert best.parent is not None
                best = best.parent
        return []

    def _validate(self, candidate: Candidate) -> Validated:
        """Proves the candidate's rewrites again, once."""
        found = self.validated.get(candidate)
        if found is None:
            self.progress.phase("proving what was rewritten")
            found = self.validated[candidate] = validate(
                self.rules, candidate, time.monotonic() + VALIDATION, self.known,
                needed=lambda name: status_of(name, self.verdicts) == "bounded",
            )  # fmt: skip
        return found

    def _predicted(self, start: Candidate, found: Candidate) -> float:
        """How many times as fast a candidate should be; every run has a part that no operator takes."""
        return (self.cost[start] + self.overhead) / max(self.cost[found] + self.overhead, 1e-12)

    def _search(
        self, best: Candidate, start: Candidate, rules: list[CompiledRule], costs: CostModel, limits: Limits
    ) -> Candidate:
        def improved(found: Candidate) -> None:
            self.progress.best(start.cost / max(found.cost, 1e-12), limits.done)

        alpha, seed, mode = self.settings.alpha, self.settings.seed, self.settings.layouts
        layouts = None if mode == "none" else layouts_of(rules)
        others = without_layouts(rules)
        if mode == "joint":
            found = backtrack(best, others, costs, limits, alpha=alpha, seed=seed, layouts=layouts, on_best=improved)
        else:
            found = (
                best
                if mode == "only"
                else backtrack(best, others, costs, limits, alpha=alpha, seed=seed, on_best=improved)
            )
            if layouts is not None and not limits.stopped:
                found = backtrack(found, [], costs, limits, alpha=alpha, seed=seed, layouts=layouts, on_best=improved)
        self.report = replace(self.report, interrupted=limits.interrupted)
        return found

    def _unsearched(self, checker: Checker, start: Candidate) -> list[Contender]:
        """The model as import and export leave it, where that makes it smaller."""
        assert self.report.before is not None
        found = self._check(checker, start)
        if isinstance(found, Contender) and counts(found.model)[0] < self.report.before.operators:
            return [found]
        return []

    def _variants(
        self, best: Candidate, start: Candidate, rules: Sequence[CompiledRule], costs: CostModel, limits: Limits
    ) -> list[Candidate]:
        """What a sweep finds without one rule of the best candidate: a prediction may be wrong for one rule alone."""
        gains: dict[str, float] = {}
        for step in best.path():
            if step.rule:
                gains[step.rule] = gains.get(step.rule, 0.0) + step.gain
        out = []
        for name in sorted(gains, key=lambda rule: -gains[rule])[:VARIANTS]:
            if limits.interrupted:
                break
            others = [rule for rule in rules if rule.name != name]
            found = sweep(start, others, costs, Limits(VARIANT_STEPS), lambda _: None)
            if found is not start:
                out.append(found)
        return out

    def _check(self, checker: Checker, candidate: Candidate) -> Contender | Comparison:
        try:
            return checker.check(candidate)
        except MemoryShort as short:
            raise _Kept(f"a rewritten model cannot be checked: {short}") from None
        except Disputed:
            raise _Kept("its outputs depend on rounding or on ONNX Runtime's own optimizations, and cannot be compared") from None

    # ---- the last word ------------------------------------------------------------------------------------------------

    def _judged(
        self, original: ModelFile, contenders: list[Contender], inputs: Sequence[Inputs], start: Candidate
    ) -> Optimized:
        if not self.settings.timing:
            return self._written(contenders[0], start, [])
        self.progress.phase("timing")
        seconds = min(20.0, max(4.0, self.settings.budget / 3)) / len(inputs)
        identity = digest(self.original, self.folder)
        try:
            if len(contenders) > FINAL:
                feeds = inputs[0].feeds[0]
                brief = judge(original, f"brief {identity}", contenders, feeds, self.target, seconds / 2, self.cache)
                order = sorted(range(len(contenders)), key=lambda k: -brief[k].ratio.ratio)
                contenders = [contenders[k] for k in order[:FINAL]]
            verdicts = [
                judge(original, identity, contenders, found.feeds[0], self.target, seconds, self.cache)
                for found in inputs
            ]
        except MemoryShort as short:
            raise _Kept(f"it cannot be timed against a rewritten model: {short}") from None
        except WorkerFailed as failed:
            raise _Kept(f"timing failed: {failed}") from None
        chosen = winner(verdicts)
        self.report = replace(self.report, before_ms=verdicts[0][0].before * 1e3)
        if chosen is None:
            best = max(verdicts[0], key=lambda verdict: verdict.ratio.ratio)
            self.report = replace(
                self.report,
                predicted_ratio=self._predicted(start, contenders[0].candidate),
                max_rel_error=0.0,
                sizes=self._per_size([at[0] for at in verdicts]),
            )
            somewhere = next((v for at in verdicts for v in at if v.faster), None)
            if somewhere is not None:
                raise _Kept(f"what is faster at some sizes ({somewhere.ratio} times as fast) is slower at others")
            raise _Kept(f"no rewritten model was measured to be faster (best: {best.ratio} times as fast)")
        return self._written(contenders[chosen], start, [at[chosen] for at in verdicts])

    def _per_size(self, verdicts: Sequence[Verdict]) -> tuple[Sizes, ...]:
        return tuple(
            Sizes(dict(bind), v.before * 1e3, v.after * 1e3, v.ratio.ratio, v.ratio.low, v.ratio.high)
            for bind, v in zip(self.settings.bind or ({},), verdicts, strict=True)
        )

    def _written(self, contender: Contender, start: Candidate, verdicts: Sequence[Verdict]) -> Optimized:
        report = replace(
            self.report,
            kept_original=False,
            reason="" if verdicts else "the search's choice, not timed",
            predicted_ratio=self._predicted(start, contender.candidate),
            max_rel_error=contender.error,
            steps=steps_of(contender.candidate, self.verdicts, self._validate(contender.candidate)),
            after=Counts(*counts(contender.model)),
        )
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


def import_bind_check(model: ModelProto, bind: Mapping[str, int], where: str) -> None:
    """Raises DslcError for sizes of dimensions that the model does not have."""
    from dslc.onnx.types import complete_bind

    complete_bind(model, bind, where)

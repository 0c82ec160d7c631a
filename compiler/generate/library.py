"""From operators to a rule library: enumeration, prunings, joining, general types, proofs.

Equations are looked at in order of size. One that follows from rules that were kept for smaller ones is dropped, and so is one that a
common subgraph shows to be an instance of a more general one; what is left is generalised and proved, all rules of one size together.
Where one is not proved, what rested on it is decided again: in the end every rule that was used to drop another is proved.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

from dslc.errors import error
from dslc.generate.enumeration.processes import FamilyEquations, LevelProgress, enumerations
from dslc.generate.general.dimensions import NotGeneral
from dslc.generate.general.joins import along_axes, joined, taken_apart
from dslc.generate.general.rules import GeneralRule, Tries, generalise, names_in, narrowed, rule_text
from dslc.generate.proofs import Proofs
from dslc.generate.pruning.derivability import Classes, KnownRules, Rests, derivable_pairs, family_inputs
from dslc.generate.pruning.generality import PrimeValues, key, most_general, reduced, without_renamed
from dslc.generate.settings import GenerationSettings, Progress, Stages
from dslc.generate.terms.inputs import CONSTANTS, SEVERAL_CONSTANTS, SLIDING_CONSTANTS, Family, InputSizes, families
from dslc.generate.terms.term import Conjecture, Equation, Term, Terms, inputs, outputs, subterms
from dslc.prove.garbage import gc_paused
from dslc.prove.verdict import RELIABLE, RuleVerdict
from dslc.records import record
from dslc.semantics.definitions import OperatorDef
from dslc.semantics.library import Rules, load_many, modules_of
from dslc.semantics.walk import nodes
from dslc.syntax import tree as t


@dataclass(slots=True)
class GeneratedLibrary:
    """The result of a generation. `statuses` are the provers' words, by rule."""

    rules: Rules
    found: list[GeneralRule] = field(default_factory=list)
    statuses: dict[GeneralRule, str] = field(default_factory=dict)
    verdicts: dict[GeneralRule, RuleVerdict] = field(default_factory=dict)
    stages: Stages = field(default_factory=Stages)
    families: tuple[Family, ...] = ()


class _OutOfTime(Exception):
    pass


def generate(settings: GenerationSettings, progress: Progress | None = None) -> GeneratedLibrary:
    """All rules over some operators, up to a number of operators.

    Raises:
        DslcError: unknown libraries or operators; no operator that tensors fit.
    """
    rules = load_many(settings.libraries)
    library = GeneratedLibrary(rules)
    run = _Generation(rules, settings, library, progress)
    library.families = families(rules, operators_named(rules, settings), sizes_of(settings))
    if not any(family.items for family in library.families):
        raise error("E0909", "no operator of these can be applied to tensors that the others give")
    try:
        with gc_paused(), run.proofs, enumerations(rules, settings, library.families) as enumerated:
            for family in library.families:
                run.family(family, enumerated)
    except _OutOfTime:
        library.stages.counts["stopped by the budget"] = 1
    run.summed()
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    library.stages.cpu_seconds["worker processes"] = children.ru_utime + children.ru_stime
    library.stages.peak_memory = max(own.ru_maxrss, children.ru_maxrss) * (1 if sys.platform == "darwin" else 1024)
    return library


def operators_named(rules: Rules, settings: GenerationSettings) -> list[OperatorDef]:
    """The operators of a generation: those named, as the given libraries know them.

    Else those of the first library of which its properties state laws, else all of the first library.

    Raises:
        DslcError: E0201 for a name that no library defines.
    """
    if settings.operators:
        modules = modules_of(rules, settings.libraries)
        out = []
        for name in settings.operators:
            # as the given files know it: by definition or by import
            known = {one.name: one for m in modules if isinstance(one := m.lookup(name), OperatorDef)}
            out.append(next(iter(known.values())) if len(known) == 1 else rules.operator(name))
        return out
    first = settings.libraries[0]
    modules = modules_of(rules, (first,))
    found = [op for op in rules.operators.values() if op.module in modules]
    if not found:
        raise error("E0201", f"the library `{first}` defines no operator")
    lawful = {
        module.lookup(node.function)
        for module in modules
        for law in rules.laws.values()
        if law.module is module
        for node in nodes(t.Call, law.syntax)
    }
    return [op for op in found if op in lawful] or found


def sizes_of(settings: GenerationSettings) -> InputSizes:
    """`--inputs count=3,size=4,spatial=5,windows=3+1` as sizes.

    Raises:
        DslcError: E0909 for what is none of these.
    """
    values: dict[str, int | tuple[int, ...]] = {}
    for part in filter(None, settings.inputs.split(",")):
        name, _, text = part.partition("=")
        numbers = tuple(int(number) for number in text.split("+") if number.isdigit())
        if name not in {"count", "size", "spatial", "windows"} or not numbers or 0 in numbers:
            raise error("E0909", f"`{part}` says nothing of inputs", hint="count=3,size=4,spatial=5,windows=3+1")
        values[name] = numbers if name == "windows" else numbers[0]
    return InputSizes(**values)  # type: ignore[arg-type]


@record
class _Decision:
    """The decision on a candidate: its truth, its fate, and the rules that this rests on."""

    holds: bool
    what: str
    rests: frozenset[GeneralRule] = frozenset()


class _Generation:
    def __init__(
        self, rules: Rules, settings: GenerationSettings, library: GeneratedLibrary, progress: Progress | None
    ) -> None:
        self.rules, self.settings, self.library, self.progress = rules, settings, library, progress
        self.stages = library.stages
        self.build = partial(outputs, rules)
        self.values = PrimeValues(rules, settings.seed)
        self.start = time.monotonic()
        self.proofs = Proofs(rules, settings.provers if settings.proof else 0, settings.seed, settings.resume)
        #: candidates by key: kept or following from what was kept, or not
        self.decided: dict[Terms, _Decision] = {}
        #: the keys of a level's equations, which are looked at again after each round of proofs
        self.names: dict[Equation, Terms] = {}
        #: rules that are still to be proved; they are used to derive others in the meantime
        self.pending: dict[GeneralRule, None] = {}
        self.with_more = SEVERAL_CONSTANTS
        #: what followed from rules of smaller levels
        self.foreseen: dict[tuple[Term, Term], frozenset[GeneralRule]] = {}
        #: rules by their text, and the keys of those that were left out
        self.texts: dict[str, GeneralRule] = {}
        self.failed: set[Terms] = set()
        #: the form in which a candidate is a rule
        self.chosen: dict[Terms, GeneralRule] = {}
        self.tries = Tries()
        #: the keys of candidates whose most general form was refuted
        self.narrow: set[Terms] = set()

    # ---- reports ---------------------------------------------------------------------------------------------------

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begin, spent = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.stages.seconds[name] += time.perf_counter() - begin
            self.stages.cpu_seconds[name] += time.process_time() - spent

    def tell(self, stage: str, done: int, total: int, text: str = "") -> None:
        if self.settings.budget is not None and time.monotonic() - self.start > self.settings.budget:
            raise _OutOfTime
        if self.progress is not None:
            self.progress(stage, done, total, text)

    def summed(self) -> None:
        """Counts the fates of the candidates."""
        counts = self.stages.counts
        counts.update(sorted(one.what for one in self.decided.values()))
        counts["rules"] += len(self.library.found)
        counts.update(self.library.statuses.values())
        counts["left out"] = len(self.stages.left_out)

    # ---- one family ------------------------------------------------------------------------------------------------

    def family(self, family: Family, enumerated: Callable[[Family, LevelProgress], FamilyEquations]) -> None:
        with self.stage("enumerate"):
            found = enumerated(
                family, lambda level, done: self.tell(f"{family.name}: terms of {level} operators", done, 0)
            )
        self.stages.cpu_seconds["enumerate"] += found.seconds
        self.stages.counts.update(terms=found.terms, equations=found.equations, candidates=len(found.kept))
        self.with_more = SLIDING_CONSTANTS if any(family.places) else SEVERAL_CONSTANTS
        known = KnownRules(self.rules, Classes(self.rules, family_inputs(family.inputs)))
        for rule in self.library.found:
            known.keep(rule)
        accepted: list[Equation] = []
        for level, equations in groupby(sorted(found.kept, key=_level), _level):
            with self.stage("renaming"):
                candidates = {Conjecture((e.right,), (e.left,)): e for e in equations}
                group = sorted((candidates[c] for c in without_renamed(candidates)), key=_order)
                self.stages.counts["after renaming"] += len(group)
            with self.stage("derivability"):
                pairs = [_directed(equation) for equation in group]
                asked = [pair for pair in dict.fromkeys(pairs) if not self.constant(*pair)]
                self.foreseen = derivable_pairs(known, asked, self.settings.workers)
            self.names.clear()
            settled = False
            while not settled:
                holding = []
                for done, equation in enumerate(group):
                    if done % 16 == 0:
                        text = f"{len(self.library.found) + len(self.pending)} rules"
                        self.tell(f"{family.name}: candidates of {level} operators", done, len(group), text)
                    if self.single(equation, known):
                        holding.append(equation)
                settled = self.settled(known, f"{family.name}: proofs of {level} operators")
            with self.stage("classes"):
                for equation in holding:
                    known.classes.add(equation)
            accepted += holding
        self.joint(accepted, known, family)

    # ---- rules with one result --------------------------------------------------------------------------------------

    def single(self, equation: Equation, known: KnownRules) -> bool:
        """Return whether an equation holds: it was kept as a rule, or follows from those that were."""
        term, target = _directed(equation)
        candidate = Conjecture((term,), (target,))
        name = self.names.get(equation)
        if name is None:
            name = self.names[equation] = key(candidate)
        if name not in self.decided:
            self.decided[name] = self._decision(candidate, known)
        return self.decided[name].holds

    def constant(self, term: Term, target: Term) -> bool:
        """Return whether an equation is too large to be looked at with its constants."""
        constants = _constants((term,)) + _constants((target,))
        return constants > 0 and max(term.size, target.size) > (CONSTANTS if constants == 1 else self.with_more)

    def _decision(self, candidate: Conjecture, known: KnownRules) -> _Decision:
        (term,), (target,) = candidate.sources, candidate.targets
        if self.constant(term, target):
            return _Decision(False, "large with constants")
        rests = self.foreseen.get((term, target))
        if rests is not None and all(rule in self.pending or rule in self.library.statuses for rule in rests):
            return _Decision(True, "derivable", rests)
        if any(one.type.dims for one in inputs((term, target))) or term.size == 1:
            return self._single(candidate, known)
        # larger ones without a tensor say something of constants: they are no rules of their own
        return self.derived(known.derivable, term, target) or _Decision(False, "of constants only")

    def derived(self, find: Callable[..., Rests | None], *args: Term | Conjecture) -> _Decision | None:
        """The decision that something follows from kept rules; None where it does not."""
        with self.stage("derivability"):
            rests = find(*args)
        return None if rests is None else _Decision(True, "derivable", rests)

    def _single(self, candidate: Conjecture, known: KnownRules) -> _Decision:
        (term,), (target,) = candidate.sources, candidate.targets
        self.proofs.look()
        if found := self.derived(known.derivable, term, target):
            return found
        with self.stage("common subgraph"):
            general = reduced(candidate, self.values, self.build)
        if general == (candidate,):
            return self.kept(candidate, known)
        parts = [self._reduced(one, known) for one in general]
        return _Decision(all(p.holds for p in parts), "common subgraph", frozenset().union(*(p.rests for p in parts)))

    def _reduced(self, candidate: Conjecture, known: KnownRules) -> _Decision:
        name = key(candidate)
        if name not in self.decided:
            self.decided[name] = _Decision(False, "common subgraph")
            if len(candidate.sources) == 1:
                self.decided[name] = self._single(candidate, known)
        return self.decided[name]

    # ---- rules with several results ----------------------------------------------------------------------------------

    def joint(self, accepted: Sequence[Equation], known: KnownRules, family: Family) -> None:
        most = self.settings.max_operators
        found = list(joined(self.rules, accepted, most))
        for rule in self.library.found:
            # a rule for any axis is taken apart on each: what has several results says on which
            axes = rule.form.pack == "axis"
            for candidate in along_axes(self.rules, family.items, rule.candidate) if axes else (rule.candidate,):
                found += taken_apart(self.rules, family.items, candidate, most)
        candidates = sorted(dict.fromkeys(found), key=_joint_order)
        self.stages.counts["joined"] += len(candidates)
        settled = False
        while not settled:
            for k, candidate in enumerate(candidates):
                text = f"{len(self.library.found) + len(self.pending)} rules"
                self.tell(f"{family.name}: rules with several results", k, len(candidates), text)
                name = key(candidate)
                if name not in self.decided:
                    self.decided[name] = self._joint(candidate, known)
            settled = self.settled(known, f"{family.name}: proofs of rules with several results")

    def _joint(self, candidate: Conjecture, known: KnownRules) -> _Decision:
        self.proofs.look()
        if found := self.derived(known.derivable_joint, candidate):
            return found
        with self.stage("common subgraph"):
            general = reduced(candidate, self.values, self.build)
        return self.kept(candidate, known) if general == (candidate,) else _Decision(True, "common subgraph")

    # ---- survivors ---------------------------------------------------------------------------------------------------

    def kept(self, candidate: Conjecture, known: KnownRules) -> _Decision:
        """Generalises a survivor, and keeps it until it is proved; it does not hold where only these sizes do."""
        with self.stage("derivability"):
            general = most_general(candidate, self.values)
        if len(general.sources) == 1 and (found := self.derived(known.follows, *general.roots)):
            return found
        # inputs that were told apart may part what was computed once
        most = self.settings.max_operators if len(general.sources) == 1 else candidate.size
        for one in dict.fromkeys((general, candidate)):
            if key(one) in self.failed or (one is not candidate and one.size > most):
                continue
            rule = self.chosen.get(key(one))
            if not rule:
                with self.stage("generalise"):
                    try:
                        rule = self.general(one)
                    except NotGeneral as problem:
                        self.leave_out(one, f"of these sizes only: {problem}")
                        continue
                self.chosen[key(one)] = rule
            same = self.texts.setdefault(self.text(rule), rule)
            if same is rule and rule not in self.library.statuses:
                self.pending[rule] = None
                known.keep(rule)
                if self.settings.proof and self.tries.at_once(rule):
                    self.proofs.begin(rule)
            return _Decision(True, "survivors", frozenset({same}))
        return _Decision(False, "survivors")

    def general(self, candidate: Conjecture) -> GeneralRule:
        """The most general form of a candidate that is thought to hold. Raises NotGeneral."""
        if key(candidate) not in self.narrow:
            try:
                return generalise(self.rules, candidate)
            except NotGeneral:
                self.narrow.add(key(candidate))
        return narrowed(self.rules, candidate)

    def leave_out(self, candidate: Conjecture, reason: str) -> None:
        self.failed.add(key(candidate))
        self.stages.left_out.append((str(candidate), reason))

    def proved(self, verdicts: Mapping[GeneralRule, RuleVerdict | None]) -> None:
        """Rules that the library has from now on; without a verdict where nothing is to be proved."""
        for rule, verdict in verdicts.items():
            self.library.found.append(rule)
            self.library.statuses[rule] = verdict.status if verdict else "tested"
            if verdict:
                self.library.verdicts[rule] = verdict

    def text(self, rule: GeneralRule) -> str:
        return rule_text(self.rules, rule, "same", names_in(rule))

    def settled(self, known: KnownRules, stage: str) -> bool:
        """Proves what is pending; whether all of it was. What rests on a rule that was not is to be decided again.

        Of a rule that no prover decides less general forms are tried, the sooner the more often rules like it were not decided.
        """
        lost: set[GeneralRule] = set()
        todo, done = list(self.pending), 0
        while todo:
            now, todo = self.tries.next(todo)
            verdicts = self.verdicts(now, stage, done, len(todo)) if self.settings.proof else {}
            done += len(now)
            for rule in now:
                verdict = verdicts.get(rule)
                if not verdict or verdict.status in RELIABLE:
                    self.tries.decided(rule)
                    self.proved({rule: verdict})
                    if rule not in self.pending:
                        known.keep(rule)
                    continue
                lost.add(rule)
                known.drop(rule)
                name = key(rule.candidate)
                if verdict.status == "refuted" and name not in self.narrow:
                    # made less general when it is looked at again, as it may follow from others then
                    self.narrow.add(name)
                    self.chosen.pop(name, None)
                    continue
                if verdict.status != "refuted":
                    self.tries.undecided(rule)
                weaker = self.tries.weaker(self.rules, rule)
                if not weaker:
                    self.leave_out(rule.candidate, ": ".join(filter(None, (verdict.status, verdict.reason))))
                elif self.chosen_now(weaker):
                    todo.append(weaker)
            for rule in [rule for rule in todo if self.tries.hopeless(rule)]:
                weaker = self.tries.weaker(self.rules, rule)
                if not weaker:
                    continue
                lost.add(rule)
                known.drop(rule)
                todo.remove(rule)
                if self.chosen_now(weaker):
                    todo.append(weaker)
        self.pending.clear()
        if lost:
            self.texts = {text: rule for text, rule in self.texts.items() if rule not in lost}
            self.decided = {name: one for name, one in self.decided.items() if not one.rests & lost}
        return not lost

    def verdicts(
        self, rules: Sequence[GeneralRule], stage: str, done: int, later: int
    ) -> dict[GeneralRule, RuleVerdict]:
        """The provers' verdicts. Where the time is over, the library has what was proved until then."""
        out: dict[GeneralRule, RuleVerdict] = {}
        total = done + len(rules) + later
        try:
            with self.stage("prove"):
                self.proofs.of(rules, out, lambda more: self.tell(stage, done + more, total))
        except _OutOfTime:
            self.proved({rule: one for rule, one in out.items() if one.status in RELIABLE})
            raise
        return out

    def chosen_now(self, rule: GeneralRule) -> bool:
        """A less general form takes the place of a rule; whether no other rule has the same text."""
        self.chosen[key(rule.candidate)] = rule
        return self.texts.setdefault(self.text(rule), rule) is rule


def _level(equation: Equation) -> int:
    return equation.right.size


def _order(equation: Equation) -> tuple[int, int, bool, int, int, str]:
    """Smaller ones first; of one size those that say most: without constants, inputs on both sides, many of them."""
    left, right = (set(inputs((side,))) for side in equation.roots)
    constants = _constants(equation.roots)
    return equation.right.size, constants, left != right, -len(left | right), equation.left.size, str(equation)


def _directed(equation: Equation) -> tuple[Term, Term]:
    """The side that has all inputs, and the other."""
    left, right = (set(inputs((side,))) for side in equation.roots)
    return equation.roots[::-1] if left <= right else equation.roots


def _constants(roots: Sequence[Term]) -> int:
    return sum(term.is_constant for term in subterms(roots))


def _joint_order(candidate: Conjecture) -> tuple[int, int, int, str]:
    return candidate.size, _constants(candidate.roots), -len(inputs(candidate.roots)), str(candidate)

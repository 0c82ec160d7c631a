"""From operators to a rule library: enumeration, prunings, joining, general types, proofs.

Equations are looked at in order of size. One that follows from rules that were kept for smaller ones is dropped, and so is one that a
common subgraph shows to be an instance of a more general one; what is left is generalised, proved, and kept. So every rule that is used
to drop another has been proved before.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dslc.errors import DslcError, error
from dslc.generate.classes import Classes, family_inputs
from dslc.generate.cluster import mapper_for
from dslc.generate.derivable import Known
from dslc.generate.dimensions import Ungeneral
from dslc.generate.enumerate import enumerate_family
from dslc.generate.general import GeneralRule, definition, generalise
from dslc.generate.inputs import Family, Sizes, families
from dslc.generate.join import joined, taken_apart
from dslc.generate.prune import Values, key, most_general, reduced, without_renamed
from dslc.generate.resume import Store, digest
from dslc.generate.settings import Progress, Settings, Stages
from dslc.generate.term import Candidate, Equation, Term, inputs, size, subterms
from dslc.generate.trees import outputs
from dslc.prove.axioms import AxiomProver
from dslc.prove.provers import PROVERS, prover_verdict
from dslc.prove.verdict import RELIABLE, Verdict
from dslc.prove.verify import conclude
from dslc.semantics.definitions import Module, OperatorDef
from dslc.semantics.library import Rules, load_many

#: graphs with constants are looked at up to so many operators: sums and products of constants are numbers in many disguises
_WITH_CONSTANTS = 2


@dataclass(slots=True)
class Library:
    """What a generation found. `statuses` are the provers' words, by rule."""

    rules: Rules
    found: list[GeneralRule] = field(default_factory=list)
    statuses: dict[GeneralRule, str] = field(default_factory=dict)
    stages: Stages = field(default_factory=Stages)
    families: tuple[Family, ...] = ()


class _OutOfTime(Exception):
    pass


def generate(settings: Settings, progress: Progress | None = None) -> Library:
    """All rules over some operators, up to a number of operators.

    Raises:
        DslcError: unknown libraries or operators; no operator that tensors fit.
    """
    rules = load_many(settings.libraries)
    library = Library(rules)
    run = _Generation(rules, settings, library, progress)
    library.families = families(rules, operators_named(rules, settings), sizes_of(settings))
    if not any(family.items for family in library.families):
        raise error("E0909", "no operator of these can be applied to tensors that the others give")
    try:
        with run.axioms:
            for family in library.families:
                run.family(family)
    except _OutOfTime:
        library.stages.counts["stopped by the budget"] = 1
    library.stages.peak_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return library


def operators_named(rules: Rules, settings: Settings) -> list[OperatorDef]:
    """The operators of a generation: those named (as the given libraries know them), else all of the first library.

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
    found = [op for op in rules.operators.values() if op.module in modules_of(rules, (first,))]
    if not found:
        raise error("E0201", f"the library `{first}` defines no operator")
    return found


def modules_of(rules: Rules, names: Sequence[str]) -> list[Module]:
    """The modules that files, folders and libraries name; what they import is not meant."""
    places = {str(Path(name).resolve()) for name in names if Path(name).exists()}
    return [
        module
        for module in rules.modules
        if module.library in names
        or places & {str(Path(module.file.source.path).resolve()), str(Path(module.file.source.path).resolve().parent)}
    ]


def sizes_of(settings: Settings) -> Sizes:
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
    return Sizes(**values)  # type: ignore[arg-type]


class _Generation:
    def __init__(self, rules: Rules, settings: Settings, library: Library, progress: Progress | None) -> None:
        self.rules, self.settings, self.library, self.progress = rules, settings, library, progress
        self.build = partial(outputs, rules)
        self.values = Values(rules, settings.seed)
        self.start = time.monotonic()
        self.axioms = AxiomProver()
        #: candidates that were decided, by key: kept or following from what was kept, or not
        self.decided: dict[tuple[Term, ...], bool] = {}

    # ---- reports ---------------------------------------------------------------------------------------------------

    def count(self, name: str, number: int = 1) -> None:
        counts = self.library.stages.counts
        counts[name] = counts.get(name, 0) + number

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            seconds = self.library.stages.seconds
            seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - begin

    def tell(self, stage: str, done: int, total: int, text: str = "") -> None:
        if self.settings.budget is not None and time.monotonic() - self.start > self.settings.budget:
            raise _OutOfTime
        if self.progress is not None:
            self.progress(stage, done, total, text)

    # ---- one family ------------------------------------------------------------------------------------------------

    def family(self, family: Family) -> None:
        settings = self.settings
        store = None
        if settings.resume is not None:
            store = Store(settings.resume / digest(self.rules.digest, family, settings.seed))
        with self.stage("enumerate"), mapper_for(settings) as mapper:
            found = enumerate_family(
                self.rules, settings.libraries, family, settings.max_operators, settings.seed, mapper=mapper, store=store,
                progress=lambda level, done: self.tell(f"{family.name}: terms of {level} operators", done, 0),
            )  # fmt: skip
        self.count("terms", sum(level.terms for level in found.levels))
        self.count("equations", sum(level.equations for level in found.levels))
        self.count("candidates", len(found))
        known = Known(self.rules, Classes(self.rules, family_inputs(family.inputs)))
        for rule in self.library.found:
            known.keep(rule)
        accepted: list[Equation] = []
        equations = list(found.equations())
        levels: dict[int, list[Equation]] = {}
        for equation in equations:
            levels.setdefault(size((equation.right,)), []).append(equation)
        done = 0
        for level in sorted(levels):
            with self.stage("renaming"):
                group = self.renamed(levels[level])
            holding = []
            for equation in group:
                done += 1
                if done % 16 == 0:
                    self.tell(f"{family.name}: candidates", done, len(equations), f"{len(self.library.found)} rules")
                if self.single(equation, known):
                    holding.append(equation)
            with self.stage("classes"):
                for equation in holding:
                    known.classes.add(equation)
            accepted += holding
        self.joint(accepted, known, family)

    def renamed(self, equations: Iterable[Equation]) -> list[Equation]:
        candidates = {Candidate((e.right,), (e.left,)): e for e in equations}
        kept = without_renamed(candidates).kept
        self.count("after renaming", len(kept))
        return sorted((candidates[c] for c in kept), key=_order)

    # ---- rules with one result --------------------------------------------------------------------------------------

    def single(self, equation: Equation, known: Known) -> bool:
        """Whether an equation holds: it was kept as a rule, or follows from those that were."""
        term, target = equation.right, equation.left
        if not set(inputs((target,))) <= set(inputs((term,))):
            term, target = target, term
        candidate = Candidate((term,), (target,))
        name = key(candidate)
        if name not in self.decided and _constants((term, target)) and _size(candidate) > _WITH_CONSTANTS:
            self.decided[name] = False
            self.count("large with constants")
        if name not in self.decided:
            tensors = any(one.type.dims for one in inputs((term, target)))
            if tensors or size((term,)) == 1:
                self.decided[name] = self._single(candidate, known)
            else:
                # larger ones without a tensor say something of constants: they are no rules of their own
                self.decided[name] = known.derivable(term, target)
                self.count("of constants only", int(not self.decided[name]))
        return self.decided[name]

    def _single(self, candidate: Candidate, known: Known) -> bool:
        (term,), (target,) = candidate.sources, candidate.targets
        with self.stage("derivability"):
            if known.derivable(term, target):
                self.count("derivable")
                return True
        with self.stage("common subgraph"):
            general = reduced(candidate, self.values, self.build)
        if general != (candidate,):
            self.count("common subgraph")
            return all(self._reduced(one, known) for one in general)
        return self.kept(candidate, known)

    def _reduced(self, candidate: Candidate, known: Known) -> bool:
        name = key(candidate)
        if name not in self.decided:
            self.decided[name] = False
            if len(candidate.sources) == 1:
                self.decided[name] = self._single(candidate, known)
        return self.decided[name]

    # ---- rules with several results ----------------------------------------------------------------------------------

    def joint(self, accepted: Sequence[Equation], known: Known, family: Family) -> None:
        most = self.settings.max_operators
        found = list(joined(self.rules, accepted, most))
        for rule in self.library.found:
            found += taken_apart(self.rules, family.items, rule.candidate, most)
        candidates = sorted(dict.fromkeys(found), key=_joint_order)
        self.count("joined", len(candidates))
        for k, candidate in enumerate(candidates):
            self.tell(f"{family.name}: rules with several results", k, len(candidates), f"{len(self.library.found)} rules")
            name = key(candidate)
            if name in self.decided:
                continue
            self.decided[name] = True
            with self.stage("derivability"):
                if known.derivable_joint(candidate):
                    self.count("derivable")
                    continue
            with self.stage("common subgraph"):
                general = reduced(candidate, self.values, self.build)
            if general != (candidate,):
                self.count("common subgraph")
                continue
            self.decided[name] = self.kept(candidate, known)

    # ---- survivors ---------------------------------------------------------------------------------------------------

    def kept(self, candidate: Candidate, known: Known) -> bool:
        """Generalises and proves a survivor; False where it does not hold in general."""
        with self.stage("derivability"):
            general = most_general(candidate, self.values)
            if general is not candidate and len(general.sources) == 1 and known.derivable(general.sources[0], general.targets[0]):
                self.count("derivable")
                return True
        # inputs that were told apart may part what was computed once
        most = self.settings.max_operators if len(general.sources) == 1 else _size(candidate)
        general = general if _size(general) <= most else candidate
        self.count("survivors")
        with self.stage("generalise"):
            try:
                rule = generalise(self.rules, general)
            except Ungeneral as problem:
                return self.leave_out(candidate, f"of these sizes only: {problem}")
        status = "tested"
        if self.settings.proof:
            with self.stage("prove"):
                status, reason = self.proved(rule)
            if status not in RELIABLE:
                return self.leave_out(candidate, f"{status}: {reason}" if reason else status)
        self.library.found.append(rule)
        self.library.statuses[rule] = status
        self.count("rules")
        self.count(status)
        known.keep(rule)
        return True

    def leave_out(self, candidate: Candidate, reason: str) -> bool:
        self.library.stages.left_out.append((str(candidate), reason))
        self.count("left out")
        return False

    def proved(self, rule: GeneralRule) -> tuple[str, str]:
        """The status of a rule, and why it is not more: a cheap refutation first, the laws only where the exact prover is undecided."""
        sub = definition(self.rules, rule)
        verdicts: list[Verdict] = []
        try:
            for prover in PROVERS:
                verdicts.append(prover_verdict(self.rules, sub, prover, seed=self.settings.seed, axioms=self.axioms))
                answer = verdicts[-1].answer
                if answer == "differs" or (answer == "equal" and prover == "exact"):
                    break
            verdict = conclude(self.rules, sub, verdicts)
        except DslcError as problem:
            return "undecided", str(problem)
        return verdict.status, verdict.reason


def _order(equation: Equation) -> tuple[int, int, bool, int, int, str]:
    """Smaller ones first; of one size those that say most: without constants, inputs on both sides, many of them."""
    roots = (equation.right, equation.left)
    partial = set(inputs((equation.left,))) != set(inputs((equation.right,)))
    return size((equation.right,)), _constants(roots), partial, -len(inputs(roots)), size((equation.left,)), str(equation)


def _size(candidate: Candidate) -> int:
    return max(size(candidate.sources), size(candidate.targets))


def _constants(roots: Sequence[Term]) -> int:
    return sum(term.is_constant for term in subterms(roots))


def _joint_order(candidate: Candidate) -> tuple[int, int, int, str]:
    roots = (*candidate.sources, *candidate.targets)
    return _size(candidate), _constants(roots), -len(inputs(roots)), str(candidate)

"""Proofs of all rules and laws of files or libraries: what is known of each so far, and what is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import cast

import numpy as np

from dslc.errors import Diagnostic, DslcError, did_you_mean
from dslc.interpret.check import check_bounds, check_sides
from dslc.prove.derivations import verify_derivation
from dslc.prove.evidence.digest import rule_digest
from dslc.prove.guards import find_guards, guard_diagnostics
from dslc.prove.run.conclusion import diagnostic_of
from dslc.prove.run.provers import exact_verdict
from dslc.prove.run.verify import Progress, chosen, mistake_in, verify
from dslc.prove.run.worker import definition_of
from dslc.prove.verdict import PROVERS, ProverName, RuleVerdict
from dslc.semantics.check import check
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.installed import BUILTIN
from dslc.semantics.library import Rules, load_many, modules_of
from dslc.syntax.names import check_names

GUARD_SECONDS = 10.0  #: seconds for the search of guards of one refuted rule


@dataclass(slots=True)
class Verification:
    """A run of `dslc verify`: what it is asked, and what is known so far, also where a signal ends it.

    `timeout`: seconds for one prover and one rule. `chosen`: what it is about, in order; `looked`: rules whose findings are among
    `findings`.
    """

    names: Sequence[str]
    patterns: Sequence[str] = ()
    provers: Sequence[str] = ()
    jobs: int | None = None
    timeout: float = 30.0
    no_lock: bool = False
    trust_lock: bool = False
    seed: int = 0
    guards: bool = True
    rules: Rules | None = None
    chosen: Sequence[str] = ()
    known: dict[str, RuleVerdict] = field(default_factory=dict)
    findings: list[Diagnostic] = field(default_factory=list)
    looked: set[str] = field(default_factory=set)
    #: how many of the findings were shown
    told: int = 0
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False

    @property
    def verdicts(self) -> list[RuleVerdict]:
        return [self.known[name] for name in self.chosen if name in self.known]

    def run(self, told: Progress | None = None, refuted: Callable[[Sequence[str]], None] = lambda _: None) -> None:
        """Proves, and notes verdicts as they come; then looks for guards of refuted rules, of which `refuted` is told first."""
        self.rules = rules = load_many(self.names)
        every = _chosen(rules, self.names, self.patterns)
        self.chosen = rest = [name for name in every if name not in rules.derivations]
        self.findings += (mistakes := _mistakes(rules, self.names))
        unasked = mistaken(rules, rest, mistakes)
        provers = cast("tuple[ProverName, ...]", tuple(p for p in PROVERS if not self.provers or p in self.provers))
        proved = verify(
            rules, [name for name in rest if name not in unasked], default_jobs() if self.jobs is None else self.jobs,
            None if self.no_lock else "beside", told,
            provers=provers, limit=self.timeout, seed=self.seed, notes=self.notes, trust=self.trust_lock, into=self.known,
        )  # fmt: skip
        self.known |= unasked
        derived = _derivations(rules, [name for name in every if name in rules.derivations], mistakes, self.seed)
        self.known |= {one.rule: one for one in derived}
        self.chosen = every = [*rest, *(one.rule for one in derived)]
        subs = []
        for verdict in proved:
            self.findings += (found := findings_of(rules, verdict, self.seed))
            self.looked.add(verdict.rule)
            sub = rules.substitutions.get(verdict.rule)
            if self.guards and sub and not sub.syntax.partial and verdict.status == "refuted" and not found[0].hint:
                subs.append(sub)
        self.findings += [
            Diagnostic("E0501", f"an instance of `{one.rule}` computes something else", rules.derivations[one.rule].syntax.span,
                       counterexample=one.reason)
            for one in derived if one.status == "refuted"
        ]  # fmt: skip
        if subs:
            refuted([sub.name for sub in subs])
        for sub in subs:
            guards = find_guards(rules, sub, self.seed, exact_verdict, seconds=GUARD_SECONDS)
            self.findings += guard_diagnostics(sub, guards)


def below(verdicts: Sequence[RuleVerdict], require: str | None) -> list[str]:
    """The rules and laws whose status is weaker than required."""
    enough = {None: None, "proved": {"proved"}, "bounded": {"proved", "bounded"}}[require]
    return [] if enough is None else [verdict.rule for verdict in verdicts if verdict.status not in enough]


def _derivations(
    rules: Rules, names: Sequence[str], mistakes: Sequence[Diagnostic], seed: int
) -> tuple[RuleVerdict, ...]:
    """Verdicts of derivations, by proofs of random instances. Nothing is tried of one that has a mistake."""
    helpers = list(load_many(["einnet"]).derivations.values()) if names else []
    found = []
    for name in names:
        rule = rules.derivations[name]
        wrong = next((one for one in mistakes if one.span and one.span.starts_in(rule.span)), None)
        if not wrong:
            found.append(verify_derivation(rules, rule, seed, helpers))
        else:
            found.append(RuleVerdict(name, "undecided", (), "", f"{wrong.code}: {wrong.message}"))
    return tuple(found)


def _mistakes(rules: Rules, names: Sequence[str]) -> list[Diagnostic]:
    """The errors that `dslc check` finds in what the files define; the libraries of dslc itself are checked by its tests."""
    modules = [module for module in modules_of(rules, names) if module.library not in BUILTIN]
    found = [finding for module in modules for finding in check_names(module.file)]
    found = found or (check(rules, modules) if modules else [])
    errors = [finding for finding in found if finding.severity == "error"]
    if not errors:
        bounds = [d for op in rules.operators.values() if op.module in modules for d in check_bounds(rules, op)]
        errors = [finding for finding in bounds if finding.severity == "error"]
    return list({(d.code, str(d.span or d.path), d.message): d for d in errors}.values())


def mistaken(rules: Rules, names: Sequence[str], mistakes: Sequence[Diagnostic]) -> dict[str, RuleVerdict]:
    """Verdicts of rules and laws that have a mistake, or whose operators and functions have one: nothing is proved of these."""
    out = {}
    for name in names if mistakes else ():
        definition = definition_of(rules, name)
        found = mistake_in(rules, definition, mistakes)
        if found:
            reason = f"{found.code}: {found.message}"
            out[name] = RuleVerdict(name, "undecided", (), rule_digest(rules, definition), reason)
    return out


def findings_of(rules: Rules, verdict: RuleVerdict, seed: int) -> tuple[Diagnostic, ...]:
    """The counterexample of a refuted rule; what `dslc check` knows of one that is undecided."""
    definition = definition_of(rules, verdict.rule)
    found = diagnostic_of(definition, verdict)
    if not found and verdict.status == "undecided" and isinstance(definition, SubstitutionDef):
        # `dslc check` may know that it fits nothing
        if definition.module.library in BUILTIN:
            return ()
        found_by_check = check_sides(rules, definition, np.random.default_rng(seed))
        return tuple(one for one in found_by_check if one.severity == "error")
    return (found,) if found else ()


def default_jobs() -> int:
    """A process for each core that this one may use, at most 8."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(8, count)


def _chosen(rules: Rules, names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The rules and laws that are meant; raises DslcError E0909 where a name is none."""
    modules = modules_of(rules, names)
    inside = [*chosen(rules, modules), *(name for name, one in rules.derivations.items() if one.module in modules)]
    if not patterns:
        return inside
    findings, found = [], set()
    for pattern in patterns:
        matching = {n for n in inside if fnmatchcase(n, pattern) or fnmatchcase(n.rpartition(".")[2], pattern)}
        if not matching:
            hint = did_you_mean(pattern, [*inside, *(n.rpartition(".")[2] for n in inside)])
            findings.append(Diagnostic("E0909", f"no rule or law is named `{pattern}`", hint=hint))
        found |= matching
    if findings:
        raise DslcError(findings)
    return [name for name in inside if name in found]

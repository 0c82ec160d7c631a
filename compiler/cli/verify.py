"""`dslc verify`: every rule and law with its status, each prover's answer, and counterexamples."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import click

from dslc.cli.bars import CommandBar, counts_text
from dslc.cli.options import form_option, timeout_option
from dslc.cli.terminal import say

if TYPE_CHECKING:
    from dslc.errors import Diagnostic
    from dslc.prove.run.verify import Progress
    from dslc.prove.verdict import ProverName, RuleVerdict
    from dslc.semantics.definitions import SubstitutionDef
    from dslc.semantics.library import Rules


GUARD_SECONDS = 10.0  #: seconds for the search of guards of one refuted rule


@click.command("verify")
@click.argument("names", nargs=-1, metavar="[FILE|LIBRARY]...")
@click.option(
    "--prover", "provers", multiple=True, type=click.Choice(["exact", "axioms", "field"]),
    help="Ask only this prover; may be repeated.",
)  # fmt: skip
@click.option("--rule", "patterns", multiple=True, metavar="NAME", help="Only this rule or law; `conv*` is a pattern.")
@form_option("concise", "json", "markdown", help="How the outcome is printed; markdown: one line for each library.")
@click.option(
    "--jobs", type=click.IntRange(min=0), metavar="N", help="Processes (default: one for each core, at most 8)."
)
@timeout_option("For each prover and rule.", "30s")
@click.option("--no-lock", is_flag=True, help="Prove everything again, and keep nothing.")
@click.option("--trust-lock", is_flag=True, help="Believe what a dslc.lock says of unchanged rules, whoever wrote it.")
@click.option("--seed", default=0, show_default=True, help="Seed of the random instances.")
@click.option("-q", "--quiet", is_flag=True, help="No table and no progress.")
@click.option(
    "--require", type=click.Choice(["proved", "bounded"]), help="Exit code 1 where a rule or law is less than this."
)
@click.option("--guards/--no-guards", default=True, help="Whether to look for guards under which a wrong rule holds.")
def command(
    names: tuple[str, ...],
    provers: tuple[str, ...],
    patterns: tuple[str, ...],
    output_format: str,
    jobs: int | None,
    timeout: float,
    no_lock: bool,
    trust_lock: bool,
    seed: int,
    quiet: bool,
    require: str | None,
    guards: bool,
) -> int:
    """Prove the substitutions and laws of rule files or libraries (default: std), or find where their sides differ.

    What was proved is kept in the user's cache folder, and not proved again while nothing that it rests on changes; a `dslc.lock`
    beside each library says it to others (but none is written into an installed package), who prove it again or trust it.
    Exit code 1 where a rule is refuted or less than --require says, or `dslc check` finds a mistake in the files: what has one is
    not proved.
    """
    from dslc.cli.progress import finishing, interrupts

    asked = VerifyRequest(names or ("std",), patterns, provers, jobs, timeout, no_lock, trust_lock, seed, guards)
    outcome, began = VerifyOutcome(), time.perf_counter()
    with interrupts(signal.SIGTERM) as pressed:
        try:
            with CommandBar("proving", quiet or output_format in {"json", "markdown"}) as bar:
                verified(asked, outcome, _told(bar))
        except BaseException as problem:
            # libraries in C may turn the exception into an error of their own
            if not pressed() and not isinstance(problem, KeyboardInterrupt):
                raise
            outcome.interrupted = True
        with finishing(signal.SIGTERM):
            _tell(outcome, output_format, quiet, time.perf_counter() - began)
            short = below(outcome.verdicts, require)
            if short:
                click.echo(f"less than {require}: {', '.join(short)}", err=True)
    if outcome.interrupted:
        return pressed.code
    return 1 if outcome.findings or short else 0


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """What a run is about; `limit` in seconds, for one prover and one rule."""

    names: Sequence[str]
    patterns: Sequence[str] = ()
    provers: Sequence[str] = ()
    jobs: int | None = None
    limit: float = 30.0
    no_lock: bool = False
    trust_lock: bool = False
    seed: int = 0
    guards: bool = True


@dataclass(slots=True)
class VerifyOutcome:
    """What is known so far, also where a signal ends the run. `chosen`: what it is about, in order."""

    rules: Rules | None = None
    chosen: Sequence[str] = ()
    known: dict[str, RuleVerdict] = field(default_factory=dict)
    findings: list[Diagnostic] = field(default_factory=list)
    #: rules whose findings are among these
    looked: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False

    @property
    def verdicts(self) -> list[RuleVerdict]:
        return [self.known[name] for name in self.chosen if name in self.known]


def verified(asked: VerifyRequest, out: VerifyOutcome, told: Progress | None) -> None:
    """Fills the outcome as verdicts come."""
    from dslc.prove.laws import load_with_laws
    from dslc.prove.run.provers import PROVERS
    from dslc.prove.run.verify import verify

    out.rules = rules = load_with_laws(asked.names)
    every = _chosen(rules, asked.names, asked.patterns)
    out.chosen = chosen = [name for name in every if name not in rules.derivations]
    out.findings += (mistakes := _mistakes(rules, asked.names))
    unasked = mistaken(rules, chosen, mistakes)
    provers = cast("tuple[ProverName, ...]", tuple(p for p in PROVERS if not asked.provers or p in asked.provers))
    proved = verify(
        rules, [name for name in chosen if name not in unasked], default_jobs() if asked.jobs is None else asked.jobs,
        None if asked.no_lock else "beside", told,
        provers=provers, limit=asked.limit, seed=asked.seed, notes=out.notes, trust=asked.trust_lock, into=out.known,
    )  # fmt: skip
    out.known |= unasked
    derived = _derivations(rules, [name for name in every if name in rules.derivations], mistakes, asked.seed)
    out.known |= {one.rule: one for one in derived}
    out.chosen = [*chosen, *(one.rule for one in derived)]
    for verdict in proved:
        out.findings += _findings(rules, verdict, asked.seed, asked.guards)
        out.looked.add(verdict.rule)
    out.findings += _refuted(rules, derived)


def _tell(out: VerifyOutcome, output_format: str, quiet: bool, seconds: float) -> None:
    from dslc.diagnostics.render import render, wants_color
    from dslc.reporting.records import record_text

    verdicts, findings, rules = out.verdicts, list(out.findings), out.rules
    for verdict in verdicts if out.interrupted else ():
        # the guards of these, and what other mistakes they have, would take time
        if rules is not None and verdict.status == "refuted" and verdict.rule not in {*out.looked, *rules.derivations}:
            findings += _findings(rules, verdict, 0, guarded=False)
    if output_format == "json":
        outcome = {
            "rules": [as_dict(verdict) for verdict in verdicts],
            "findings": json.loads(render(findings, "json")),
        }
        if out.interrupted:
            outcome |= {"interrupted": True, "left": [name for name in out.chosen if name not in out.known]}
        click.echo(record_text("verify", outcome), nl=False)
        return
    if output_format == "markdown":
        click.echo(markdown(out.rules, verdicts, seconds) if out.rules is not None else "")
    else:
        if findings:
            say(render(findings, output_format, color=wants_color(sys.stderr)), err=output_format == "full")
        if output_format == "concise":
            for verdict in verdicts:
                said = verdict.types_text
                click.echo(
                    f"{verdict.rule}: {verdict.status}"
                    + "".join(f": {text}" for text in (verdict.reason, said) if text)
                )
        elif verdicts and not quiet:
            _table(verdicts)
            for line in (*needs(verdicts), *presumed(verdicts)):
                click.echo(line)
        for note in dict.fromkeys(out.notes):
            click.echo(f"note: {note}", err=True)
        if verdicts or not (findings or out.interrupted):
            click.echo(f"{summary(verdicts)} in {seconds:.1f} s")
    if out.interrupted:
        click.echo(f"interrupted: {len(out.known)} of {len(out.chosen)} were done", err=True)


def _derivations(
    rules: Rules, names: Sequence[str], mistakes: Sequence[Diagnostic], seed: int
) -> tuple[RuleVerdict, ...]:
    """What is known of derivations: of each, random instances are proved. Nothing is tried of one that has a mistake."""
    from dslc.prove.derivations import verify_derivation
    from dslc.prove.verdict import RuleVerdict
    from dslc.semantics.library import load_many

    helpers = list(load_many(["einnet"]).derivations.values()) if names else []
    found = []
    for name in names:
        rule = rules.derivations[name]
        wrong = next((one for one in mistakes if one.span is not None and one.span.starts_in(rule.syntax.span)), None)
        if wrong is None:
            found.append(verify_derivation(rules, rule, seed, helpers))
        else:
            found.append(RuleVerdict(name, "undecided", (), "", f"{wrong.code}: {wrong.message}"))
    return tuple(found)


def _refuted(rules: Rules, verdicts: Sequence[RuleVerdict]) -> list[Diagnostic]:
    """Findings for derivations of which an instance is wrong."""
    from dslc.errors import Diagnostic

    return [
        Diagnostic("E0501", f"an instance of `{one.rule}` computes something else", rules.derivations[one.rule].syntax.span,
                   counterexample=one.reason)
        for one in verdicts if one.status == "refuted"
    ]  # fmt: skip


def _mistakes(rules: Rules, names: Sequence[str]) -> list[Diagnostic]:
    """The errors that `dslc check` finds in what the files define; the libraries of dslc itself are checked by its tests."""
    from dslc.interpret.check import check_bounds
    from dslc.semantics.check import check
    from dslc.semantics.installed import BUILTIN
    from dslc.semantics.library import modules_of
    from dslc.syntax.names import check_names

    modules = [module for module in modules_of(rules, names) if module.library not in BUILTIN]
    found = [finding for module in modules for finding in check_names(module.file)]
    found = found or (check(rules, modules) if modules else [])
    errors = [finding for finding in found if finding.severity == "error"]
    if not errors:
        bounds = [d for op in rules.operators.values() if op.module in modules for d in check_bounds(rules, op)]
        errors = [finding for finding in bounds if finding.severity == "error"]
    return list({(d.code, str(d.span or d.path), d.message): d for d in errors}.values())


def below(verdicts: Sequence[RuleVerdict], require: str | None) -> list[str]:
    """The rules and laws whose status is weaker than required."""
    enough = {None: None, "proved": {"proved"}, "bounded": {"proved", "bounded"}}[require]
    return [] if enough is None else [verdict.rule for verdict in verdicts if verdict.status not in enough]


def mistaken(rules: Rules, names: Sequence[str], mistakes: Sequence[Diagnostic]) -> dict[str, RuleVerdict]:
    """Verdicts of rules and laws that have a mistake, or whose operators and functions have one: nothing is proved of these."""
    from dslc.prove.evidence.digest import rule_digest
    from dslc.prove.run.verify import mistake_in
    from dslc.prove.run.worker import definition_of
    from dslc.prove.verdict import RuleVerdict

    out = {}
    for name in names if mistakes else ():
        definition = definition_of(rules, name)
        found = mistake_in(rules, definition, mistakes)
        if found is not None:
            reason = f"{found.code}: {found.message}"
            out[name] = RuleVerdict(name, "undecided", (), rule_digest(rules, definition), reason)
    return out


def needs(verdicts: Sequence[RuleVerdict]) -> list[str]:
    """What rules that are shown assume of their right sides, a line for each condition below the rule's name."""
    out = []
    for verdict in verdicts:
        conditions = [condition for one in verdict.verdicts for condition in one.needs]
        if conditions:
            out += [
                f"{verdict.rule} is used only where its right side has a meaning:",
                *(f"  {text}" for text in conditions),
            ]
    return out


def presumed(verdicts: Sequence[RuleVerdict]) -> list[str]:
    """What proofs take for granted, a line for each such thing."""
    found: dict[str, int] = {}
    for verdict in verdicts:
        for text in dict.fromkeys(text for one in verdict.verdicts for text in one.presumes):
            found[text] = found.get(text, 0) + 1
    return [f"{count} of these proofs presume{'s' * (count == 1)} that {text}" for text, count in found.items()]


def _findings(rules: Rules, verdict: RuleVerdict, seed: int, guarded: bool = True) -> tuple[Diagnostic, ...]:
    """What a refuted rule's user is told: the counterexample, and (`guarded`) a guard under which it holds, where one is found."""
    from dslc.prove.guards import find_guards, guard_diagnostics
    from dslc.prove.run.conclusion import diagnostic_of
    from dslc.prove.run.provers import exact_verdict
    from dslc.prove.run.worker import definition_of
    from dslc.semantics.definitions import SubstitutionDef as _Substitution

    definition = definition_of(rules, verdict.rule)
    found = diagnostic_of(definition, verdict)
    if found is None and verdict.status == "undecided" and isinstance(definition, _Substitution):
        return _unequal_types(rules, definition, seed)
    if found is None:
        return ()
    if not guarded or found.hint or not isinstance(definition, _Substitution) or definition.syntax.partial:
        return (found,)
    guards = find_guards(rules, definition, seed, exact_verdict, seconds=GUARD_SECONDS)
    return (found, *guard_diagnostics(definition, guards))


def _unequal_types(rules: Rules, definition: SubstitutionDef, seed: int) -> tuple[Diagnostic, ...]:
    """What `dslc check` says against a rule of which no prover knows anything: it may fit nothing."""
    import numpy as np

    from dslc.interpret.check import check_sides
    from dslc.semantics.installed import BUILTIN

    if definition.module.library in BUILTIN:
        return ()
    return tuple(d for d in check_sides(rules, definition, np.random.default_rng(seed)) if d.severity == "error")


def default_jobs() -> int:
    """A process for each core that this one may use, at most 8."""
    import os

    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(8, count)


def _chosen(rules: Rules, names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The rules and laws that are meant; raises DslcError E0909 where a name is none."""
    import difflib
    from fnmatch import fnmatchcase

    from dslc.errors import Diagnostic, DslcError
    from dslc.prove.run.verify import chosen
    from dslc.semantics.library import modules_of

    modules = modules_of(rules, names)
    inside = [*chosen(rules, modules), *(name for name, one in rules.derivations.items() if one.module in modules)]
    if not patterns:
        return inside
    findings, found = [], set()
    for pattern in patterns:
        matching = {n for n in inside if fnmatchcase(n, pattern) or fnmatchcase(n.rpartition(".")[2], pattern)}
        if not matching:
            close = difflib.get_close_matches(pattern, [*inside, *(n.rpartition(".")[2] for n in inside)], n=1)
            hint = f"did you mean `{close[0]}`?" if close else ""
            findings.append(Diagnostic("E0909", f"no rule or law is named `{pattern}`", hint=hint))
        found |= matching
    if findings:
        raise DslcError(findings, exit_code=2)
    return [name for name in inside if name in found]


def as_dict(verdict: RuleVerdict) -> dict[str, Any]:
    """One rule of the JSON output."""
    import dataclasses

    found = verdict.counterexample
    return {
        "rule": verdict.rule,
        "status": verdict.status,
        "reason": verdict.reason,
        "digest": verdict.digest,
        "by_type": [
            {"types": {name: str(kind) for name, kind in types.kinds}, "status": one.status, "reason": one.reason}
            for types, one in verdict.by_type.items()
        ],
        "verdicts": [
            {
                "prover": one.prover,
                "answer": one.answer,
                "ms": one.milliseconds,
                "reason": one.reason,
                "scope": one.scope,
                "error_bound": one.error_bound,
                "needs": list(one.needs),
                "presumes": list(one.presumes),
            }
            for one in verdict.verdicts
        ],
        "counterexample": None if found is None else dataclasses.asdict(found),
    }


def summary(verdicts: Sequence[RuleVerdict]) -> str:
    """`12 proved, 3 bounded`."""
    from dslc.prove.verdict import STATUSES

    counts = Counter(verdict.status for verdict in verdicts)
    return ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status]) or "nothing to prove"


def markdown(rules: Rules, verdicts: Sequence[RuleVerdict], seconds: float) -> str:
    """The statuses of each library as a table, with the seconds of the whole run below."""
    from dslc.prove.verdict import STATUSES

    rows = ["| library | rules and laws | " + " | ".join(STATUSES) + " |", "|---" + "|---:" * (len(STATUSES) + 1) + "|"]
    libraries = dict.fromkeys(_library(rules, verdict) for verdict in verdicts)
    for library in libraries:
        own = [v for v in verdicts if _library(rules, v) == library]
        counts = Counter(verdict.status for verdict in own)
        rows.append(f"| {library} | {len(own)} | " + " | ".join(str(counts[status]) for status in STATUSES) + " |")
    return "\n".join([*rows, "", f"{len(verdicts)} in {seconds:.0f} s"])


def _library(rules: Rules, verdict: RuleVerdict) -> str:
    from dslc.prove.run.worker import definition_of

    rule = rules.derivations.get(verdict.rule) or definition_of(rules, verdict.rule)
    return rule.module.library


def _table(verdicts: Sequence[RuleVerdict]) -> None:
    """Every rule that is not simply proved, then per status and prover how many and how long."""
    from dslc.cli.tables import print_table
    from dslc.prove.verdict import STATUSES

    rows = []
    order = {status: k for k, status in enumerate(STATUSES)}
    for verdict in sorted(verdicts, key=lambda one: order[one.status]):
        times = {one.prover: f"{one.milliseconds:.0f}" if one.milliseconds else "" for one in verdict.verdicts}
        said = verdict.types_text
        reason = verdict.reason if len(verdict.reason) < 90 else verdict.reason[:87] + "..."
        reason = f"{said}: {reason}" if said and reason else said or reason
        rows.append(
            (verdict.rule, verdict.status, *(times.get(one, "") for one in ("field", "exact", "axioms")), reason)
        )
    print_table(("rule", "status", "field ms", "exact ms", "axioms ms", "reason"), rows)


def _told(bar: CommandBar) -> Progress:
    """Shows on a bar how many rules have which status so far."""
    counts: Counter[str] = Counter()

    def told(done: int, total: int, verdict: RuleVerdict) -> None:
        counts[verdict.status] += 1
        bar.tell(done, total, counts_text(counts))

    return told

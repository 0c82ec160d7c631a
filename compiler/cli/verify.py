"""`dslc verify`: every rule and law with its status, each prover's answer, and counterexamples."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from click import argument

from dslc.cli.options import form_option, option, print_record, timeout_option
from dslc.terminal import CommandBar, counts_text, print_table

if TYPE_CHECKING:
    from dslc.checking.verification import Verification
    from dslc.prove.run.verify import Progress
    from dslc.prove.verdict import RuleVerdict
    from dslc.semantics.library import Rules


@click.command("verify")
@argument("names", nargs=-1, metavar="[FILE|LIBRARY]...")
@option(
    "--prover", "provers", multiple=True, type=click.Choice(["exact", "field"]),
    help="Use only this prover; may be repeated.",
)  # fmt: skip
@option("--rule", "patterns", multiple=True, metavar="NAME", help="Prove only this rule or law; `conv*` is a pattern.")
@form_option("concise", "json", "markdown", help="How the result is printed; markdown: a line for each library.")
@option(
    "--jobs", type=click.IntRange(min=0), metavar="N", help="Number of processes (default: one per core, at most 8)."
)
@timeout_option("Time limit of one prover for one rule.", "30s")
@option("--no-lock", is_flag=True, help="Prove everything anew, and record nothing.")
@option("--trust-lock", is_flag=True, help="Accept the proofs recorded in a dslc.lock, whoever wrote it.")
@option("--seed", default=0, help="Seed of the random instances.")
@option("-q", "--quiet", is_flag=True, help="Print no table and no progress.")
@option("--require", type=click.Choice(["proved", "bounded"]), help="Exit with 1 if a rule or law has a weaker status.")
@option(
    "--guards/--no-guards",
    default=True,
    show_default=False,
    help="Look for conditions under which a refuted rule would hold.",
)
def command(names: tuple[str, ...], output_format: str, quiet: bool, require: str | None, **given: Any) -> int:
    """Prove the substitutions and laws of rule files or libraries (default: std), or find counterexamples.

    Proofs are cached, and reused until something that they depend on changes. A `dslc.lock` beside each library records them for
    others (not in an installed package). The exit code is 1 if a rule is refuted or weaker than --require, or if `dslc check` finds
    an error; rules with an error are not proved.
    """
    from dslc.checking.verification import Verification, below
    from dslc.cli.progress import finishing, interrupts

    run, began = Verification(names or ("std",), **given), time.perf_counter()
    silent = quiet or output_format in {"json", "markdown"}
    if not (names or silent):
        click.echo("proving std; name a file or a library to prove others", err=True)

    def refuted(rules: Sequence[str]) -> None:
        if not silent:
            bar.stop()
            _tell_findings(run, output_format)
            each = f"{len(rules)} rules" if len(rules) > 1 else f"`{rules[0]}`"
            click.echo(f"looking for conditions under which {each} would hold (--no-guards skips this)", err=True)

    with interrupts(signal.SIGTERM) as pressed:
        try:
            with CommandBar("proving", silent) as bar:
                run.run(_told(bar), refuted)
        except BaseException as problem:
            # libraries in C may turn the exception into an error of their own
            if not pressed() and not isinstance(problem, KeyboardInterrupt):
                raise
            run.interrupted = True
        with finishing(signal.SIGTERM):
            _tell(run, output_format, quiet, time.perf_counter() - began)
            short = below(run.verdicts, require)
            if short:
                click.echo(f"less than {require}: {', '.join(short)}", err=True)
    if run.interrupted:
        return pressed.code
    return 1 if run.findings or short else 0


def _tell_findings(out: Verification, output_format: str) -> None:
    from dslc.cli.outputs import say_findings

    if found := out.findings[out.told :]:
        say_findings(found, output_format, output_format == "full")
    out.told = len(out.findings)


def _tell(out: Verification, output_format: str, quiet: bool, seconds: float) -> None:
    from dslc.checking.verification import findings_of
    from dslc.diagnostics.render import render

    verdicts, findings, rules = out.verdicts, out.findings, out.rules
    for verdict in verdicts if out.interrupted else ():
        # what other mistakes they have would take time
        if rules and verdict.status == "refuted" and verdict.rule not in {*out.looked, *rules.derivations}:
            findings += findings_of(rules, verdict, 0)
    if output_format == "json":
        outcome = {
            "rules": [as_dict(verdict) for verdict in verdicts],
            "findings": json.loads(render(findings, "json")),
        }
        if out.interrupted:
            outcome |= {"interrupted": True, "left": [name for name in out.chosen if name not in out.known]}
        print_record("verify", outcome)
        return
    if output_format == "markdown":
        click.echo(markdown(out.rules, verdicts, seconds) if out.rules else "")
    else:
        _tell_findings(out, output_format)
        if output_format == "concise":
            for verdict in verdicts:
                click.echo(": ".join(filter(None, (verdict.rule, verdict.status, verdict.reason, verdict.types_text))))
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


def needs(verdicts: Sequence[RuleVerdict]) -> list[str]:
    """Assumptions of rules about their right sides, a line for each condition below the rule's name."""
    out = []
    for verdict in verdicts:
        conditions = [f"  {condition}" for one in verdict.verdicts for condition in one.needs]
        if conditions:
            out += [f"{verdict.rule} is used only where its right side has a meaning:", *conditions]
    return out


def presumed(verdicts: Sequence[RuleVerdict]) -> list[str]:
    """Presumptions of proofs, a line for each."""
    found = Counter(text for each in verdicts for text in {text: 0 for one in each.verdicts for text in one.presumes})
    return [f"{count} of these proofs assume{'s' * (count == 1)} that {text}" for text, count in found.items()]


_VERDICT = ("prover", "answer", "milliseconds", "reason", "scope", "error_bound", "needs", "presumes")


def as_dict(verdict: RuleVerdict) -> dict[str, Any]:
    """One rule of the JSON output."""
    found = verdict.counterexample
    return {
        **{name: getattr(verdict, name) for name in ("rule", "status", "reason", "digest")},
        "by_type": [
            {"types": {name: str(kind) for name, kind in types.kinds}, "status": one.status, "reason": one.reason}
            for types, one in verdict.by_type.items()
        ],
        "verdicts": [
            {"ms" if name == "milliseconds" else name: getattr(one, name) for name in _VERDICT}
            for one in verdict.verdicts
        ],
        "counterexample": asdict(found) if found else None,
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
    counts: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        counts.setdefault(_library(rules, verdict), Counter())[verdict.status] += 1
    for library, own in counts.items():
        rows.append(f"| {library} | {own.total()} | " + " | ".join(str(own[status]) for status in STATUSES) + " |")
    return "\n".join([*rows, "", f"{len(verdicts)} in {seconds:.0f} s"])


def _library(rules: Rules, verdict: RuleVerdict) -> str:
    from dslc.prove.run.worker import definition_of

    rule = rules.derivations.get(verdict.rule) or definition_of(rules, verdict.rule)
    return rule.module.library


def _table(verdicts: Sequence[RuleVerdict]) -> None:
    """Every rule that is not simply proved, then per status and prover how many and how long."""
    from dslc.prove.verdict import STATUSES

    rows = []
    order = {status: k for k, status in enumerate(STATUSES)}
    for verdict in sorted(verdicts, key=lambda one: order[one.status]):
        times = {one.prover: f"{one.milliseconds:.0f}" if one.milliseconds else "cached" for one in verdict.verdicts}
        said = verdict.types_text
        reason = verdict.reason if len(verdict.reason) < 90 else verdict.reason[:87] + "..."
        reason = f"{said}: {reason}" if said and reason else said or reason
        rows.append((verdict.rule, verdict.status, *(times.get(one, "") for one in ("field", "exact")), reason))
    print_table(("rule", "status", "field ms", "exact ms", "reason"), rows)


def _told(bar: CommandBar) -> Progress:
    """Shows on a bar how many rules have which status so far."""
    counts: Counter[str] = Counter()

    def told(done: int, total: int, verdict: RuleVerdict) -> None:
        counts[verdict.status] += 1
        bar.tell(done, total, counts_text(counts))

    return told

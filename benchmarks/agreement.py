"""Whether the provers agree: on every rule of the libraries, and on edited ones.

    python -m benchmarks.agreement [--edited 400] [--seed 0] [--workers 2] [--seconds 10] [--library std] [--library taso]

An edited rule has one edit (`benchmarks.edited`). The interpreter tells its sides apart at random small shapes, or it
does not; what it tells apart and a prover calls equal is a mistake in that prover. An edited rule that is proved and that the
interpreter does not tell apart is another rule that holds.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import signal
import time
import weakref
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

from benchmarks.edited import KINDS, Edited, sampled
from dslc.interpret.check_rule import CaseOutcome, check_substitution
from dslc.prove.run.provers import prover_verdict, subjects
from dslc.prove.verdict import PROVERS, ProverName, Verdict
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.library import Rules, load


@dataclass(frozen=True, slots=True)
class Row:
    """One rule, edited or not: what the interpreter finds (`differs`, `agrees` or `none`), and what each prover answers."""

    name: str
    kind: str
    edit: str
    interpreter: str
    verdicts: tuple[Verdict, ...]
    shown: str = ""

    @property
    def claimed(self) -> tuple[Verdict, ...]:
        """The provers that say that it holds, for all shapes or within a scope."""
        return tuple(one for one in self.verdicts if one.answer == "equal" and one.prover != "field")

    @property
    def wrong(self) -> bool:
        """A prover says that it holds where the interpreter or another prover finds a difference."""
        differs = self.interpreter == "differs" or any(one.answer == "differs" for one in self.verdicts)
        return differs and bool(self.claimed)


class _Stopped(Exception):
    pass


@functools.cache
def _rules(library: str) -> Rules:
    return load(library)


def subjects_of(rules: Rules, library: str) -> list[SubstitutionDef]:
    """The substitutions of a library itself, and its laws as such."""
    definitions = [*rules.substitutions.values(), *rules.laws.values()]
    return [sub for one in definitions if one.module.library == library for sub in subjects(rules, one)]


def interpreted(rules: Rules, sub: SubstitutionDef, seed: int = 0, trials: int = 6) -> CaseOutcome:
    """What the interpreter finds at random small shapes, for a few operators where a term stands for one."""
    return check_substitution(rules, sub, seed, trials, small=False)


def row(
    rules: Rules, sub: SubstitutionDef, kind: str, edit: str, provers: Sequence[ProverName], seconds: float, seed: int, trials: int = 6
) -> Row:  # fmt: skip
    """The answers of all, each within a limit of time."""
    outcome: Any = limited(lambda: interpreted(rules, sub, seed, trials), max(seconds, 0.3))
    interpreter = {True: "agrees", False: "differs"}[outcome.passed] if isinstance(outcome, CaseOutcome) else "none"
    shown = ""
    if isinstance(outcome, CaseOutcome) and outcome.status == "uninstantiated":
        interpreter = "none"
    elif isinstance(outcome, CaseOutcome) and outcome.diagnostics:
        shown = outcome.diagnostics[0].counterexample or outcome.diagnostics[0].message
    verdicts = []
    for prover in provers:
        ask = functools.partial(prover_verdict, rules, sub, prover, seed=seed + 1, small=False)
        found: Any = limited(ask, seconds)
        verdicts.append(found if isinstance(found, Verdict) else Verdict(prover, "unknown", reason=found))
    return Row(sub.name, kind, edit, interpreter, tuple(verdicts), shown)


def limited(work: Any, seconds: float) -> Any:
    """The work's result, or why there is none."""

    def stop(_: int, frame: FrameType | None) -> None:
        # what is raised where an object dies is lost: there is another signal, soon where that is known
        dying = frame is not None and frame.f_code.co_filename == weakref.__file__
        signal.setitimer(signal.ITIMER_PROF, 0.01 if dying else 1.0)
        if not dying:
            raise _Stopped

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        return work()
    except _Stopped:
        return f"stopped after {seconds:g} s of CPU time"
    except Exception as problem:
        return f"failed: {type(problem).__name__}: {problem}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _edited_rules(library: str, count: int, seed: int) -> list[Edited]:
    rules = _rules(library)
    return sampled(rules, subjects_of(rules, library), count, np.random.default_rng(seed))


@functools.cache
def _all(library: str, count: int, seed: int) -> tuple[tuple[SubstitutionDef, str, str], ...]:
    rules = _rules(library)
    own = [(sub, "rule", "") for sub in subjects_of(rules, library)]
    return (*own, *((m.sub, m.kind, m.edit) for m in _edited_rules(library, count, seed)))


def _work(task: tuple[str, int, int, int, float]) -> Row:
    library, count, seed, position, seconds = task
    sub, kind, edit = _all(library, count, seed)[position]
    return row(_rules(library), sub, kind, edit, PROVERS, seconds, seed)


def table(rows: Sequence[Row]) -> str:
    """Counts of the provers' answers, then of the edited rules by kind."""
    lines = []
    for title, chosen in (
        ("rules", [r for r in rows if r.kind == "rule"]),
        ("edited", [r for r in rows if r.kind != "rule"]),
    ):
        lines.append(f"{len(chosen)} {title}")
        for k, prover in enumerate(PROVERS):
            counts = Counter(r.verdicts[k].answer for r in chosen)
            parts = (f"{answer} {counts[answer]:5}   " for answer in ("equal", "differs", "unknown", "skipped"))
            lines.append(f"  {prover:8}{''.join(parts).rstrip()}")
        lines.append(f"  disagreements: {sum(r.wrong for r in chosen)}")
    lines.append(
        f"{'kind':22}{'edited':>9}{'told apart':>12}{'proved':>8}{'not told apart, proved':>24}{'no instance':>13}"
    )
    for kind in (*KINDS, "all"):
        chosen = [r for r in rows if r.kind == kind or (kind == "all" and r.kind != "rule")]
        apart = [r for r in chosen if r.interpreter == "differs"]
        same = [r for r in chosen if r.interpreter != "differs" and r.claimed]
        none = sum(r.interpreter == "none" for r in chosen)
        lines.append(
            f"{kind:22}{len(chosen):9}{len(apart):12}{sum(bool(r.claimed) for r in apart):8}{len(same):24}{none:13}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--edited", type=int, default=400, help="of each library")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0, help="of CPU time for one prover and one rule")
    parser.add_argument("--library", action="append", help="std and taso by default")
    parser.add_argument("--no-rules", action="store_true", help="the edited rules only")
    parser.add_argument("--quiet", action="store_true", help="the tables only")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which the tables say what is done")
    options = parser.parse_args()
    began = time.perf_counter()
    tasks = []
    for library in options.library or ["std", "taso"]:
        entries = _all(library, options.edited, options.seed)
        positions = [k for k, (_, kind, _) in enumerate(entries) if kind != "rule" or not options.no_rules]
        tasks += [(library, options.edited, options.seed, position, options.seconds) for position in positions]
    rows = []
    # the libraries are loaded and the edited rules made before the processes start, so that all see the same ones
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("fork")) as pool:
        for found in pool.map(_work, tasks):
            rows.append(found)
            if time.perf_counter() - began > 60 * options.minutes:
                print(f"stopped after {len(rows)} of {len(tasks)}")
                pool.shutdown(wait=False, cancel_futures=True)
                break
            if options.quiet:
                continue
            if found.wrong:
                answers = "; ".join(f"{v.prover}: {v.answer} {v.reason} {v.scope}" for v in found.verdicts)
                print(f"DISAGREE {found.name} | {found.kind} | {found.edit}\n  {answers}\n  {found.shown}", flush=True)
            for one in found.verdicts:
                if "claimed to differ" in one.reason or "from itself" in one.reason or "failed" in one.reason:
                    print(f"{found.name} | {found.edit} | {one.prover}: {one.reason}", flush=True)
    print(table(rows))
    same = [r for r in rows if r.kind != "rule" and r.interpreter != "differs" and r.claimed]
    if not options.quiet:
        print("\nproved, and not told apart:")
        for each in same:
            print(
                f"  {each.name} | {each.kind} | {each.edit} | {each.interpreter} | {each.claimed[0].prover} {each.claimed[0].scope}"
            )
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()

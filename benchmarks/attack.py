"""Trying to break every rule that is called proved or bounded: of the shipped libraries, or of files.

    python -m benchmarks.attack [FILE|LIBRARY ...] [--rule NAME] [--trials 100] [--seconds 4] [--seed 0] [--all] [--kept FILE]

A rule is instantiated at every element type that it admits, ranks 0 to 6, sizes to 64, with negative attributes and the numbers
that it names and those beside them; both sides are computed by the interpreter in their own element types (integers wrap around)
on small numbers, the ends of the type's range, equal numbers, zeros, positions in and out of data. Half of the time the rule is
not read but matched: on a graph whose commutative operators have their operands exchanged. A test's `fires` graphs are tried too.
For a sample both sides also run in ONNX Runtime; what differs there only is reported, and breaks no rule.

Ends with 1 where a rule that is called proved or bounded breaks (with `--all`: any rule). What differs by rounding only, or where
the left side has no meaning (a position outside its data), is no break. The table is printed as it grows; with `--kept` what was
attacked is kept in a file, and not attacked again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from benchmarks.attacking import Attack, Broken, Claimed
from dslc.errors import DslcError
from dslc.prove.evidence.digest import rule_digest
from dslc.prove.evidence.lock import lock_path, read_lock
from dslc.prove.run.provers import Definition, subjects
from dslc.prove.run.verify import chosen, verify
from dslc.prove.run.worker import definition_of
from dslc.prove.verdict import RELIABLE, RuleVerdict
from dslc.semantics.installed import BUILTIN
from dslc.semantics.library import Rules, load_many, modules_of


@dataclass
class Row:
    """What became of one rule or law."""

    rule: str
    status: str
    digest: str
    instances: int = 0
    comparisons: int = 0
    types: list[str] = field(default_factory=list)
    seconds: float = 0.0
    outcome: str = "holds"
    shown: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def cells(self) -> str:
        types = ", ".join(self.types) if len(self.types) < 6 else f"{len(self.types)} types"
        cells = (self.rule, self.status, self.instances, self.comparisons, types, f"{self.seconds:.1f}", self.outcome)
        return "| " + " | ".join(map(str, cells)) + " |"


HEAD = "| rule | status | instances | comparisons | types | s | outcome |\n|---|---|---:|---:|---|---:|---|"


def statuses(rules: Rules, names: Sequence[str], jobs: int = 2) -> Mapping[str, RuleVerdict]:
    """The verdicts of rules: what the locks beside them know, the rest proved here (and kept nowhere)."""
    known: dict[str, RuleVerdict] = {}
    for name in names:
        one = definition_of(rules, name)
        found = read_lock(lock_path(one)).of(name, rule_digest(rules, one))
        if found is not None:
            known[name] = found
    missing = [name for name in names if name not in known]
    return {**known, **{one.rule: one for one in verify(rules, missing, jobs)}}


def claims(verdict: RuleVerdict, everything: bool = False) -> Claimed | None:
    """Where a rule is called proved or bounded, as a condition on its names; None where it is nowhere.

    A verdict may be for some classes of element types only (`usable`): then the rule is used for these, and attacked there.
    """
    usable = getattr(verdict, "usable", None)
    types = None if usable is None else usable(RELIABLE)
    if everything or (types is None and (usable is not None or verdict.status in RELIABLE)):
        return lambda names: True
    return (lambda names: any(one.fits(names) for one in types)) if types else None


def attacked(rules: Rules, one: Definition, verdict: RuleVerdict, claimed: Claimed, options: argparse.Namespace) -> Row:
    """One rule, or all equations of one law, until it breaks."""
    row = Row(one.name, verdict.status, verdict.digest)
    began = time.perf_counter()
    types: dict[str, None] = {}
    for sub in subjects(rules, one):
        attack = Attack(rules, sub, options.seed, claimed)
        broken = attack.run(options.trials, options.seconds, own=not options.no_tests)
        row.instances += attack.instances
        row.comparisons += attack.comparisons
        types.update(dict.fromkeys(str(dtype) for dtype in attack.types))
        if broken is not None:
            row.outcome, row.shown = f"**{broken.way}**", broken.text
            break
        if options.runtime:
            from benchmarks.attack_runtime import differences

            row.notes += differences(attack, options.runtime)
    row.types = list(types)
    row.seconds = time.perf_counter() - began
    if not row.instances:
        row.outcome = "no instance"
    return row


def run(rules: Rules, names: Sequence[str], options: argparse.Namespace, kept: Path | None = None) -> Iterator[Row]:
    """A row for every rule as soon as it is known; those of `kept` that have not changed are not attacked again."""
    verdicts = statuses(rules, names)
    old = _kept(kept)
    for name in names:
        verdict = verdicts[name]
        claimed = claims(verdict, options.all)
        if claimed is None:
            continue
        row = old.get(name)
        if row is None or (row.digest, row.status) != (verdict.digest, verdict.status):
            row = attacked(rules, definition_of(rules, name), verdict, claimed, options)
            if kept is not None:
                with kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row.__dict__) + "\n")
        yield row


def _kept(path: Path | None) -> dict[str, Row]:
    if path is None or not path.exists():
        return {}
    rows = [Row(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]
    return {row.rule: row for row in rows}


def _meant(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(
        fnmatchcase(part, pattern) for pattern in patterns for part in (name, name.rpartition(".")[2])
    )


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    out.add_argument("names", nargs="*", metavar="FILE|LIBRARY", help="default: every shipped library")
    out.add_argument("--rule", action="append", default=[], metavar="NAME", help="only these; `conv*` is a pattern")
    out.add_argument("--trials", type=int, default=100, help="instances of each rule")
    out.add_argument("--seconds", type=float, default=4.0, help="at most so long for each rule")
    out.add_argument("--seed", type=int, default=0)
    out.add_argument("--all", action="store_true", help="also rules that are not called proved or bounded")
    out.add_argument("--runtime", type=int, default=1, metavar="N", help="instances of each rule for ONNX Runtime")
    out.add_argument("--no-tests", action="store_true", help="without the graphs of the rules' own tests")
    out.add_argument("--kept", type=Path, metavar="FILE", help="where to keep what was attacked, and to go on from")
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    names = options.names or list(BUILTIN)
    broken: list[Row] = []
    count = 0
    print(HEAD, flush=True)
    # files are read apart from each other: those of one folder may define the same names
    for given in names:
        try:
            rules = load_many([given])
        except DslcError as problem:
            print(f"{given}: {problem}", file=sys.stderr)
            return 2
        wanted = [name for name in chosen(rules, modules_of(rules, [given])) if _meant(name, options.rule)]
        for row in run(rules, wanted, options, options.kept):
            count += 1
            print(row.cells, flush=True)
            for note in row.notes:
                print(f"  {note}")
            if row.shown:
                broken.append(row)
                print("\n" + "\n".join(f"    {line}" for line in row.shown.splitlines()) + "\n", flush=True)
    print(f"\n{count} rules and laws attacked, {len(broken)} broken")
    for row in broken:
        print(f"  {row.rule} ({row.status}): {row.outcome}")
    return 1 if broken else 0


__all__ = ["Attack", "Broken", "attacked", "claims", "main", "run", "statuses"]

if __name__ == "__main__":
    sys.exit(main())

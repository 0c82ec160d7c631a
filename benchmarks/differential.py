"""Whether rules keep what models compute: random models, random walks over every rule, and ONNX Runtime on both ends.

    python -m benchmarks.differential [--models 300] [--seed 0] [--seconds S] [--library std] [--only PATTERN] [--out FILE]

Every other model is one that exporters could have written, the others hold the pattern of a rule, one rule after the other. 1 to
10 rules are applied wherever they match, in both directions, profitable or not. The result is exported and compared with the
original on three ordinary inputs, on integers from the whole range of their types, on zeros, and on infinities, NaN and huge
numbers, which are reported apart. What the runtime itself does differently with and without its optimizations blames no rule. For
some of the walks every step is proved again as `dslc optimize` does: a right rewrite must not be refuted. `--out` keeps what was
done, and a run that finds the file goes on from there. The exit code is 1 where a rule was found to be wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.differ.judge import Judge
from benchmarks.differ.models import random_model
from benchmarks.differ.walk import seeded_model, walk
from dslc.cost.process import Worker, WorkerFailed
from dslc.deadline import Deadline
from dslc.match import CompiledRule, compile_all
from dslc.onnx.importer import import_model
from dslc.search.region_rewrites.validate import claims_of, validate
from dslc.semantics.library import Rules, load_many
from dslc.semantics.numerics import keeps_nonfinite

OPSETS = (12, 13, 17, 18, 21, 23)
#: one walk of so many is proved again, for so many seconds at most
_PROVED, _SECONDS = 6, 20.0
#: a pattern that cannot be written at one opset may be at another
_TRIES = 3
_ABSENT = "no model has the pattern of "


@dataclass(frozen=True, slots=True)
class Record:
    """One model: `skipped` says why there was no walk, `applied` which rules there were, `found` what the last step's model gives."""

    index: int
    skipped: str = ""
    applied: Sequence[str] = ()
    unwritten: Sequence[str] = ()
    found: str = "same"
    rule: str = ""
    problem: str = ""
    refuted: str = ""


@dataclass
class Table:
    """What the records say of each rule."""

    records: list[Record] = field(default_factory=list)

    def applied(self) -> Counter[str]:
        return Counter(rule for record in self.records for rule in record.applied)

    def wrong(self) -> list[Record]:
        return [record for record in self.records if record.found in {"refused", "differs"} or record.refuted]

    def strange(self) -> dict[str, set[str]]:
        out: dict[str, set[str]] = defaultdict(set)
        for record in self.records:
            if record.found == "not finite":
                out[record.rule].add(record.problem.partition(": ")[2])
        return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the walks and prints the table."""
    parser = argparse.ArgumentParser(prog="benchmarks.differential")
    parser.add_argument("--models", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--library", action="append", help="default: std")
    parser.add_argument("--only", default="*", help="rules to walk over, as a pattern")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    libraries = options.library or ["std"]
    rules = load_many(libraries)
    compiled = [rule for rule in compile_all(rules) if any(fnmatchcase(name, options.only) for name in _names(rule))]
    if not compiled:
        parser.error(f"no rule is named {options.only}")
    done = _earlier(options.out)
    table = Table(list(done.values()))
    start = time.monotonic()
    with Worker(1) as worker:
        for index in range(options.models):
            if time.monotonic() - start > options.seconds:
                break
            if index in done:
                continue
            record = one(rules, compiled, worker, options.seed, index)
            table.records.append(record)
            if options.out is not None:
                with options.out.open("a") as file:
                    file.write(json.dumps(asdict(record)) + "\n")
            if record.found in {"refused", "differs"} or record.refuted:
                print(f"model {index}: {record.rule or record.refuted} {record.found}: {record.problem}", flush=True)
            elif sys.stderr.isatty():
                print(f"\r{len(table.records)} models", end="", file=sys.stderr, flush=True)
    print(text(table, compiled, time.monotonic() - start))
    return 1 if table.wrong() else 0


def one(rules: Rules, compiled: Sequence[CompiledRule], worker: Worker, seed: int, index: int) -> Record:
    """One model and one walk; the same for the same seed and index."""
    rng = np.random.default_rng([seed, index])
    first, sizes = "", {}
    if index % 2:
        rule = compiled[index // 2 % len(compiled)]
        first = rule.name
        tries = (
            seeded_model(rules, rule, rng, int(OPSETS[int(rng.integers(len(OPSETS)))]) if k else 23)
            for k in range(_TRIES)
        )
        model = next((found for found in tries if found is not None), None)
        if model is None:
            return Record(index, _ABSENT + first)
    else:
        model, sizes = random_model(rng)
    try:
        imported = import_model(model, rules)
        judge = Judge(worker, rules, imported, sizes, index)
    except WorkerFailed as problem:
        return Record(index, f"ONNX Runtime does not run it: {problem}"[:200])
    steps = walk(rules, compiled, imported.context, imported.graph, rng, int(rng.integers(1, 11)), first)
    if not steps.applied:
        return Record(index, "no rule applies", unwritten=tuple(steps.unwritten))
    refuted = problem = ""
    if index // 2 % _PROVED == 0:
        proved = validate(rules, claims_of(steps.candidate()), Deadline.after(_SECONDS))
        refuted, problem = proved.failed, proved.problem[-300:]
    base = Record(index, "", tuple(steps.applied), tuple(steps.unwritten), refuted=refuted, problem=problem)
    alone, text = judge.look(steps.steps[0].model)
    if alone != "same":
        return Record(index, "", base.applied, base.unwritten, alone, "import and export", text, refuted)
    found, text = judge.look(steps.steps[-1].model)
    if found == "same":
        return base
    blamed = judge.blame(steps.steps, found, text)
    return Record(index, "", base.applied, base.unwritten, blamed.found, blamed.rule, blamed.problem, refuted)


def text(table: Table, compiled: Sequence[CompiledRule], seconds: float) -> str:
    """The table: totals, what is wrong, what becomes of infinities and NaN, and which rules no walk exercised."""
    applied = table.applied()
    walks = [record for record in table.records if not record.skipped]
    lines = [
        f"{len(table.records)} models, {len(walks)} walks, {sum(applied.values())} applications of {len(applied)} of "
        f"{len(compiled)} directions of rules in {seconds:.0f} s"
    ]
    reasons = Counter(
        record.skipped.partition(":")[0].partition(" of ")[0] for record in table.records if record.skipped
    )
    lines += [f"  {count} times {reason}" for reason, count in reasons.most_common()]
    lines.append("wrong:" if table.wrong() else "wrong: none")
    for record in table.wrong():
        what = f"{record.rule} {record.found}" if record.found != "same" else f"{record.refuted} refuted at its shapes"
        lines.append(f"  model {record.index}: {what}: {record.problem}")
    lines.append("other infinities and NaN:")
    stated = {rule.name for rule in compiled if not keeps_nonfinite(rule.definition.syntax)}
    for rule, what in sorted(table.strange().items()):
        lines.append(f"  {rule}{'' if rule in stated else ' (which does not say so)'}: {', '.join(sorted(what))}")
    for found in ("no kernel", "by the runtime"):
        rules = Counter(record.rule for record in table.records if record.found == found)
        lines += (
            [f"{found}: " + ", ".join(f"{rule} ({count})" for rule, count in sorted(rules.items()))] if rules else []
        )
    missing = sorted({rule.name for rule in compiled} - set(applied))
    unwritten = {name for record in table.records for name in record.unwritten}
    lines.append(f"not exercised: {len(missing)}")
    absent = {record.skipped.removeprefix(_ABSENT) for record in table.records}
    for name in missing:
        why = " (no ONNX node expresses its result)" if name in unwritten else " (no model was made with its pattern)"
        lines.append(f"  {name}{why if name in unwritten | absent else ''}")
    return "\n".join(lines)


def _names(rule: CompiledRule) -> Iterator[str]:
    yield from (rule.name, rule.definition.name, rule.definition.name.rpartition(".")[2])


def _earlier(path: Path | None) -> dict[int, Record]:
    if path is None or not path.exists():
        return {}
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    return {row["index"]: Record(**row) for row in rows}


if __name__ == "__main__":
    sys.exit(main())

"""The decisions of an import: each rule's readings go through the provers, all rules side by side, until one of them holds."""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from dslc.errors import DslcError, SourceText
from dslc.foreign.duplicates import equation
from dslc.foreign.translation import Translation, definition, operators
from dslc.interpret.instantiate import Rejected, instantiate
from dslc.prove.counterexample import text_of
from dslc.prove.evidence.digest import rule_digest
from dslc.prove.evidence.lock import Lock, keep_verdicts, own_evidence, stamp
from dslc.prove.guards import SEARCHED
from dslc.prove.run.conclusion import conclude
from dslc.prove.run.worker import Task
from dslc.prove.run.workers import Workers
from dslc.prove.verdict import PROVERS, RELIABLE, RuleVerdict, Verdict
from dslc.records import record
from dslc.semantics.definitions import SubstitutionDef
from dslc.store import Store
from dslc.syntax.printer import format_source

# ---- Outcomes of an import: as a library's text and as a report ----------------------------------------------------

#: proved: in the library; guarded: so under a condition that the file does not state; merged: so as the reverse of another rule of the
#: file, which holds both ways there; undecided: no prover decides it; rejected:
#: it is wrong, a counterexample is known; duplicate: of another rule of the file; same: both sides are one graph here;
#: distribution: it moves data and computes nothing; unknown: an operator has no counterpart; unbound: the target reads a tensor that
#: the source does not have; impossible: no sizes fit its source; open: the import was stopped before it was decided
Outcome = Literal[
    "proved",
    "guarded",
    "merged",
    "undecided",
    "rejected",
    "duplicate",
    "same",
    "distribution",
    "unknown",
    "unbound",
    "impossible",
    "open",
]

#: what is in the library under its own name
LIVE: frozenset[Outcome] = frozenset({"proved", "guarded"})

#: in words, after a number of rules
MEANING: dict[Outcome, str] = {
    "proved": "proved",
    "guarded": "proved under a guard that was found, as they are wrong without it",
    "merged": "proved as reverses of other rules, which have `<=>`",
    "undecided": "not decided by any prover: comments below",
    "rejected": "wrong, with a counterexample: comments below",
    "duplicate": "equal to another rule up to names and the order of operands that commute",
    "same": "with the same graph on both sides",
    "distribution": "that distribute tensors and compute nothing",
    "unknown": "with an operator that has no counterpart",
    "unbound": "whose target reads a tensor that the source does not have",
    "impossible": "whose source fits no sizes: comments below",
    "open": "open, as the import was stopped: the same command goes on with them",
}


@record
class ImportedRule:
    """The outcome of one rule. `number` is its place in the file; `translation` the reading that was proved, or the first one.

    `wider`: why the most general reading, which the other project's types allow, was refuted before a narrower one was proved.
    """

    number: int
    name: str
    outcome: Outcome
    reason: str = ""
    translation: Translation | None = None
    verdict: RuleVerdict | None = None
    left_out: int = 0
    wider: RuleVerdict | None = None

    @property
    def note(self) -> str:
        """A note on how the proved reading is narrower than the file's."""
        mode = self.translation.mode if self.translation else None
        if mode is None or self.outcome not in {"proved", "merged"}:
            return ""
        kernels = ["for the kernel sizes of the file only"] if mode.kernels else []
        wrong = ["wrong for kernels or groups that its types leave out"] if self.wider else []
        return "; ".join([*kernels, *wrong])


@dataclass
class Import:
    """All rules of a file. `unknown` counts the operators without counterpart by name."""

    rules: list[ImportedRule] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)

    def counts(self) -> dict[Outcome, int]:
        found = Counter(rule.outcome for rule in self.rules)
        return {outcome: found[outcome] for outcome in MEANING}


@record
class Pending:
    """A rule that needs a proof: its readings, most general first."""

    number: int
    name: str
    readings: tuple[Translation, ...]
    left_out: int


_STAMP = "# Written by `dslc import-rules`, which replaces this file only as long as it has the checksum "


def library_text(readings: Sequence[Translation], header: str = "", footer: str = "") -> str:
    """A rule file with the imports that its rules need, as `dslc fmt` writes it."""
    used = sorted({pair for reading in readings for pair in reading.operators})
    imports = []
    for place in sorted({place for place, _ in used}, key=lambda place: (place.startswith("std."), place)):
        names = ", ".join(name for module, name in used if module == place)
        short = place.removeprefix("std.")
        imports.append(f"import {place} ({names})" if short == place else f"import {place} as {short}")
    parts = ["dslc 1", *([header] if header else []), "", *imports, ""]
    # equal over the reals: what becomes of other numbers was not asked
    parts += [f"{reading.text.removesuffix('}')}  verify numerics = nonfinite\n}}\n" for reading in readings]
    return format_source(SourceText("imported.rules", "\n".join(parts) + "\n" + footer))


def imported_text(result: Import, form: str, origin: str, library: str = "") -> str:
    """The library: proved rules, then the others as comments, each with its reason; the header counts them.

    `library`: its name, where that is not the file's.
    """
    proved = [rule for rule in result.rules if rule.outcome in LIVE]
    counts = result.counts()
    header = [f"Imported from {origin} ({form}), {len(result.rules)} rules:"]
    header += [f"  {count} {MEANING[outcome]}" for outcome, count in counts.items() if count]
    narrowed = sum(rule.wider is not None for rule in result.rules)
    if narrowed:
        header += [
            f"  of those proved, {narrowed} are wrong for kernels or groups that their types leave out: comments below"
        ]
    if result.unknown:
        header += [
            "  operators without a counterpart: " + ", ".join(f"{k} ({n})" for k, n in result.unknown.most_common())
        ]
    footer: list[str] = []
    for rule in result.rules:
        if rule.outcome in {"rejected", "undecided", "impossible"} or rule.wider:
            footer += ["", *(f"# {line}".rstrip() for line in _explained(rule).splitlines())]
    readings = [rule.translation for rule in proved if rule.translation]
    head = [*(f"# {line}" for line in header), *([f"library {library} 1.0.0"] if library else [])]
    return library_text(readings, "\n".join(head), "\n".join(footer) + "\n" if footer else "")


def stamped(text: str) -> str:
    """The text with a last line by which a later import tells whether it was changed."""
    return f"{text}\n{_STAMP}{_sum_of(text)}\n"


def is_stamped(text: str) -> bool:
    """Return whether it is the text of an import, as it was written."""
    before, mark, stamp = text.rpartition(f"\n{_STAMP}")
    return bool(mark) and stamp.strip() == _sum_of(before)


def _sum_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _explained(rule: ImportedRule) -> str:
    lines = [f"{rule.name}, rule {rule.number}, {rule.outcome}" + (f": {rule.reason}" if rule.reason else "")]
    if rule.wider:
        lines = [f"{rule.name}, rule {rule.number}, holds for the types above; it is wrong for others that it fits"]
    elif rule.translation:
        lines.append(rule.translation.text)
    found = _counterexample(rule)
    if found is not None and found != rule.reason:
        lines += ["counterexample:", *(f"  {line}" for line in found.splitlines())]
    return "\n".join(lines)


def _counterexample(rule: ImportedRule) -> str | None:
    """Values on which the sides differ, or sizes at which the target does not fit."""
    if rule.wider is not None and rule.wider.counterexample is not None:
        return text_of(rule.wider.counterexample)
    if rule.verdict is not None and rule.verdict.counterexample is not None:
        return text_of(rule.verdict.counterexample)
    return rule.reason if rule.outcome == "rejected" else None


def as_json(result: Import) -> dict[str, object]:
    """The report for programs."""
    return {
        "counts": dict(result.counts()),
        "unknown_operators": dict(result.unknown.most_common()),
        "rules": [
            {
                "number": rule.number,
                "rule": rule.name,
                "outcome": rule.outcome,
                "reason": rule.reason,
                "status": rule.verdict.status if rule.verdict else None,
                "note": rule.note,
                "distributing_operators_left_out": rule.left_out,
                "counterexample": _counterexample(rule),
            }
            for rule in result.rules
        ],
    }


# ---- The decisions of an import: each rule's readings go through the provers, all rules side by side, until --------

INSTANCES = 200  #: instances that are tried
LARGE = 64  #: number of a rule above which its arrays are large
MOST_OPEN = 4  #: readings that no prover decides, each of which may take the whole limit
LOOK = 0.05  #: seconds between looks at the clock in a run with a time limit


@record
class _Ask:
    """A reading that provers are asked about; the answer is their verdicts. With `guards`, it is one that holds guards."""

    reading: Translation
    guards: bool = False


_Steps = Generator[_Ask, list[Verdict], ImportedRule]


class Deciding:
    """Use it as a context manager: leaving it ends the processes that prove.

    Args:
        workers: processes that prove; 0 for this one.
        limit: seconds of processor time for one prover and one rule.
        kept: what was decided before, and is to be kept.
        guards: whether guards are looked for under which a wrong rule holds.
        ends: when to stop, on `time.monotonic`'s clock.
        library: whose rules these are to be.
    """

    def __init__(
        self,
        workers: int,
        limit: float,
        kept: KeptVerdicts,
        guards: bool,
        ends: float | None,
        library: str = "imported",
    ) -> None:
        self._rules = operators()
        self._limit, self._kept, self._guards, self._ends = limit, kept, guards, ends
        self._library = library
        self._workers = Workers(self._rules, workers, limit)
        self._number = 0
        self._running: dict[str, _Steps] = {}
        self._done: list[ImportedRule] = []
        #: rules whose equation is being proved for another one, by that equation
        self._waiting: dict[object, list[Pending]] = {}
        self._first: dict[object, RuleVerdict] = {}

    def __enter__(self) -> Deciding:
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.__exit__()

    def run(self, pending: Iterable[Pending]) -> Iterator[ImportedRule]:
        """The rules as they are decided; those that are not until the end of the time are missing.

        A rule and its reverse are one equation, proved once. Guards are looked for beside the other proofs.

        Raises:
            DslcError: E0519 where dslc's own libraries change in the meantime.
        """
        for one in pending:
            key = equation(one.readings[0])
            if key in self._first:
                self._step(self._steps(one, self._shared(key)), None)
            elif key in self._waiting:
                self._waiting[key].append(one)
            else:
                self._waiting[key] = []
                self._step(self._steps(one, None, key), None)
            self._hear(wait=False)
            yield from self._taken()
            if self._late():
                return
        while self._running:
            self._hear(wait=self._ends is None or not self._workers.parallel)
            if self._ends is not None and self._workers.parallel:
                time.sleep(LOOK)
            yield from self._taken()
            if self._late():
                return

    def _hear(self, wait: bool) -> None:
        for task, verdicts in self._workers.answers(wait):
            self._step(self._running.pop(task.rule), list(verdicts))

    def _late(self) -> bool:
        return self._ends is not None and time.monotonic() >= self._ends

    def _taken(self) -> Iterator[ImportedRule]:
        while self._done:
            yield self._done.pop(0)

    def _step(self, steps: _Steps, answer: list[Verdict] | None) -> None:
        """Goes on with a rule, from its beginning without an answer: to what it wants next, or to its end."""
        try:
            wanted = next(steps) if answer is None else steps.send(answer)
        except StopIteration as end:
            self._done.append(end.value)
            return
        self._number += 1
        name = f"reading_{self._number}"
        self._running[name] = steps
        reading = wanted.reading
        names = tuple((f"{place.partition('.')[0]}.{op}", _called(place, op)) for place, op in reading.operators)
        provers = ("field",) if wanted.guards else PROVERS
        task = Task(name, provers, guards=wanted.guards, text=reading.text, operators=names)
        self._workers.submit([task])

    def _steps(self, one: Pending, given: RuleVerdict | None, key: object = None) -> _Steps:
        """One rule from its first reading to its outcome. `given`: the verdict of the same equation, read the other way."""
        first: RuleVerdict | None = None
        unknown = 0

        def found(reading: Translation, verdict: RuleVerdict) -> ImportedRule:
            outcome: Outcome = "guarded" if reading.guard else "proved"
            wider = first if first and first.status == "refuted" and outcome == "proved" else None
            return ImportedRule(one.number, one.name, outcome, reading.guard, reading, verdict, one.left_out, wider)

        for reading in one.readings:
            if unknown and "(G" in reading.text:
                continue  # group counts are what proofs take long over
            verdict = given if not first and given else (yield from self._proved(reading))
            if first is None and key is not None:
                # the rules that waited for the first verdict on their equation
                self._first[key] = verdict
                for other in self._waiting.pop(key, ()):
                    self._step(self._steps(other, self._shared(key)), None)
            if verdict.status in RELIABLE:
                return found(reading, verdict)
            first = first or verdict
            unknown += verdict.status != "refuted"
            if unknown == MOST_OPEN:
                break
        assert first
        if first.status == "refuted" and self._guards and unknown < MOST_OPEN and not _large(one.readings[0]):
            for reading in (yield from self._guarded(one.readings[0])):
                verdict = yield from self._proved(reading)
                if verdict.status in RELIABLE:
                    return found(reading, verdict)
        outcome: Outcome = "rejected" if first.status == "refuted" else "undecided"
        return ImportedRule(one.number, one.name, outcome, first.reason, one.readings[0], first, one.left_out)

    def _shared(self, key: object) -> RuleVerdict | None:
        """The proof of an equation that another rule has too; None where it is not proved."""
        verdict = self._first[key]
        return verdict if verdict.status in RELIABLE else None

    def _proved(self, reading: Translation) -> Generator[_Ask, list[Verdict], RuleVerdict]:
        """The verdict on a reading, from before or from the provers."""
        digest = digest_of(reading)
        known = self._kept.verdict(digest)
        if known:
            return known
        verdicts = yield _Ask(reading)
        try:
            verdict = conclude(self._rules, definition(self._rules, reading, self._library), verdicts, digest)
        except DslcError as problem:  # the provers disagree: the rule does not enter, and the others are decided
            return RuleVerdict(reading.name, "undecided", tuple(verdicts), digest, str(problem))
        self._kept.keep(verdict)
        return verdict

    def _guarded(self, reading: Translation) -> Generator[_Ask, list[Verdict], tuple[Translation, ...]]:
        """The rule under each guard that makes it right on all instances that were tried, and leaves some."""
        digest = digest_of(reading)
        guards = self._kept.guards(digest)
        if guards is None:
            (found,) = yield _Ask(reading, guards=True)
            guards = found.guards
            # one that was stopped says nothing of the next run
            if found.reason == SEARCHED:
                self._kept.keep_guards(digest, guards)
        readings = [reading.guarded(guard) for guard in guards]
        return tuple(each for each in readings if _computes(definition(self._rules, each)))


def _called(place: str, name: str) -> str:
    """An operator's name in the text of a reading."""
    return f"{place.removeprefix('std.')}.{name}" if place.startswith("std.") else name


def _large(reading: Translation) -> bool:
    """Return whether it names sizes whose arrays fill the memory, or take minutes."""
    head, *lines = reading.text.splitlines()
    text = "\n".join([head, *(line for line in lines if '"""' not in line)])
    return any(len(number) > 3 or int(number) > LARGE for number in re.findall(r"\b\d+\b", text))


def _computes(sub: SubstitutionDef) -> bool:
    """Return whether some instance of a guarded rule has elements in its outputs: a guard may leave only windows that fit nowhere."""
    rng = np.random.default_rng(0)
    for _ in range(INSTANCES):
        try:
            instance = instantiate(operators(), sub, rng)
        except Rejected:
            continue
        if all(value.type.elements for value in instance.left.values()):
            return True
    return False


_NAME = "rule"


def digest_of(reading: Translation) -> str:
    """Of a reading's text and all that it rests on, whatever the rule is called and wherever it stands."""
    text = reading.text.replace(f"substitution {reading.name}(", f"substitution {_NAME}(", 1)
    rules = operators()
    return rule_digest(rules, definition(rules, replace(reading, name=_NAME, text=text)))


class KeptVerdicts:
    """Verdicts and guards by digest. Without a folder nothing is kept.

    Args:
        limit: what a prover did not decide within fewer seconds than these is asked again.
    """

    def __init__(self, folder: Path | None, limit: float) -> None:
        self._limit = limit
        self._guards = Store(folder / "guards") if folder else None
        self._proofs = own_evidence(folder) if folder else None

    def verdict(self, digest: str) -> RuleVerdict | None:
        found = self._proofs.get(_NAME, digest) if self._proofs else None
        return Lock({_NAME: found}).of(_NAME, digest, self._limit) if found else None

    def keep(self, verdict: RuleVerdict) -> None:
        # a process that ran out of memory says nothing of the next run
        if self._proofs and not any("process died" in one.reason for one in verdict.verdicts):
            self._proofs.put([verdict])

    def guards(self, digest: str) -> tuple[str, ...] | None:
        """The guards that were found for a wrong rule."""
        found = self._guards.get_json(f"{stamp()}-{digest}") if self._guards else None
        return tuple(found) if isinstance(found, list) and all(isinstance(each, str) for each in found) else None

    def keep_guards(self, digest: str, guards: Sequence[str]) -> None:
        if self._guards:
            self._guards.put_json(f"{stamp()}-{digest}", list(guards))


def write_proofs(path: Path, imported: Sequence[ImportedRule]) -> str:
    """Puts the verdicts of a written library into the `dslc.lock` beside it: nothing is proved again. A note where it cannot."""
    return keep_verdicts(path, {rule.name: rule.verdict for rule in imported if rule.outcome in LIVE and rule.verdict})

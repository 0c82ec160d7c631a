"""Foreign rules in, proved or left out: each rule of a file ends up in the library, or in the report with the reason."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from dslc.errors import Source
from dslc.foreign.counterparts import KNOWN
from dslc.foreign.define import definition, operators
from dslc.foreign.misfit import misfit
from dslc.foreign.parallel import AxisOrder, axis_order, undistributed
from dslc.foreign.rule import ForeignRule
from dslc.foreign.shapes import Clash, Unbound
from dslc.foreign.translate import Translation, tensor_names, translations
from dslc.foreign.typing import Unknown
from dslc.interpret.instantiate import Rejected, instantiate
from dslc.prove.counterexample import text_of
from dslc.prove.guards import find_guards
from dslc.prove.verdict import RELIABLE, ProverName, RuleVerdict
from dslc.prove.verify import verify, verify_rule
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.library import load_many
from dslc.syntax.printer import format_source

#: proved: in the library; guarded: so under a condition that the file does not state; undecided: no prover decides it; rejected:
#: it is wrong, a counterexample is known; duplicate: of another rule of the file; same: both sides are one graph here;
#: distribution: it moves data and computes nothing; unknown: an operator has no counterpart; unbound: the target reads a tensor that
#: the source does not have; impossible: no sizes fit its source
Outcome = Literal[
    "proved",
    "guarded",
    "undecided",
    "rejected",
    "duplicate",
    "same",
    "distribution",
    "unknown",
    "unbound",
    "impossible",
]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

# a guard that hardly any instance meets makes a rule right and useless
_USEFUL = 0.05
_INSTANCES = 200

# numbers of a rule above which arrays are large
_LARGE = 64

# readings that no prover decides, each of which may take the whole limit
_MOST_OPEN = 4

#: told of what is done: how many rules are decided, and how many there are
Progress = Callable[[int, int], None]
_Told = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of one rule. `number` is its place in the file; `translation` the reading that was proved, or the first one.

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
        """How the proved reading is narrower than the file's."""
        mode = self.translation.mode if self.translation is not None else None
        if mode is None or self.outcome != "proved":
            return ""
        kernels = ["for the kernel sizes of the file only"] if mode.kernels else []
        wrong = ["wrong for kernels or groups that its types leave out"] if self.wider is not None else []
        return "; ".join([*kernels, *wrong])


@dataclass
class _Open:
    """A rule that is still to be decided: its readings, most general first."""

    number: int
    name: str
    readings: list[Translation]
    left_out: int
    first: RuleVerdict | None = None
    at: int = 0
    open: int = 0
    sought: bool = False


@dataclass
class Import:
    """All rules of a file. `unknown` counts the operators without counterpart by name."""

    rules: list[Imported] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)

    def counts(self) -> dict[Outcome, int]:
        found = Counter(rule.outcome for rule in self.rules)
        return {outcome: found[outcome] for outcome in OUTCOMES}


def import_rules(
    rules: Sequence[ForeignRule],
    form: str,
    out: Path,
    workers: int = 2,
    limit: float = 30.0,
    progress: Progress | None = None,
    guards: bool = True,
    axes: AxisOrder | None = None,
) -> Import:
    """Decides every rule.

    Args:
        form: the format's name: how rules are called.
        out: the file that is going to be written: its name is the library's, its folder holds the lock.
        workers: processes that prove; 0 for this one.
        limit: seconds for one prover and one rule.
        guards: whether conditions are looked for under which a wrong rule is right (seconds for each wrong one).
        axes: how FlexFlow's parallel dimensions are counted; None: as more rules of the file fit.

    Raises:
        DslcError: E0510 where the provers disagree.
    """
    result = Import()
    pending = _read(rules, form, axes or axis_order(rules), result)
    total = len(rules)
    done = asked = 0

    def told(*_: object) -> None:
        nonlocal asked
        asked = min(asked + 1, total - done - 1)
        if progress is not None:
            progress(done + asked, total)

    while pending:
        done, asked = total - len(pending), 0
        verdicts = _decided([one.readings[one.at] for one in pending], out, workers, limit, told)
        later: list[_Open] = []
        for one, verdict in zip(pending, verdicts, strict=True):
            one.first = one.first or verdict
            reading = one.readings[one.at]
            if verdict.status in RELIABLE:
                outcome: Outcome = "guarded" if reading.guard else "proved"
                wider = one.first if one.first.status == "refuted" and outcome == "proved" else None
                result.rules.append(
                    Imported(one.number, one.name, outcome, reading.guard, reading, verdict, one.left_out, wider)
                )
                continue
            one.open += verdict.status != "refuted"
            if one.open < _MOST_OPEN and _advanced(one, guards):
                later.append(one)
            else:
                outcome = "rejected" if one.first.status == "refuted" else "undecided"
                kept = (one.readings[0], one.first, one.left_out)
                result.rules.append(Imported(one.number, one.name, outcome, one.first.reason, *kept))
        pending = later
        if progress is not None:
            progress(total - len(pending), total)
    result.rules.sort(key=lambda rule: rule.number)
    return result


def _advanced(one: _Open, guards: bool) -> bool:
    """Goes on to the next reading that no instance refutes at once; where all are wrong, to the rule under a guard that helps."""
    rules = operators()
    assert one.first is not None
    while one.at + 1 < len(one.readings):
        one.at += 1
        if one.open and "(G" in one.readings[one.at].text:
            continue  # group counts are what proofs take long over
        if _large(one.readings[one.at]):
            return True  # only a process that can be ended tries these
        if verify_rule(rules, definition(rules, one.readings[one.at]), ("field",)).status != "refuted":
            return True
    if one.first.status != "refuted" or one.sought or not guards or _large(one.readings[0]):
        return False
    one.sought = True
    for guard in find_guards(rules, definition(rules, one.readings[0])):
        reading = one.readings[0].guarded(guard.text)
        if guard.kept >= _USEFUL and _computes(definition(rules, reading)):
            one.readings.append(reading)
    one.at = min(one.at + 1, len(one.readings) - 1)
    return one.readings[one.at].guard != ""


def _large(reading: Translation) -> bool:
    """Whether it names sizes whose arrays fill the memory, or take minutes."""
    head, *lines = reading.text.splitlines()
    text = "\n".join([head, *(line for line in lines if '"""' not in line)])
    return any(len(number) > 3 or int(number) > _LARGE for number in re.findall(r"\b\d+\b", text))


def _computes(sub: SubstitutionDef) -> bool:
    """Whether some instance of a guarded rule has outputs with elements: a guard may leave only windows that fit nowhere."""
    rng = np.random.default_rng(0)
    for _ in range(_INSTANCES):
        try:
            instance = instantiate(operators(), sub, rng)
        except Rejected:
            continue
        if all(value.type.elements for value in instance.left.values()):
            return True
    return False


def _read(rules: Sequence[ForeignRule], form: str, order: AxisOrder, result: Import) -> list[_Open]:
    """Readings of the rules that need a proof; the others go to the result at once."""
    known: dict[str, str] = {}
    pending: list[_Open] = []
    used: set[str] = set()
    outcome: Outcome
    for number, original in enumerate(rules):
        name = re.sub(r"\W+", "_", original.name).strip("_").lower()
        if not name or not name[0].isalpha() or name in used:
            name = f"{form}_{number}"
        used.add(name)
        rule, left_out = undistributed(original, order)
        if left_out and (not rule.source or all(output.source.operator < 0 for output in rule.outputs)):
            reason = "the source distributes tensors and computes nothing"
            result.rules.append(Imported(number, name, "distribution", reason, left_out=left_out))
            continue
        missing = Counter(kind for kind in rule.kinds() if kind not in KNOWN)
        if missing:
            result.unknown.update(missing)
            reason = ", ".join(sorted(missing))
            result.rules.append(Imported(number, name, "unknown", reason, left_out=left_out))
            continue
        doc = f"Rule {number} of a {form} file" + (
            f"; {left_out} operators that distribute tensors are left out." if left_out else "."
        )
        try:
            readings = list(translations(rule, name, doc))
        except Unbound as problem:
            result.rules.append(Imported(number, name, "unbound", str(problem), left_out=left_out))
            continue
        except (Clash, Unknown) as problem:
            where = misfit(rule, tensor_names(rule))
            outcome = "impossible" if where is None else "rejected"
            result.rules.append(Imported(number, name, outcome, where or str(problem), left_out=left_out))
            continue
        key = _key(readings[0])
        if len(_equation(readings[0])[1]) == 1:
            outcome = "distribution" if left_out else "same"
            result.rules.append(Imported(number, name, outcome, "", readings[0], left_out=left_out))
        elif known.setdefault(key, name) != name:
            result.rules.append(Imported(number, name, "duplicate", known[key], readings[0], left_out=left_out))
        else:
            pending.append(_Open(number, name, readings, left_out))
    return pending


def _key(reading: Translation) -> str:
    """The text without its name, documentation and tags, tensors numbered in order."""
    lines = [line.strip() for line in reading.text.splitlines()]
    lines[0] = lines[0].removeprefix(f"substitution {reading.name}")
    kept = [line for line in lines[:-1] if not line.startswith(('"""', "tags "))]
    order: dict[str, str] = {}
    return re.sub(r"\b[ABX]\d+\b", lambda found: order.setdefault(found[0], f"X{len(order)}"), "\n".join(kept))


def _decided(readings: Sequence[Translation], out: Path, workers: int, limit: float, told: _Told) -> list[RuleVerdict]:
    """Verdicts of some rules: the axioms, which take long where they do not help, are asked where the exact prover does not know.

    A rule and its reverse are one equation, proved once.
    """
    keys = [_equation(reading) for reading in readings]
    firsts = {key: k for k, key in reversed([*enumerate(keys)])}
    once = sorted(firsts.values())
    found = dict(zip(once, _proved([readings[k] for k in once], out, workers, limit, told), strict=True))
    again = [k for k, key in enumerate(keys) if k not in found and found[firsts[key]].status not in RELIABLE]
    found |= zip(again, _proved([readings[k] for k in again], out, workers, limit, told), strict=True)
    return [found[k if k in found else firsts[key]] for k, key in enumerate(keys)]


def _equation(reading: Translation) -> tuple[str, frozenset[str]]:
    """The types of a rule and its two sides, whichever is which; a rule with a condition is for itself."""
    head, *lines = [
        line.strip() for line in reading.text.splitlines()[:-1] if not line.strip().startswith(('"""', "tags "))
    ]
    if any(line.startswith("where ") for line in lines):
        return reading.text, frozenset()
    names, _, outputs = head.removeprefix(f"substitution {reading.name}").partition(" -> ")
    params = ", ".join(sorted(names.strip("()").split(", X")))
    sides = "\n".join(lines).partition("\n=>\n")
    return f"{params} -> {outputs}", frozenset((_local(sides[0]), _local(sides[2])))


def _local(side: str) -> str:
    """A side with its own names in order."""
    order: dict[str, str] = {}
    return re.sub(r"\b[AB]\d+\b", lambda found: order.setdefault(found[0], f"_{len(order)}"), side)


def _proved(readings: Sequence[Translation], out: Path, workers: int, limit: float, told: _Told) -> list[RuleVerdict]:
    """Chains of windows follow from the laws in milliseconds where they do; of the others the exact prover knows more."""
    found: dict[int, RuleVerdict] = {}

    def ask(numbers: Sequence[int], provers: Sequence[ProverName]) -> None:
        wanted = [k for k in numbers if k not in found or found[k].status not in (*RELIABLE, "refuted")]
        verdicts = _verified([readings[k] for k in wanted], out, workers, limit, provers, told) if wanted else []
        for k, verdict in zip(wanted, verdicts, strict=True):
            earlier = found[k].verdicts if k in found else ()
            if k not in found or verdict.status in RELIABLE or "exact" in provers:
                found[k] = replace(verdict, verdicts=(*earlier, *verdict.verdicts))

    ask([k for k, reading in enumerate(readings) if reading.chained], ("field", "axioms"))
    ask(range(len(readings)), ("field", "exact"))
    ask([k for k, reading in enumerate(readings) if not reading.chained], ("axioms",))
    return [found[k] for k in range(len(readings))]


def _verified(
    readings: Sequence[Translation],
    out: Path,
    workers: int,
    limit: float,
    provers: Sequence[ProverName],
    told: _Told,
) -> list[RuleVerdict]:
    """Verdicts of some rules, from a file in a temporary folder: the proving processes read it there."""
    with tempfile.TemporaryDirectory(prefix="dslc-import-") as folder:
        path = Path(folder) / out.name
        path.write_text(_plain_text(readings), encoding="utf-8")
        loaded = load_many([path])
        names = [f"{out.stem}.{reading.name}" for reading in readings]
        found = verify(loaded, names, workers, provers=provers, limit=limit, progress=told)
    by = {verdict.rule: verdict for verdict in found}
    return [by[name] for name in names]


# ---- text ------------------------------------------------------------------------------------------------------


def library_text(readings: Sequence[Translation], header: str = "", footer: str = "") -> str:
    """A rule file with the imports that its rules need, as `dslc fmt` writes it."""
    return format_source(Source("imported.rules", _plain_text(readings, header, footer)))


def _plain_text(readings: Sequence[Translation], header: str = "", footer: str = "") -> str:
    used = sorted({pair for reading in readings for pair in reading.operators})
    imports = []
    for place in sorted({place for place, _ in used}, key=lambda place: (place.startswith("std."), place)):
        names = ", ".join(name for module, name in used if module == place)
        short = place.removeprefix("std.")
        imports.append(f"import {place} ({names})" if short == place else f"import {place} as {short}")
    parts = ["dslc 1", *([header] if header else []), "", *imports, ""]
    parts += [reading.text for reading in readings]
    return "\n".join(parts) + "\n" + footer


def imported_text(result: Import, form: str, origin: str) -> str:
    """The library: proved rules, then the others as comments, each with its reason; the header counts them."""
    proved = [rule for rule in result.rules if rule.outcome in ("proved", "guarded")]
    counts = result.counts()
    header = [f"Imported from {origin} ({form}), {len(result.rules)} rules:"]
    header += [f"  {count} {_MEANING[outcome]}" for outcome, count in counts.items() if count]
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
        if rule.outcome in {"rejected", "undecided", "impossible"} or rule.wider is not None:
            footer += ["", *(f"# {line}".rstrip() for line in _explained(rule).splitlines())]
    readings = [rule.translation for rule in proved if rule.translation is not None]
    return library_text(readings, "\n".join(f"# {line}" for line in header), "\n".join(footer) + "\n" if footer else "")


_MEANING: dict[Outcome, str] = {
    "proved": "proved",
    "guarded": "proved under a guard that was found, as they are wrong without it",
    "undecided": "not decided by any prover: comments below",
    "rejected": "wrong, with a counterexample: comments below",
    "duplicate": "equal to another rule up to names",
    "same": "with the same graph on both sides",
    "distribution": "that distribute tensors and compute nothing",
    "unknown": "with an operator that has no counterpart",
    "unbound": "whose target reads a tensor that the source does not have",
    "impossible": "whose source fits no sizes: comments below",
}


def _explained(rule: Imported) -> str:
    lines = [f"{rule.name}, rule {rule.number}, {rule.outcome}" + (f": {rule.reason}" if rule.reason else "")]
    if rule.wider is not None:
        lines = [f"{rule.name}, rule {rule.number}, holds for the types above; it is wrong for others that it fits"]
    elif rule.translation is not None:
        lines.append(rule.translation.text)
    found = _counterexample(rule)
    if found is not None and found != rule.reason:
        lines += ["counterexample:", *(f"  {line}" for line in found.splitlines())]
    return "\n".join(lines)


def _counterexample(rule: Imported) -> str | None:
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
                "status": rule.verdict.status if rule.verdict is not None else None,
                "note": rule.note,
                "distributing_operators_left_out": rule.left_out,
                "counterexample": _counterexample(rule),
            }
            for rule in result.rules
        ],
    }

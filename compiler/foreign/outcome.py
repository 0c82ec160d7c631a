"""What becomes of the rules of a file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, get_args

from dslc.foreign.translate import Translation
from dslc.prove.verdict import RuleVerdict

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
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
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


@dataclass(frozen=True, slots=True)
class ImportedRule:
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
        if mode is None or self.outcome not in {"proved", "merged"}:
            return ""
        kernels = ["for the kernel sizes of the file only"] if mode.kernels else []
        wrong = ["wrong for kernels or groups that its types leave out"] if self.wider is not None else []
        return "; ".join([*kernels, *wrong])


@dataclass
class Import:
    """All rules of a file. `unknown` counts the operators without counterpart by name."""

    rules: list[ImportedRule] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)

    def counts(self) -> dict[Outcome, int]:
        found = Counter(rule.outcome for rule in self.rules)
        return {outcome: found[outcome] for outcome in OUTCOMES}


@dataclass(frozen=True, slots=True)
class Pending:
    """A rule that needs a proof: its readings, most general first."""

    number: int
    name: str
    readings: tuple[Translation, ...]
    left_out: int

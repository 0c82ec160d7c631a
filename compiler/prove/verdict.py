"""What provers say of a rule, and what status follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ProverName = Literal["field", "exact", "axioms"]
#: `equal`: shown for everything the verdict's `scope` names; `differs`: with a counterexample that was replayed;
#: `unknown`: not decided, for `reason`; `skipped`: the prover was not asked, or does not apply
Answer = Literal["equal", "differs", "unknown", "skipped"]
#: proved: for every shape; bounded: for every shape within a stated bound (ranks, strides, group counts); tested: on random
#: instances; trusted: by a person, for a stated reason; refuted: a counterexample is known; undecided: none of these
Status = Literal["proved", "bounded", "tested", "trusted", "refuted", "undecided"]
STATUSES: tuple[Status, ...] = ("proved", "bounded", "tested", "trusted", "undecided", "refuted")
#: what `dslc optimize` uses unless told otherwise
RELIABLE: frozenset[Status] = frozenset({"proved", "bounded"})


@dataclass(frozen=True, slots=True)
class Counterexample:
    """Sizes and attributes for which the sides differ, as replayed by the interpreter.

    `drawn`: what the rule's names stand for, as text; `output` and `position`: the first element that differs; `left` and
    `right`: its value on either side, as text; `monomial`: the product of reads whose coefficients differ, where known;
    `trace`: the inputs and every intermediate of both sides, a line each.
    """

    drawn: Mapping[str, str]
    output: str
    position: tuple[int, ...]
    left: str
    right: str
    monomial: str = ""
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One prover's answer. `scope` is empty where it holds for every shape and rank, else what it is bounded to."""

    prover: ProverName
    answer: Answer
    milliseconds: float = 0.0
    reason: str = ""
    scope: str = ""
    counterexample: Counterexample | None = None
    #: bound of the probability that a `field` answer `equal` is wrong; None where functions that are no polynomials occur
    error_bound: float | None = None
    #: what the right side asks of sizes and attributes and is not shown to follow: the rule is used only where it holds
    needs: tuple[str, ...] = ()
    #: where they were asked for: conditions under each of which no instance was found to differ
    guards: tuple[str, ...] = ()
    #: the laws from which the answer follows, and the weakest status among theirs
    rests: tuple[str, ...] = ()
    weakest: Status = "proved"


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """All that is known of one rule; `digest` covers its text and the text of every operator that it uses."""

    rule: str
    status: Status
    verdicts: tuple[Verdict, ...]
    digest: str
    reason: str = ""
    #: the laws from which the status follows, each with its digest
    rests: tuple[tuple[str, str], ...] = ()

    @property
    def counterexample(self) -> Counterexample | None:
        return next((v.counterexample for v in self.verdicts if v.counterexample is not None), None)

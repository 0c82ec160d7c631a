"""Verdicts of provers on a rule, and the status that follows."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, get_args

from dslc.ir.dtype import DTYPES, DType, TypeClass, class_of
from dslc.records import record

ProverName = Literal["field", "exact"]
#: in the order in which they are asked: cheap refutation first
PROVERS: tuple[ProverName, ...] = get_args(ProverName)
#: `equal`: shown for everything the verdict's `scope` names; `differs`: with a counterexample that was replayed;
#: `unknown`: not decided, for `reason`; `skipped`: the prover was not asked, or does not apply; `vacant`: operators or guards
#: refuse the element types, so that there is nothing to show
Answer = Literal["equal", "differs", "unknown", "skipped", "vacant"]
ANSWERS: tuple[Answer, ...] = get_args(Answer)
#: proved: for every shape; bounded: for every shape within a stated bound (ranks, strides, group counts); tested: on random
#: instances; trusted: by a person, for a stated reason; refuted: a counterexample is known; undecided: none of these
Status = Literal["proved", "bounded", "tested", "trusted", "refuted", "undecided"]
STATUSES: tuple[Status, ...] = ("proved", "bounded", "tested", "trusted", "undecided", "refuted")
#: what `dslc optimize` uses unless told otherwise
RELIABLE: frozenset[Status] = frozenset({"proved", "bounded"})


@record
class Types:
    """The meanings of the type variables of a rule: each a class, or one element type where the rule tells them apart.

    `kinds`: pairs of a variable (`T`; `to` of `**a` is `a.to`) and its class or type; empty where a rule has no type variable.
    `dtypes`: the type at which each was looked at.
    """

    kinds: tuple[tuple[str, TypeClass | DType], ...] = ()
    dtypes: tuple[DType, ...] = field(default=(), compare=False)

    @property
    def at(self) -> Mapping[str, DType]:
        """The element types that stand for the classes, by variable."""
        return {name: dtype for (name, _), dtype in zip(self.kinds, self.dtypes, strict=True)}

    def fits(self, names: Mapping[str, Any]) -> bool:
        """Return whether the names of a match have element types of these kinds."""
        found = [(_element_type(name, names), kind) for name, kind in self.kinds]
        return all(dtype is not None and kind in {dtype, class_of(dtype)} for dtype, kind in found)

    def missed(self, every: Sequence[Types], names: Mapping[str, Any]) -> str:
        """The reason for which a match is none: the element types for which the rule is proved, and those of the match."""
        found = ((name, _element_type(name, names)) for name, _ in self.kinds)
        own = Types(tuple((name, kind) for name, kind in found if kind is not None))
        return f"proved for {listed(every)}" + (f"; not for {listed([own])}" if own.kinds else "")

    def __str__(self) -> str:
        if len(self.kinds) == 1:
            return str(self.kinds[0][1])
        return ", ".join(f"{name}: {kind}" for name, kind in self.kinds) or "all"


def listed(types: Sequence[Types], most: int = 13) -> str:
    """`floats, signed`; of several variables `(int8, int32), (int8, int8)`, and how many more where they are many."""
    texts = [str(one) if len(one.kinds) < 2 else f"({', '.join(str(kind) for _, kind in one.kinds)})" for one in types]
    more = len(texts) - most
    return ", ".join(texts[:most]) + f" and {more} more" if more > 1 else ", ".join(texts)


def types_from(kinds: Iterable[tuple[str, str]]) -> Types:
    """The inverse of writing `kinds` as text. Raises KeyError or ValueError for what is no class and no type."""
    read = tuple((name, DTYPES[kind] if kind in DTYPES and kind != "bool" else TypeClass(kind)) for name, kind in kinds)
    return Types(read, tuple(kind.members[0] if isinstance(kind, TypeClass) else kind for _, kind in read))


def _element_type(name: str, names: Mapping[str, Any]) -> DType | None:
    head, _, attribute = name.partition(".")
    found = names.get(head)
    found = found.values.get(attribute) if attribute and found is not None else found
    return found if isinstance(found, DType) else None


@record
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


@record
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
    #: what the proof takes for granted besides that floats are real numbers, such as that what is compared is not NaN
    presumes: tuple[str, ...] = ()
    #: where they were asked for: conditions under each of which no instance was found to differ
    guards: tuple[str, ...] = ()
    #: it was not decided, and numbers in the place of some sizes may decide it
    places: bool = False
    #: what the names of the instance stand for that was not decided, where these are numbers
    drawn: Mapping[str, Any] = field(default_factory=dict)
    #: the answers for the element types that the rule admits, of which this one is the weakest
    parts: tuple[tuple[Types, Verdict], ...] = ()


def milliseconds_since(began: float) -> float:
    """The time since a moment of `time.perf_counter`."""
    return round((time.perf_counter() - began) * 1e3, 3)


@record
class TypeStatus:
    """The status of a rule for some element types; `reason` as that of a `RuleVerdict`."""

    status: Status
    reason: str = ""


@record
class RuleVerdict:
    """All that is known of one rule; `digest` covers its text and the text of every operator that it uses.

    `status` is the weakest of `by_type`, which has one for all element types that the declared types and the guards admit.
    """

    rule: str
    status: Status
    verdicts: tuple[Verdict, ...]
    digest: str
    reason: str = ""
    by_type: Mapping[Types, TypeStatus] = field(default_factory=dict)

    def usable(self, allowed: Iterable[str]) -> tuple[Types, ...] | None:
        """The element types for which the status is one of `allowed`; None where it is for all that the rule admits."""
        wanted = set(allowed)
        kept = tuple(types for types, one in self.by_type.items() if one.status in wanted)
        whole = any(not types.kinds for types in kept) if self.by_type else self.status in wanted
        return None if whole else kept

    def __repr__(self) -> str:
        return f"<RuleVerdict {self}>"

    def __str__(self) -> str:
        return ": ".join(part for part in (self.rule, self.status, self.reason) if part)

    def _repr_html_(self) -> str:
        from dslc.reporting.pages import fragment_of_table

        rows: list[tuple[str, str, str, str]] = [
            (each.prover, each.answer, each.scope or ("every shape" if each.answer == "equal" else ""), each.reason)
            for each in self.verdicts
        ]
        found = self.counterexample
        if found:
            drawn = ", ".join(f"{name} = {value}" for name, value in found.drawn.items())
            place = f"{found.output}{list(found.position)}"
            rows.append(("", "", drawn, f"{place} is {found.left} on one side and {found.right} on the other"))
        about = "; ".join(text for text in (self.reason, self.types_text) if text)
        return fragment_of_table(f"{self.rule}: {self.status}", ("prover", "answer", "for", "reason"), rows, about)

    @property
    def counterexample(self) -> Counterexample | None:
        """The exact prover's, where it has one."""
        found = {one.prover != "exact": one.counterexample for one in reversed(self.verdicts) if one.counterexample}
        return found.get(False, found.get(True))

    @property
    def types_text(self) -> str:
        """`floats proved; signed, unsigned refuted`: empty where all element types have one status."""
        statuses = {one.status for one in self.by_type.values()}
        groups = [
            (status, [types for types, one in self.by_type.items() if one.status == status]) for status in STATUSES
        ]
        return "; ".join(f"{listed(kept)} {status}" for status, kept in groups if kept) if len(statuses) > 1 else ""

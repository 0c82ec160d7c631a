"""The report of `dslc optimize`: on the terminal, and as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import types as types_
import typing
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from dslc.records import record
from dslc.reporting.data import KernelCode, Picture
from dslc.reporting.records import record_text


@record
class Step:
    """One rule's part: how often it was applied, what it was predicted to save, and what its proof is worth.

    `status` is the rule's (proved, bounded, ...), `validated` says how its rewrites of this model were proved again at their real
    shapes: by the `exact` prover, or by the proof of the `rule` alone; `field` where besides random inputs modulo a prime agree.
    `places` are the nodes of the file that it replaced, or the first output of those without a name; a node that another rule made is
    where that rule was applied. `text` is the rule as its library has it; empty for what is no rule.
    """

    rule: str
    count: int
    gain_ms: float
    status: str
    validated: str = ""
    places: tuple[str, ...] = ()
    text: str = ""

    @property
    def proof(self) -> str:
        """The proof that this part of the result rests on: one at the model's shapes, the rule's own for every shape, or none."""
        if self.validated in {"exact", ""}:
            return self.validated
        found = "rule" if self.status == "proved" else "nothing"
        return (
            f"{found}, {self.validated} {'agrees' if self.validated == 'field' else 'agree'}"
            if self.validated != "rule"
            else found
        )


@record
class Turn:
    """One step on the way to the result: a rule at `count` places, what the graph was predicted to take after it, and what that saved.

    A step may save nothing and make later ones possible. `measured_ms` is what the model took after it, where that one was timed.
    """

    rule: str
    count: int
    predicted_ms: float
    gain_ms: float
    measured_ms: float | None = None


@record
class Counts:
    """The size of a model: nodes, elements of its weights, and their bytes; and how many nodes of each operator type."""

    operators: int
    parameters: int
    bytes: int
    types: Mapping[str, int] = field(default_factory=dict)


@record
class PairMs:
    """Milliseconds of original and result in one round.

    `generation` says in which processes, `base_first` whether the original ran first.
    """

    before_ms: float
    after_ms: float
    generation: int
    base_first: bool


@record
class Sizes:
    """Measurements at one choice of symbolic dimensions."""

    bind: Mapping[str, int]
    before_ms: float
    after_ms: float
    ratio: float
    low: float
    high: float
    pairs: tuple[PairMs, ...] = ()


@record
class PhaseSpan:
    """A phase with the seconds from the beginning at which it began and ended."""

    phase: str
    begin: float
    end: float


@record
class Generator:
    """Counts of the graphs that a generator offered, and its seconds.

    `proposed`, `built` with kernels, `checked` (their outputs were right), `taken` (on the way to the result).
    """

    name: str
    proposed: int = 0
    built: int = 0
    checked: int = 0
    taken: int = 0
    seconds: float = 0.0


@record
class Asked:
    """The work of a generator on a candidate, `base`: the share of the model's time that it promised and `gained`.

    The seconds that it mostly takes and took, its turns, and whether it had nothing left to try.
    """

    name: str
    base: str
    promise: float = 0.0
    expected: float = 0.0
    turns: int = 0
    seconds: float = 0.0
    gained: float = 0.0
    done: bool = False


@record
class Details:
    """Details that only a page shows: both models with the use of their time, kernels, and the command that repeats the run.

    `plan` has the seconds that may be gone when a part of the run ends, by what begins then.
    """

    before: Picture = field(default_factory=Picture)
    after: Picture = field(default_factory=Picture)
    kernels: tuple[KernelCode, ...] = ()
    processor: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    plan: Mapping[str, float] = field(default_factory=dict)


@record
class Without:
    """The written model in a runtime that has no library of its kernels: at the sizes at which it is slowest against the original."""

    after_ms: float
    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        # a few pairs say no more than the ratio: no slower beyond noise
        interval = f" [{self.low:.2f}, {self.high:.2f}]" if self.low > 0 and self.high < 10 * self.low else ""
        return f"without its library: {self.after_ms:.3g} ms, {self.ratio:.2f} times as fast{interval}"


@record
class Report:
    """The outcome of one run. Times are milliseconds, medians of interleaved runs; None where nothing was timed.

    `ratio` is how much faster the written model is (1 where the original was kept), `predicted_ratio` what the sums of costs
    promised, `without_library` what the written model does without its kernels (None: it has none, or nothing was timed).
    `steps_done` repeats the search with `--steps`. `phases` are seconds, `cut` the phases that the budget ended early,
    `moments` seconds until something was there for the first time, `processor` seconds of processor time in all of `seconds`.
    `timeline` has the phases in their order, `generators` their offers, `asked` their promises for each candidate and what
    became of these; `details` is there where a page was asked for.
    """

    model: str
    target: str
    seconds: float
    before_ms: float | None = None
    after_ms: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    predicted_ratio: float | None = None
    max_rel_error: float | None = None
    kept_original: bool = True
    reason: str = ""
    steps: tuple[Step, ...] = ()
    before: Counts | None = None
    after: Counts | None = None
    sizes: tuple[Sizes, ...] = ()
    steps_done: int = 0
    measured: int = 0
    interrupted: bool = False
    rules: str = ""
    notes: tuple[str, ...] = field(default=())
    budget: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)
    cut: tuple[str, ...] = ()
    moments: Mapping[str, float] = field(default_factory=dict)
    processor: float = 0.0
    without_library: Without | None = None
    story: tuple[Turn, ...] = ()
    timeline: tuple[PhaseSpan, ...] = ()
    generators: tuple[Generator, ...] = ()
    asked: tuple[Asked, ...] = ()
    details: Details | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        """The report as JSON text; infinities and NaN become null."""
        return record_text("optimize", self.to_dict())

    def to_html(self) -> str:
        """The report as a page that needs no network."""
        from dslc.reporting.pages import page_of_run

        return page_of_run(self.to_dict(), (self.summary(),))

    def _repr_html_(self) -> str:
        from dslc.reporting.pages import fragment_of_run

        return fragment_of_run(self.to_dict(), (self.summary(),))

    def summary(self) -> str:
        """One line: `before -> after, ratio`, or why the original was kept."""
        if self.kept_original:
            timed = f" ({self.before_ms:.3g} ms)" if self.before_ms is not None else ""
            return f"{self.model}{timed}: the original is kept: {self.reason}"
        if self.before_ms is None or self.after_ms is None or self.ratio is None:
            return f"{self.model}: rewritten, {self.reason or 'not timed'}"
        # JSON has no infinity: an end that was read back may be unknown
        ends = (
            ""
            if self.ratio_low is None or self.ratio_high is None
            else f" [{self.ratio_low:.2f}, {self.ratio_high:.2f}]"
        )
        predicted = "" if self.predicted_ratio is None else f" (predicted {self.predicted_ratio:.2f})"
        return f"{self.model}: {self.before_ms:.3g} ms -> {self.after_ms:.3g} ms, {self.ratio:.2f} times as fast{ends}{predicted}"

    def __str__(self) -> str:
        lines = [self.summary(), *([f"  {self.without_library}"] if self.without_library else [])]
        for step in self.steps:
            here = f", here by {step.proof}" if step.validated else ""
            lines.append(f"  {step.rule}  x{step.count}  {step.gain_ms:+.3f} ms predicted  {step.status}{here}")
        lines.extend(f"  note: {note}" for note in self.notes)
        return "\n".join(lines)


def read(text: str) -> Report:
    """A report that `to_json` wrote; parts that an older version did not write are at their defaults.

    Raises:
        ValueError: it is none.
    """
    try:
        found = json.loads(text)
        made = _made(Report, found) if isinstance(found, dict) and "story" in found else None
    except (TypeError, KeyError, RecursionError, OverflowError) as problem:
        raise ValueError(str(problem)) from None
    if not isinstance(made, Report):
        raise ValueError("no report")
    return made


def _made(kind: Any, value: Any) -> Any:
    """A value of JSON as one of a type of this module; raises ValueError, TypeError."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        types = typing.get_type_hints(kind)
        if not isinstance(value, dict):
            raise ValueError(f"{value!r:.40} is no {kind.__name__}")
        return kind(**{name: _made(types[name], one) for name, one in value.items() if name in types})
    if origin in (typing.Union, types_.UnionType):
        return None if value is None else _made(next(one for one in inside if one is not type(None)), value)
    if origin is tuple and isinstance(value, list):
        return tuple([_made(inside[0], one) for one in value])
    if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, dict):
        return {name: _made(inside[1], one) for name, one in value.items()}
    # JSON has neither infinities nor NaN
    if kind is float and value is None:
        return math.inf
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type) and type(value) is kind:
        return value
    raise ValueError(f"{value!r:.40} is no {kind}")

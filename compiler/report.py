"""The report of `dslc optimize`: on the terminal, and as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import types as types_
import typing
from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from dslc.records import record
from dslc.reporting.data import KernelCode, Picture
from dslc.reporting.records import record_text

#: the step that makes groups of nodes kernels; it is no rule, and needs no proof but that a kernel means its nodes
KERNELS = "kernels"


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

    @property
    def names(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.bind.items())


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
        return faster(self.ratio, self.low)


@record
class Report:
    """The outcome of one run. Times are milliseconds; None where nothing was timed.

    `before_ms` is a median, `after_ms` that over `ratio`, the median of pairs: how much faster the written model is (1 where the
    original was kept). `predicted_ratio` is what the sums of costs promised, as in `story`; `without_library` what the written
    model does without its kernels (None: it has none, or nothing was timed). `ending` is a `dslc.search.runs.endings.Ending` by
    name, and `reason` its sentence. `busy` is the load of the machine as the run began, where it was high, `timed_at` the time of an
    earlier run whose measurements stand here, and `finite_only` is true where NaN, infinities and overflows may differ. `warnings` say
    where less was done than was asked for, or on other terms, and `notes` all else.
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
    notes: tuple[str, ...] = ()
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
    ending: str = ""
    busy: str = ""
    timed_at: str = ""
    warnings: tuple[str, ...] = ()
    finite_only: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        """The report as JSON text; infinities and NaN become null."""
        return record_text("optimize", self.to_dict())

    def to_html(self) -> str:
        """The report as a page that needs no network."""
        from dslc.reporting.pages import page_of_run

        return page_of_run(self.to_dict(), (self.summary(), self.terms()))

    def _repr_html_(self) -> str:
        from dslc.reporting.pages import fragment_of_run

        return fragment_of_run(self.to_dict(), (self.summary(), self.terms()))

    def summary(self) -> str:
        """The verdict in one line: how much faster, by which kinds of steps, or why the original was kept."""
        if self.kept_original:
            timed = f" ({self.before_ms:.3g} ms)" if self.before_ms is not None else ""
            return f"{self.model}{timed}: the original is kept: {self.reason}{self._busy}"
        agree = "" if self.max_rel_error is None else "; outputs are the same"
        if self.max_rel_error:
            agree = f"; outputs agree to {self.max_rel_error:.2g}"
        if self.before_ms is None or self.after_ms is None or self.ratio is None:
            counts = (
                f"{self.before.operators} -> {self.after.operators} operators, " if self.before and self.after else ""
            )
            return f"{self.model}: {counts}{self.reason or 'not timed'}{self._by}{agree}"
        times = f"{self.before_ms:.3g} ms -> {self.after_ms:.3g} ms"
        return f"{self.model}: {times}, {faster(self.ratio, self.ratio_low)}{self._by}{agree}{self._busy}"

    def terms(self) -> str:
        """The line on what the verdict depends on: machine, sizes, library of kernels, and the time of measurements that are older."""
        said = [self.target]
        if self.sizes and self.sizes[0].bind:
            said.append(f"at {self.sizes[0].names}")
        if self.without_library:
            said.append(f"with its library of kernels, without it {self.without_library}")
        if self.finite_only:
            said.append("NaN, infinities and overflows may differ (not with --strict-floats)")
        if self.timed_at:
            said.append(f"timed in an earlier run ({self.timed_at})")
        return "; ".join(said)

    @property
    def _busy(self) -> str:
        return f" (busy machine: {self.busy})" if self.busy and self.before_ms is not None else ""

    @property
    def _by(self) -> str:
        """The kinds of steps and the status of their proofs: `, by 2 rules and 1 kernel, all proved`."""
        kernels = sum(step.count for step in self.steps if step.rule == KERNELS)
        rules = sum(step.rule != KERNELS for step in self.steps)
        counts = [f"{n} {what}{'s' * (n > 1)}" for n, what in ((rules, "rule"), (kernels, "kernel")) if n]
        found = Counter(step.status for step in self.steps)
        every = {1: "", 2: "both "}.get(rules + kernels, "all ")
        status = every + next(iter(found)) if len(found) == 1 else ", ".join(f"{n} {one}" for one, n in found.items())
        return f", by {' and '.join(counts)}, {status}" if counts else ""

    def __str__(self) -> str:
        lines = [self.summary(), f"  {self.terms()}"]
        for step in self.steps:
            lines.append(f"  {step.rule}  x{step.count}  {step.gain_ms:+.3f} ms predicted  {step.status}")
        lines.extend(f"  warning: {one}" for one in self.warnings)
        return "\n".join(lines)


def faster(ratio: float, low: float | None) -> str:
    """A ratio in words, with the lower end of its interval: `13.3x faster (at least 9.1x)`."""
    # an end is never rounded up; JSON has no infinity, so that one that was read back may be unknown
    least = f" (at least {math.floor(low * 100) / 100:.2f}x)" if low and math.isfinite(low) else ""
    return f"{ratio:.3g}x {'faster' if ratio >= 1.005 else 'as fast'}{least}"


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

"""What `dslc optimize` says about its work: on the terminal, and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """One rule's part: how often it was applied, what it was predicted to save, and what its proof is worth.

    `status` is the rule's (proved, bounded, ...), `validated` says how its rewrites of this model were proved again at their real
    shapes: by the `exact` prover, or by the proof of the `rule` alone; `field` where besides random inputs modulo a prime agree.
    `places` are the nodes of the file that it replaced, or the first output of those without a name; a node that another rule made is
    where that rule was applied.
    """

    rule: str
    count: int
    gain_ms: float
    status: str
    validated: str = ""
    places: tuple[str, ...] = ()

    @property
    def proof(self) -> str:
        """What this part of the result rests on: a proof at the model's shapes, the rule's own for every shape, or nothing."""
        if self.validated in {"exact", ""}:
            return self.validated
        found = "rule" if self.status == "proved" else "nothing"
        return f"{found}, field agrees" if self.validated == "field" else found


@dataclass(frozen=True, slots=True)
class Turn:
    """One step on the way to the result: a rule at `count` places, what the graph was predicted to take after it, and what that saved.

    A step may save nothing and make later ones possible.
    """

    rule: str
    count: int
    predicted_ms: float
    gain_ms: float


@dataclass(frozen=True, slots=True)
class Counts:
    """The size of a model: nodes, elements of its weights, and their bytes; and how many nodes of each operator type."""

    operators: int
    parameters: int
    bytes: int
    types: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sizes:
    """What was measured at one choice of symbolic dimensions."""

    bind: Mapping[str, int]
    before_ms: float
    after_ms: float
    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Without:
    """The written model in a runtime that has no library of its kernels: at the sizes at which it is slowest against the original."""

    after_ms: float
    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        # a few pairs say no more than the ratio
        interval = f" [{self.low:.2f}, {self.high:.2f}]" if self.low > 0 else ""
        return f"without its library: {self.after_ms:.3g} ms, {self.ratio:.2f} times as fast{interval}"


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one run. Times are milliseconds, medians of interleaved runs; None where nothing was timed.

    `ratio` is how much faster the written model is (1 where the original was kept), `predicted_ratio` what the sums of costs
    promised, `without_library` what the written model does where nobody has its kernels (None: it has none, or nothing was timed).
    `steps_done` repeats the search with `--steps`. `phases` are seconds, `cut` the phases that the budget ended early.
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
    without_library: Without | None = None
    story: tuple[Turn, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        """The report as JSON text; infinities and NaN become null."""
        return json.dumps(_finite(self.to_dict()), indent=2) + "\n"

    def summary(self) -> str:
        """One line: `before -> after, ratio`, or why the original was kept."""
        if self.kept_original:
            timed = f" ({self.before_ms:.3g} ms)" if self.before_ms is not None else ""
            return f"{self.model}{timed}: the original is kept: {self.reason}"
        if self.before_ms is None or self.after_ms is None or self.ratio is None:
            return f"{self.model}: rewritten, {self.reason or 'not timed'}"
        return (
            f"{self.model}: {self.before_ms:.3g} ms -> {self.after_ms:.3g} ms, {self.ratio:.2f} times as fast "
            f"[{self.ratio_low:.2f}, {self.ratio_high:.2f}] (predicted {self.predicted_ratio:.2f})"
        )

    def __str__(self) -> str:
        lines = [self.summary(), *([f"  {self.without_library}"] if self.without_library else [])]
        for step in self.steps:
            lines.append(f"  {step.rule}  x{step.count}  {step.gain_ms:+.3f} ms predicted  {step.status}{_validated(step)}")
        lines.extend(f"  note: {note}" for note in self.notes)
        return "\n".join(lines)


def _validated(step: Step) -> str:
    return f", here by {step.proof}" if step.validated else ""


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value

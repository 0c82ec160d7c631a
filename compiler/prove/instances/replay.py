"""What operators mean at unknown sizes, kept across the cases of a rule and across rules.

The meaning of an application depends on its types, its attributes, and on what was answered to the questions that its evaluation
asked of the facts. So the questions and answers are kept with each result: the next evaluation asks the same questions, and where it
gets the same answers it has the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dslc.ir.dtype import DType
from dslc.ir.scalar import Scalar
from dslc.semantics.assuming import Assuming
from dslc.semantics.library import Rules, rules_cache

_KEPT = ("apply", "elaborate", "expanded")
_Question = tuple[str, tuple[Any, ...]]


@dataclass(slots=True)
class _Node:
    """A question with what comes after each answer, or the result."""

    question: _Question | None = None
    answers: dict[Any, _Node] = field(default_factory=dict)
    result: Any = None


@dataclass(slots=True)
class _Frame:
    """An evaluation that is going on; `failed`: a question had no answer, as the case ends there."""

    key: Any
    asked: list[tuple[_Question, Any]] = field(default_factory=list)
    failed: bool = False


class AskedFacts:
    """Facts that note what they are asked. Implements `dslc.semantics.assuming.Assuming`."""

    def __init__(self, facts: Assuming) -> None:
        self._facts = facts
        self.frames: list[_Frame] = []

    def ask(self, question: _Question) -> Any:
        method, args = question
        try:
            answer = getattr(self._facts, method)(*args)
        except BaseException:
            for frame in self.frames:
                frame.failed = True
            raise
        for frame in self.frames:
            frame.asked.append((question, answer))
        return answer

    def require(self, condition: Scalar) -> bool:
        return bool(self.ask(("require", (condition,))))

    def decide(self, condition: Scalar) -> bool:
        return bool(self.ask(("decide", (condition,))))

    def one_of(self, conditions: Sequence[Scalar]) -> int:
        return int(self.ask(("one_of", (tuple(conditions),))))

    def quotient(self, size: Scalar, divisor: Scalar) -> Scalar:
        found: Scalar = self.ask(("quotient", (size, divisor)))
        return found

    def dtype_of(self, number: Scalar) -> DType:
        found: DType = self.ask(("dtype_of", (number,)))
        return found


class _Replayed(dict[Any, Any]):
    """One of the caches of a rules object, for one case; results of other cases are found in `shared`."""

    def __init__(self, name: str, asked: AskedFacts, shared: dict[Any, _Node]) -> None:
        super().__init__()
        self._name, self._asked, self._shared = name, asked, shared

    def get(self, key: Any, default: Any = None) -> Any:
        if key in self:
            return self[key]
        full = (self._name, key)
        node = self._shared.get(full)
        while node is not None:
            if node.question is None:
                super().__setitem__(key, node.result)
                return node.result
            node = node.answers.get(self._asked.ask(node.question))
        self._asked.frames.append(_Frame(full))
        return default

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        full = (self._name, key)
        frames = self._asked.frames
        at = next((k for k in reversed(range(len(frames))) if frames[k].key == full), None)
        if at is None:
            return
        frame = frames[at]
        # evaluations inside that ended with an error are over
        del frames[at:]
        if not frame.failed:
            _keep(self._shared, full, frame.asked, value)


def _keep(shared: dict[Any, _Node], key: Any, asked: Sequence[tuple[_Question, Any]], value: Any) -> None:
    """Adds a result behind its questions and answers."""
    node = shared.setdefault(key, _Node())
    fresh = node.question is None and not node.answers and node.result is None
    for question, answer in dict(asked).items():
        if fresh:
            node.question = question
        elif node.question != question:
            return  # the order of questions depends on more than their answers: not kept
        after = node.answers.get(answer)
        fresh = after is None
        node = node.answers.setdefault(answer, _Node())
    if fresh:
        node.result = value


def replaying(rules: Rules, base: Rules, facts: Assuming) -> Rules:
    """`rules` deciding by `facts`, with the results that other cases of `base` have found."""
    from dataclasses import replace

    asked = AskedFacts(facts)
    shared = rules_cache(base, "replayed")
    found = replace(rules, assuming=asked)
    found.__dict__["_caches"] = {name: _Replayed(name, asked, shared) for name in _KEPT}
    return found

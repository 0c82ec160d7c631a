"""Neighbours of the best that rules made, in time that is left: predictions may be wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dslc.deadline import TimeUp
from dslc.search.candidates.candidate import Candidate
from dslc.search.generators.protocol import Generator, Proposal, SearchContext
from dslc.search.runs.contenders import distinct
from dslc.search.strategies.space import Space
from dslc.search.strategies.sweep import sweep


@dataclass(frozen=True, kw_only=True)
class Neighbourhood(Generator):
    """Candidates near the best: on the way to it, the one of the fewest nodes, and those without one rule of the best.

    `contenders` on the way, `variants` without a rule, each after so many `steps` at most; what is `clearly` so many times as fast
    needs none of them.
    """

    name: str = "nearby"
    gain: float = 0.02
    seconds: float = 8.0
    contenders: int = 3
    variants: int = 3
    steps: int = 3000
    clearly: float = 1.5

    def promise(self, context: SearchContext, base: Candidate) -> float:
        """All of it, for what rules made; nothing where something else is clearly faster, which needs no other contenders beside it."""
        least = min((one.candidate.cost for one in context.run.checked), default=base.cost)
        return 1.0 if base is context.best and base is not context.start and least * self.clearly >= base.cost else 0.0

    def propose(self, context: SearchContext, base: Candidate) -> Iterator[Proposal]:
        yield Proposal([one for one in distinct(base, self.contenders)[1:] if one.parent])
        small = context.front.smallest(context.task.settings.alpha * base.cost)
        yield Proposal((small,) if small else ())
        gains: dict[str, float] = {}
        for step in base.path():
            if step.rule:
                gains[step.rule] = gains.get(step.rule, 0.0) + step.gain
        for name in sorted(gains, key=lambda rule: -gains[rule])[: self.variants]:
            others = [rule for rule in context.rules if rule.name != name]
            limits = context.limits(self.name, self.steps)
            try:
                found = sweep(Space(context.start, (), context.costs, limits), others)
            except TimeUp:
                return
            yield Proposal(() if found is context.start else (found,))

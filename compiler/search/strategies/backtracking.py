"""TASO's backtracking search as a strategy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from dslc.search.strategies.arms import TIDY, Aside, told

if TYPE_CHECKING:
    from dslc.search.rewrites.candidate import Candidate
    from dslc.search.strategies.strategy import Space


@dataclass(frozen=True, slots=True)
class Backtrack:
    """A queue of graphs by cost (`backtrack`); substitutions first, and layouts with them, after them, or instead."""

    egraphs: ClassVar[bool] = False

    tidy: bool = field(default=True, metadata=TIDY)

    def explore(self, space: Space) -> Iterator[Candidate]:
        from dslc.search.rewrites.layouts import layouts_of, without_layouts
        from dslc.search.strategies.backtrack import backtrack

        rules, mode, limits = space.rules, space.layouts, space.limits
        layouts = None if mode == "none" else layouts_of(rules)
        found, aside = space.start, Aside()
        if mode != "only" and not limits.over:
            jointly = layouts if mode == "joint" else None
            found = backtrack(
                found, without_layouts(rules), space.costs, limits, alpha=space.alpha, seed=space.seed, layouts=jointly,
                on_best=space.told, note=space.note, findings=space.findings, tidy=self.tidy, aside=aside,
            )  # fmt: skip
            if found is not space.start:
                yield found
        if mode != "joint" and layouts is not None and not limits.over:
            before = found
            found = backtrack(
                found, [], space.costs, limits, alpha=space.alpha, seed=space.seed, layouts=layouts, on_best=space.told,
                tidy=self.tidy, aside=aside,
            )  # fmt: skip
            if found is not before:
                yield found
        told(space, rules, [aside], "the queue")

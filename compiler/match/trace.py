"""How far a rule came in a graph: the best partial match, and why it went no further."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dslc.errors import Span
from dslc.match.pattern import Site
from dslc.match.state import MatchState


@dataclass(slots=True)
class Trace:
    """Keeps the failure with the most matched sites and tensors; of equals the first."""

    score: tuple[int, int, int] = (-1, -1, -1)
    state: MatchState = field(default_factory=MatchState)
    reason: str = "no place in the graph was tried"
    span: Span | None = None
    values: tuple[tuple[str, str], ...] = ()

    def stopped(self, state: MatchState, site: Site | None, reason: Callable[[], str]) -> None:
        """A structural failure: at a site, or at a tensor below it."""
        score = (0, len(state.results), len(state.values) + len(state.names))
        if score > self.score:
            self.score, self.state, self.reason, self.values = score, state, reason(), ()
            self.span = site.span if site is not None else None

    def refused(self, state: MatchState, reason: str, span: Span | None, values: tuple[tuple[str, str], ...]) -> None:
        """The structure fits, and a type, a guard or the replacement does not."""
        score = (1, len(state.results), len(values))
        if score > self.score:
            self.score, self.state, self.reason, self.span, self.values = score, state, reason, span, values

    def rejected(self, state: MatchState, reason: str, span: Span | None) -> None:
        """Everything on the left holds, and the replacement cannot be used."""
        if self.score < (2, 0, 0):
            self.score, self.state, self.reason, self.span, self.values = (2, 0, 0), state, reason, span, ()

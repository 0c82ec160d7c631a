"""What searches and offers of a run share: the original with its price, what of the budget is kept for later, and how far they came."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dslc.codegen.host.ahead import Ahead
from dslc.cost.model import CostModel
from dslc.match import CompiledRule
from dslc.search.candidate import Candidate, Front
from dslc.search.stages import Referenced

#: for what follows the search so many times what loading takes is kept, and such a part of the budget at least and at most
LOADS, LEAST_KEPT, MOST_KEPT = 20, 0.25, 0.5
#: the least that is kept for a model of heavy weights: what writes, loads and compares it copies them each time
LEAST_HEAVY = 0.4
#: of what is left beside that, the share of kernels; and where there are some, which gain more than rules do and have fewer contenders
#: beside them, what is kept after them
KERNELS, KERNEL_LOADS, MOST_KEPT_AFTER = 0.5, 12, 0.4
#: as long as there is nothing to check and time, no more than such a part of the budget is kept, or so many seconds
LEAST, LEAST_SECONDS = 0.08, 4.0


@dataclass(frozen=True, slots=True)
class Shares:
    """Of the budget what is kept when a phase ends: for searching, for checking the best, for others beside it, for measuring
    again, and where there is nothing yet: for checking and timing one thing."""

    search: float
    check: float
    others: float
    again: float
    least: float

    @classmethod
    def of(cls, budget: float, load: float, timing: bool, kernels: bool = False, heavy: bool = False) -> Shares:
        """Where loading a model takes so many seconds; comparing and timing load it again and again. `kernels` are built after the
        search, and have a share of their own. `heavy`: whether there are many weights."""
        loads, most = (KERNEL_LOADS, MOST_KEPT_AFTER) if kernels else (LOADS, MOST_KEPT)
        kept = min(most, max(LEAST_HEAVY if heavy else LEAST_KEPT, (loads if timing else loads / 3) * load / budget))
        again = 0.6 * kept
        least = min(again, max(LEAST, LEAST_SECONDS / budget, KERNEL_LOADS * load / budget))
        return cls(kept + (KERNELS * (1 - kept) if kernels else 0.0), 0.8 * kept, 0.7 * kept, again, least)


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """What is explored from: the original as a graph with its price, prices, and what of the budget is kept for later."""

    referenced: Referenced
    start: Candidate
    costs: CostModel
    shares: Shares
    #: what of the budget is kept from now on while something is measured
    keeping: Callable[[float], None] = lambda _: None
    #: whether nobody else needs the time that is left: timing has decided
    spare: bool = False
    #: compiles kernels beside the search
    ahead: Ahead | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Reached:
    """How far a search came: its best candidate, the rules that it had, and what else it built."""

    best: Candidate
    rules: tuple[CompiledRule, ...]
    front: Front
    #: what was offered beside it so far
    offered: tuple[Candidate, ...] = ()


__all__ = ["Ground", "Reached", "Shares"]

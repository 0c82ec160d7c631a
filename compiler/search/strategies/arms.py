"""Options of all searches over e-graphs: how programs are taken out, how large an e-graph grows, and what is said of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dslc.search.strategies.option import option

if TYPE_CHECKING:
    from dslc.match import CompiledRule
    from dslc.search.rewrites.candidate import Limits
    from dslc.search.strategies.strategy import Space

#: ways to take a program out of an e-graph, and the extractor that each is: the paper's default cost (DCF), its own (OCF) made exact,
#: that with switches of several classes at once, and integer programming
WAYS: Mapping[str, str] = {"default": "greedy", "shared": "shared", "joint": "joint", "ilp": "ilp"}


ARMS_ENODES = 2_000  #: e-nodes of an e-graph
LEAST = 500  #: e-nodes of a region's, however many regions there are

#: options that several strategies have
TIDY = option(
    "Search in the e-graph, or in the queue, alone.", type=bool,
    more="What can be had at once is taken first, and the best program is gone on from rule by rule, as a whole: what a sum of "
    "prices does not see. What a queue finds is swept, and so is what it begins with.",
)  # fmt: skip
FINAL = option(
    "How the last program is taken out of an e-graph (default: ilp of saturate, the reward's way of mcts).",
    choices=tuple(WAYS), more="By the default cost, by shared costs, with joint switches, or by integer programming.",
)  # fmt: skip
WHOLE = option(
    "One e-graph of the whole graph, however large or repeated.", type=bool,
    more="By default such a graph is searched in regions.",
)  # fmt: skip
ENODES = option(
    f"How large an e-graph grows (default: {ARMS_ENODES} e-nodes).", type=int, least=1, metavar="N", also=("--nodes",),
    more="Of a large graph each region has one. No rule is applied to one that has as many.",
)  # fmt: skip


class Counted(Protocol):
    """What was done beside a search: steps, and seconds of the predicted time that they saved."""

    steps: int
    gained: float


@dataclass(slots=True)
class Aside:
    """Steps of sweeps beside a queue, and what they saved."""

    steps: int = 0
    gained: float = 0.0

    @contextmanager
    def counting(self, limits: Limits, best: Callable[[], float]) -> Iterator[None]:
        """Counts what is done while it lasts; `best` is what the best costs at any moment, in seconds."""
        steps, cost = limits.done, best()
        try:
            yield
        finally:
            self.steps += limits.done - steps
            self.gained += cost - best()


def told(space: Space, rules: Sequence[CompiledRule], tidied: Sequence[Counted], where: str = "the e-graph") -> None:
    """Notes for the report: the rules of a search, and what was done beside it, with what that gained."""
    names = {rule.name.removesuffix("^-1") for rule in rules}
    several = {rule.name.removesuffix("^-1") for rule in rules if len(rule.left.tops) > 1}
    back = len({rule.name for rule in rules}) - len(names)
    space.note(
        f"searched with {len(names)} rules, {len(names - several)} of one pattern and {len(several)} of several; "
        f"{back} of them in both directions"
    )
    steps, gained = sum(one.steps for one in tidied), sum(one.gained for one in tidied)
    if steps:
        share = gained / space.start.cost if space.start.cost else 0.0
        how = "sweeps" if where == "the queue" else "sweeps and backtracking"
        space.note(f"beside {where}: {steps} steps of {how}, which took {share:.1%} off the predicted time")

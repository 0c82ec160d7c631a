"""Monte Carlo tree search over e-graphs (PACT'24) as a strategy: which rule is applied next is what is searched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import TYPE_CHECKING, ClassVar

from dslc.search.strategies.arms import ARMS_ENODES, ENODES, FINAL, TIDY, WAYS, WHOLE
from dslc.search.strategies.arms import LEAST as ARMSLEAST
from dslc.search.strategies.arms import told as noted
from dslc.search.strategies.option import option

if TYPE_CHECKING:
    from dslc.cost.model import CostModel
    from dslc.search.rewrites.candidate import Candidate, Progress
    from dslc.search.strategies.programs import Tidying
    from dslc.search.strategies.strategy import Space
    from dslc.search.strategies.tree import Searching


@dataclass(frozen=True, slots=True)
class Mcts:
    """A tree of e-graphs, in which an edge is a rule at random places; a step is one application of a rule."""

    egraphs: ClassVar[bool] = True

    simulations: int = field(default=128, metadata=option(
        "Simulations before a rule is chosen (default: 128).", type=int, least=1, metavar="N",
    ))  # fmt: skip
    rollout: int = field(default=10, metadata=option(
        "Rules that a simulation applies (default: 10).", type=int, least=0, metavar="N",
    ))  # fmt: skip
    exploration: float = field(default=sqrt(2), metadata=option(
        "Weight of what was tried seldom (default: 1.41).", type=float, least=0, metavar="C",
        more="The constant of UCB1; rewards are parts of what the graph costs.",
    ))  # fmt: skip
    enodes: int = field(default=ARMS_ENODES, metadata=ENODES)
    stop: float = field(default=0.5, metadata=option(
        "Chance that a selection ends at a state, and expands it (default: 0.5).", type=float, least=0, most=1, metavar="P",
    ))  # fmt: skip
    reward: str = field(default="joint", metadata=option(
        "How the program that simulations are rewarded for is taken out of an e-graph (default: joint).", choices=tuple(WAYS),
        more="By the default cost, by shared costs, with joint switches, or by integer programming.",
    ))  # fmt: skip
    final: str = field(default="", metadata=FINAL)
    tidy: bool = field(default=True, metadata=TIDY)
    matches: int = field(default=60, metadata=option(
        "Places at which a rule is applied at once (default: 60).", type=int, least=1, metavar="N",
        more="A random sample where it matches at more.",
    ))  # fmt: skip
    near: float = field(default=0.75, metadata=option(
        "Share of rules that are applied near the best program (default: 0.75).", type=float, least=0, most=1, metavar="P",
        more="The others are applied anywhere.",
    ))  # fmt: skip
    mixed: bool = field(default=False, metadata=option(
        "Kernels and steps of derivation as moves beside rules.", type=bool,
        more="They are priced by estimates; by default they are looked for in what the search finds.",
    ))  # fmt: skip
    ranked: int = field(default=5, metadata=option(
        "Programs ranked as whole graphs when a rule is chosen (default: 5).", type=int, least=1, metavar="N",
        more="The best by the sum of their prices.",
    ))  # fmt: skip

    whole: bool = field(default=False, metadata=WHOLE)

    def explore(self, space: Space) -> Iterator[Candidate]:
        from dslc.search.strategies.explorers import explored
        from dslc.search.strategies.programs import rules_of
        from dslc.search.strategies.tree import Searching

        rules = rules_of(space)
        tidied: list[Tidying] = []

        def make(start: Candidate, costs: CostModel, count: int, told: Progress) -> Searching:
            options = replace(self, enodes=max(self.enodes // count, min(self.enodes, ARMSLEAST)))
            one = Searching(
                options,
                start,
                rules,
                costs,
                space.limits,
                space.seed,
                told,
                space.moves,
                space.price,
                1 / count,
                space.findings,
            )
            tidied.append(one.tidying)
            return one

        yield from explored(space, make, apart=True, whole=self.whole)
        noted(space, rules, tidied)

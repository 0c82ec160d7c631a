"""Strategies as options: frozen dataclasses whose fields are set by name; the searches are loaded when one begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from math import sqrt
from typing import TYPE_CHECKING, ClassVar, Protocol

from dslc.records import record
from dslc.search.options.option import count, option

if TYPE_CHECKING:
    from dslc.search.candidates.candidate import Candidate
    from dslc.search.strategies.space import Space

#: ways to take a program out of an e-graph, and the extractor that each is: the paper's default cost (DCF), its own (OCF) made exact,
#: that with switches of several classes at once, and integer programming
WAYS: Mapping[str, str] = {"default": "greedy", "shared": "shared", "joint": "joint", "ilp": "ilp"}
ENODES = 2_000  #: e-nodes of an e-graph

#: options that several strategies have
TIDY = partial(
    option, True, "Only run the strategy itself, without rule-by-rule improvement before and after it.", type=bool,
    group="Research (each for one --strategy)",
    more="What can be had at once is taken first, and the best program is gone on from rule by rule, as a whole: what a sum of "
    "prices does not see. What a queue finds is swept, and so is what it begins with.",
)  # fmt: skip
FINAL = partial(
    option, "", "How the final program is extracted from the e-graph (default: ilp for saturate, as --reward for mcts).",
    choices=tuple(WAYS), more="By the default cost, by shared costs, with joint switches, or by integer programming.",
)  # fmt: skip
WHOLE = partial(
    option, False, "Build one e-graph of the whole model, even if it is large or repetitive.", type=bool,
    more="By default such a graph is searched in regions.",
)  # fmt: skip
SIZE = partial(
    count, ENODES, f"Largest size of an e-graph, in nodes (default: {ENODES}).", also=("--nodes",),
    more="Of a large graph each region has one. No rule is applied to one that has as many.",
)  # fmt: skip


class Strategy(Protocol):
    """A way to search. A frozen dataclass, whose fields are options of the command line (`dslc.search.options.option`).

    A strategy is a dataclass and a line in `STRATEGIES` here, and a module of `dslc.search.strategies`.
    """

    #: True where it may make e-graphs, which it then hands to `space.grown`
    egraphs: ClassVar[bool]

    def explore(self, space: Space) -> Iterator[Candidate]:
        """Yield candidates that cost less than the start of the space, each next one less; none where nothing was found.

        Anytime: it ends soon after `space.limits.over`, and what it had told of by then counts. A KeyboardInterrupt ends it too: it
        sets `limits.interrupted`, and what it yields then is the best so far.
        """


class _Loaded:
    """A strategy whose search is loaded when it begins: `module` of `dslc.search.strategies`."""

    __slots__ = ()
    egraphs: ClassVar[bool] = True
    module: ClassVar[str]

    def explore(self, space: Space) -> Iterator[Candidate]:
        """Search the space, as `Strategy.explore` says."""
        found: Iterator[Candidate] = import_module(f"dslc.search.strategies.{self.module}").explore(self, space)
        return found


@record
class Backtrack(_Loaded):
    """A queue of graphs by cost (`backtrack`); substitutions first, and layouts with them, after them, or instead."""

    egraphs: ClassVar[bool] = False
    module: ClassVar[str] = "backtrack"

    tidy: bool = TIDY()


@record
class Saturate(_Loaded):
    """Rounds of all rules in an e-graph, those with several patterns first and in the first rounds only; a step is a round."""

    module: ClassVar[str] = "saturation"

    enodes: int = SIZE()
    rounds: int = count(
        15, "Rounds in which all rules are applied (default: 15).",
    )  # fmt: skip
    k_multi: int = count(
        1, "Fewest rounds for rules with several patterns (default: 1).", least=0,
        more="One more whenever nothing else adds anything and there is room.",
    )  # fmt: skip
    finalists: int = count(
        5, "Extracted programs that are priced as whole graphs (default: 5).",
        more="The best by the sum of their prices.",
    )  # fmt: skip
    final: str = FINAL()
    tensat: bool = option(
        False, "Search as TENSAT does: rules in order until the e-graph is full, without cycles, and nothing after that.", type=bool,
        more="Rules with several patterns are applied in --k-multi rounds and never again; --final takes the one program out.",
    )  # fmt: skip
    tidy: bool = TIDY()
    whole: bool = WHOLE()


@record
class Mcts(_Loaded):
    """A tree of e-graphs, in which an edge is a rule at random places; a step is one application of a rule."""

    module: ClassVar[str] = "tree"

    simulations: int = count(
        128, "Simulations before each choice of a rule (default: 128).",
    )  # fmt: skip
    rollout: int = count(
        10, "Rules applied in a simulation (default: 10).", least=0,
    )  # fmt: skip
    exploration: float = option(
        sqrt(2), "Exploration constant of UCB1 (default: 1.41).", type=float, least=0, metavar="C",
        more="How much untried rules weigh against good ones; rewards are shares of the graph's cost.",
    )  # fmt: skip
    enodes: int = SIZE()
    stop: float = option(
        0.5, "Probability that selection stops at a state and expands it (default: 0.5).", type=float, least=0, most=1, metavar="P",
    )  # fmt: skip
    reward: str = option(
        "joint", "How the program that earns a simulation its reward is extracted (default: joint).", choices=tuple(WAYS),
        more="By the default cost, by shared costs, with joint switches, or by integer programming.",
    )  # fmt: skip
    final: str = FINAL()
    tidy: bool = TIDY()
    matches: int = count(
        60, "Most places at which one step applies a rule (default: 60).",
        more="A random sample where it matches at more.",
    )  # fmt: skip
    near: float = option(
        0.75, "Share of rule applications near the best program (default: 0.75).", type=float, least=0, most=1, metavar="P",
        more="The others are applied anywhere.",
    )  # fmt: skip
    mixed: bool = option(
        False, "Also consider kernels and derivation steps as moves.", type=bool,
        more="They are priced by estimates; by default they are looked for in what the search finds.",
    )  # fmt: skip
    ranked: int = count(
        5, "Programs priced as whole graphs for each choice of a rule (default: 5).",
        more="The best by the sum of their prices.",
    )  # fmt: skip
    whole: bool = WHOLE()


@record
class Auto(_Loaded):
    """One of the other strategies, at its defaults; a note says which and why."""

    module: ClassVar[str] = "explorers"

    tidy: bool = TIDY()


#: the strategies that `--strategy` knows, by name; the first one is the default
STRATEGIES: Mapping[str, type[Strategy]] = {
    "backtrack": Backtrack,
    "saturate": Saturate,
    "mcts": Mcts,
    "auto": Auto,
}


def name_of(strategy: Strategy) -> str:
    """Return the name of a strategy; its class' where it is none of these."""
    return next((name for name, one in STRATEGIES.items() if type(strategy) is one), type(strategy).__name__)

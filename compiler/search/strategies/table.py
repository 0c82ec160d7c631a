"""The strategies by name. Adding one is a file with a frozen dataclass, and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from dslc.search.strategies.automatic import Auto
from dslc.search.strategies.backtracking import Backtrack
from dslc.search.strategies.saturation import Saturate
from dslc.search.strategies.strategy import Strategy
from dslc.search.strategies.treesearch import Mcts

#: what `--strategy` knows; the first one is the default
STRATEGIES: Mapping[str, type[Strategy]] = {
    "backtrack": Backtrack,
    "saturate": Saturate,
    "mcts": Mcts,
    "auto": Auto,
}


def name_of(strategy: Strategy) -> str:
    """The name of a strategy; its class' where it is none of these."""
    return next((name for name, one in STRATEGIES.items() if type(strategy) is one), type(strategy).__name__)

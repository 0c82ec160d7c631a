"""A state of the tree search: an e-graph, its best program, and what may be tried there."""

from __future__ import annotations

from collections.abc import Collection

from dslc.egraph.extract.incremental import FreshExtraction, IncrementalExtraction
from dslc.egraph.extract.table import Extraction
from dslc.egraph.graph import EGraph
from dslc.egraph.incremental_matches import IncrementalMatches
from dslc.egraph.view import View
from dslc.ir.graph import Node
from dslc.match import CompiledRule
from dslc.match.matcher import Match
from dslc.search.strategies.sources import Source


class TreeState:
    """An e-graph with its best program, and what simulations from here were worth."""

    __slots__ = (
        "_before", "_beside", "children", "egraph", "found", "fresh", "growing", "open", "parent", "places", "value", "visits",
    )  # fmt: skip

    def __init__(
        self, egraph: EGraph, growing: IncrementalExtraction | FreshExtraction, found: Extraction, places: IncrementalMatches,
        fresh: frozenset[Node] = frozenset(), before: IncrementalMatches | None = None, done: Collection[Match] = (),
    ) -> None:  # fmt: skip
        """`before`: where rules match near the best program of what the e-graph was cloned from, and what was applied since."""
        self.egraph, self.growing, self.found, self.places = egraph, growing, found, places
        self.parent: TreeState | None = None
        self.children: list[TreeState] = []
        #: e-nodes that the last rules added: what these made possible is near too
        self.fresh = fresh
        #: rules that may change something, and were not tried: everywhere, and in the best program
        self.open: dict[bool, list[CompiledRule | Source]] = {}
        self._before = (before, done)
        self._beside: IncrementalMatches | None = None
        self.value = 0.0
        self.visits = 0

    @property
    def cost(self) -> float:
        return self.found.cost

    @property
    def beside(self) -> IncrementalMatches:
        """Where rules match in the e-nodes that are near: those of the best program, and those that were added last."""
        if self._beside is None:
            before, done = self._before
            chosen = (one.key for one in self.found.choice.values())
            near = self.fresh.union(key for key in chosen if isinstance(key, Node))
            view = View(self.egraph, near, self.places.view if before is None else before.view)
            self._beside, self._before = IncrementalMatches(view, before, done), (None, ())
        return self._beside

    def close(self) -> None:
        """It is visited no more; what it was worth stays."""
        self.open = {False: [], True: []}
        self.children, self._beside, self._before = [], None, (None, ())

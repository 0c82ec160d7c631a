"""A state of the tree search: an e-graph, its best program, and what may be tried there."""

from __future__ import annotations

from dslc.egraph.carried import Places
from dslc.egraph.extract.growing import Anew, Growing
from dslc.egraph.extract.table import Extraction
from dslc.egraph.graph import EGraph
from dslc.egraph.view import View
from dslc.ir.graph import Node
from dslc.match import CompiledRule
from dslc.search.sources import Source


class State:
    """An e-graph with its best program, and what simulations from here were worth."""

    __slots__ = (
        "_near", "_view", "children", "egraph", "found", "fresh", "growing", "open", "parent", "places", "value", "visits",
    )  # fmt: skip

    def __init__(
        self, egraph: EGraph, growing: Growing | Anew, found: Extraction, places: Places, fresh: frozenset[Node] = frozenset()
    ) -> None:
        self.egraph, self.growing, self.found, self.places = egraph, growing, found, places
        self.parent: State | None = None
        self.children: list[State] = []
        #: e-nodes that the last rules added: what these made possible is near too
        self.fresh = fresh
        #: rules that may change something, and were not tried: everywhere, and in the best program
        self.open: dict[bool, list[CompiledRule | Source]] = {}
        self._near: frozenset[Node] | None = None
        self._view: View | None = None
        self.value = 0.0
        self.visits = 0

    @property
    def cost(self) -> float:
        return self.found.cost

    @property
    def near(self) -> frozenset[Node]:
        """The e-nodes of the best program, and those that were added last."""
        if self._near is None:
            chosen = (one.key for one in self.found.choice.values())
            self._near = self.fresh.union(key for key in chosen if isinstance(key, Node))
        return self._near

    @property
    def view(self) -> View:
        """What rules see of the e-nodes that are near."""
        if self._view is None:
            self._view = View(self.egraph, self.near, self.places.view)
        return self._view

    def close(self) -> None:
        """It is visited no more; what it was worth stays."""
        self.open = {False: [], True: []}
        self.children, self._view, self._near = [], None, None


__all__ = ["State"]

"""An extraction as a graph again."""

from __future__ import annotations

from functools import cached_property

from dslc.deadline import FOREVER, Deadline
from dslc.egraph.extract import EXTRACTORS
from dslc.egraph.extract.table import Choice, EGraphTable, Extraction, ExtractionProblem, Price, Weigh
from dslc.egraph.graph import EGraph
from dslc.ir.graph import Graph, Node, Value, Values, with_args
from dslc.records import record


def extract(
    egraph: EGraph,
    price: Price,
    how: str = "joint",
    until: Deadline = FOREVER,
    weigh: Weigh | None = None,
) -> Extraction | None:
    """The best program of an e-graph's roots by one of `EXTRACTORS`, until a moment; None where there is none.

    `weigh` prices weights that are computed from those of the graph; without it they are free.
    """
    wanted = [egraph.find(root) for root in egraph.roots]
    problem = ExtractionProblem(EGraphTable(egraph, price, weigh), wanted)
    found = EXTRACTORS[how](problem, until)
    return problem.named(found) if found else None


def program_of(egraph: EGraph, extraction: Extraction) -> Graph:
    """The graph that an extraction chose, over the inputs of the graph that the e-graph was made of.

    Raises:
        ValueError: the extraction is not one of this e-graph's roots.
    """
    builder = _Builder(egraph, extraction)
    return Graph(egraph.inputs, tuple([builder.value(egraph.find(root)) for root in egraph.roots]))


class ChosenNodes:
    """The node of each class that an extraction needs: what it chose, or the fewest nodes for what depends on weights only."""

    def __init__(self, egraph: EGraph, extraction: Extraction) -> None:
        self._egraph, self._chosen = egraph, extraction.choice

    def of(self, number: int) -> Node:
        """The node of a class.

        Raises:
            ValueError: the extraction lacks it.
        """
        key = self._chosen[number].key if number in self._chosen else None
        if key is None and self._egraph.constant(number):
            key = self._weights[number].key
        if not isinstance(key, Node):
            raise ValueError(f"the extraction lacks class {number}")
        return key

    @cached_property
    def _weights(self) -> dict[int, Choice]:
        """The fewest nodes for all that depends on weights only."""
        constant = [number for number in self._egraph.members if self._egraph.constant(number)]
        problem = ExtractionProblem(_Weights(self._egraph), constant)
        return {number: choice for number, (choice, _) in zip(problem.names, problem.tree, strict=True)}


class _Builder:
    def __init__(self, egraph: EGraph, extraction: Extraction) -> None:
        self.egraph = egraph
        self.chosen = ChosenNodes(egraph, extraction)
        self.built: dict[int, Value] = {}
        self.nodes: dict[Node, Values] = {}

    def value(self, root: int) -> Value:
        """The term of a class. What depends on weights only is had by the fewest nodes."""
        egraph, built = self.egraph, self.built
        stack = [root]
        while stack:
            number = stack[-1]
            if number in built:
                stack.pop()
                continue
            node = self.chosen.of(number)
            entry = egraph.memo[node]
            missing = [kid for kid in entry.kids if kid not in built]
            if missing:
                stack += missing
                continue
            stack.pop()
            made = self.nodes.get(node)
            if made is None:
                made = self.nodes[node] = (
                    with_args(node, tuple([built[kid] for kid in entry.kids])) if node.args else node.values
                )
            for out, value in zip(entry.outs, made, strict=True):
                if egraph.find(out) == number:
                    built[number] = value
                    break
        return built[root]


@record
class _Weights:
    """The classes that depend on weights only, each node for one."""

    egraph: EGraph

    def choices(self, number: int) -> list[Choice]:
        return [Choice(node, 1.0, self.egraph.memo[node].kids) for node in self.egraph.members[number] if node.constant]

"""The best program of an e-graph, by several ways behind one interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from dslc.deadline import Deadline
from dslc.egraph.extract.dag_cost import greedy_of, shared_of
from dslc.egraph.extract.ilp import ilp_of
from dslc.egraph.extract.local_search import joint_of
from dslc.egraph.extract.table import Choice, ChoiceTable, EGraphTable, Extraction, ExtractionProblem, Price


class Extractor(Protocol):
    """Finds a program of a problem until a moment; at least as good as `start` where it begins with one."""

    def __call__(
        self, problem: ExtractionProblem, until: Deadline = ..., start: Extraction | None = ...
    ) -> Extraction | None: ...


#: from the quickest to the best
EXTRACTORS: Mapping[str, Extractor] = {"greedy": greedy_of, "shared": shared_of, "joint": joint_of, "ilp": ilp_of}

__all__ = [
    "EXTRACTORS",
    "Choice",
    "ChoiceTable",
    "EGraphTable",
    "Extraction",
    "ExtractionProblem",
    "Extractor",
    "Price",
]

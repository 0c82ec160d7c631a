"""The e-graphs of a search as a file that `dslc extract` and other extractors read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from dslc.egraph.extract import EGraphTable, ExtractionProblem
from dslc.egraph.extract.file import written
from dslc.search.strategies.strategy import Grown
from dslc.store import write_file


def dumped(path: Path, grown: Sequence[Grown]) -> bool:
    """Writes e-graphs as one, in which each has its own roots; False, and no file, where there are none. Costs are seconds.

    Raises:
        DslcError: E0903 where the file cannot be written.
    """
    problems = [
        ExtractionProblem(EGraphTable(egraph, price), [egraph.find(root) for root in egraph.roots])
        for egraph, price in grown
    ]
    if not problems:
        return False
    write_file(path, json.dumps(written(*problems)))
    return True

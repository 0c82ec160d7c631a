"""The e-graphs of a search as a file that `dslc extract` and other extractors read."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from dslc.egraph.extract import EGraphTable, Problem
from dslc.egraph.extract.file import written
from dslc.errors import error
from dslc.search.strategy import Grown


def dumped(path: Path, grown: Sequence[Grown]) -> bool:
    """Writes e-graphs as one, in which each has its own roots; False, and no file, where there are none. Costs are seconds.

    Raises:
        DslcError: E0903 where the file cannot be written.
    """
    problems = [Problem(EGraphTable(egraph, price), [egraph.find(root) for root in egraph.roots]) for egraph, price in grown]
    if not problems:
        return False
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        partial.write_text(json.dumps(written(*problems)), "utf-8")
        os.replace(partial, path)
    except OSError as problem:
        partial.unlink(missing_ok=True)
        raise error("E0903", f"cannot write {path}: {problem.strerror}", path=str(path)) from None
    return True


__all__ = ["dumped"]

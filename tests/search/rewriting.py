"""Everything that a region rewriter proposes."""

from __future__ import annotations

from dslc.search.candidates.candidate import Candidate
from dslc.search.region_rewrites.region_log import SearchLog
from dslc.search.region_rewrites.rewriter import RegionRewriter


def proposed(rewriter: RegionRewriter, base: Candidate) -> tuple[list[Candidate], SearchLog]:
    """The candidates that are found before the time is over, the best first, and the log."""
    found: list[Candidate] = []
    log = SearchLog()
    for made, log in rewriter.proposals(base):
        found += made[::-1]
        if log.late:
            break
    return found[::-1], log

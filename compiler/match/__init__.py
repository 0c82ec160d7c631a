"""Matching substitutions on graphs, applying them, and saying why one does not apply."""

from __future__ import annotations

from dslc.match.apply import apply_match, replaced, replacements
from dslc.match.compile import compile_all, compile_directions, compile_lowering, compile_rule
from dslc.match.index import GraphIndex, Index
from dslc.match.matcher import Match, find_matches
from dslc.match.recipe import Refused
from dslc.match.rule import CompiledRule
from dslc.match.why_not import Explanation, why_not

__all__ = [
    "CompiledRule",
    "Explanation",
    "GraphIndex",
    "Index",
    "Match",
    "Refused",
    "apply_match",
    "compile_all",
    "compile_directions",
    "compile_lowering",
    "compile_rule",
    "find_matches",
    "replaced",
    "replacements",
    "why_not",
]

"""Single steps of equality saturation."""

from __future__ import annotations

import random
from dataclasses import replace

from dslc.egraph.graph import EGraph
from dslc.egraph.rewrite import Cap, Caps, StepOutcome, apply_matches, matches_of
from dslc.egraph.view import View
from dslc.match.rule import CompiledRule


def step(egraph: EGraph, rule: CompiledRule, rng: random.Random, caps: Caps, view: View | None = None) -> StepOutcome:
    """One rule once: at all places, or at a random sample of them. `view` is one of `egraph`, or of what it was cloned from."""
    seen = view or View(egraph)
    if len(egraph) >= caps.nodes:
        return StepOutcome(capped=frozenset({Cap.NODES}))
    matches, capped = matches_of(rule, seen, rng, caps)
    outcome = apply_matches(egraph, matches, caps)
    return replace(outcome, capped=outcome.capped | capped)

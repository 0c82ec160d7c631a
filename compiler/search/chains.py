"""One rule applied to its own results, everywhere at once, before the queue of the backtracking search takes over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from dslc.cost.model import CostModel
from dslc.match import CompiledRule, find_matches
from dslc.search.candidate import Candidate, Limits
from dslc.search.sweep import State, everywhere, sweep

#: a rule is applied to its own results so many times, and up to so many times as long as it then matches at fewer places
TURNS, MOST_TURNS = 4, 64
MATCHES = 2000


def chains(
    start: Candidate, rules: Sequence[CompiledRule], costs: CostModel, limits: Limits, alpha: float
) -> Iterator[Candidate]:
    """Each rule at all places at once, again and again, and a sweep after each turn.

    Eight products of one operand become one in three turns, each of which joins pairs. One pair alone gains too little to be
    told from noise, or nothing, and step by step there are more equal ways to the end than a queue can hold.
    """
    for rule in rules:
        current = start
        places = MATCHES + 1
        for turn in range(MOST_TURNS):
            if limits.stopped:
                return
            state = State(current, costs)
            if turn >= TURNS:
                # thirty-two branches below one node can only be joined one after the other
                before, places = places, sum(1 for _ in find_matches(rule, state.index, limit=MATCHES))
                if places >= before:
                    break
            found = everywhere(state, rule, costs, limits, -inf, alpha * start.cost)
            if found is None:
                break
            current = sweep(found, rules, costs, limits, lambda _: None)
            yield current

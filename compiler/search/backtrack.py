"""TASO's cost-based backtracking search (Algorithm 2 of the paper): a queue of graphs by cost, pruned by alpha."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from random import Random

from dslc.cost.model import CostModel
from dslc.ir.graph import Value
from dslc.match import CompiledRule, find_matches
from dslc.match.apply import Refused, replacements
from dslc.search.candidate import Candidate, Limits
from dslc.search.chains import chains
from dslc.search.rewriting import rewritten
from dslc.search.sweep import Progress, State, least_gain, sweep

#: the cheapest graphs wait in the queue: so many, and so many nodes in all
QUEUE, NODES = 2000, 300_000
MATCHES = 500


def backtrack(
    start: Candidate,
    rules: Sequence[CompiledRule],
    costs: CostModel,
    limits: Limits,
    *,
    alpha: float = 1.05,
    seed: int = 0,
    on_best: Progress = lambda _: None,
) -> Candidate:
    """The cheapest graph that was found.

    A sweep takes what can be had at once; from there every rule is tried at every place of the cheapest graph in the queue, and
    what costs less than `alpha` times the best goes back into the queue. Whenever something better turns up, it is swept again.
    The result depends on the seed, the costs and the number of steps, and on nothing else; Ctrl-C ends the search as its clock
    would.
    """
    best = start

    def improved(found: Candidate) -> None:
        nonlocal best
        best = found
        on_best(found)

    try:
        sweep(start, rules, costs, limits, improved)
        for found in chains(best, rules, costs, limits, alpha):
            if found.cost < best.cost - least_gain(best.cost):
                improved(found)
        order = itertools.count()
        longest = min(QUEUE, max(20, NODES // len(start.graph.nodes())))
        queue = [(best.cost, next(order), best)]
        seen = {hash(start.graph.outputs), hash(best.graph.outputs)}
        shuffled = list(rules)
        random = Random(seed)
        while queue and not limits.stopped:
            _, _, current = heapq.heappop(queue)
            if current.cost > alpha * best.cost:
                break
            if seed:
                random.shuffle(shuffled)
            state = State(current, costs)
            for rule, new, cost in _moves(state, shuffled, limits):
                if cost > alpha * best.cost:
                    continue
                graph = rewritten(current.graph, new)
                identity = hash(graph.outputs)
                if identity in seen:
                    continue
                seen.add(identity)
                found = Candidate(graph, cost, current, rule.name, 1)
                heapq.heappush(queue, (cost, next(order), found))
                if cost < best.cost - least_gain(best.cost):
                    improved(found)
                    sweep(found, rules, costs, limits, improved)
                    seen.add(hash(best.graph.outputs))
                    heapq.heappush(queue, (best.cost, next(order), best))
                    # go on from the better graph; what is left to try here waits
                    heapq.heappush(queue, (current.cost, next(order), current))
                    break
            if len(queue) > longest:
                queue = heapq.nsmallest(longest, queue)
    except KeyboardInterrupt:
        limits.stopped = True
        limits.interrupted = True
    return best


def _moves(
    state: State, rules: Sequence[CompiledRule], limits: Limits
) -> Iterator[tuple[CompiledRule, dict[Value, Value], float]]:
    """Everything that is one substitution away, with its cost."""
    for rule in rules:
        for match in find_matches(rule, state.index, limit=MATCHES):
            if not limits.step():
                return
            try:
                new = replacements(match)
            except Refused:
                continue
            yield rule, new, state.evaluation.after(new)[0]

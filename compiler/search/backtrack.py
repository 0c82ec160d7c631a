"""TASO's cost-based backtracking search (Algorithm 2 of the paper): a queue of graphs by cost, pruned by alpha."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import inf
from random import Random

from dslc.cost.clock import TimeUp
from dslc.cost.model import CostModel
from dslc.ir.graph import Node, Value
from dslc.match import CompiledRule
from dslc.match.apply import Refused, replacements
from dslc.search.candidate import Candidate, Limits
from dslc.search.chains import chained
from dslc.search.layouts import Layouts, layout_variants
from dslc.search.rewriting import rewritten
from dslc.search.sweep import Progress, State, least_gain, sweep

#: the cheapest graphs wait in the queue: so many, and so many nodes in all
QUEUE, NODES = 2000, 300_000
MATCHES = 500
#: a graph that costs up to this many times what it may is still tried in other layouts: the right one may pay
ROOM = 1.5
#: the cheapest layouts of the original that are searched from
LAYOUTS = 2


def backtrack(
    start: Candidate,
    rules: Sequence[CompiledRule],
    costs: CostModel,
    limits: Limits,
    *,
    alpha: float = 1.05,
    seed: int = 0,
    layouts: Layouts | None = None,
    on_best: Progress = lambda _: None,
) -> Candidate:
    """The cheapest graph that was found.

    A sweep takes what can be had at once; from there every rule is tried at every place of the cheapest graph in the queue, and
    what costs less than `alpha` times the best goes back into the queue. Whenever something better turns up, it is swept again.
    With `layouts`, a graph is tried in other layouts too, and so is what every substitution builds (section 5 of the paper).
    The result depends on the seed, the costs and the number of steps, and on nothing else; Ctrl-C ends the search as its clock
    would.
    """
    best = start

    def improved(found: Candidate) -> None:
        nonlocal best
        if found.cost < best.cost:
            best = found
            limits.gained()
            on_best(found)

    try:
        order = itertools.count()
        longest = min(QUEUE, max(20, NODES // len(start.graph.nodes())))
        queue: list[tuple[float, int, Candidate]] = []
        seen = {hash(start.graph.outputs)}
        for first in _starts(start, costs, limits, layouts):
            improved(first)
            swept = sweep(first, rules, costs, limits, improved)
            if first is start:
                # what a sweep takes at once may stand in the way of what takes several turns
                grown = chained(first, rules, costs, limits, improved)
                swept = grown if grown.cost < swept.cost else chained(swept, rules, costs, limits, improved)
            seen.add(hash(swept.graph.outputs))
            heapq.heappush(queue, (swept.cost, next(order), swept))
        shuffled = list(rules)
        random = Random(seed)
        while queue and not limits.over:
            _, _, current = heapq.heappop(queue)
            if current.cost > alpha * best.cost:
                break
            if seed:
                random.shuffle(shuffled)
            for found in _successors(current, shuffled, costs, limits, layouts, lambda: alpha * best.cost):
                cost = found.cost
                identity = hash(found.graph.outputs)
                if cost > alpha * best.cost or identity in seen:
                    continue
                seen.add(identity)
                limits.on_built(found)
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
    except TimeUp:
        limits.time_up()
    except KeyboardInterrupt:
        limits.stopped = True
        limits.interrupted = True
    return best


def _starts(start: Candidate, costs: CostModel, limits: Limits, layouts: Layouts | None) -> Iterator[Candidate]:
    """The graph, and the cheapest of its other layouts that gain: substitutions may take away what a layout would have gained.

    The layouts are looked at when the graph itself is done with: each has costs that must be measured.
    """
    yield start
    if layouts is not None:
        gaining = [found for found in _in_other_layouts(start, costs, limits, layouts, None) if found.cost < start.cost]
        yield from sorted(gaining, key=lambda found: found.cost)[:LAYOUTS]


def _successors(
    current: Candidate,
    rules: Sequence[CompiledRule],
    costs: CostModel,
    limits: Limits,
    layouts: Layouts | None,
    most: Callable[[], float],
) -> Iterator[Candidate]:
    """Every graph that is one substitution, or one choice of layouts, or one substitution in other layouts away.

    `most` says what a graph may cost now to be worth building.
    """
    if layouts is not None:
        yield from _in_other_layouts(current, costs, limits, layouts, None)
    state = State(current, costs)
    for rule, new, cost in _moves(state, rules, limits):
        built = _built(new, state.index.position)
        turnable = layouts is not None and layouts.concern(built)
        if cost > most() * (ROOM if turnable else 1):
            continue
        found = Candidate(rewritten(current.graph, new), cost, current, rule.name, 1)
        yield found
        if layouts is not None and turnable:
            yield from _in_other_layouts(found, costs, limits, layouts, built)


def _built(new: Mapping[Value, Value], known: Collection[Node]) -> set[Node]:
    """The nodes of replacements that the graph does not have."""
    out: set[Node] = set()
    stack = [value.node for value in new.values()]
    while stack:
        node = stack.pop()
        if node not in known and node not in out:
            out.add(node)
            stack.extend(arg.node for arg in node.args)
    return out


def _in_other_layouts(
    current: Candidate, costs: CostModel, limits: Limits, layouts: Layouts, near: set[Node] | None
) -> Iterator[Candidate]:
    for variant in layout_variants(current.graph, layouts, near):
        if not limits.step():
            return
        yield Candidate(variant.graph, costs.graph_cost(variant.graph), current, variant.label, len(variant.rules))


def _moves(
    state: State, rules: Sequence[CompiledRule], limits: Limits
) -> Iterator[tuple[CompiledRule, dict[Value, Value], float]]:
    """Everything that is one substitution away, with its cost."""
    for rule in rules:
        if limits.over:
            return
        for match in state.matches(rule, MATCHES):
            if not limits.step():
                return
            try:
                new = replacements(match)
            except Refused:
                continue
            cost = state.evaluation.after(new)[0]
            limits.on_tried(rule.name, cost < inf)
            yield rule, new, cost

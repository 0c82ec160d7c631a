"""The best of offers that exclude each other: no two kernels compute the same node, and none waits for the other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Sequence

from dslc.fuse.kernels import Cyclic, folded
from dslc.fuse.offers import Offer
from dslc.ir.graph import Graph, Node

EXACT = 24  #: offers of one knot up to which every choice is looked at; with more, one choice is improved
BRANCHES = 20_000  #: branches that are looked at for one knot
KNOTS = 1000  #: knots whose best choice is remembered

#: what an offer is worth; by default what it saves
Worth = Callable[[Offer], float]


def _saving(offer: Offer) -> float:
    return offer.saving


def chosen(graph: Graph, offers: Iterable[Offer], kernels: int, worth: Worth = _saving) -> list[Offer]:
    """Offers without a common node that are worth most together, of at most so many kernels; equal groups are one kernel."""
    worthy = [offer for offer in offers if worth(offer) > 0]
    found = _packed(worthy, worth)
    best = _most(found, kernels, worth)
    if len(best) < len({offer.program for offer in found}):
        # the nodes of those that are left out are free again
        found = _packed([offer for offer in worthy if offer.program in best], worth)
    return _acyclic(graph, found, worth)


def _most(found: Sequence[Offer], kernels: int, worth: Worth) -> Collection[Graph]:
    """The programs that are worth most in all their places."""
    total: dict[Graph, float] = {}
    for offer in found:
        total[offer.program] = total.get(offer.program, 0.0) + worth(offer)
    return set(sorted(total, key=lambda program: -total[program])[:kernels])


def _packed(offers: Sequence[Offer], worth: Worth) -> list[Offer]:
    return [offer for knot in _knots(offers) for offer in _best_of(knot, worth)]


def _knots(offers: Sequence[Offer]) -> list[list[Offer]]:
    """Offers that exclude each other, directly or by way of others."""
    above = list(range(len(offers)))

    def top(k: int) -> int:
        while above[k] != k:
            above[k] = above[above[k]]
            k = above[k]
        return k

    of: dict[Node, int] = {}
    for k, offer in enumerate(offers):
        for node in offer.group.nodes:
            above[top(of.setdefault(node, k))] = top(k)
    knots: dict[int, list[Offer]] = {}
    for k, offer in enumerate(offers):
        knots.setdefault(top(k), []).append(offer)
    return list(knots.values())


def _best_of(knot: Sequence[Offer], worth: Worth) -> list[Offer]:
    """The best choice of one knot; of a large one a good one."""
    weighed = sorted(((worth(offer), offer) for offer in knot), key=lambda one: -one[0])
    numbers: dict[Node, int] = {}
    nodes = tuple(tuple(numbers.setdefault(node, len(numbers)) for node in offer.group.nodes) for _, offer in weighed)
    values = tuple(value for value, _ in weighed)
    picked = _improved(nodes, values) if len(nodes) > EXACT else _best(nodes, values)
    return [weighed[k][1] for k in picked]


#: the nodes of each offer of a knot, by number; offers are in the order of what they are worth
_Sets = tuple[tuple[int, ...], ...]


@functools.lru_cache(KNOTS)
def _best(nodes: _Sets, values: tuple[float, ...]) -> tuple[int, ...]:
    """The best choice, by the numbers of its offers. Layers that are repeated make the same knot again and again."""
    masks = [sum(1 << node for node in own) for own in nodes]
    greedy = tuple(_greedy(range(len(nodes)), nodes, set()))
    best, most, branches = greedy, sum(values[k] for k in greedy), 0
    stack: list[tuple[int, tuple[int, ...], int, float]] = [(0, (), 0, 0.0)]
    while stack and branches < BRANCHES:
        at, taken, used, value = stack.pop()
        branches += 1
        if value > most:
            best, most = taken, value
        left = [k for k in range(at, len(nodes)) if not masks[k] & used]
        # no choice is worth more than its dearest offer for each node that is free
        if not left or value + _bound(left, nodes, values) <= most:
            continue
        first = left[0]
        stack.append((first + 1, taken, used, value))
        stack.append((first + 1, (*taken, first), used | masks[first], value + values[first]))
    return best


def _bound(left: Sequence[int], nodes: _Sets, values: Sequence[float]) -> float:
    """No choice of these offers is worth more: every node brings at most its share of the best offer that has it."""
    share: dict[int, float] = {}
    for k in left:
        each = values[k] / len(nodes[k])
        for node in nodes[k]:
            share[node] = max(share.get(node, 0.0), each)
    return sum(share.values())


def _greedy(order: Iterable[int], nodes: _Sets, used: set[int]) -> list[int]:
    """Offers in that order as far as their nodes are free; those of `used` are not, nor then those of what is taken."""
    out = []
    for k in order:
        if used.isdisjoint(nodes[k]):
            out.append(k)
            used.update(nodes[k])
    return out


def _improved(nodes: _Sets, values: Sequence[float]) -> list[int]:
    """A choice, with one offer put in the place of those that it excludes as long as that is worth more."""
    having: dict[int, list[int]] = {}
    for k, own in enumerate(nodes):
        for node in own:
            having.setdefault(node, []).append(k)
    owner = {node: k for k in _greedy(range(len(nodes)), nodes, set()) for node in nodes[k]}
    for k, own in enumerate(nodes):
        gone = {owner[node] for node in own if node in owner}
        if k in gone:
            continue
        free = {node for other in gone for node in nodes[other]}.difference(own)
        # what fits now had a node of those that are gone
        near = sorted({other for node in free for other in having[node]})
        taken = set(own).union(
            node for other in near for node in nodes[other] if node in owner and owner[node] not in gone
        )
        new = [k, *_greedy(near, nodes, taken)]
        if sum(values[other] for other in new) > sum(values[other] for other in gone):
            for other in gone:
                for node in nodes[other]:
                    del owner[node]
            owner.update((node, other) for other in new for node in nodes[other])
    return sorted(set(owner.values()))


def _acyclic(graph: Graph, offers: Sequence[Offer], worth: Worth) -> list[Offer]:
    """Those of some offers, the best first, that can be nodes of one graph."""
    ordered = sorted(offers, key=lambda offer: -worth(offer))
    try:
        folded(graph, [offer.group for offer in ordered])
    except Cyclic:
        pass
    else:
        return ordered
    out: list[Offer] = []
    for offer in ordered:
        try:
            folded(graph, [*(one.group for one in out), offer.group])
        except Cyclic:
            continue
        out.append(offer)
    return out

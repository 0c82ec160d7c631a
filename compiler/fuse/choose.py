"""The best of offers that exclude each other: no two kernels compute the same node, and none waits for the other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from dslc.fuse.kernels import Cyclic, folded
from dslc.fuse.offers import Offer
from dslc.ir.graph import Graph, Node

#: offers of one knot up to which every choice is looked at, and branches of that
_EXACT, _BRANCHES = 24, 20_000

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
    knots: dict[int, list[Offer]] = {}
    of: dict[Node, int] = {}
    for k, offer in enumerate(offers):
        knots[k] = [offer]
        for other in {of[node] for node in offer.group.nodes if node in of}:
            knots[k] = [*knots.pop(other), *knots[k]]
        for member in knots[k]:
            of.update(dict.fromkeys(member.group.nodes, k))
    return list(knots.values())


def _best_of(knot: Sequence[Offer], worth: Worth) -> list[Offer]:
    """The best choice of one knot; of a large one a good one."""
    ordered = sorted(knot, key=lambda offer: -worth(offer))
    greedy = _greedy(ordered)
    if len(ordered) > _EXACT:
        return _improved(greedy, ordered, worth)
    nodes = {offer: frozenset(offer.group.nodes) for offer in ordered}
    best, most, branches = greedy, sum(map(worth, greedy)), 0
    stack: list[tuple[int, tuple[Offer, ...], frozenset[Node], float]] = [(0, (), frozenset(), 0.0)]
    while stack and branches < _BRANCHES:
        at, taken, used, value = stack.pop()
        branches += 1
        if value > most:
            best, most = list(taken), value
        left = [offer for offer in ordered[at:] if not nodes[offer] & used]
        # no choice is worth more than its dearest offer for each node that is free
        if not left or value + _bound(left, worth) <= most:
            continue
        first = left[0]
        after = ordered.index(first, at) + 1
        stack.append((after, taken, used, value))
        stack.append((after, (*taken, first), used | nodes[first], value + worth(first)))
    return best


def _bound(left: Sequence[Offer], worth: Worth) -> float:
    """No choice of these offers is worth more: every node brings at most its share of the best offer that has it."""
    share: dict[Node, float] = {}
    for offer in left:
        each = worth(offer) / len(offer.group.nodes)
        for node in offer.group.nodes:
            share[node] = max(share.get(node, 0.0), each)
    return sum(share.values())


def _greedy(ordered: Sequence[Offer]) -> list[Offer]:
    used: set[Node] = set()
    out = []
    for offer in ordered:
        if used.isdisjoint(offer.group.nodes):
            out.append(offer)
            used.update(offer.group.nodes)
    return out


def _improved(start: Sequence[Offer], offers: Sequence[Offer], worth: Worth) -> list[Offer]:
    """A choice, with one offer put in the place of those that it excludes as long as that is worth more."""
    now = list(start)
    for offer in offers:
        own = set(offer.group.nodes)
        kept = [other for other in now if own.isdisjoint(other.group.nodes)]
        swapped = [*kept, offer, *_greedy([each for each in offers if _fits(each, [*kept, offer])])]
        if offer not in now and sum(map(worth, swapped)) > sum(map(worth, now)):
            now = swapped
    return now


def _fits(offer: Offer, taken: Sequence[Offer]) -> bool:
    return all(set(offer.group.nodes).isdisjoint(other.group.nodes) for other in taken)


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


__all__ = ["Worth", "chosen"]

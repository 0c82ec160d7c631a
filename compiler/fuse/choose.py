"""The best of offers that exclude each other: no two kernels compute the same node, and none waits for the other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import attrgetter

from dslc.analysis.linear_programs import smallest
from dslc.fuse.groups import join
from dslc.fuse.kernels import without_circles
from dslc.fuse.offers import Offer
from dslc.ir.graph import Graph, Node

SECONDS = 1.0  #: seconds that the best choice of one knot may take
KNOTS = 1000  #: knots whose best choice is remembered

#: what an offer is worth; by default what it saves
Worth = Callable[[Offer], float]


def chosen(graph: Graph, offers: Iterable[Offer], kernels: int, worth: Worth = attrgetter("saving")) -> list[Offer]:
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
    members, of = {k: [k] for k in range(len(offers))}, dict[Node, int]()
    for k, offer in enumerate(offers):
        for node in offer.group.nodes:
            join(members, of.setdefault(node, k), k)
    return [[offers[k] for k in sorted(own)] for own in {id(own): own for own in members.values()}.values()]


def _best_of(knot: Sequence[Offer], worth: Worth) -> list[Offer]:
    """The best choice of one knot, those that are worth most first."""
    weighed = sorted(((worth(offer), offer) for offer in knot), key=lambda one: -one[0])
    numbers: dict[Node, int] = {}
    nodes = tuple(tuple(numbers.setdefault(node, len(numbers)) for node in offer.group.nodes) for _, offer in weighed)
    return [weighed[k][1] for k in _packing(nodes, tuple(value for value, _ in weighed))]


@functools.lru_cache(KNOTS)
def _packing(nodes: tuple[tuple[int, ...], ...], values: tuple[float, ...]) -> list[int]:
    """The offers without a common node that are worth most, by number. Layers that are repeated ask for the same again and again.

    An integer program of which each node is a row: at most one offer has it. The offers by their worth, as far as their nodes are free,
    where there was no time for anything better.
    """
    greedy: list[int] = []
    used: set[int] = set()
    having: dict[int, list[tuple[int, float]]] = {}
    for k, own in enumerate(nodes):
        for node in own:
            having.setdefault(node, []).append((k, -1.0))
        if used.isdisjoint(own):
            greedy.append(k)
            used.update(own)
    if len(greedy) == len(nodes):
        return greedy
    found = smallest([-value / values[0] for value in values], [(row, -1.0) for row in having.values()], SECONDS)
    better = [k for k, share in enumerate(found) if share > 0.5]
    return max(greedy, better, key=lambda picked: sum(values[k] for k in picked))


def _acyclic(graph: Graph, offers: Sequence[Offer], worth: Worth) -> list[Offer]:
    """Select the offers, the best first, that can be nodes of one graph."""
    ordered = sorted(offers, key=lambda offer: -worth(offer))
    _, kept = without_circles(graph, [offer.group for offer in ordered])
    return [offer for offer in ordered if offer.group in kept]

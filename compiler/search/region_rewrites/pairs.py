"""Two sums of products of one operand, each derived, with what they then have in common as one call (EinNet, Figure 15)."""

from __future__ import annotations

from dataclasses import field
from itertools import combinations, product

from dslc.derivation.layouts import merged
from dslc.derivation.programs import PricedProgram
from dslc.derivation.steps import Steps
from dslc.fuse.groups import Neighbours
from dslc.ir.facts import Fact
from dslc.ir.graph import Call, Graph, Node, Value, Values, replace, topological
from dslc.ir.holes import abstracted, leaves_of, program
from dslc.records import record
from dslc.search.candidates.candidate import Candidate
from dslc.search.region_rewrites.building import Builder
from dslc.search.region_rewrites.derivations import Derivations, rule_of
from dslc.search.region_rewrites.hot_operators import SHARE, site_of
from dslc.search.region_rewrites.region_log import HotRegion, MatchSite, Visit

EACH = 24  #: programs of each of two nodes that are combined
PAIRS = 4  #: pairs of nodes that are looked at


@record
class PairedDerivation:
    """Pairs of hot nodes that read one tensor, and programs of both by one call."""

    derivations: Derivations
    _steps: Steps = field(init=False, default_factory=lambda: Steps(()))

    @property
    def builder(self) -> Builder:
        return self.derivations.builder

    def least(self, node: Call) -> float:
        return self.derivations.least(node)

    def regions(self, base: Candidate, around: Neighbours) -> list[HotRegion]:
        """Hot nodes that read a common value, neither of them below the other; the dearest first."""
        hot = self.derivations.operators(base, around, SHARE / 2)
        prices = {node: region.price for region in hot for (node,) in region.places}
        pairs: dict[tuple[Call, Call], float] = {}
        for a, b in combinations(prices, 2):
            common = {arg for arg in a.args if not arg.constant} & {*b.args}
            if common and a not in topological([b]) and b not in topological([a]):
                pairs[a, b] = prices[a] + prices[b]
        groups: dict[Graph, list[tuple[Call, Call]]] = {}
        for pair in sorted(pairs, key=lambda pair: -pairs[pair])[:PAIRS]:
            if pairs[pair] >= SHARE * base.cost:
                groups.setdefault(abstracted([call.values[0] for call in pair], leaves_of(pair))[0], []).append(pair)
        return [HotRegion(each, tuple(own), pairs[own[0]]) for each, own in groups.items()]

    def visit(self, region: HotRegion, around: Neighbours, owned: set[Node]) -> Visit:
        visit, inside = Visit(), {*owned}
        for place in region.places:
            if inside.isdisjoint(place):
                inside.update(place)
                sites = [site_of(self.builder, (node,), around, inside) for node in place]
                nodes = tuple(node for each in sites for node in each.nodes)
                site = MatchSite(place, nodes, tuple(each.ends[0] for each in sites))
                visit.sites.setdefault(site.region[0], []).append(site)
        for old, own in visit.sites.items():
            visit.waiting += [(fact, None) for fact in self.facts(old, own[0], region.price)]
        visit.found = len(visit.waiting)
        return visit

    def facts(self, old: Graph, site: MatchSite, price: float) -> list[Fact]:
        """Programs of both by one call, the cheapest by estimate first, named by the derivations that led there. Raises TimeUp."""
        builder = self.builder
        roots = [node.values[0] for node in site.place]
        sums = abstracted((*site.ends, *roots), leaves_of(site.nodes))[0].outputs[len(site.ends) :]
        own = [self._over(one, node) for one, node in zip(sums, site.place, strict=True)]
        named: dict[Values, tuple[Values, str]] = {}
        for (a, left), (b, right) in product(*own):
            for parts in merged(builder.rules, left, right):
                made = tuple(self._steps.normal(part) for part in parts)
                if made not in named:
                    rules = dict.fromkeys(f"{rule_of(a)} > {rule_of(b)}".split(" > "))
                    named[made] = made, " > ".join([*rules, "calls of one operand merged"])
        return [
            Fact(rule, old, program(old.inputs, replace(old.outputs, dict(zip(sums, made, strict=True)))))
            for _, (made, rule) in builder.cheapest(named.items(), price)[: builder.built]
        ]

    def _over(self, there: Value, node: Call) -> list[tuple[PricedProgram, Value]]:
        """The programs of a node, over what it reads in the program of both."""
        alone, args = abstracted(node.values, leaves_of((node,)))
        holes = dict(zip(node.args, there.node.args, strict=True))
        over = dict(zip(alone.inputs, [holes[arg] for arg in args], strict=True))
        return [(each, replace((each.value,), over)[0]) for each in self.derivations.programs(alone)[:EACH]]

"""Two sums of products of one operand, each derived, with what they then have in common as one call (EinNet, Figure 15)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, product

from dslc.deadline import TimeUp
from dslc.derivation.merging import merged
from dslc.derivation.programs import PricedProgram
from dslc.derivation.steps import Steps
from dslc.fuse.groups import Neighbours
from dslc.ir.facts import Fact
from dslc.ir.graph import Call, Node, Value, replace, topological
from dslc.ir.holes import abstracted, leaves_of, program
from dslc.search.candidates.candidate import Candidate
from dslc.search.finders.derivations import rule_of
from dslc.search.finders.together import Several, Together

EACH = 24  #: programs of each of two nodes that are combined
PAIRS = 4  #: pairs of nodes that are looked at


@dataclass(slots=True)
class Siblings(Together):
    """Where two nodes that read one tensor are derived together; see `Derivations`, of which it is one for two nodes at once."""

    _steps: Steps = field(init=False, default_factory=lambda: Steps(()))
    _prices: dict[tuple[Call, ...], float] = field(init=False, default_factory=dict)

    def to_gain(self, base: Candidate) -> float:
        """The share of a candidate's time that hot pairs take beyond what their operations must take."""
        found = 0.0
        try:
            self.builder.begin()
            own = {node for pair in self._sets(base, Neighbours(base.graph)) for node in pair}
            found = sum(max(0.0, self.costs.cost(node) - self._least(node)) for node in own)
        except TimeUp:
            pass
        return found / base.cost

    def _sets(self, base: Candidate, around: Neighbours) -> Iterator[tuple[Call, ...]]:
        """Hot nodes that read a common value, neither of them below the other; the dearest first."""
        sites = {node: site.price for site in self._sites(base, around, share=self.share / 2) for node in site.nodes}
        pairs: dict[tuple[Call, Call], float] = {}
        for a, b in combinations(sites, 2):
            common = {arg for arg in a.args if not arg.constant} & {*b.args}
            if common and a not in topological([b]) and b not in topological([a]):
                pairs[a, b] = sites[a] + sites[b]
        for pair in sorted(pairs, key=lambda pair: -pairs[pair])[:PAIRS]:
            if pairs[pair] >= self.share * base.cost:
                self._prices[pair] = pairs[pair]
                yield pair

    def _several(self, base: Candidate, calls: tuple[Call, ...], around: Neighbours, owned: set[Node]) -> Several:
        inside = {*owned}
        pair, price = (calls[0], calls[1]), self._prices[calls]
        places = [self._place(node, around, inside) for node in pair]
        nodes = tuple(node for place in places for node in (place.node, *place.behind))
        old = tuple(place.end for place in places)
        whole, leaves = abstracted((*old, *(node.values[0] for node in pair)), leaves_of(nodes))
        region, sums = program(whole.inputs, whole.outputs[:2]), whole.outputs[2:]
        facts = []
        for made, rule in self._worth_building(sums, pair, price):
            new = replace(region.outputs, dict(zip(sums, made, strict=True)))
            facts.append(Fact(rule, region, program(region.inputs, new)))
        return Several(old, leaves, nodes, tuple(facts))

    def _worth_building(
        self, sums: tuple[Value, ...], pair: tuple[Call, Call], price: float
    ) -> list[tuple[tuple[Value, ...], str]]:
        """Programs of both by one call, the cheapest by estimate first, with the derivations that led there. Raises TimeUp."""
        own = [self._over(one, node) for one, node in zip(sums, pair, strict=True)]
        worth: dict[tuple[Value, ...], tuple[float, str]] = {}
        for (a, left), (b, right) in product(*own):
            for parts in merged(self.rules, left, right):
                made = tuple(self._steps.normal(part) for part in parts)
                if made in worth:
                    continue
                nodes = [node for node in topological(value.node for value in made) if not node.constant]
                calls = self.builder.calls(nodes, price)
                if calls * self.margin < price:
                    total = calls + self.builder.generated(made)
                    rules = dict.fromkeys(f"{rule_of(a)} > {rule_of(b)}".split(" > "))
                    worth[made] = total, " > ".join([*rules, "calls of one operand merged"])
        order = sorted(worth, key=lambda made: worth[made][0])
        return [(made, worth[made][1]) for made in order if worth[made][0] * self.margin < price][: self.built]

    def _over(self, there: Value, node: Call) -> list[tuple[PricedProgram, Value]]:
        """The programs of a node, over what it reads in the program of both."""
        alone, args = abstracted(node.values, leaves_of((node,)))
        holes = dict(zip(node.args, there.node.args, strict=True))
        over = dict(zip(alone.inputs, [holes[arg] for arg in args], strict=True))
        return [(each, replace((each.value,), over)[0]) for each in self._derived(alone)[:EACH]]

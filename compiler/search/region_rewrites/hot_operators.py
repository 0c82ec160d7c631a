"""Hot operators of a model, alone and with what is computed below them, as regions in whose place programs are sought."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, prod

from dslc.cost.groups import Group
from dslc.deadline import TimeUp
from dslc.derivation.programs import PricedProgram
from dslc.fuse.groups import Neighbours
from dslc.ir.facts import Fact
from dslc.ir.graph import Call, Graph, Node, Value
from dslc.ir.holes import abstracted, leaves_of
from dslc.search.candidates.candidate import Candidate
from dslc.search.region_rewrites.background import BackgroundSearch, DerivedOperator
from dslc.search.region_rewrites.building import Builder
from dslc.search.region_rewrites.expressions import is_moved, is_static, reductions
from dslc.search.region_rewrites.region_log import HotRegion, MatchSite, Visit
from dslc.semantics.library import Rules

SHARE = 0.05  #: share of a model that equal regions must take together
SITES = 6  #: different regions that are looked at
SLACK = 1.2  #: times that what its operations must take a node may take and still be at the runtime's best
BEHIND = 4  #: nodes behind a product that are computed with it


@dataclass(slots=True)
class HotOperators:
    """A source of regions and programs; see `Derivations` and `Mutants`.

    `every`: also those that are at the runtime's best; `faster`: candidates with
    kernels, as hot is what takes a share of the fastest.
    """

    builder: Builder
    every: bool = False
    faster: Collection[Candidate] = ()
    background: BackgroundSearch | None = None
    #: what was found so far for each program
    found: dict[Graph, tuple[PricedProgram, ...]] = field(default_factory=dict)
    skipped: dict[Graph, str] = field(init=False, default_factory=dict)

    # ---- of a subclass -----------------------------------------------------------------------------------------

    def wanted(self, program: Graph) -> bool:
        """Return whether programs are sought for this one."""
        raise NotImplementedError

    def looked_at(self, node: Node) -> bool:
        """Return whether the types of a node are known as far as that is needed."""
        raise NotImplementedError

    def least(self, node: Call) -> float:
        """Seconds that an operator takes in the fastest form that it may have; 0 where that is not known."""
        raise NotImplementedError

    def programs(self, program: Graph) -> tuple[PricedProgram, ...]:
        """The programs of a region, the cheapest by estimate first. Raises TimeUp."""
        raise NotImplementedError

    def promising(self, programs: Sequence[PricedProgram], region: HotRegion, price: float) -> list[PricedProgram]:
        """Programs that are worth building where a region takes so many seconds. Raises TimeUp."""
        raise NotImplementedError

    def fact(self, derived: PricedProgram, program: Graph, site: MatchSite) -> Fact | None:
        """The fact that a program may stand in a place; None where it reads what the place does not."""
        raise NotImplementedError

    # ---- regions -----------------------------------------------------------------------------------------------

    def operators(self, base: Candidate, around: Neighbours, share: float = SHARE) -> list[HotRegion]:
        """Hot operators, the dearest first."""
        groups: dict[Graph, list[tuple[Call, ...]]] = {}
        for node in around.nodes:
            if isinstance(node, Call) and len(node.types) == 1 and self.looked_at(node):
                groups.setdefault(abstracted(node.values, leaves_of((node,)))[0], []).append((node,))
        guessed = {
            program: len(own) * self.builder.costs.guess(Group(own[0], (own[0][0].args,)))
            for program, own in groups.items()
            if self.wanted(program)
        }
        likely = sorted(guessed, key=lambda program: -guessed[program])[:SITES]
        return self.dearest(base, {program: groups[program] for program in likely}, share)

    def dearest(
        self,
        base: Candidate,
        groups: Mapping[Graph, Sequence[tuple[Call, ...]]],
        share: float = SHARE,
        every: bool = False,
    ) -> list[HotRegion]:
        """Regions of some places of each program that take a share of the model, and are not at their best, or `every`."""
        worth: dict[HotRegion, float] = {}
        # what kernels took little of before may be all that is left
        beaten = min([base.cost, *(one.cost for one in self.faster)])
        for program, places in groups.items():
            price = sum(map(self.builder.costs.cost, places[0]))
            own = [min(price, self.builder.spent.get(place[0], inf)) for place in places]
            if isfinite(price) and sum(own) >= share * beaten:
                region = HotRegion(program, tuple(places), max(own))
                if self.every or every or not self.at_its_best(region):
                    worth[region] = sum(own)
        return sorted(worth, key=lambda region: -worth[region])[:SITES]

    def at_its_best(self, region: HotRegion) -> bool:
        """Return whether a region takes hardly longer than its operations must, as far as the machine was measured."""
        return region.price <= SLACK * self.builder.margin * self.least(region.places[0][0])

    def sought(self, who: str, program: Graph, search: Callable[[Graph], DerivedOperator]) -> DerivedOperator:
        """The programs of a background search, else of this one. Raises TimeUp."""
        until = self.builder.until
        if until.over:
            raise TimeUp
        made = self.background.derived(who, program, until) if self.background else None
        return search(program) if made is None else made

    def rejected(self, programs: Sequence[PricedProgram], region: HotRegion, price: float) -> str:
        """Return the words of a report about programs none of which is worth building. Raises TimeUp."""
        return ""

    def visit(self, region: HotRegion, around: Neighbours, owned: set[Node]) -> Visit:
        """Programs that are to be tried in the place of a region. Raises TimeUp."""
        programs, price = self.programs(region.program), self.builder.formed(region)
        promising = self.promising(programs, region, price)
        spent = [self.builder.spent.get(place[0], inf) for place in region.places]
        visit = Visit(found=len(programs), beaten=max(spent), skipped=self.skipped.get(region.program, ""))
        if not promising:
            visit.rejected = self.rejected(programs, region, price)
        for place in region.places:
            site = site_of(self.builder, place, around, owned)
            visit.sites.setdefault(site.region[0], []).append(site)
        for sites in visit.sites.values():
            facts = ((self.fact(each, region.program, sites[0]), each) for each in promising)
            visit.waiting += [(fact, each) for fact, each in facts if fact]
        return visit


def site_of(builder: Builder, place: tuple[Call, ...], around: Neighbours, owned: set[Node]) -> MatchSite:
    """A place with what is computed of its result alone, element by element, and is not `owned` by another place."""
    end, behind = place[0].values[0], list[Node]()
    while len(behind) < BEHIND and end not in around.final:
        users = around.used.get(end, [])
        if len(users) != 1 or users[0] in owned or not builder.is_pointwise(users[0]) or users[0].types[0] != end.type:
            break
        behind.append(users[0])
        owned.add(users[0])
        end = users[0].values[0]
    return MatchSite(place, (*place, *behind), (end,))


def turn(region: HotRegion, dearer: float) -> float:
    """A key by which the dearest region is first, and operators by themselves before what is hardly dearer with what lies below."""
    return -region.price * len(region.places) / (dearer if len(region.places[0]) > 1 else 1.0)


def subprograms(rules: Rules, around: Neighbours, nodes: Iterable[Call]) -> Iterator[tuple[Call, ...]]:
    """Sums with what is computed element by element before them and for them alone: one expression (EinNet, Algorithm 1)."""
    for node in nodes:
        if _reductions(rules, node) == 1:
            below = _pointwise_below(rules, node, around)
            for inner in dict.fromkeys((_selecting(rules, node, below), below)):
                if inner:
                    yield (node, *inner)


def _reductions(rules: Rules, node: Call) -> int | None:
    return reductions(rules, abstracted(node.values, leaves_of((node,)))[0])


def _pointwise_below(rules: Rules, node: Call, around: Neighbours) -> tuple[Call, ...]:
    """The nodes that compute element by element below a node, and for it alone."""
    own: dict[Call, None] = {node: None}
    stack: list[Node] = [node]
    while stack:
        for arg in stack.pop().args:
            below = arg.node
            alone = arg not in around.final and all(user in own for user in around.used.get(arg, ()))
            if not alone or not isinstance(below, Call) or below.constant or len(below.types) != 1:
                continue
            if _reductions(rules, below) == 0:
                own[below] = None
                stack.append(below)
    return tuple(own)[1:]


def _selecting(rules: Rules, node: Call, below: tuple[Call, ...]) -> tuple[Call, ...]:
    """Of what is computed below a node what moves elements, down to the last that repeats some, leaves some out, or pads.

    Windows are in there. What is below these, changes of layout and sums with a bias, is another operator's, and only hides them.
    """
    moved: dict[Call, None] = {node: None}
    for one in below:
        if any(one.values[0] in user.args for user in moved) and is_moved(rules, one):
            moved[one] = None
    kept: set[Node] = set()
    for one in reversed(tuple(moved)[1:]):
        if not kept.isdisjoint(arg.node for arg in one.args) or not _permutes(one):
            kept.add(one)
    return tuple(one for one in moved if one in kept)


def _permutes(node: Call) -> bool:
    """Return whether a node that moves elements has as many as it is given, or its sizes are open."""
    values: list[Value] = [*node.values, *(arg for arg in node.args if not arg.node.constant)]
    return not is_static(node) or len({prod(value.type.sizes) for value in values}) == 1

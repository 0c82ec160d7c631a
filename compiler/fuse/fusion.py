"""Graphs with kernels: groups are proposed, priced and chosen, the best of them built and measured, and what is faster is kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import inf
from pathlib import Path
from types import MappingProxyType

from dslc.codegen.host.library import Library
from dslc.codegen.text import KernelText
from dslc.cost.model import CostModel
from dslc.deadline import FOREVER, Deadline, TimeUp
from dslc.fuse.autotune import Autotuner, Dropped, TunedKernel, WhyUnused
from dslc.fuse.choose import chosen
from dslc.fuse.estimate import EVERYDAY, Speeds, machine
from dslc.fuse.groups import GroupLimits, Neighbours, NodeGroup, proposals
from dslc.fuse.kernels import folded
from dslc.fuse.offers import Offer, OfferPrices, formed
from dslc.fuse.profile import Profiles
from dslc.fuse.templates import Templates
from dslc.fuse.timings import Subject
from dslc.ir.graph import Graph, Node
from dslc.records import record
from dslc.semantics.library import Rules

SAVED_SHARE = 0.1  #: share of the price of its nodes that a kernel must be estimated to save
SAVED_SECONDS = 5e-7  #: seconds that a kernel must be estimated to save
HOPED_OF_WRITTEN = 0.5  #: share of the price of its nodes that a kernel is hoped to save that a library wrote
#: factor of the estimated seconds of products that fill no runtime's blocks: how many of them meet is not known
#: before
LOOSE = 0.5
GUESSED_TOO_LOW = 3.0  #: how many times as high a price might be that was only guessed
ROUNDS = 4  #: how often a choice is made and tried
KERNELS = 10  #: kernels of one library, at most
CHOICES = 8  #: choices of what was measured, each without what the one before it had wrong
CLEARLY_FASTER = 1.5  #: a graph with those kernels only that are so many times faster is a candidate of its own
HURRIED = 10.0  #: seconds; with less time nothing is priced that is not known, and kernels are tried at once
PROPOSING = 0.15  #: share of the time until groups are proposed
PRICING = 0.3  #: share of the time until prices are known
TRYING = 0.85  #: share of the time until kernels are measured

#: what may hold for a group and not for its parts
SPLIT = (WhyUnused.NOT_GENERATED, WhyUnused.NOT_WRITTEN, WhyUnused.NOT_BUILT, WhyUnused.DIFFERS)


@record
class KeptKernel:
    """A kernel of the result, in how many places it is, and what it saves in all of them in seconds."""

    tried: TunedKernel
    places: int
    saving: float


@record
class FusingStory:
    """Counts of proposed and priced groups, kernels kept and dropped with reasons; and whether time was up before the end."""

    proposed: int
    priced: int
    kept: tuple[KeptKernel, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    late: bool = False


@record
class Fused:
    """Graphs with kernel nodes, the best by prediction first, and a library that has all of their kernels; none where nothing pays."""

    graphs: tuple[Graph, ...]
    library: Library | None
    story: FusingStory
    #: seconds, by itself, of the kernel that has a node of the graph
    spent: Mapping[Node, float] = field(default_factory=dict)

    @property
    def texts(self) -> dict[str, KernelText]:
        """The kernels by the names of their operators; see `dslc.kernels.note` and `prepared`."""
        return dict(self.library.kernels) if self.library else {}


class Fusing:
    """Graphs that compute the same with some groups of nodes as kernels, built and measured to be faster than their nodes.

    Where its time was over before it was done, it goes on when it is run again.

    Args:
        costs: prices of nodes, and the process that measures, on the target.
        opset: of the model, in which the nodes of a kernel are written as well.
        until: when it ends; what is known by then counts.
        sizes: of symbolic dimensions, at which is measured.
        folder: of dslc's caches.
        kernels: how many different ones a library has at most.
        templates: of lowerings, which are tried wherever they fit.
        strict: whether infinities, NaN and overflows must stay what they are.
        hurried: whether kernels are tried at once, at guessed prices.
    """

    def __init__(
        self, graph: Graph, rules: Rules, costs: CostModel, opset: int, until: Deadline = FOREVER,
        sizes: Mapping[str, int] = MappingProxyType({}), folder: str | Path | None = None, kernels: int = KERNELS,
        templates: Templates | None = None, strict: bool = False, hurried: bool = False,
    ) -> None:  # fmt: skip
        self.graph, self.kernels, self.strict = graph, kernels, strict
        self._begin(until)
        self.profiles = Profiles(rules, sizes)
        self.around = Neighbours(graph)
        #: whether prices are guessed and nothing is measured but kernels, and whether that is for want of time
        self.hurried = hurried or self.until.left() < HURRIED
        #: whether kernels are tried in one variant only
        self.brief = hurried
        self.late, self.proposed, self.rounds = self.hurried and not hurried, 0, 0
        self.limits = GroupLimits(sizes=sizes)
        self.costs = costs
        self.prices = OfferPrices(graph, costs, self.profiles, self._speeds(), self.around, strict)
        trying = Deadline(now=until.now, outer=self._trying)
        footprint = costs.timer.footprint
        self.trials = Autotuner(
            rules, costs.measurer, self.profiles.sizes, opset, footprint, folder=folder, until=trying, templates=templates,
            strict=strict,
        )  # fmt: skip
        self.templates = templates
        #: programs that a template is for: what its kernel takes is not estimated
        self.written: set[Graph] = set()
        self.offers: list[Offer] = []
        self.found: dict[Graph, TunedKernel | Dropped] = {}
        self.priced: set[Graph] = set()
        self.banned: set[Offer] = set()
        #: whether there was no time to propose all groups
        self.hasty = False
        self.most: dict[Offer, float] = {}
        self.share: dict[Offer, float] = {}
        self.least: dict[Offer, float] = {}

    def _begin(self, until: Deadline) -> None:
        """The end of all of it, and of the parts that proposing, pricing and trying may have of the time."""
        self.until = until
        self.proposing, self.pricing = self.until.part(PROPOSING), self.until.part(PRICING)
        self.trying = self.until.part(TRYING)

    def _trying(self) -> Deadline:
        """The end of trying more: what was found is to be built together after that."""
        return replace(self.trying, end=min(self.trying.end, self.until.end - self.trials.needed()))

    def _speeds(self) -> Speeds:
        """Measure the target's speeds; those of an everyday processor where there is no time."""
        try:
            return EVERYDAY if self.hurried else machine(self.costs.measurer)
        except TimeUp:
            self.hurried = self.late = True
            return EVERYDAY

    def again(self, until: Deadline) -> Fused:
        """As far as it comes until then; with prices where they were guessed before."""
        self._begin(until)
        self.late = self.brief = False
        if self.hasty:
            self.proposed = self.rounds = 0
        if self.hurried and self.until.left() >= HURRIED:
            self.hurried = False
            self.prices = replace(self.prices, machine=self._speeds(), _kernels={}, _alone={})
            self.offers = [self.prices.offer(one.group) for one in self.offers]
            self.rounds = 0
        for program in [
            one.program for one in self.found.values() if isinstance(one, Dropped) and one.why is WhyUnused.LATE
        ]:
            del self.found[program]
            self.rounds = 0
        return self.run()

    def run(self) -> Fused:
        if not self.proposed:
            self._propose()
        for at in range(self.rounds, ROUNDS):
            self.rounds, picked = at, self._priced()
            new: dict[Graph, Subject] = {}
            # the most promising first: time may not suffice for all
            for offer in sorted(picked, key=self._worth, reverse=True):
                if offer.program not in self.found:
                    weights = tuple(arg.constant for arg in offer.fold.kernel.args)
                    new.setdefault(offer.program, Subject(offer.program, weights))
            if not new or self.trials.until.over:
                self.late = self.late or bool(new)
                break
            self.found.update(self.trials.tried(new.values(), self.brief))
            self._split(picked)
            self._relate()
        if not self.brief:
            self.found.update(self.trials.others())
        return self._result(self._kept(), self.proposed)

    def _propose(self) -> None:
        rules = self.prices.costs.rules
        groups = list(proposals(self.graph, rules, self.limits, self.profiles, self.proposing))
        self.hasty = self.proposing.over
        chains = [list(chain) for chain in formed(self.around, rules, self.limits, self.profiles, self.strict)]
        groups += [group for chain in chains for group in chain]
        written = list(self.templates.groups(self.graph, self.around)) if self.templates else []
        self.offers = []
        # the largest come first: where time is short, cuts of them are left out
        for group in dict.fromkeys((*written, *groups)):
            if self.pricing.over and self.offers:
                self.hasty = True
                break
            self.offers.append(self.prices.offer(group))
        self.late = self.late or self.hasty
        if self.templates:
            self.written = {
                one.program for one in self.offers if one.group in written or self.templates.takes(one.program)
            }
        # what another form saves is not estimated either: the longest of each chain is tried
        longest = {chain[-1] for chain in chains}
        self.written |= {one.program for one in self.offers if one.group in longest}
        self.proposed = len(self.offers)

    def _kept(self) -> list[Offer]:
        """The best choice of what was measured; parts of a group that the runtime runs faster as a whole must save more than that."""
        picked: list[Offer] = []
        for _ in range(CHOICES):
            picked = chosen(self.graph, self.offers, self.kernels, self._measured)
            wrong = {offer for whole in self._wholes() for offer in self._broken(whole, picked)}
            if not wrong:
                break
            self.banned |= wrong
        return [offer for offer in picked if offer not in self.banned]

    def _wholes(self) -> list[Offer]:
        """Groups that were measured as a whole."""
        return [offer for offer in self.offers if (offer.measured or self.hurried) and self._nodes(offer) < inf]

    def _nodes(self, offer: Offer) -> float:
        """The seconds of an offer's nodes by themselves, where they are known."""
        found = self.found.get(offer.program)
        return found.nodes if found else inf

    def _broken(self, whole: Offer, picked: Sequence[Offer]) -> list[Offer]:
        """Find parts of a group that, with its other nodes, take no less than all of its nodes or its kernel."""
        nodes = set(whole.group.nodes)
        parts = [
            offer for offer in picked if len(offer.group.nodes) < len(nodes) and nodes.issuperset(offer.group.nodes)
        ]
        taken = [found for part in parts if isinstance(found := self.found.get(part.program), TunedKernel)]
        if not parts or len(taken) < len(parts):
            return []
        own = self.found[whole.program]
        rest = max(0.0, whole.price - sum(part.price for part in parts))
        if not whole.measured:
            # what was guessed says how the nodes divide what they were measured to take
            rest *= own.nodes / max(whole.price, 1e-12)
        best = min(own.nodes, own.kernel if isinstance(own, TunedKernel) else inf)
        return parts if sum(found.kernel for found in taken) + rest >= best else []

    def _priced(self) -> list[Offer]:
        """The best choice as of now, its prices measured: what is chosen by guesses is priced, until a choice has its prices."""
        while True:
            picked = chosen(self.graph, self.offers, self.kernels, self._worth)
            doubtful = [offer for offer in picked if not offer.measured and offer.program not in self.found]
            if not doubtful or self.hurried:
                return picked
            now: dict[Offer, Offer] = {}
            try:
                for offer in sorted(doubtful, key=self._worth, reverse=True):
                    if self.pricing.over:
                        raise TimeUp
                    now[offer] = self.prices.measured(offer)
            except TimeUp:
                self.late = self.hurried = True
            self.priced |= {offer.program for offer in now}
            self.offers = [now.get(offer, offer) for offer in self.offers]
            self._relate()
            if not any(offer.measured for offer in now.values()):
                return picked

    def _relate(self) -> None:
        """Bound smaller groups by larger ones.

        None costs more than a group that it is a part of; where the runtime runs the nodes of a group faster than one by one, that is
        lost in every part of it.
        """
        known: dict[Node, list[tuple[set[Node], Offer]]] = {}
        tried: dict[Node, list[tuple[set[Node], Offer, float]]] = {}
        for offer in self.offers:
            nodes, one = set(offer.group.nodes), self.found.get(offer.program)
            # whoever has all nodes of a group has its first one
            for node in nodes if offer.measured else ():
                known.setdefault(node, []).append((nodes, offer))
            if isinstance(one, TunedKernel):
                tried.setdefault(offer.group.nodes[0], []).append((nodes, offer, one.kernel))
        self.most, self.share, self.least = {}, {}, {}
        for offer in self.offers:
            own = set(offer.group.nodes)
            # what is more than a kernel that was measured takes that much longer
            inner = [(kernel, other) for node in own for nodes, other, kernel in tried.get(node, ()) if nodes < own]
            if inner:
                self.least[offer] = min(kernel + max(0.0, offer.seconds - other.seconds) for kernel, other in inner)
            above = [other for nodes, other in known.get(offer.group.nodes[0], ()) if nodes > own]
            self.most[offer] = min((other.price for other in above), default=inf)
            whole = [self.found[o.program].nodes / o.price for o in above if o.program in self.found and o.price > 0]
            self.share[offer] = min(1.0, *whole) if whole else 1.0

    def _price_of(self, offer: Offer) -> float:
        """The price of an offer, as far as is known: a guess is a low one until it was measured."""
        price = (
            offer.price
            if offer.measured
            else max(offer.price, offer.part)
            if self.hurried
            else GUESSED_TOO_LOW * offer.price
        )
        return min(price, self.most.get(offer, inf)) * self.share.get(offer, 1.0)

    def _worth(self, offer: Offer) -> float:
        """The known saving of an offer; nothing where it was dropped or saves next to nothing."""
        if offer.program in self.found:
            return self._measured(offer)
        price, seconds = self._price_of(offer), min(offer.seconds, self.least.get(offer, inf))
        if offer.program in self.written:
            # a kernel was written for just this
            return max(price - seconds, HOPED_OF_WRITTEN * price, SAVED_SECONDS)
        if any(profile and profile.loose for profile in map(self.profiles.of, offer.group.nodes)):
            seconds *= LOOSE
        return price - seconds if price - seconds > max(SAVED_SECONDS, SAVED_SHARE * price) else 0.0

    def _measured(self, offer: Offer) -> float:
        """The measured saving of an offer: of the nodes' price in the graph, and of their time by themselves."""
        found = self.found.get(offer.program)
        if not isinstance(found, TunedKernel) or offer in self.banned:
            return 0.0
        price = min(self._price_of(offer), found.nodes) if offer.measured else found.nodes * self.share.get(offer, 1.0)
        return price - found.kernel

    def _split(self, picked: Sequence[Offer]) -> None:
        """Halves of what has no kernel, and what it is without its first or last node, are offers of their own."""
        known = {offer.group.nodes for offer in self.offers}
        new: list[Offer] = []
        for offer in picked:
            found = self.found.get(offer.program)
            if isinstance(found, Dropped) and found.why in SPLIT:
                for part in self._halves(offer.group):
                    if part.nodes not in known:
                        known.add(part.nodes)
                        new.append(self.prices.offer(part))
        self.offers += new

    def _halves(self, group: NodeGroup) -> Iterator[NodeGroup]:
        middle = len(group.nodes) // 2
        for half in (group.nodes[1:], group.nodes[:-1], group.nodes[:middle], group.nodes[middle:]):
            for part in self.around.connected(half):
                yield self.around.group(part)

    def _result(self, picked: Sequence[Offer], proposed: int) -> Fused:
        places: dict[Graph, list[Offer]] = {}
        for offer in picked:
            places.setdefault(offer.program, []).append(offer)
        tuned = {program: one for program in places if isinstance(one := self.found[program], TunedKernel)}
        kept = [KeptKernel(tuned[program], len(own), sum(map(self._measured, own))) for program, own in places.items()]
        kept.sort(key=lambda one: -one.saving)
        most = self.trials.compiled_in(self.until.left())
        dropped = tuple(one for one in self.found.values() if isinstance(one, Dropped))
        late = self.late or len(kept) > most or any(one.why is WhyUnused.LATE for one in dropped)
        kept = kept[:most]
        story = FusingStory(proposed, len(self.priced), tuple(kept), dropped, late)
        library = self.trials.library([one.tried for one in kept], self.until.left()) if kept else None
        if not library:
            return Fused((), None, story)
        built = [offer for offer in picked if tuned[offer.program].name in library.kernels]
        clearly = [offer for offer in built if tuned[offer.program].ratio >= CLEARLY_FASTER]
        graphs = [folded(self.graph, [offer.group for offer in some]) for some in (built, clearly) if some]
        spent = {node: tuned[offer.program].kernel for offer in built for node in offer.group.nodes}
        return Fused(tuple(dict.fromkeys(graphs)), library, story, spent)

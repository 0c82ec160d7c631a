"""The loop of every region rewrite: regions and programs of a source, proved, built and measured, as candidates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Protocol

from dslc.deadline import TimeUp
from dslc.derivation.programs import PricedProgram
from dslc.derivation.symbolic_sizes import unknown_sizes
from dslc.fuse.groups import Neighbours
from dslc.ir.facts import Fact
from dslc.ir.graph import Call, Node, Value
from dslc.ir.holes import abstracted, instantiated, leaves_of
from dslc.match.forms import has_form
from dslc.records import record
from dslc.search.candidates.candidate import Candidate, imaged
from dslc.search.region_rewrites.building import Builder
from dslc.search.region_rewrites.expressions import factors, windows
from dslc.search.region_rewrites.region_log import (
    HotRegion,
    MatchSite,
    MeasuredRewrite,
    SearchLog,
    Visit,
    left_out,
)

#: times as fast as its nodes that a program must be to be tried as one kernel: the runtime's products are faster
WHOLE = 1.2
#: times as fast as its one kernel that a program must promise to be, by its operators as they were measured, to be
#: tried at all: a runtime without its library would run what it computes with scopes, which is slower than the
#: nodes
APART = 1.5


class RegionSource(Protocol):
    """Regions of a candidate, and the programs that may stand in their place."""

    @property
    def builder(self) -> Builder:
        """Estimates and measures the programs."""

    def regions(self, base: Candidate, around: Neighbours) -> Sequence[HotRegion]:
        """The regions of a candidate, what is to be visited first at first. Raises TimeUp."""

    def visit(self, region: HotRegion, around: Neighbours, owned: set[Node]) -> Visit:
        """Programs to be tried in the place of a region, without nodes that other regions own. Raises TimeUp."""

    def least(self, node: Call) -> float:
        """Seconds that an operator takes in the fastest form that it may have."""


@record
class RegionRewriter:
    """Proposes candidates with programs of a source in the place of regions.

    `forms_first`: a program whose operators have other forms is tried as one kernel first, which stands without its library, too;
    `independent_first`: of the programs of one region those that need no library come before others.
    """

    source: RegionSource
    forms_first: bool = False
    independent_first: bool = False

    def proposals(self, base: Candidate) -> Iterator[tuple[Sequence[Candidate], SearchLog]]:
        """Yield what each unit of work finds, with the log so far.

        A candidate with everything that is faster by then, and one with those programs alone that are one kernel each. After a log
        that is late it may be asked again when there is more time.
        """
        log, around = SearchLog(), Neighbours(base.graph)
        regions: Sequence[HotRegion] | None = None
        while regions is None:
            try:
                log.late = False
                self.source.builder.begin()
                regions = self.source.regions(base, around)
            except TimeUp:
                log.late = True
                yield (), log
        for region in regions:
            visit: Visit | None = None
            while not visit or log.late or visit.waiting:
                log.late, before = False, (log.taken, log.wholes)
                try:
                    if not visit:
                        visit = self.source.visit(region, around, log.owned)
                        log.begin(region, visit)
                    if visit.waiting:
                        self._try_next(visit, region, log)
                except TimeUp:
                    log.late = True
                taken, wholes = log.taken, log.wholes
                new = [] if taken == before[0] else [taken]
                new += [] if wholes in (before[1], taken) or not wholes else [wholes]
                yield [self._candidate(base, one, log) for one in new], log

    def to_gain(self, base: Candidate) -> float:
        """The share of a candidate's time that its regions take beyond what the fastest form of their operators must take."""
        found: list[tuple[float, frozenset[Node]]] = []
        with suppress(TimeUp):
            self.source.builder.begin()
            for region in self.source.regions(base, Neighbours(base.graph)):
                least = sum(map(self.source.least, region.places[0]))
                gained = max(0.0, self.source.builder.formed(region) - least)
                found += ((gained, frozenset(place)) for place in region.places)
        # what several places have in common gets faster once
        saved, taken = 0.0, set[Node]()
        for gained, nodes in sorted(found, key=lambda one: -one[0]):
            if taken.isdisjoint(nodes):
                saved += gained
                taken |= nodes
        return saved / base.cost

    # ---- trials ------------------------------------------------------------------------------------------------

    def _try_next(self, visit: Visit, region: HotRegion, log: SearchLog) -> None:
        """Proves, builds and measures one more program of a visit. Raises TimeUp."""
        builder, (fact, derived) = self.source.builder, visit.waiting[0]
        found: Sequence[MeasuredRewrite] = ()
        if builder.is_proved(fact):
            found = self._measured(fact, derived, visit.sites[fact.old][0])
        elif names := unknown_sizes(region.program):
            log.skipped[region.program] = left_out(fact.rule, "it is not proved for all sizes", names)
        visit.waiting.pop(0)
        for one in found:
            log.add(one, visit.beaten, builder.margin, self.independent_first and not builder.library_only)

    def _measured(self, fact: Fact, derived: PricedProgram | None, site: MatchSite) -> Sequence[MeasuredRewrite]:
        """A program that is proved, built and measured, also as one kernel; nothing where that fails. Raises TimeUp."""
        builder = self.source.builder
        formed = has_form(builder.rules, fact.new, builder.strict)
        whole: MeasuredRewrite | None = None
        forms_first = self.forms_first and formed
        if derived and (forms_first or self._is_of_matrices(derived)):
            whole = builder.one_kernel(fact)
            if forms_first:
                if whole and whole.ratio >= builder.margin:
                    return [whole]
                calls = sum(builder.costs.cost(node) for node in derived.calls if not node.constant)
                without = calls + builder.generated([derived.value])
                if not builder.library_only and without * builder.margin >= sum(map(builder.costs.cost, site.place)):
                    # its nodes are no faster where the library is missing
                    return []
            elif whole and whole.ratio >= WHOLE:
                apart = builder.calls(derived.calls) + builder.generated([derived.value])
                if whole.after <= APART * apart:
                    return [whole]
        one = builder.measured(fact)
        if not whole and one and (one.ratio >= WHOLE or formed):
            # what was measured is not lost where there is no time for this
            with suppress(TimeUp):
                whole = builder.one_kernel(fact)
        return [each for each in (one, whole) if each]

    def _is_of_matrices(self, derived: PricedProgram) -> bool:
        """Return whether a program's operators are products of matrices and no others.

        Kernels of these are hardly slower than the runtime's.
        """
        rules = self.source.builder.rules
        calls = [node for node in derived.calls if not node.constant]
        programs = [abstracted(node.values, leaves_of((node,)))[0] for node in calls]
        return bool(calls) and all(
            factors(rules, each) == 2 and max(windows(rules, each), default=1) == 1 for each in programs
        )

    def _candidate(self, base: Candidate, taken: Sequence[MeasuredRewrite], log: SearchLog) -> Candidate:
        """A candidate with a step for each program in the place of its region; of regions with common nodes those that gain most."""
        at, own = base, set[Node]()
        # what stands for the values of the first graph by now
        now: dict[Value, Value] = {value: value for node in base.graph.nodes() for value in node.values}
        for one in sorted(taken, key=lambda one: (one.after - one.before) * len(log.sites[one.fact.old])):
            sites = log.sites[one.fact.old]
            nodes = {node for site in sites for node in site.nodes}
            if not nodes.isdisjoint(own):
                continue
            own |= nodes
            new: dict[Value, Value] = {}
            for site in sites:
                made = instantiated(one.program, [now[leaf] for leaf in site.region[1]])
                new.update(zip((now[end] for end in site.ends), made, strict=True))
            saved = self.source.builder.costs.share * len(sites) * (one.before - one.after)
            graph, images = imaged(at.graph, new)
            now = {value: images.get(image, image) for value, image in now.items()}
            at = Candidate(
                graph, max(at.cost - saved, 0.05 * at.cost), at, one.fact.rule, len(sites),
                one.facts, {**at.kernels, **{each.name: each.text for each in one.kernels}},
            )  # fmt: skip
        return at

"""Derivations for what a search found: operators that are sums of products as programs that are derived from their expressions.

A hot node is expanded to its expression, and the search of `dslc.derivation` looks for programs of operators and scopes that compute
it. The cheapest of these are priced, their scopes become kernels together with what is computed element by element behind them, and
what is measured to be faster than the nodes is offered as a candidate. Scopes over weights are computed when a model is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from functools import partial
from math import inf, isfinite

from dslc.codegen.text import KernelText
from dslc.cost.groups import Group as Together
from dslc.cost.model import CostModel
from dslc.deadline import FOREVER, Deadline, TimeUp
from dslc.derivation.generic import Generic, NotGeneric, unknown_sizes
from dslc.derivation.programs import PricedProgram, estimated, unlike
from dslc.derivation.search import DerivationLimits, DerivationSearch
from dslc.fuse.groups import Neighbours
from dslc.fuse.kernels import unfold
from dslc.fuse.trials import MARGIN as TRIALS_MARGIN
from dslc.ir.facts import Fact, fact_of
from dslc.ir.graph import Call, Graph, Kernel, Node, Value, replace
from dslc.ir.holes import abstracted, instantiated, leaves_of
from dslc.ir.scalar import Read
from dslc.match.forms import has_form
from dslc.prove.garbage import rare_collections
from dslc.search.candidates.candidate import Candidate, imaged
from dslc.search.finders.below import pointwise_below, selecting
from dslc.search.finders.beside import Beside, DerivedOperator, Task
from dslc.search.finders.building import Builder
from dslc.search.finders.expressions import as_one, expanded, factors, is_sized, reductions, same, windows
from dslc.search.finders.fusions import fact_of_kernel
from dslc.search.finders.looking import (
    Dearer,
    HotSite,
    LeftOut,
    Looking,
    NodePlace,
    Rival,
    Tale,
    Visit,
    WhyOpen,
    distinct,
    groups,
)
from dslc.search.finders.validate import Known, validate
from dslc.semantics.definitions import DerivationDef
from dslc.semantics.library import Rules, load_many

SHARE = 0.05  #: share of a model that equal nodes must take together, and different ones that are looked at
SITES = 6  #: share of a model that equal nodes must take together, and different ones that are looked at
SLACK = 1.2  #: times that what its operations must take a node may take and still be at the runtime's best
DEPTH = 7  #: derivations one after the other, and expressions that are looked at
STATES = 2000  #: derivations one after the other, and expressions that are looked at
PATIENT = 300  #: so many of these, and so many times as many as led to the best by then, of sums of no longer `window`
PATIENCE = 4.0  #: so many of these, and so many times as many as led to the best by then, of sums of no longer `window`
SECONDS = 20.0  #: seconds for one expression, and the share of the time that is left that they are at most
SEARCHING = 0.4  #: seconds for one expression, and the share of the time that is left that they are at most
PRICED = 12  #: programs of one expression
BUILT = 3  #: programs of one expression
FORMED = 4  #: those among the others whose operators have another form, that are priced as well
PROOF = 5.0  #: seconds of proving one program
#: times as fast as its nodes that a program must be to be tried as one kernel: the runtime's products are faster
WHOLE = 1.2
#: times as fast as its one kernel that a program must promise to be, by its operators as they were measured, to be
#: tried at all: a runtime without its library would run what it computes with scopes, which is slower than the
#: nodes
APART = 1.5
BEHIND = 4  #: nodes behind a product that are computed with it
FACTORS = 3  #: tensors that a sum is over, at most
WINDOW = 3  #: positions of a window of which convolutions have another form (minimal filtering)
DEARER = 1.5  #: so many times as dear as its sum a subprogram has its turn before it
#: part of its operations that a sum over a longer window takes at least: programs of it have smaller windows, and
#: these another form
FILTERED = 0.5


#: what a step is called that takes another operator, by an expression as it is
MATCHED = "operator matched"


def derivations_of(rules: Rules) -> list[DerivationDef]:
    """The derivations of some libraries, and EinNet's."""
    return list({**load_many(["einnet"]).derivations, **rules.derivations}.values())


def rule_of(program: PricedProgram) -> str:
    """What the step that takes a program is called: its derivations."""
    return " > ".join(dict.fromkeys(str(step) for step in program.steps)) or MATCHED


@dataclass(slots=True)
class Derivations:
    """Where programs are derived until a moment; see `Fusions`. `known` is what was proved in this run."""

    rules: Rules
    derivations: Sequence[DerivationDef]
    costs: CostModel
    opset: int
    until: Deadline = FOREVER
    known: Known = field(default_factory=dict)
    #: the share of a model that equal nodes must take together
    share: float = SHARE
    #: how many times as fast as the nodes a program must be
    margin: float = TRIALS_MARGIN
    #: programs of one expression that are built
    built: int = BUILT
    #: whether nodes that are at the runtime's best are looked at as well, of which nobody hopes for anything
    every: bool = False
    #: seconds of the kernel that computes a node by now, where there is one: what is to be beaten
    spent: Mapping[Node, float] = field(default_factory=dict)
    #: candidates of the model with kernels: dear is what takes a share of the fastest
    faster: Collection[Candidate] = ()
    #: whether infinities, NaN and overflows must stay what they are
    strict: bool = False
    #: what was derived so far of each operator
    found: dict[Graph, tuple[PricedProgram, ...]] = field(default_factory=dict)
    #: of symbolic dimensions, at which is measured
    sizes: Mapping[str, int] = field(default_factory=dict)
    #: another process that searches, too
    beside: Beside | None = None
    #: whether what is faster with its library alone will do
    leaning: bool = False
    builder: Builder = field(init=False)
    #: of each operator a program at unknown sizes that nobody may take
    _left_out: dict[Graph, LeftOut] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.builder = Builder(self.rules, self.costs, self.opset, self.until, self.strict, self.sizes)

    def of(self, base: Candidate) -> tuple[list[Candidate], Tale]:
        """What is found in the time that there is, the best first, and the story."""
        found: list[Candidate] = []
        tale = Tale()
        for made, tale in self.proposals(base):
            found += made[::-1]
            if tale.late:
                break
        return found[::-1], tale

    def proposals(self, base: Candidate) -> Iterator[tuple[Sequence[Candidate], Tale]]:
        """What each unit of work finds, with the story so far: a candidate with everything that is faster by then, and one with those
        programs alone that are one kernel each. After a story that is late it may be asked again when there is more time."""
        looking = Looking()
        sites: list[HotSite] | None = None
        while sites is None:
            try:
                self.builder.begin()
                looking.around = around = looking.around or Neighbours(base.graph)
                sites = sorted((site for find in self._finders() for site in find(base, around)), key=self._turn)
            except TimeUp:
                yield (), looking.tale(late=True)
        for site in sites:
            yield from self._at(base, site, looking)

    def _finders(self) -> Sequence[Callable[[Candidate, Neighbours], Iterator[HotSite]]]:
        """Who finds places, what takes no time first."""
        return (self._sites, self._subprograms)

    def _turn(self, site: HotSite) -> float:
        """Whose turn it is: the dearest first, and operators by themselves before what is hardly dearer with what lies below."""
        return -site.price * len(site.nodes) / (DEARER if site.inner else 1.0)

    def _at(self, base: Candidate, site: HotSite, looking: Looking) -> Iterator[tuple[Sequence[Candidate], Tale]]:
        """What is found in one kind of place; after each program that was built and measured something else may have its turn."""
        visit: Visit | None = None
        late = True
        while late or (visit is not None and visit.waiting):
            late, known = False, (looking.chosen, looking.alone)
            try:
                visit = visit or self._visit(base, site, looking)
                self._try_next(visit, site, looking)
            except TimeUp:
                late = True
            new = [one for one, before in zip((looking.chosen, looking.alone), known, strict=True) if one != before]
            yield [self._candidates(base, taken, looking.places)[0] for taken in distinct(new)], looking.tale(late)

    def _visit(self, base: Candidate, site: HotSite, looking: Looking) -> Visit:
        """The places of one kind, and the programs that are worth building there. Raises TimeUp."""
        programs = self.programs(site)
        # a node may have another form itself
        price = self._formed(site)
        promising = self._promising(programs, price)
        dearer = [] if promising else self._cheapest(programs, price, price < site.price)
        around = looking.around or Neighbours(base.graph)
        regions: dict[Graph, list[NodePlace]] = {}
        for node in site.nodes:
            place = self._place(node, around, looking.owned, site.inner.get(node, ()))
            old, _ = abstracted((place.end,), leaves_of((place.node, *place.behind)))
            regions.setdefault(old, []).append(place)
        looking.searched, looking.found = looking.searched + 1, looking.found + len(programs)
        looking.dearer += dearer
        if site.program in self._left_out:
            looking.left_out[site.program] = self._left_out[site.program]
        looking.places.update(regions)
        return Visit([(old, each) for old in regions for each in promising])

    def _formed(self, site: HotSite) -> float:
        """Seconds of a node, or of the kernel of another form that it may be itself."""
        return site.price if site.inner else min(site.price, self.builder.form(site.nodes[0]))

    def _try_next(self, visit: Visit, site: HotSite, looking: Looking) -> None:
        """Builds and measures one more program of a visit. Raises TimeUp."""
        if visit.waiting:
            old, derived = visit.waiting[0]
            places = looking.places[old]
            found = self._tried(derived, site.program, places[0])
            visit.waiting.pop(0)
            if site.program in self._left_out:
                looking.left_out[site.program] = self._left_out[site.program]
            looking.taken(old, found, max(self.spent.get(place.node, inf) for place in places), self.margin)

    def facts(self, graph: Graph) -> Iterator[tuple[Fact, tuple[Value, ...]]]:
        """What hot nodes of a graph can be instead, by estimate, and their expressions as kernels. Raises TimeUp."""
        base = Candidate(graph, self.costs.graph_cost(graph))
        for site in self._sites(base, Neighbours(graph)):
            for derived in self._promising(self.programs(site), site.price):
                rule = rule_of(derived)
                for node in site.nodes:
                    _, args = abstracted(node.values, leaves_of((node,)))
                    (made,) = replace((derived.value,), dict(zip(site.program.inputs, args, strict=True)))
                    fact, leaves = fact_of(rule, node.values, (made,), args)
                    kernels = self.with_kernels(fact.new)
                    if kernels is None:
                        continue
                    yield fact, leaves
                    given = dict(zip(kernels.inputs, leaves, strict=True))
                    for one in kernels.nodes():
                        if isinstance(one, Kernel):
                            yield (
                                fact_of_kernel(one.group),
                                replace(unfold(Graph(kernels.inputs, one.args)).outputs, given),
                            )

    def to_gain(self, base: Candidate) -> float:
        """The share of a candidate's time that hot sums of products take beyond what their operations must take."""
        found: list[tuple[float, frozenset[Node]]] = []
        with suppress(TimeUp):
            self.builder.begin()
            around = Neighbours(base.graph)
            for site in (one for find in self._finders() for one in find(base, around)):
                below = site.inner.get(site.nodes[0], ())
                gained = max(0.0, self._formed(site) - sum(map(self._least, (site.nodes[0], *below))))
                found += ((gained, frozenset((node, *site.inner.get(node, ())))) for node in site.nodes)
        # what several places have in common gets faster once
        saved, taken = 0.0, set[Node]()
        for gained, nodes in sorted(found, key=lambda one: -one[0]):
            if taken.isdisjoint(nodes):
                saved += gained
                taken |= nodes
        return saved / base.cost

    # ---- where -------------------------------------------------------------------------------------------------

    def _sites(self, base: Candidate, around: Neighbours, share: float | None = None) -> Iterator[HotSite]:
        """Hot sums of products, equal ones together, and what one of them takes; the dearest first."""
        nodes: dict[Graph, list[Call]] = {}
        for node in around.nodes:
            if isinstance(node, Call) and len(node.types) == 1 and self._is_looked_at(node):
                program, _ = abstracted(node.values, leaves_of((node,)))
                nodes.setdefault(program, []).append(node)
        guessed = {
            program: len(own) * self.costs.guess(Together((own[0],), (own[0].args,)))
            for program, own in nodes.items() if self._is_wanted(program)
        }  # fmt: skip
        likely = sorted(guessed, key=lambda program: -guessed[program])[:SITES]
        prices: dict[Graph, float] = {}
        worth: dict[Graph, float] = {}
        for program in likely:
            price = self.costs.cost(nodes[program][0])
            own = [min(price, self.spent.get(node, inf)) for node in nodes[program]]
            if isfinite(price) and (self.every or not self._at_its_best(nodes[program][0], max(own))):
                prices[program], worth[program] = max(own), sum(own)
        for program in sorted(worth, key=lambda program: -worth[program]):
            if worth[program] >= (self.share if share is None else share) * self._to_beat(base):
                yield HotSite(program, tuple(nodes[program]), prices[program])

    def _subprograms(self, base: Candidate, around: Neighbours) -> Iterator[HotSite]:
        """Hot sums with what is computed element by element before them and for them alone: one expression (EinNet, Algorithm 1)."""
        found: dict[Graph, dict[Call, tuple[Call, ...]]] = {}
        for node in around.nodes:
            if (
                isinstance(node, Call)
                and len(node.types) == 1
                and self._is_looked_at(node)
                and reductions(self.rules, node) == 1
            ):
                below = pointwise_below(self.rules, node, around)
                for inner in dict.fromkeys((selecting(self.rules, node, below), below)):
                    program, _ = abstracted(node.values, leaves_of((node, *inner)))
                    if inner and self._is_wanted(program):
                        found.setdefault(program, {})[node] = inner
        worth: dict[Graph, tuple[float, float]] = {}
        for program, own in found.items():
            node, inner = next(iter(own.items()))
            price = min(sum(self.costs.cost(one) for one in (node, *inner)), self.spent.get(node, inf))
            dear = isfinite(price) and len(own) * price >= self.share * self._to_beat(base)
            if dear and (self.every or not self._at_its_best(node, price)):
                worth[program] = len(own) * price, price
        for program in sorted(worth, key=lambda program: -worth[program][0])[:SITES]:
            yield HotSite(program, tuple(found[program]), worth[program][1], found[program])

    def _to_beat(self, base: Candidate) -> float:
        """Seconds of a candidate, or of the fastest one with kernels: what these took little of before may be all that is left."""
        return min([base.cost, *(one.cost for one in self.faster)])

    def _is_looked_at(self, node: Node) -> bool:
        return is_sized(node)

    def _at_its_best(self, node: Call, price: float) -> bool:
        """Whether a sum of products takes hardly longer than its operations must, as far as the machine was measured."""
        return price <= SLACK * self.margin * self._least(node)

    def _least(self, node: Call) -> float:
        """Seconds that a sum of products takes at the runtime's best, or that programs of it may take where these have another form; 0
        where that is not known."""
        program, _ = abstracted(node.values, leaves_of((node,)))
        return self.builder.least(node) * (FILTERED if self._is_longer(program) else 1.0)

    def _is_longer(self, program: Graph) -> bool:
        """Whether a sum has a longer window than those that have another form, which programs of it may have."""
        return sum(span > WINDOW for span in windows(self.rules, program)) > 1

    def _is_wanted(self, program: Graph) -> bool:
        """Whether a program is one sum over elements of two tensors or three."""
        return 2 <= factors(self.rules, program) <= FACTORS

    def _place(self, node: Call, around: Neighbours, owned: set[Node], inner: tuple[Call, ...] = ()) -> NodePlace:
        """A node with what is computed of its result alone, element by element, and belongs to no other place."""
        end, behind = node.values[0], list[Node]()
        while len(behind) < BEHIND and end not in around.final:
            users = around.used.get(end, [])
            if (
                len(users) != 1
                or users[0] in owned
                or not self.builder.is_pointwise(users[0])
                or users[0].types[0] != end.type
            ):
                break
            behind.append(users[0])
            owned.add(users[0])
            end = users[0].values[0]
        return NodePlace(node, (*inner, *behind), end, inner)

    # ---- programs ----------------------------------------------------------------------------------------------

    def programs(self, site: HotSite) -> tuple[PricedProgram, ...]:
        """What is found for one kind of place, the cheapest by estimate first. Raises TimeUp."""
        return self._derived(site.program)

    def _derived(self, program: Graph) -> tuple[PricedProgram, ...]:
        """What is derived of one operator, the cheapest by estimate first. Raises TimeUp."""
        found = self.found.get(program)
        if found is None:
            if self.until.over:
                raise TimeUp
            made = None if self.beside is None else self.beside.derived("derivations", program, self.until)
            if made is None:
                made = self._searched(program, self.until.part(SEARCHING, SECONDS))
            found = self.found[program] = made.programs
            if made.left_out is not None:
                self._left_out.setdefault(program, made.left_out)
        return found

    def tasks(self, base: Candidate) -> Iterator[tuple[float, Task, Callable[[], DerivedOperator]]]:
        """Searches for hot operators of a candidate that another process may do, and whose turn comes when. Raises TimeUp."""
        self.builder.begin()
        around = Neighbours(base.graph)
        for site in (site for find in self._finders() for site in find(base, around)):
            yield self._turn(site), ("derivations", site.program), partial(self._searched_there, site.program)

    def _searched_there(self, program: Graph) -> DerivedOperator:
        # by its own time: it is halted now and then
        return self._searched(program, Deadline.after(SECONDS, time.process_time))

    def _searched(self, program: Graph, until: Deadline) -> DerivedOperator:
        """What a search finds for one operator, at unknown sizes what is one program at all of them."""
        limits = DerivationLimits(DEPTH, until=until, max_states=STATES)
        if not self._is_longer(program):
            limits = replace_fields(limits, patient=PATIENT, patience=PATIENCE)
        value = expanded(self.rules, program)
        generic = None if value is None else Generic.of(Graph(program.inputs, (value,)))
        if value is None or generic is None:
            return DerivedOperator((), None)
        at = generic.at(Graph(program.inputs, (as_one(value), *program.outputs)))
        search = DerivationSearch(
            self.rules, self.derivations, limits, price=estimated(self.rules, generic.priced(self.sizes))
        )
        with rare_collections():
            every = search.run(at.outputs[0]).programs
        given = at.outputs[1]
        programs: list[PricedProgram] = []
        left_out: LeftOut | None = None
        for each in unlike(self.rules, (each for each in every if not same(each.value, given)), [given.node]):
            try:
                programs.append(replace_fields(each, value=generic.back(each.value)))
            except NotGeneric:
                names = tuple(size.name for size in generic.numbers)
                left_out = left_out or LeftOut(rule_of(each), WhyOpen.SOME, names)
        return DerivedOperator(tuple(programs), left_out)

    def _promising(self, programs: Sequence[PricedProgram], price: float) -> list[PricedProgram]:
        """Those whose operators, as they are measured, and whose scopes, as they are estimated, take less than the node. Raises
        TimeUp."""
        worth: dict[PricedProgram, float] = {}
        for each in (*programs[:PRICED], *self._with_forms(programs[PRICED:], price)):
            calls = self.builder.calls(each.calls, price)
            if calls * self.margin < price:
                worth[each] = calls + self.builder.generated([each.value])
        return [each for each in sorted(worth, key=lambda each: worth[each]) if worth[each] * self.margin < price][
            : self.built
        ]

    def _with_forms(self, programs: Sequence[PricedProgram], price: float) -> list[PricedProgram]:
        """Of programs that a search holds to be dear the cheapest ones whose operators have other forms, of which it knows nothing."""
        worth: dict[PricedProgram, float] = {}
        for each in programs:
            forms = self.builder.in_other_forms(each.calls)
            if forms * self.margin < price:
                worth[each] = forms + self.builder.generated([each.value])
        return [each for each in sorted(worth, key=lambda each: worth[each]) if worth[each] * self.margin < price][
            :FORMED
        ]

    def _cheapest(self, programs: Sequence[PricedProgram], price: float, formed: bool = False) -> list[Dearer]:
        """The program of the least price by estimate, for a report. Raises TimeUp."""
        own = programs[:PRICED]
        worth = [self.builder.calls(each.calls, price) + self.builder.generated([each.value]) for each in own]
        if not worth:
            return []
        k = min(range(len(worth)), key=worth.__getitem__)
        names = [node.op.rpartition(".")[2] for node in programs[k].calls if not node.constant]
        kernels = [
            "kernel" for node in programs[k].generated if not node.constant and not isinstance(node.scope.body, Read)
        ]
        return [Dearer(rule_of(programs[k]), " + ".join([*names, *kernels]), worth[k], price, formed)]

    # ---- trials ------------------------------------------------------------------------------------------------

    def _tried(self, derived: PricedProgram, program: Graph, place: NodePlace) -> list[Rival]:
        """A program in a place, proved, built and measured, also as one kernel; nothing where that fails. Raises TimeUp."""
        fact = self.fact(derived, program, place)
        whole: Rival | None = None
        tried = fact is not None and self._is_of_matrices(derived) and self._is_proved(fact)
        if fact is not None and tried:
            whole = self._as_one(fact)
            if whole is not None and whole.ratio >= WHOLE and whole.after <= APART * self._parts(derived):
                return [whole]
        one = None if fact is None else self._proved(fact)
        if fact is not None and one is None and (names := unknown_sizes(program)) and not self._is_proved(fact):
            self._left_out[program] = LeftOut(fact.rule, WhyOpen.UNPROVED, names)
        hopeful = (
            fact is not None and one is not None and (one.ratio >= WHOLE or has_form(self.rules, fact.new, self.strict))
        )
        if fact is not None and hopeful and not tried:
            # what was measured is not lost where there is no time for this
            with suppress(TimeUp):
                whole = self._as_one(fact)
        return [each for each in (one, whole) if each is not None]

    def _is_of_matrices(self, derived: PricedProgram) -> bool:
        """Whether a program's operators are products of matrices and no others: a kernel's are hardly slower than the runtime's."""
        calls = [node for node in derived.calls if not node.constant]
        programs = [abstracted(node.values, leaves_of((node,)))[0] for node in calls]
        moved = (max(windows(self.rules, each), default=1) for each in programs)
        return bool(calls) and all(factors(self.rules, each) == 2 for each in programs) and max(moved) == 1

    def _parts(self, derived: PricedProgram) -> float:
        """Seconds of a program's operators as they were measured, and of its scopes by estimate. Raises TimeUp."""
        return self.builder.calls(derived.calls) + self.builder.generated([derived.value])

    def _as_one(self, fact: Fact) -> Rival | None:
        """A program as another form of the kernel of its nodes; None where that is no kernel. Raises TimeUp."""
        return self.builder.one_kernel(fact, self.builder.form_of(fact))

    def fact(self, derived: PricedProgram, program: Graph, place: NodePlace) -> Fact | None:
        """That a program may stand in a place; None where it reads what the place does not."""
        node = place.node
        _, args = abstracted(node.values, leaves_of((node, *place.inner)))
        (made,) = replace((derived.value,), dict(zip(program.inputs, args, strict=True)))
        (end,) = replace((place.end,), {node.values[0]: made})
        rule = rule_of(derived)
        try:
            return fact_of(rule, (place.end,), (end,), leaves_of((node, *place.behind)))[0]
        except ValueError:
            return None

    def _better(self, best: Rival | None, one: Rival | None) -> Rival | None:
        """The best of several programs for one place after one more: one that is no slower without its library, where that counts."""
        if one is None or one.ratio < self.margin:
            return best
        if best is not None and one.leans != best.leans and not self.leaning:
            return best if one.leans else one
        return one if best is None or one.after < best.after else best

    def _proved(self, fact: Fact) -> Rival | None:
        """A program in a place, proved, built and measured; None where that fails. Raises TimeUp."""
        return self._measured(fact) if self._is_proved(fact) else None

    def _is_proved(self, fact: Fact) -> bool:
        return validate(self.rules, [fact], known=self.known).how.get(fact.rule) == "exact"

    def _measured(self, fact: Fact) -> Rival | None:
        return self.builder.measured(fact)

    def with_kernels(self, program: Graph) -> Graph | None:
        """A program with its scopes as kernels, see `Builder`."""
        return self.builder.with_kernels(program)

    # ---- candidates --------------------------------------------------------------------------------------------

    def _candidates(
        self, base: Candidate, taken: Sequence[Rival], places: Mapping[Graph, Sequence[NodePlace]]
    ) -> list[Candidate]:
        """Everything that is faster, one step for each of the rules."""
        at = base
        made: list[Candidate] = []
        # what stands for the values of the first graph by now
        now: dict[Value, Value] = {value: value for node in base.graph.nodes() for value in node.values}
        for one in sorted(taken, key=lambda one: one.after - one.before):
            new: dict[Value, Value] = {}
            for place in places[one.fact.old]:
                _, leaves = abstracted((place.end,), leaves_of((place.node, *place.behind)))
                (new[now[place.end]],) = instantiated(one.program, [now[leaf] for leaf in leaves])
            texts: dict[str, KernelText] = {**at.kernels, **{each.name: each.text for each in one.kernels}}
            facts = (one.fact, *(fact_of_kernel(each) for each in groups(one.program)))
            cost = max(at.cost - self.costs.share * len(new) * (one.before - one.after), 0.05 * at.cost)
            graph, images = imaged(at.graph, new)
            now = {value: images.get(image, image) for value, image in now.items()}
            at = Candidate(graph, cost, at, one.fact.rule, len(new), facts, texts)
            made.append(at)
        return made[::-1]

"""Derivations for what a search found: operators that are sums of products as programs that are derived from their expressions.

A hot node is expanded to its expression, and the search of `dslc.derivation` looks for programs of operators and scopes that compute
it. The cheapest of these are priced, their scopes become kernels together with what is computed element by element behind them, and
what is measured to be faster than the nodes is offered as a candidate. Scopes over weights are computed when a model is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from functools import partial

from dslc.deadline import Deadline
from dslc.derivation.programs import PricedProgram, estimated, unlike
from dslc.derivation.search import DerivationLimits, DerivationSearch
from dslc.derivation.symbolic_sizes import NotSymbolic, SizeNumbers
from dslc.fuse.groups import Neighbours
from dslc.ir.facts import Fact, fact_of
from dslc.ir.graph import Call, Graph, Node, Values, replace
from dslc.ir.holes import abstracted, leaves_of
from dslc.ir.scalar import Read
from dslc.prove.garbage import gc_paused
from dslc.search.candidates.candidate import Candidate
from dslc.search.region_rewrites.background import DerivedOperator, Task
from dslc.search.region_rewrites.expressions import as_one, expanded, factors, is_sized, same, windows
from dslc.search.region_rewrites.fusions import kernel_facts
from dslc.search.region_rewrites.hot_operators import HotOperators, subprograms, turn
from dslc.search.region_rewrites.region_log import HotRegion, MatchSite, left_out
from dslc.semantics.definitions import DerivationDef
from dslc.semantics.library import Rules, load_many

DEPTH = 7  #: derivations one after the other
STATES = 2000  #: expressions that are looked at
PATIENT = 300  #: so many of these, and
PATIENCE = 4.0  #: so many times as many as led to the best by then, of sums of no longer `window`
SECONDS = 20.0  #: seconds for one expression
SEARCHING = 0.4  #: the share of the time that is left that they are at most
PRICED = 12  #: programs of one expression
FORMED = 4  #: those among the others whose operators have another form, that are priced as well
FACTORS = 3  #: tensors that a sum is over, at most
WINDOW = 3  #: positions of a window of which convolutions have another form (minimal filtering)
DEARER = 1.5  #: so many times as dear as its sum a subprogram has its turn before it
FAR = 100.0  #: times as dear as a region beyond which an estimate is not said
#: part of its operations that a sum over a longer window takes at least: programs of it have smaller windows, and
#: these another form
FILTERED = 0.5


#: name of a step that takes another operator, by an expression as it is
MATCHED = "operator matched"


def derivations_of(rules: Rules) -> list[DerivationDef]:
    """The derivations of some libraries, and EinNet's."""
    return list({**load_many(["einnet"]).derivations, **rules.derivations}.values())


def rule_of(program: PricedProgram) -> str:
    """The name of the step that takes a program: its derivations."""
    return " > ".join(dict.fromkeys(str(step) for step in program.steps)) or MATCHED


@dataclass(slots=True)
class Derivations(HotOperators):
    """Hot sums of products, and the programs that are derived of them."""

    derivations: Sequence[DerivationDef] = ()

    def regions(self, base: Candidate, around: Neighbours) -> list[HotRegion]:
        """Hot sums of products, and with what is computed element by element before them, what is dearest first."""
        found = self.operators(base, around)
        calls = [node for node in around.nodes if isinstance(node, Call) and len(node.types) == 1 and is_sized(node)]
        groups: dict[Graph, list[tuple[Call, ...]]] = {}
        for place in subprograms(self.builder.rules, around, calls):
            program, _ = abstracted(place[0].values, leaves_of(place))
            if self.wanted(program):
                groups.setdefault(program, []).append(place)
        return sorted([*found, *self.dearest(base, groups)], key=lambda region: turn(region, DEARER))

    def wanted(self, program: Graph) -> bool:
        """Return whether a program is one sum over elements of two tensors or three."""
        return 2 <= factors(self.builder.rules, program) <= FACTORS

    def looked_at(self, node: Node) -> bool:
        return is_sized(node)

    def least(self, node: Call) -> float:
        program, _ = abstracted(node.values, leaves_of((node,)))
        return self.builder.least(node) * (FILTERED if self._is_longer(program) else 1.0)

    def _is_longer(self, program: Graph) -> bool:
        """Return whether a sum has a longer window than those that have another form, which programs of it may have."""
        return sum(span > WINDOW for span in windows(self.builder.rules, program)) > 1

    def facts(self, graph: Graph) -> Iterator[tuple[Fact, Values]]:
        """Facts about what hot nodes of a graph can be instead, by estimate, and their expressions as kernels. Raises TimeUp."""
        base = Candidate(graph, self.builder.costs.graph_cost(graph))
        for region in self.operators(base, Neighbours(graph)):
            for derived in self.promising(self.programs(region.program), region, region.price):
                for (node,) in region.places:
                    _, args = abstracted(node.values, leaves_of((node,)))
                    new = replace((derived.value,), dict(zip(region.program.inputs, args, strict=True)))
                    fact, leaves = fact_of(rule_of(derived), node.values, new, args)
                    kernels = self.builder.with_kernels(fact.new)
                    if not kernels:
                        continue
                    yield fact, leaves
                    yield from kernel_facts(kernels, leaves)

    # ---- programs ----------------------------------------------------------------------------------------------

    def programs(self, program: Graph) -> tuple[PricedProgram, ...]:
        if program not in self.found:
            made = self.sought("derivations", program, self._search)
            self.found[program] = made.programs
            if made.skipped:
                self.skipped[program] = made.skipped
        return self.found[program]

    def tasks(self, base: Candidate) -> Iterator[tuple[float, Task, Callable[[], DerivedOperator]]]:
        """Searches that another process may do, each with the key of its turn. Raises TimeUp."""
        self.builder.begin()
        for region in self.regions(base, Neighbours(base.graph)):
            # by its own time: it is halted now and then
            search = partial(self._search, region.program, Deadline.after(SECONDS, time.process_time))
            yield turn(region, DEARER), ("derivations", region.program), search

    def _search(self, program: Graph, until: Deadline | None = None) -> DerivedOperator:
        """The programs that a search finds for one operator, at unknown sizes those that are one program at all of them."""
        rules = self.builder.rules
        limits = DerivationLimits(DEPTH, until=until or self.builder.until.part(SEARCHING, SECONDS), max_states=STATES)
        if not self._is_longer(program):
            limits = replace_fields(limits, patient=PATIENT, patience=PATIENCE)
        value = expanded(rules, program)
        generic = SizeNumbers.of(Graph(program.inputs, (value,))) if value else None
        if not value or not generic:
            return DerivedOperator(())
        start, given = generic.at(Graph(program.inputs, (as_one(value), *program.outputs))).outputs
        price = estimated(rules, generic.priced(self.builder.sizes))
        with gc_paused():
            every = DerivationSearch(rules, self.derivations, limits, price=price).run(start).programs
        programs: list[PricedProgram] = []
        skipped = ""
        for each in unlike(rules, (each for each in every if not same(each.value, given)), [given.node]):
            try:
                programs.append(replace_fields(each, value=generic.back(each.value)))
            except NotSymbolic:
                names = [size.name for size in generic.numbers]
                skipped = skipped or left_out(rule_of(each), "it holds at some sizes only", names)
        return DerivedOperator(tuple(programs), skipped)

    def promising(self, programs: Sequence[PricedProgram], region: HotRegion, price: float) -> list[PricedProgram]:
        """Programs whose operators, as they are measured, and scopes, as they are estimated, take less than the region.

        Of programs that a search holds to be dear, those whose operators have other forms, of which it knows nothing, are priced, too.
        """
        builder = self.builder
        formed = builder.cheapest((((each.value,), each) for each in programs[PRICED:]), price, other_forms=True)
        own = [*programs[:PRICED], *(each for _, each in formed[:FORMED])]
        return [each for _, each in builder.cheapest((((each.value,), each) for each in own), price)[: builder.built]]

    def rejected(self, programs: Sequence[PricedProgram], region: HotRegion, price: float) -> str:
        """Return the words about the program of the least price by estimate."""
        worth = {
            each: self.builder.calls(each.calls, price) + self.builder.generated([each.value])
            for each in programs[:PRICED]
        }
        if not worth:
            return ""
        best = min(worth, key=lambda each: worth[each])
        names = [node.op.rpartition(".")[2] for node in best.calls if not node.constant]
        scopes = [node for node in best.generated if not node.constant and not isinstance(node.scope.body, Read)]
        words = " + ".join([*names, *["kernel"] * len(scopes)])
        now = "a kernel of another form" if price < region.price else "now"
        # an estimate far beyond what there is says no more than that it is far
        far = "over " * (worth[best] > FAR * price)
        least = min(worth[best], FAR * price) * 1e3
        return f"{rule_of(best)}, not built: {words} estimated at {far}{least:.4g} ms, {now} {price * 1e3:.4g} ms"

    def fact(self, derived: PricedProgram, program: Graph, site: MatchSite) -> Fact | None:
        root = site.place[0]
        _, args = abstracted(root.values, leaves_of(site.place))
        made = replace((derived.value,), dict(zip(program.inputs, args, strict=True)))
        new = replace(site.ends, dict(zip(root.values, made, strict=True)))
        try:
            return fact_of(rule_of(derived), site.ends, new, leaves_of(site.nodes))[0]
        except ValueError:
            return None

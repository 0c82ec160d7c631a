"""Mutants for what a search found: hot linear operators as programs that are almost equal, corrected, built and measured.

Regions are single operators, and connected ones between those that are not linear; what a partial substitution matched is one too. A
mutant is priced before it is known where it is wrong, and equal regions are looked at once. What is right everywhere needs no
correction, and is offered like the others; what was taken is mutated again, for some rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from dataclasses import replace as changed
from functools import partial

from dslc.analysis.counts import known_flops
from dslc.deadline import TimeUp
from dslc.derivation.programs import PricedProgram, calls_of, estimated
from dslc.fuse.groups import Neighbours
from dslc.ir.facts import Fact
from dslc.ir.graph import Call, Graph, Node, Value, nodes_of, replace
from dslc.ir.holes import abstracted, leaves_of
from dslc.mutate.batch_tiling import overlapping, sheets
from dslc.mutate.correct import SHARE as CORRECT_SHARE
from dslc.mutate.correct import Corrected, corrections, differing, fact_of, wrong_at
from dslc.mutate.images import whole
from dslc.mutate.mutant import MutantOptions, made
from dslc.mutate.partial import PartialMutant, PartialRule, applied, sites
from dslc.mutate.problem import is_linear_call, is_linear_region, problem_of, regions
from dslc.mutate.search import search
from dslc.prove.garbage import gc_paused
from dslc.prove.partial.rules import percent
from dslc.search.candidates.candidate import Candidate
from dslc.search.region_rewrites.background import DerivedOperator, Task
from dslc.search.region_rewrites.derivations import DEARER
from dslc.search.region_rewrites.expressions import is_static, reductions
from dslc.search.region_rewrites.hot_operators import HotOperators, turn
from dslc.search.region_rewrites.region_log import HotRegion, MatchSite
from dslc.semantics.apply import apply
from dslc.semantics.elaborate import expand
from dslc.semantics.env import EvalError, Mismatch

SECONDS = 8.0  #: seconds that mutants of one operator are looked for
SEARCHING = 0.2  #: the same as a share of the time that is left, at most
PRICED = 32  #: mutants of one operator that are priced
CORRECTED = 6  #: mutants of one operator that are corrected
GUARDED = 8.0  #: times as long that a guard computes: it has no vectors (16 was measured)
OPERATORS = 4  #: operators of a region
#: ways to cut one operator's result into tiles that overlap, and to lay its images on sheets, that are priced
TILINGS = 6
BEHIND = 0.4  #: part of an operator's price by which it is searched beside others: derivations are mostly worth more
TOLD = 3  #: mutants of which a report says that too much of them would have to be computed again


@dataclass(slots=True)
class Mutants(HotOperators):
    """Hot linear operators and regions, and their mutants.

    `limit`: the part of a result that may be computed again, where no rule says how much; `partial`: partial substitutions written by
    hand; `most` operators of a region; `tilings` that overlap.
    """

    limit: float = CORRECT_SHARE
    partial: Sequence[PartialRule] = ()
    options: MutantOptions = field(default_factory=lambda: MutantOptions(seconds=SECONDS))
    most: int = OPERATORS
    tilings: int = TILINGS
    _rules: dict[Value, PartialMutant] = field(init=False, default_factory=dict)
    _corrected: dict[Value, Corrected] = field(init=False, default_factory=dict)
    _linear: dict[Graph, bool] = field(init=False, default_factory=dict)
    #: seconds of the fastest form that operators may become
    _fastest: dict[Graph, float] = field(init=False, default_factory=dict)
    #: regions that were looked at in each candidate
    _seen: dict[Candidate, set[Graph]] = field(init=False, default_factory=dict)

    # ---- regions -----------------------------------------------------------------------------------------------

    def regions(self, base: Candidate, around: Neighbours) -> list[HotRegion]:
        """Hot operators, hot regions of several, and those that rules match; each once in all rounds."""
        asked: dict[Graph, dict[Call, tuple[Call, ...]]] = {}
        groups: dict[Graph, dict[Call, tuple[Call, ...]]] = {}
        for program, place in sites(self.partial, base.graph):
            if self._is_alone(around, place):
                asked.setdefault(program, {})[place[0]] = place
        if self.most > 1:
            for root, inner in regions(around.nodes, around.used, around.final, self.most, self._is_linear):
                if self.builder.until.over:
                    raise TimeUp
                program, _ = abstracted(root.values, leaves_of((root, *inner)))
                if program not in asked and reductions(self.builder.rules, program):
                    groups.setdefault(program, {})[root] = (root, *inner)
        found = {region.program: region for region in self.operators(base, around)}
        # those that rules ask for whatever they take beyond their operations
        for own, every in ((asked, True), (groups, False)):
            places = {program: [*each.values()] for program, each in own.items() if program not in found}
            found.update((one.program, one) for one in self.dearest(base, places, every=every))
        seen = {program for one in base.path() for program in self._seen.get(one, ())}
        self._seen.setdefault(base, set()).update(found)
        return sorted((found[program] for program in found if program not in seen), key=lambda one: turn(one, DEARER))

    def looked_at(self, node: Node) -> bool:
        """Return whether all sizes are known: mutants are compared where they are."""
        return is_static(node)

    def wanted(self, program: Graph) -> bool:
        """Return whether an operator is linear and takes more than moving its operands."""
        (value,) = program.outputs
        dtypes = {each.type.dtype for each in (*program.inputs, value)}
        linear = len(dtypes) == 1 and value.type.dtype.is_float and is_linear_region(self.builder.rules, program)
        return linear and bool(reductions(self.builder.rules, program))

    def at_its_best(self, region: HotRegion) -> bool:
        """Return whether a region takes no longer than an operator of it, in the fastest form that it may become.

        A single operator may be a kernel of another form already.
        """
        builder, place = self.builder, region.places[0]
        node = max(place, key=builder.costs.cost)
        price = builder.costs.cost(node) if len(place) > 1 else region.price
        plain = min(price, builder.form(node)) < builder.margin * self.least(node)
        if len(place) > 1:
            return plain and builder.margin * price >= region.price
        return plain or HotOperators.at_its_best(self, region)

    def least(self, node: Call) -> float:
        """Estimated seconds of the fastest form that an operator may become.

        That is a product of matrices, or minimal filtering of what it would be without steps, gaps and groups.
        """
        program, _ = abstracted(node.values, leaves_of((node,)))
        if program not in self._fastest:
            builder = self.builder
            products = known_flops(expand(builder.rules, program.outputs))
            if products is None or not builder.costs.target.measured:
                self._fastest[program] = 0.0
            else:
                forms: Sequence[float] = ()
                with suppress(Mismatch, EvalError):
                    plain = apply(builder.rules, node.op, node.args, {})
                    forms = builder.forms_of(plain[0].node)
                self._fastest[program] = min([products / builder.machine.peak, *forms])
        return self._fastest[program]

    def _is_alone(self, around: Neighbours, place: Sequence[Call]) -> bool:
        """Return whether nothing but a region needs what is inside of it, and all of its sizes are known."""
        inside = [value for node in place[1:] for value in node.values]
        return (
            not place[0].constant
            and all(map(is_static, place))
            and not any(value in around.final or not {*around.used.get(value, ())} <= {*place} for value in inside)
        )

    def _is_linear(self, node: Call) -> bool:
        floats = is_static(node) and all(value.type.dtype.is_float for value in (*node.args, *node.values))
        if node.constant or not floats:
            return False
        # equal operators are asked once
        program, _ = abstracted(node.values, leaves_of((node,)))
        if program not in self._linear:
            self._linear[program] = is_linear_call(self.builder.rules, node)
        return self._linear[program]

    # ---- programs ----------------------------------------------------------------------------------------------

    def programs(self, program: Graph) -> tuple[PricedProgram, ...]:
        """Mutants of an operator at its own sizes, the cheapest by estimate first. Raises TimeUp."""
        if program not in self.found:
            there: tuple[PricedProgram, ...] = ()
            # what a rule matched need not be linear
            if self.wanted(program):
                there = self.sought("mutants", program, self._search).programs
            rules, price = self.builder.rules, estimated(self.builder.rules)
            every = {one.value: one for one in applied(rules, self.partial, program)}
            self._rules = {**every, **self._rules}
            partial = [PricedProgram(one.value, (), (one.rule,), _seconds(price, one.value)) for one in every.values()]
            self.found[program] = tuple(sorted((*partial, *there), key=lambda each: each.seconds))
        return self.found[program]

    def tasks(self, base: Candidate) -> Iterator[tuple[float, Task, Callable[[], DerivedOperator]]]:
        """Searches that another process may do, each with the key of its turn. Raises TimeUp."""
        self.builder.begin()
        options = changed(self.options, processor=True)
        for region in self.operators(base, Neighbours(base.graph)):
            search = partial(self._search, region.program, options)
            yield BEHIND * turn(region, DEARER), ("mutants", region.program), search

    def _search(self, program: Graph, options: MutantOptions | None = None) -> DerivedOperator:
        """Mutants of a linear operator or region at its own sizes, and its results in tiles and on sheets: the cheapest of each."""
        rules, (region,) = self.builder.rules, program.outputs
        price, problem = estimated(rules), problem_of(rules, program)
        seconds = min(self.options.seconds, SEARCHING * self.builder.until.left())
        with gc_paused():
            mutants = search(rules, problem, options or changed(self.options, seconds=seconds)).mutants
        every = (
            (value, mutant.core.op)
            for mutant in mutants
            for value in made(rules, mutant, problem.small, problem.region)
        )
        # what touches at seams is wrong there, what overlaps or has room between is not
        cuts = [
            [(value, calls_of(value)[-1].op) for value in way(rules, region)]
            for way in (overlapping, sheets)
            if self.tilings
        ]
        found: list[PricedProgram] = []
        for most, own in ((PRICED, every), *((self.tilings, each) for each in cuts)):
            priced = [PricedProgram(value, (), (op,), _seconds(price, value)) for value, op in own]
            found += sorted(priced, key=lambda each: each.seconds)[:most]
        return DerivedOperator(tuple(found))

    def promising(self, programs: Sequence[PricedProgram], region: HotRegion, price: float) -> list[PricedProgram]:
        """Of those that are cheap enough as they are the corrected ones. Raises TimeUp."""
        if not programs:
            return []
        (old,) = region.program.outputs
        cheap = self.builder.cheapest((((each.value,), each) for each in programs), price)
        found = self._corrected_of(old, cheap, price)[: self.builder.built]
        names = dict.fromkeys(node.op.rpartition(".")[2] for node in calls_of(old))
        words = f"{len(programs)} priced, {len(cheap)} cheaper if nothing had to be corrected, {len(found)} built"
        if found:
            words += f", the cheapest {1e3 * found[0].seconds:.3g} ms predicted instead of {1e3 * price:.3g} ms"
        self.builder.notes[f"mutants of {' + '.join(names)} of {list(old.type.sizes)}: {words}"] = None
        return found

    def corrected(self, program: Graph, price: float) -> list[PricedProgram]:
        """Mutants of a region that are right everywhere and take less than a price by estimate, the cheapest first. Raises TimeUp."""
        cheap = self.builder.cheapest((((each.value,), each) for each in self.programs(program)), price)
        return self._corrected_of(program.outputs[0], cheap, price)

    def _corrected_of(
        self, old: Value, cheap: Sequence[tuple[float, PricedProgram]], price: float
    ) -> list[PricedProgram]:
        """Programs with their corrections, the cheapest as they are first.

        Of what is estimated to be cheap, much is wrong or has no form.
        """
        builder, rules = self.builder, self.builder.rules
        kept: dict[Value, PricedProgram] = {}
        corrected = 0
        for plain, each in cheap:
            rule = self._rules.get(each.value)
            limit, own = (rule.limit, rule.own) if rule else (self.limit, None)
            ways = corrections(rules, old, each.value, limit, own)
            if not ways or (own is not None and all(one.own is None for one in ways)):
                self._note(each, old, limit, own, (plain, price))
            for one in ways:
                value = one.value(rules)
                if one.pieces:
                    seconds = builder.calls(nodes_of([value])) + builder.generated([value])
                else:
                    # a guard computes its branch where it holds; only looking things up takes no longer there
                    instead = one.own or whole(rules, old)
                    slower = GUARDED if one.boxes and not one.own else 1.0
                    guard = slower * one.share * builder.generated([instead])
                    seconds = plain + builder.calls(nodes_of([instead])) + guard
                kept[value] = PricedProgram(value, (), each.targets, seconds)
                self._corrected[value] = one
            corrected += bool(ways)
            if corrected >= CORRECTED:
                break
        return [
            each
            for each in sorted(kept.values(), key=lambda each: each.seconds)
            if each.seconds * builder.margin < price
        ]

    def _note(
        self, program: PricedProgram, old: Value, limit: float, own: Value | None, prices: tuple[float, float]
    ) -> None:
        """Keeps why a program that would pay without its correction is none."""
        rules, notes = self.builder.rules, self.builder.notes
        found = differing(rules, old, program.value)
        (target,) = program.targets
        # no rule would allow more than a mutant may differ at all
        if not found or not found.boxes or found.share > max(limit, self.options.share):
            return
        if found.share > limit:
            now, was = (f"{1e3 * seconds:.3g} ms" for seconds in prices)
            begin = f"a mutant by {target} differs in "
            key = f"{begin}{percent(found.share)}, and {percent(limit)} may be computed again"
            told = [note for note in notes if note.startswith(begin)]
            if len(told) < TOLD and not any(note.startswith(key) for note in told):
                notes[f"{key}: left out ({now} predicted instead of {was}, without the correction)"] = None
        elif own:
            at = wrong_at(rules, old, own, found.boxes)
            result = (
                "is not proved: corrected as `correct auto` instead"
                if at is None
                else f"is wrong at {list(at)}: left out"
            )
            notes[f"the correction of {target}'s own {result}"] = None

    def fact(self, derived: PricedProgram, program: Graph, site: MatchSite) -> Fact | None:
        one, root = self._corrected[derived.value], site.place[0]
        _, args = abstracted(root.values, leaves_of(site.place))
        over = dict(zip(program.inputs, args, strict=True))
        (end,) = replace(site.ends, dict(zip(root.values, replace((derived.value,), over), strict=True)))
        again = f"{one.share:.1%} computed again" if one.boxes else "equal everywhere"
        name, leaves = f"mutant by {derived.targets[0]}, {again}", leaves_of(site.nodes)
        try:
            return fact_of(name, site.ends[0], one, root.values[0], end, leaves, lambda each: replace((each,), over)[0])
        except ValueError:
            return None


def _seconds(price: Callable[[Node], float], value: Value) -> float:
    return sum(price(node) for node in nodes_of([value]))

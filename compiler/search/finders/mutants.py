"""Mutants for what a search found: hot linear operators as programs that are almost equal, corrected, built and measured.

Regions are single operators, and connected ones between those that are not linear; what a partial substitution matched is one too. A
mutant is priced before anybody asks where it is wrong, and equal regions are looked at once. What is right everywhere needs no
correction, and is offered like the others; what was taken is mutated again, for some rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from functools import partial
from math import inf, isfinite

from dslc.analysis.counts import known_flops
from dslc.deadline import TimeUp
from dslc.derivation.programs import PricedProgram, estimated
from dslc.fuse.groups import Neighbours, NodeGroup
from dslc.ir.facts import Fact
from dslc.ir.graph import Call, Graph, Node, ScopeNode, Value, replace, topological
from dslc.ir.holes import abstracted, leaves_of
from dslc.ir.scalar import Reduce, walk
from dslc.match.forms import has_form
from dslc.mutate.boxed import whole
from dslc.mutate.correct import SHARE as CORRECT_SHARE
from dslc.mutate.correct import Corrected, corrections, differing, fact_of, wrong_at
from dslc.mutate.mutant import MutantOptions, made
from dslc.mutate.overlapping import overlapping
from dslc.mutate.partial import PartialMutant, PartialRule, applied, sites
from dslc.mutate.partial import PartialSite as Asked
from dslc.mutate.problem import is_linear_call, is_linear_region, problem_of, shape_of
from dslc.mutate.regions import regions
from dslc.mutate.search import search
from dslc.mutate.sheets import sheets
from dslc.prove.garbage import rare_collections
from dslc.prove.partial.rules import percent
from dslc.search.candidates.candidate import Candidate
from dslc.search.finders.beside import DerivedOperator, Task
from dslc.search.finders.derivations import Derivations
from dslc.search.finders.expressions import expanded, is_static
from dslc.search.finders.looking import Dearer, HotSite, NodePlace, Rival
from dslc.search.finders.validate import validate
from dslc.semantics.apply import apply
from dslc.semantics.elaborate import expand
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules

SECONDS = 8.0  #: seconds that mutants of one operator are looked for
SEARCHING = 0.2  #: the same as a share of the time that is left, at most
PRICED = 32  #: mutants of one operator that are priced
CORRECTED = 6  #: mutants of one operator that are corrected
GUARDED = 8.0  #: times as long that a guard computes: it has no vectors (16 was measured)
OPERATORS = 4  #: operators of a region
#: ways to cut one operator's result into tiles that overlap, and to lay its images on sheets, that are priced
TILINGS = 6
REGIONS = 6  #: regions of several operators that are looked at
BEHIND = 0.4  #: part of an operator's price by which it is searched beside others: derivations are mostly worth more
TOLD = 3  #: mutants of which a report says that too much of them would have to be computed again


@dataclass(slots=True)
class Mutants(Derivations):
    """Where mutants are looked for; see `Derivations`, of which it is one with another way to find programs."""

    #: the part of a result that may be computed again, where no rule says how much
    limit: float = CORRECT_SHARE
    #: partial substitutions written by hand
    partial: Sequence[PartialRule] = ()
    options: MutantOptions = field(default_factory=lambda: MutantOptions(seconds=SECONDS))
    operators: int = OPERATORS
    #: tilings that overlap
    tilings: int = TILINGS
    #: why what would pay by its price is not offered, for a report
    notes: dict[str, None] = field(init=False, default_factory=dict)
    _rules: dict[Value, PartialMutant] = field(init=False, default_factory=dict)
    _regions: dict[Value, Value] = field(init=False, default_factory=dict)
    _corrected: dict[Value, Corrected] = field(init=False, default_factory=dict)
    _linear: dict[Graph, bool] = field(init=False, default_factory=dict)
    #: what the fastest form takes that operators may become
    _fastest: dict[Graph, float] = field(init=False, default_factory=dict)
    #: regions that were looked at in each candidate
    _seen: dict[Candidate, set[Graph]] = field(init=False, default_factory=dict)

    # ---- where -------------------------------------------------------------------------------------------------

    def _finders(self) -> Sequence[Callable[[Candidate, Neighbours], Iterator[HotSite]]]:
        """Hot operators, then hot regions of several."""
        return (self._sites, self._regions_of)

    def _sites(self, base: Candidate, around: Neighbours, share: float | None = None) -> Iterator[HotSite]:
        """Hot operators; each once in all rounds."""
        seen, asked = self._seen_before(base), {one.program for one in self._asked(base, around)}
        for site in Derivations._sites(self, base, around, share):
            if site.program not in seen and (
                site.program in asked or not self._plain_products(site.program, site.price)
            ):
                self._seen.setdefault(base, set()).add(site.program)
                yield site

    def hot(self, base: Candidate, around: Neighbours) -> Iterator[HotSite]:
        """Hot operators, whether they were looked at or not."""
        self.builder.begin()
        yield from (
            site
            for site in Derivations._sites(self, base, around)
            if not self._plain_products(site.program, site.price)
        )

    def _is_looked_at(self, node: Node) -> bool:
        """Whether all sizes are known: mutants are compared where they are."""
        return is_static(node)

    def _regions_of(self, base: Candidate, around: Neighbours) -> Iterator[HotSite]:
        """Hot regions of several operators, those that rules match among them; each once in all rounds."""
        every: dict[Graph, dict[Call, tuple[Call, ...]]] = {}
        for one in self._asked(base, around):
            every.setdefault(one.program, {})[one.node] = one.inner
        asked = set(every)
        if self.operators > 1:
            for root, inner in regions(around.nodes, around.used, around.final, self.operators, self._is_linear):
                if self.until.over:
                    raise TimeUp
                program, _ = abstracted(root.values, leaves_of((root, *inner)))
                if program in every or self._reduces(program):
                    every.setdefault(program, {})[root] = inner
        worth: dict[Graph, tuple[float, float]] = {}
        seen = self._seen_before(base)
        for program, own in every.items():
            root, inner = next(iter(own.items()))
            price = sum(self.costs.cost(node) for node in (root, *inner))
            if program not in asked and isfinite(price) and self._mostly_plain((root, *inner), price):
                continue
            if isfinite(price) and len(own) * price >= self.share * base.cost and program not in seen:
                worth[program] = len(own) * price, price
        for program in sorted(worth, key=lambda program: -worth[program][0])[:REGIONS]:
            self._seen.setdefault(base, set()).add(program)
            yield HotSite(program, tuple(every[program]), worth[program][1], every[program])

    def _asked(self, base: Candidate, around: Neighbours) -> list[Asked]:
        """Where partial substitutions match."""
        return [one for one in sites(self.partial, base.graph) if self._alone(around, one.node, one.inner)]

    def _seen_before(self, base: Candidate) -> set[Graph]:
        """What was looked at in the candidates that led to this one."""
        return {program for one in base.path() for program in self._seen.get(one, ())}

    def _plain_products(self, program: Graph, price: float) -> bool:
        """Whether an operator, as it is or as a kernel of another form, takes no longer than the fastest form that it may become."""
        node = program.outputs[0].node
        return isinstance(node, Call) and min(price, self.builder.form(node)) < self.margin * self._least(node)

    def _least(self, node: Call) -> float:
        """Estimated seconds of the fastest form that an operator may become: a product of matrices, or minimal filtering of what it
        would be without steps, gaps and groups."""
        program, _ = abstracted(node.values, leaves_of((node,)))
        if program not in self._fastest:
            products = known_flops(expand(self.rules, program.outputs))
            if products is None or not self.costs.target.measured:
                self._fastest[program] = 0.0
            else:
                self._fastest[program] = min(products / self.builder.machine.peak, self._plain_form(node))
        return self._fastest[program]

    def _plain_form(self, node: Call) -> float:
        try:
            plain = apply(self.rules, node.op, node.args, {})
        except (Mismatch, EvalError):
            return inf
        return min(self.builder.forms_of(NodeGroup((plain[0].node,), plain)), default=inf)

    def _mostly_plain(self, nodes: Sequence[Call], price: float) -> bool:
        """Whether a region takes what one such operator of it takes."""
        dear = max(nodes, key=self.costs.cost)
        program, _ = abstracted(dear.values, leaves_of((dear,)))
        return self.margin * self.costs.cost(dear) >= price and self._plain_products(program, self.costs.cost(dear))

    def _alone(self, around: Neighbours, root: Call, inner: Sequence[Call]) -> bool:
        """Whether nothing but a region needs what is inside of it, and all of its sizes are known."""
        own = {root, *inner}
        values = [value for node in own for value in (*node.args, *node.values)]
        if root.constant or not all(value.known and value.type.is_static for value in values):
            return False
        inside = [value for node in inner for value in node.values]
        return not any(
            value in around.final or any(user not in own for user in around.used.get(value, ())) for value in inside
        )

    def _is_linear(self, node: Call) -> bool:
        values = (*node.args, *node.values)
        if node.constant or not all(
            value.known and value.type.is_static and value.type.dtype.is_float for value in values
        ):
            return False
        # equal operators are asked once
        program, _ = abstracted(node.values, leaves_of((node,)))
        if program not in self._linear:
            self._linear[program] = is_linear_call(self.rules, node)
        return self._linear[program]

    def _is_wanted(self, program: Graph) -> bool:
        """Whether an operator is linear and takes more than moving its operands."""
        (value,) = program.outputs
        dtypes = {each.type.dtype for each in (*program.inputs, value)}
        return (
            len(dtypes) == 1
            and value.type.dtype.is_float
            and is_linear_region(self.rules, program)
            and self._reduces(program)
        )

    def _reduces(self, program: Graph) -> bool:
        value = expanded(self.rules, program)
        below = [] if value is None else topological([value.node])
        return any(
            isinstance(part, Reduce) for node in below if isinstance(node, ScopeNode) for part in walk(node.scope.body)
        )

    def programs(self, site: HotSite) -> tuple[PricedProgram, ...]:
        """Mutants of an operator at its own sizes, the cheapest by estimate first. Raises TimeUp."""
        program = site.program
        found = self.found.get(program)
        if found is None:
            left = self.until.left()
            if left <= 0:
                raise TimeUp
            (region,) = program.outputs
            programs = []
            for one in applied(self.rules, self.partial, program):
                self._rules.setdefault(one.value, one)
                self._regions[one.value] = region
                programs.append(PricedProgram(one.value, (), (one.rule,), _estimate(self.rules, one.value)))
            # what a rule matched need not be linear
            if self._is_wanted(program):
                there = None if self.beside is None else self.beside.derived("mutants", program, self.until)
                if there is None:
                    seconds = min(self.options.seconds, SEARCHING * left)
                    there = self._searched_for(program, changed(self.options, seconds=seconds))
                self._regions.update((one.value, region) for one in there.programs)
                programs += there.programs
            found = self.found[program] = tuple(sorted(programs, key=lambda each: each.seconds))
        return found

    def tasks(self, base: Candidate) -> Iterator[tuple[float, Task, Callable[[], DerivedOperator]]]:
        """Searches for hot operators of a candidate; see `Derivations`. Raises TimeUp."""
        options = changed(self.options, processor=True)
        for site in self.hot(base, Neighbours(base.graph)):
            yield (
                BEHIND * self._turn(site),
                ("mutants", site.program),
                partial(self._searched_for, site.program, options),
            )

    def _searched_for(self, program: Graph, options: MutantOptions) -> DerivedOperator:
        """Mutants of a linear operator or region at its own sizes, and its results in tiles and on sheets: the cheapest of each."""
        (region,) = program.outputs
        problem = problem_of(self.rules, program)
        with rare_collections():
            every = search(self.rules, problem, options)
        programs = [
            PricedProgram(value, (), (mutant.core.op,), _estimate(self.rules, value))
            for mutant in every.mutants for value in made(self.rules, mutant, problem.small, problem.region)
        ]  # fmt: skip
        # what touches at seams is wrong there, what overlaps or has room between is not
        tiled = [self._cut(value) for value in overlapping(self.rules, region)] if self.tilings else []
        laid = [self._cut(value) for value in sheets(self.rules, region)] if self.tilings else []
        kept = (_cheapest(programs, PRICED), _cheapest(tiled, self.tilings), _cheapest(laid, self.tilings))
        return DerivedOperator(tuple(one for own in kept for one in own), None)

    def _cut(self, value: Value) -> PricedProgram:
        """A region's result by its own operator, in tiles or as a sheet."""
        ops = tuple(node.op for node in topological([value.node]) if isinstance(node, Call))
        return PricedProgram(value, (), ops[-1:], _estimate(self.rules, value))

    def _promising(self, programs: Sequence[PricedProgram], price: float) -> list[PricedProgram]:
        """Of those that are cheap enough as they are the corrected ones. Raises TimeUp."""
        if not programs:
            return []
        region = self._regions[programs[0].value]
        if isinstance(region.node, Call) and not any(map(_is_call, region.node.args)):
            # the operator itself may have another form
            price = min(price, self.builder.form(region.node))
        cheap = self._cheap_enough(programs, price)
        found = self._corrected_of(cheap, price)[: self.built]
        self._tell(region, len(programs), cheap, found, price)
        return found

    def corrected(self, programs: Sequence[PricedProgram], price: float) -> list[PricedProgram]:
        """Programs that are right everywhere and take less than a price by estimate, the cheapest first. Raises TimeUp."""
        return self._corrected_of(self._cheap_enough(programs, price), price)

    def _corrected_of(self, cheap: Sequence[tuple[float, PricedProgram]], price: float) -> list[PricedProgram]:
        worth: dict[Value, float] = {}
        kept: dict[Value, PricedProgram] = {}
        corrected = 0
        # what is cheapest as it is comes first: of what is estimated to be cheap, much is wrong or has no form
        for plain, each in cheap:
            old, rule = self._regions[each.value], self._rules.get(each.value)
            limit, own = (self.limit, None) if rule is None else (rule.limit, rule.own)
            ways = corrections(self.rules, old, each.value, limit, own)
            if not ways or (own is not None and all(one.own is None for one in ways)):
                self._note(each, old, limit, own, (plain, price))
            for one in ways:
                value = one.value(self.rules)
                if one.pieces:
                    worth[value] = self._calls(value) + self.builder.generated([value])
                else:
                    # a guard computes its branch where it holds
                    worth[value] = plain + self._guard(whole(self.rules, old) if one.own is None else one.own, one)
                kept[value] = PricedProgram(value, (), each.targets, worth[value])
                self._corrected[value] = one
            corrected += bool(ways)
            if corrected >= CORRECTED:
                break
        order = sorted(kept, key=lambda value: worth[value])
        return [kept[value] for value in order if worth[value] * self.margin < price]

    def _cheap_enough(self, programs: Sequence[PricedProgram], price: float) -> list[tuple[float, PricedProgram]]:
        """Programs that would pay if nothing had to be corrected, with their prices, the cheapest first. Raises TimeUp."""
        found = []
        for each in programs:
            calls = self._calls(each.value)
            if calls * self.margin < price:
                plain = calls + self.builder.generated([each.value])
                if plain * self.margin < price:
                    found.append((plain, each))
        return sorted(found, key=lambda one: one[0])

    def _guard(self, instead: Value, one: Corrected) -> float:
        """Estimated seconds of what is computed under the guard of a correction; only looking things up takes no longer there."""
        slower = GUARDED if one.boxes and one.own is None else 1.0
        return self._calls(instead) + slower * one.share * self.builder.generated([instead])

    def _tell(
        self,
        region: Value,
        count: int,
        cheap: Sequence[tuple[float, PricedProgram]],
        built: Sequence[PricedProgram],
        price: float,
    ) -> None:
        """Keeps how many mutants of a region were looked at, and how far they came."""
        names = " + ".join(
            dict.fromkeys(node.op.rpartition(".")[2] for node in topological([region.node]) if isinstance(node, Call))
        )
        words = f"{count} priced, {len(cheap)} cheaper if nothing had to be corrected, {len(built)} built"
        if built:
            words += f", the cheapest {1e3 * built[0].seconds:.3g} ms predicted instead of {1e3 * price:.3g} ms"
        self.notes[f"mutants of {names} of {list(shape_of(region))}: {words}"] = None

    def _note(
        self, program: PricedProgram, old: Value, limit: float, own: Value | None, prices: tuple[float, float]
    ) -> None:
        """Keeps why a program that would pay without its correction is none."""
        found = differing(self.rules, old, program.value)
        (target,) = program.targets
        if found is None or not found.boxes:
            return
        if found.share > max(limit, self.options.share):
            # nobody would allow that
            return
        if found.share > limit:
            now, was = (f"{1e3 * seconds:.3g} ms" for seconds in prices)
            key = f"a mutant by {target} differs in {percent(found.share)}, and {percent(limit)} may be computed again"
            told = [note for note in self.notes if note.startswith(f"a mutant by {target} differs in ")]
            if len(told) < TOLD and not any(note.startswith(key) for note in told):
                self.notes[f"{key}: left out ({now} predicted instead of {was}, without the correction)"] = None
        elif own is not None:
            at = wrong_at(self.rules, old, own, found.boxes)
            said = (
                f"is wrong at {list(at)}: left out"
                if at is not None
                else "is not proved: corrected as `correct auto` instead"
            )
            self.notes[f"the correction of {target}'s own {said}"] = None

    def _cheapest(self, programs: Sequence[PricedProgram], price: float, formed: bool = False) -> list[Dearer]:
        # nobody derived them: there are always some
        return []

    def _calls(self, value: Value) -> float:
        return self.builder.calls(topological([value.node]))

    def seconds_of(self, node: Call) -> float:
        """Seconds of an operator by itself, in the form that takes least."""
        return self.builder.calls([node])

    def _tried(self, derived: PricedProgram, program: Graph, place: NodePlace) -> list[Rival]:
        """A mutant in a place; where its operators have other forms it is one kernel first, which stands without its library, too."""
        fact = self.fact(derived, program, place)
        if fact is not None and has_form(self.rules, fact.new, self.strict):
            if validate(self.rules, [fact], known=self.known).how.get(fact.rule) != "exact":
                return []
            one = self._as_one(fact)
            if one is not None and one.ratio >= self.margin:
                return [one]
            if not self.leaning and self._without_forms(derived.value) * self.margin >= self._by_itself(place):
                # its nodes are no faster where the library is missing
                return []
        return Derivations._tried(self, derived, program, place)

    def _without_forms(self, value: Value) -> float:
        """Seconds of a mutant whose operators are the runtime's."""
        nodes = [node for node in topological([value.node]) if isinstance(node, Call) and not node.constant]
        return sum(map(self.costs.cost, nodes)) + self.builder.generated([value])

    def _by_itself(self, place: NodePlace) -> float:
        return sum(self.costs.cost(node) for node in (place.node, *place.inner))

    def fact(self, derived: PricedProgram, program: Graph, place: NodePlace) -> Fact | None:
        one = self._corrected[derived.value]
        node = place.node
        _, args = abstracted(node.values, leaves_of((node, *place.inner)))
        over = dict(zip(program.inputs, args, strict=True))
        (value,) = replace((derived.value,), over)
        (end,) = replace((place.end,), {node.values[0]: value})
        leaves = leaves_of((node, *place.behind))
        try:
            return fact_of(
                _named(derived, one),
                place.end,
                one,
                node.values[0],
                end,
                leaves,
                lambda each: replace((each,), over)[0],
            )
        except ValueError:
            return None

    def _candidates(
        self, base: Candidate, taken: Sequence[Rival], places: Mapping[Graph, Sequence[NodePlace]]
    ) -> list[Candidate]:
        """Of regions with common operators those that gain most."""
        own: set[Node] = set()
        kept: list[Rival] = []
        for one in sorted(taken, key=lambda one: (one.after - one.before) * len(places[one.fact.old])):
            nodes = {node for place in places[one.fact.old] for node in (place.node, *place.behind)}
            if not nodes & own:
                own |= nodes
                kept.append(one)
        return Derivations._candidates(self, base, kept, places)


def _is_call(value: Value) -> bool:
    return isinstance(value.node, Call)


def _named(program: PricedProgram, one: Corrected) -> str:
    """What a report calls it: its operator or rule, and how much of the result is computed again."""
    (target,) = program.targets
    again = f"{one.share:.1%} computed again" if one.boxes else "equal everywhere"
    return f"mutant by {target}, {again}"


def _cheapest(programs: Sequence[PricedProgram], most: int) -> list[PricedProgram]:
    """So many programs, the cheapest by estimate."""
    return sorted(programs, key=lambda each: each.seconds)[:most]


def _estimate(rules: Rules, value: Value) -> float:
    price = estimated(rules)
    return sum(price(node) for node in topological([value.node]))

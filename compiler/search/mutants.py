"""Mutants for what a search found: dear linear operators as programs that are almost equal, corrected, built and measured.

A mutant is priced before anybody asks where it is wrong, and equal nodes are looked at once. What is right everywhere needs no
correction, and is offered like the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed

from dslc.cost.clock import TimeUp
from dslc.derive.search import Program, estimated
from dslc.ir.facts import Fact
from dslc.ir.graph import Call, Graph, ScopeNode, Value, replace, topological
from dslc.ir.holes import abstracted, leaves_of
from dslc.ir.scalar import Reduce, walk
from dslc.mutate.correct import LIMIT, Corrected, corrections, fact_of
from dslc.mutate.partial import Applied, PartialRule, applied
from dslc.mutate.problem import is_linear_region, problem_of
from dslc.mutate.search import Options, made, search
from dslc.prove.garbage import rare_collections
from dslc.search.derivations import Dearer, Derivations, Place
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules

#: how long mutants of one operator are looked for; a share of the time that is left at most
SECONDS, SEARCHING = 8.0, 0.4
#: mutants of one operator that are priced, and that are corrected
PRICED, CORRECTED = 32, 6


@dataclass(slots=True)
class Mutants(Derivations):
    """Where mutants are looked for; see `Derivations`, of which it is one with another way to find programs."""

    #: the part of a result that may be computed again, where no rule says how much
    limit: float = LIMIT
    #: partial substitutions written by hand
    partial: Sequence[PartialRule] = ()
    options: Options = field(default_factory=lambda: Options(seconds=SECONDS))
    _rules: dict[Value, Applied] = field(init=False, default_factory=dict)
    _regions: dict[Value, Value] = field(init=False, default_factory=dict)
    _corrected: dict[Value, Corrected] = field(init=False, default_factory=dict)

    def _is_wanted(self, program: Graph) -> bool:
        """Whether an operator is linear and takes more than moving its operands."""
        (value,) = program.outputs
        dtypes = {each.type.dtype for each in (*program.inputs, value)}
        return len(dtypes) == 1 and value.type.dtype.is_float and is_linear_region(self.rules, program) and self._reduces(program)

    def _reduces(self, program: Graph) -> bool:
        value = self._expanded(program)
        below = [] if value is None else topological([value.node])
        return any(isinstance(part, Reduce) for node in below if isinstance(node, ScopeNode) for part in walk(node.scope.body))

    def _programs(self, program: Graph) -> tuple[Program, ...]:
        """Mutants of an operator at its own sizes, the cheapest by estimate first. Raises TimeUp."""
        found = self.found.get(program)
        if found is None:
            left = self.left()
            if left <= 0:
                raise TimeUp
            (region,) = program.outputs
            programs = []
            for one in applied(self.rules, self.partial, program):
                self._rules.setdefault(one.value, one)
                self._regions[one.value] = region
                programs.append(Program(one.value, (), (one.rule,), _estimate(self.rules, one.value)))
            problem = problem_of(self.rules, program)
            seconds = min(self.options.seconds, SEARCHING * left)
            with rare_collections():
                every = search(self.rules, problem, changed(self.options, seconds=seconds))
            for mutant in every.mutants:
                for value in made(self.rules, mutant, problem.small, problem.region):
                    self._regions[value] = region
                    programs.append(Program(value, (), (mutant.core.op,), _estimate(self.rules, value)))
            found = self.found[program] = tuple(sorted(programs, key=lambda each: each.seconds))
        return found

    def _promising(self, programs: Sequence[Program], price: float) -> list[Program]:
        """Of those that are cheap enough as they are the corrected ones. Raises TimeUp."""
        worth: dict[Value, float] = {}
        kept: dict[Value, Program] = {}
        for each in programs[:PRICED]:
            calls = self._calls(each.value)
            if calls * self.margin >= price:
                continue
            plain = calls + self._scopes(each.value)
            if plain * self.margin >= price:
                continue
            (region,) = expand(self.rules, (self._regions[each.value],))
            rule = self._rules.get(each.value)
            limit = self.limit if rule is None else rule.limit
            for one in corrections(self.rules, self._regions[each.value], each.value, limit):
                value = one.value(self.rules)
                # a guard computes its branch where it holds
                again = sum(map(self._calls, one.pieces)) if one.pieces else one.share * self._scopes(region)
                worth[value] = plain + again
                kept[value] = Program(value, (), each.targets, worth[value])
                self._corrected[value] = one
            if len(kept) >= CORRECTED:
                break
        order = sorted(kept, key=lambda value: worth[value])
        return [kept[value] for value in order if worth[value] * self.margin < price][: self.built]

    def _cheapest(self, programs: Sequence[Program], price: float) -> list[Dearer]:
        # nobody derived them: there are always some
        return []

    def _calls(self, value: Value) -> float:
        nodes = topological([value.node])
        return sum(self.costs.cost(node) for node in nodes if isinstance(node, Call) and not node.constant)

    def _scopes(self, value: Value) -> float:
        nodes = topological([value.node])
        return sum(self._scope(node) for node in nodes if isinstance(node, ScopeNode) and not node.constant)

    def _fact(self, derived: Program, program: Graph, place: Place) -> Fact | None:
        one = self._corrected[derived.value]
        node = place.node
        _, args = abstracted(node.values, leaves_of((node,)))
        over = dict(zip(program.inputs, args, strict=True))
        (value,) = replace((derived.value,), over)
        (end,) = replace((place.end,), {node.values[0]: value})
        leaves = leaves_of((node, *place.behind))
        try:
            return fact_of(_named(derived, one), place.end, one, node.values[0], end, leaves, lambda each: replace((each,), over)[0])
        except ValueError:
            return None


def _named(program: Program, one: Corrected) -> str:
    """What a report calls it: its operator or rule, and how much of the result is computed again."""
    (target,) = program.targets
    again = f"{one.share:.1%} computed again" if one.boxes else "equal everywhere"
    return f"mutant by {target}, {again}"


def _estimate(rules: Rules, value: Value) -> float:
    price = estimated(rules)
    return sum(price(node) for node in topological([value.node]))


__all__ = ["Mutants"]

"""Branches of a model combined: calls of one operator on a common operand as one call, built and measured (PET, Figure 10)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite

from dslc.deadline import TimeUp
from dslc.fuse.groups import Neighbours
from dslc.ir.facts import Fact
from dslc.ir.graph import Call, Graph, Node, Value, topological
from dslc.ir.holes import abstracted, leaves_of, program
from dslc.mutate.joined import joined
from dslc.mutate.problem import is_linear_region, problem_of
from dslc.search.candidates.candidate import Candidate
from dslc.search.finders.expressions import is_static
from dslc.search.finders.together import Several, Together
from dslc.semantics.env import EvalError, Mismatch

MOST = 4  #: calls that are combined at most
SETS = 6  #: sets of calls that are looked at
WAYS = 24  #: ways to combine one set that are priced


@dataclass(slots=True)
class Branches(Together):
    """Where branches are combined; see `Derivations`, of which it is one for several nodes at once."""

    def to_gain(self, base: Candidate) -> float:
        """The share of a candidate's time that calls take which may be combined."""
        found = 0.0
        try:
            for calls in self._sets(base, Neighbours(base.graph)):
                price = sum(self.costs.cost(call) for call in calls)
                found += price if isfinite(price) and price >= self.share * base.cost else 0.0
        except TimeUp:
            pass
        return found / base.cost

    def _several(
        self, base: Candidate, calls: tuple[Call, ...], around: Neighbours, owned: set[Node]
    ) -> Several | None:
        old = tuple(value for call in calls for value in call.values)
        region, leaves = abstracted(old, leaves_of(calls))
        price = sum(self.costs.cost(call) for call in calls)
        if not isfinite(price) or price < self.share * base.cost or not is_linear_region(self.rules, region):
            return None
        name = f"mutant by {calls[0].op}, {len(calls)} branches as one"
        facts = [
            Fact(name, region, program(region.inputs, made))
            for made, worth in self._made(region)[: self.built] if worth * self.margin < price
        ]  # fmt: skip
        return Several(old, leaves, calls, tuple(facts))

    def _sets(self, base: Candidate, around: Neighbours) -> Iterator[tuple[Call, ...]]:
        """Calls of one operator with equal attributes that read a common value, and none of which is below another."""
        users: dict[tuple[Value, str, object], list[Call]] = {}
        for node in around.nodes:
            if (
                isinstance(node, Call)
                and not node.constant
                and len(node.types) == 1
                and is_static(node)
                and _is_float(node)
            ):
                for arg in dict.fromkeys(arg for arg in node.args if not arg.constant):
                    users.setdefault((arg, node.op, node.tag), []).append(node)
        own: set[Call] = set()
        sets = 0
        for calls in users.values():
            apart: list[Call] = []
            for call in calls:
                below = set(topological([call]))
                if call not in own and not any(one in below for one in apart):
                    apart.append(call)
            if len(apart) > 1 and sets < SETS:
                sets += 1
                own.update(apart[:MOST])
                yield tuple(apart[:MOST])

    def _made(self, region: Graph) -> list[tuple[tuple[Value, ...], float]]:
        """Programs of one call in the place of several, the cheapest first, with their prices. Raises TimeUp."""
        found: dict[tuple[Value, ...], float] = {}
        problem = problem_of(self.rules, region)
        for one in joined(self.rules, problem):
            if self.until.over:
                raise TimeUp
            try:
                made = one.made(self.rules, region)
            except (Mismatch, EvalError, ValueError):
                continue
            if made is not None and made not in found and len(found) < WAYS:
                nodes = [node for node in topological(value.node for value in made) if not node.constant]
                found[made] = self.builder.calls(nodes) + self.builder.generated(made)
        return sorted(found.items(), key=lambda each: each[1])


def _is_float(call: Call) -> bool:
    return all(value.type.dtype.is_float for value in (*call.args, *call.values))

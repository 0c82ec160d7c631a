"""Branches of a model combined: calls of one operator on a common operand as one call, built and measured (PET, Figure 10)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite

from dslc.cost.clock import TimeUp
from dslc.fuse.estimate import machine
from dslc.fuse.groups import Neighbours
from dslc.ir.facts import Fact
from dslc.ir.graph import Call, Graph, Kernel, ScopeNode, Value, topological
from dslc.ir.holes import abstracted, instantiated, leaves_of, program
from dslc.mutate.joined import joined
from dslc.mutate.problem import is_linear_region, problem_of
from dslc.search.candidate import Candidate
from dslc.search.derivations import Derivations, Rival, Tale
from dslc.search.fusions import fact_of_kernel
from dslc.search.rewriting import imaged
from dslc.semantics.env import EvalError, Mismatch

#: calls that are combined at most, and sets of them that are looked at
MOST, SETS = 4, 6
#: ways to combine one set that are priced
WAYS = 24


@dataclass(slots=True)
class Branches(Derivations):
    """Where branches are combined; see `Derivations`, of which it is one for several nodes at once."""

    def of(self, base: Candidate) -> tuple[list[Candidate], Tale]:
        """A candidate with everything that is faster."""
        taken: list[tuple[Rival, tuple[Value, ...], tuple[Value, ...]]] = []
        measured: list[Rival] = []
        searched, found, late = 0, 0, False
        try:
            self._machine = machine(self.costs.measurer)
            for calls in self._branches(base):
                old = tuple(value for call in calls for value in call.values)
                region, leaves = abstracted(old, leaves_of(calls))
                price = sum(self.costs.cost(call) for call in calls)
                if not isfinite(price) or price < self.share * base.cost or not is_linear_region(self.rules, region):
                    continue
                searched += 1
                best: Rival | None = None
                try:
                    for made, worth in self._made(region)[: self.built]:
                        found += 1
                        fact = Fact(f"mutant by {calls[0].op}, {len(calls)} branches as one", region, program(region.inputs, made))
                        if worth * self.margin < price:
                            best = self._better(best, fact, measured)
                finally:
                    # what was measured by now is kept, whatever there was no time for
                    if best is not None:
                        taken.append((best, old, leaves))
        except TimeUp:
            late = True
        tale = Tale(searched, found, tuple(measured), tuple(one for one, _, _ in taken), late)
        return [with_taken(base, taken, self.costs.share)] if taken else [], tale

    def _branches(self, base: Candidate) -> Iterator[tuple[Call, ...]]:
        """Calls of one operator with equal attributes that read a common value, and none of which is below another."""
        users: dict[tuple[Value, str, object], list[Call]] = {}
        for node in Neighbours(base.graph).nodes:
            if isinstance(node, Call) and not node.constant and len(node.types) == 1 and self._is_static(node):
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

    def _is_static(self, call: Call) -> bool:
        values = (*call.args, *call.values)
        return all(value.known and value.type.is_static and value.type.dtype.is_float for value in values)

    def _made(self, region: Graph) -> list[tuple[tuple[Value, ...], float]]:
        """Programs of one call in the place of several, the cheapest first, with their prices. Raises TimeUp."""
        found: dict[tuple[Value, ...], float] = {}
        problem = problem_of(self.rules, region)
        for one in joined(self.rules, problem):
            if self.left() <= 0:
                raise TimeUp
            try:
                made = one.made(self.rules, region)
            except (Mismatch, EvalError, ValueError):
                continue
            if made is not None and made not in found and len(found) < WAYS:
                nodes = [node for node in topological(value.node for value in made) if not node.constant]
                calls = sum(self.costs.cost(node) for node in nodes if isinstance(node, Call))
                found[made] = calls + sum(self._scope(node) for node in nodes if isinstance(node, ScopeNode))
        return sorted(found.items(), key=lambda each: each[1])


def with_taken(base: Candidate, taken: list[tuple[Rival, tuple[Value, ...], tuple[Value, ...]]], share: float = 1.0) -> Candidate:
    """A candidate with programs in the place of the values that they compute, over these leaves; one step for each.

    `share` is what they save of the whole for what they save by themselves.
    """
    at = base
    now: dict[Value, Value] = {value: value for node in base.graph.nodes() for value in node.values}
    for one, old, leaves in taken:
        made = instantiated(one.program, [now[leaf] for leaf in leaves])
        texts = {**at.kernels, **{each.name: each.text for each in one.kernels}}
        groups = dict.fromkeys(node.group for node in one.program.nodes() if isinstance(node, Kernel))
        cost = max(at.cost - share * (one.before - one.after), 0.05 * at.cost)
        graph, images = imaged(at.graph, dict(zip((now[value] for value in old), made, strict=True)))
        now = {value: images.get(image, image) for value, image in now.items()}
        at = Candidate(graph, cost, at, one.fact.rule, 1, (one.fact, *map(fact_of_kernel, groups)), texts)
    return at


__all__ = ["Branches", "with_taken"]

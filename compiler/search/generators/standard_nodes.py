"""Results of rules in nodes that ONNX has, where operators would be kernels: without their library these are slow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from dslc.deadline import TimeUp
from dslc.errors import DslcError
from dslc.ir.graph import Call
from dslc.search.candidates.candidate import Candidate, Limits
from dslc.search.candidates.export import unsaid_in
from dslc.search.generators.protocol import Generator, Proposal, SearchContext
from dslc.search.strategies.sweep import SweepState, everywhere


@dataclass(frozen=True, kw_only=True)
class StandardNodes(Generator):
    """The same candidate with other words for what ONNX has no node for at this opset.

    Before: `hard_swish(X)` at opset 11, which is a kernel of its own. After: `mul(X, hard_sigmoid(X))`.
    """

    name: str = "plain nodes"
    gain: float = 0.05
    seconds: float = 1.0
    steps: int = 3000

    def promise(self, context: SearchContext, base: Candidate) -> float:
        """All of it, where there is such an operator, and it matters how fast the result is without its library."""
        settings = context.task.settings
        return 1.0 if settings.timing and not settings.library_only and _unsaid(context, base) else 0.0

    def propose(self, context: SearchContext, base: Candidate) -> Iterator[Proposal]:
        limits, at = context.limits(self.name, self.steps), base
        while left := _unsaid(context, at):
            found = _said(context, at, left, limits)
            if not found:
                return
            at = found
        yield Proposal((at,))


def _said(context: SearchContext, base: Candidate, left: frozenset[str], limits: Limits) -> Candidate | None:
    """The cheapest that one rule makes by taking operators away everywhere, some of these."""
    state, best = SweepState(base, context.costs), None
    for rule in context.rules:
        operators = [site.operator for site in rule.left.sites]
        if len(operators) == 1 and operators[0] in left:
            try:
                found = everywhere(state, rule, limits, -inf, inf)
            except TimeUp:
                break
            if found and len(_unsaid(context, found)) < len(left) and (not best or found.cost < best.cost):
                best = found
    return best


def _unsaid(context: SearchContext, base: Candidate) -> frozenset[str]:
    """The operators of a candidate that no ONNX nodes express as they stand in it."""
    try:
        found = unsaid_in(context.task.rules, base.graph, context.task.imported.context)
    except DslcError:
        # what cannot be written at all is not asked about
        return frozenset()
    return frozenset(node.op for node in found if isinstance(node, Call))

"""Why a rule does not apply to a graph: the best partial match, and the first thing that failed."""

from __future__ import annotations

from dataclasses import dataclass

from dslc.errors import Span
from dslc.ir.graph import Graph
from dslc.match.apply import Refused, replaced
from dslc.match.describe import show, show_call
from dslc.match.index import GraphIndex
from dslc.match.matcher import find_matches
from dslc.match.rule import CompiledRule
from dslc.match.trace import Trace


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `dslc why-not` says.

    `applies` counts the places where the rule applies (then there is no reason). `matched` are the parts of the rule that were found,
    each with what it was found to be; `total` is how many parts the rule's left side has; `span` is where in the rule it stopped, and
    `values` are the names of a failed guard with their values.
    """

    rule: str
    applies: int
    matched: tuple[tuple[str, str], ...] = ()
    total: int = 0
    reason: str = ""
    span: Span | None = None
    values: tuple[tuple[str, str], ...] = ()

    def lines(self) -> list[str]:
        """The explanation as text."""
        if self.applies:
            places = "place" if self.applies == 1 else "places"
            return [f"{self.rule} applies at {self.applies} {places}"]
        calls = "call" if self.total == 1 else "calls"
        out = [f"{self.rule} does not apply", f"  best partial match: {len(self.matched)} of {self.total} {calls}"]
        out += [f"    {part}  is  {found}" for part, found in self.matched]
        where = f" ({self.span})" if self.span is not None else ""
        out.append(f"  stopped{where}: {self.reason}")
        out += [f"    {name} = {value}" for name, value in self.values]
        return out

    def __str__(self) -> str:
        return "\n".join(self.lines())


def why_not(rule: CompiledRule, graph: Graph) -> Explanation:
    """The place where a rule comes farthest, and what stops it there."""
    index = GraphIndex(graph)
    trace = Trace()
    applies = 0
    for match in find_matches(rule, index, trace=trace):
        try:
            replaced(match, graph)
        except Refused as problem:
            trace.score = (2, len(match.state.results), 0) if trace.score[0] < 2 else trace.score
            if trace.score == (2, len(match.state.results), 0):
                trace.state, trace.reason, trace.span, trace.values = match.state, str(problem), rule.span, ()
            continue
        applies += 1
    if applies:
        return Explanation(rule.name, applies)
    missing = [s for s in rule.left.sites if s.operator is not None and s.operator not in index.by_operator]
    if missing and trace.score[0] < 1 and not trace.state.results:
        site = missing[0]
        reason = f"the graph has no `{site.operator}`"
        return Explanation(rule.name, 0, (), len(rule.left.sites), reason, site.span)
    matched = tuple(
        (_one_line(rule.left.sites[site].span.text), show_call(node)) for site, node in sorted(trace.state.nodes.items())
    ) + tuple((name, show(value)) for name, value in sorted(trace.state.values.items()))
    calls = len(trace.state.nodes)
    del calls
    return Explanation(rule.name, 0, matched, len(rule.left.sites), trace.reason, trace.span, trace.values)


def _one_line(text: str) -> str:
    joined = " ".join(text.split())
    return joined if len(joined) <= 60 else joined[:57] + "..."

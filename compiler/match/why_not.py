"""Explanations of rules that do not apply to a graph: the best partial match, and the first thing that failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dslc.errors import Span
from dslc.ir.graph import Call, Graph, Value
from dslc.match.apply import replaced
from dslc.match.describe import show, show_call
from dslc.match.index import GraphIndex
from dslc.match.matcher import find_matches
from dslc.match.pattern import Site
from dslc.match.recipe import Refused
from dslc.match.rule import CompiledRule
from dslc.match.state import Trace
from dslc.records import record


@record
class Explanation:
    """The answer of `dslc why-not`.

    `applies` counts the places where the rule applies (then there is no reason). `matched` are the calls of the rule that were found,
    each with the node that it was found to be; `total` is how many calls the author wrote on the left; `span` is where in the rule it
    stopped, and `values` are the tensors that were bound, and the names of a failed guard with their values.
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
            places = "" if self.applies == 1 else f" at {self.applies} places"
            return [f"{self.rule}: Applies{places}."]
        calls = "call" if self.total == 1 else "calls"
        out = [f"{self.rule}: Does not apply.", f"  best partial match: {len(self.matched)} of {self.total} {calls}"]
        out += [f"    {part}\n      is {found}" for part, found in self.matched]
        where = f" ({self.span})" if self.span else ""
        out.append(f"  stopped{where}: {self.reason}")
        out += [f"    {name} = {value}" for name, value in self.values]
        return out

    def __str__(self) -> str:
        return "\n".join(self.lines())


def why_not(rule: CompiledRule, graph: Graph, names: Mapping[Value, str] | None = None) -> Explanation:
    """The place where a rule comes farthest, and what stops it there.

    Args:
        names: what values are called in the model, for the text.
    """
    index = GraphIndex(graph)
    trace = Trace()
    applies = 0
    for match in find_matches(rule, index, trace=trace):
        try:
            replaced(match, graph)
            applies += 1
        except Refused as problem:
            trace.rejected(match.state, str(problem), rule.span)
    if applies:
        return Explanation(rule.name, applies)
    sites = rule.left.sites
    if not trace.state.nodes:
        missing = next((s for s in sites if s.operator is not None and s.operator not in index.by_operator), None)
        if missing:
            reason = f"the graph has no `{missing.operator}`"
            return Explanation(rule.name, 0, (), _written(sites), reason, missing.span)
    called = names or {}
    found = trace.state.nodes
    # a `let` that is used several times is several sites, and one call to whoever wrote it
    open_ones = {_at(site.span) for number, site in enumerate(sites) if number not in found}
    matched = {
        _at(sites[site].span): (_one_line(sites[site].span.text), _place(node, called, index))
        for site, node in sorted(found.items())
    }
    whole = tuple(text for at, text in matched.items() if at not in open_ones)
    bound = tuple((name, _tensor(value, called)) for name, value in sorted(trace.state.values.items()))
    return Explanation(rule.name, 0, whole, _written(sites), trace.reason, trace.span, (*bound, *trace.values))


def _written(sites: Sequence[Site]) -> int:
    """Count the calls that the author wrote for some sites."""
    return len({_at(site.span) for site in sites})


def _at(span: Span) -> tuple[str, int, int]:
    return span.source.path, span.start, span.end


def _place(node: Call, names: Mapping[Value, str], index: GraphIndex) -> str:
    name = next((names[value] for value in node.values if value in names), "")
    return f"{name or f'node {index.position[node]}'}: {show_call(node)}"


def _tensor(value: Value, names: Mapping[Value, str]) -> str:
    kind = " (constant)" if value.constant else ""
    name = names.get(value, "")
    return f"{name} {show(value)}{kind}".strip()


def _one_line(text: str) -> str:
    joined = " ".join(text.split())
    return joined if len(joined) <= 60 else joined[:57] + "..."

"""Calls inside each other in an e-graph, of associative operators and of their inverses, as one; see `dslc.search.rewrites.flatten`.

Rules join two products at a time, and their parts are parts of parts. In an e-graph the one call stands beside the nested ones, and
extraction says which is cheaper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from dslc.egraph.graph import EGraph
from dslc.egraph.rewrite import state
from dslc.ir.facts import Fact, fact_of
from dslc.ir.graph import Call, Node, Value, with_args
from dslc.match import CompiledRule
from dslc.prove.evidence.dependencies import proved_traits
from dslc.search.rewrites.flatten import flatter
from dslc.semantics.library import Rules

TURNS = 4  #: times that what is made one is looked at again
WAYS = 8  #: ways to nest a call in another one that are looked at, for each node
MOST = 200  #: calls that are made one at a time


def level(egraph: EGraph, rule: CompiledRule, fresh: Iterable[Node], nodes: int, most: int = MOST) -> int:
    """Adds one call beside calls inside each other where one of both is among some e-nodes; how many classes became another's.

    Args:
        rule: what made these e-nodes: the facts are its.
        nodes: nothing is added once there are so many e-nodes.
        most: so many are made one.
    """
    merged = 0
    for _ in range(TURNS):
        seen = dict.fromkeys(egraph.memo)
        found = (one for node in fresh for one in _facts(egraph, rule.rules, node, rule.name))
        told = list(islice(found, most))
        most -= len(told)
        for fact, leaves in told:
            if len(egraph) >= nodes:
                break
            merged += state(egraph, fact, leaves)
        egraph.rebuild()
        fresh = [node for node in egraph.memo if node not in seen]
        if not fresh or not most or len(egraph) >= nodes:
            break
    return merged


def _facts(egraph: EGraph, rules: Rules, node: Node, rule: str) -> Iterator[tuple[Fact, tuple[Value, ...]]]:
    """What is one call where a node stands in another one, or another one in it."""
    entry = egraph.memo.get(node)
    if entry is None or not isinstance(node, Call) or node.constant or node.op not in rules.operators:
        return
    traits = proved_traits(rules, node.op)
    if traits.inverse is None and (traits.commutative or not traits.associative):
        return
    pairs: list[tuple[Node, Node]] = [(node, one) for kid in dict.fromkeys(entry.kids) for one in egraph.members[kid]]
    pairs += [(one, node) for out in dict.fromkeys(map(egraph.find, entry.outs)) for one in egraph.users[out]]
    tried = 0
    for above, below in pairs:
        if not isinstance(above, Call) or not isinstance(below, Call) or above.op != below.op or above is below:
            continue
        outs = {egraph.find(out): k for k, out in enumerate(egraph.memo[below].outs)}
        for place, kid in enumerate(egraph.memo[above].kids):
            if kid not in outs or tried >= WAYS:
                continue
            tried += 1
            args = (*above.args[:place], below.values[outs[kid]], *above.args[place + 1 :])
            yield from _one(egraph, rules, with_args(above, args)[0].node, below, rule)


def _one(egraph: EGraph, rules: Rules, above: Node, below: Call, rule: str) -> Iterator[tuple[Fact, tuple[Value, ...]]]:
    assert isinstance(above, Call)
    leaves = [arg for arg in (*above.args, *below.args) if egraph.class_of(arg) is not None]
    for _, found in flatter(rules, above, _Once()):
        changed: Mapping[Value, Value] = {old: new for old, new in found.items() if old != new}
        if changed:
            yield fact_of(rule, tuple(changed), tuple(changed.values()), leaves)


class _Once(Counter[Value]):
    """Everything is used once: what else uses it keeps it."""

    def __missing__(self, key: Value) -> int:
        return 1

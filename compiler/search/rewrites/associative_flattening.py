"""Calls of associative operators inside each other, and of their inverses, as one: what pairwise rules leave behind.

Rules join two products, two branches, two parts at a time. Where a result is used only once, one call on all parts computes the
same and copies less: f(f(a, b), c) is f(a, b, c); an inverse of one part of an inverse is one inverse; and parts that are only put
together again are not taken apart. All of it follows from the traits `associative` and `inverse`, whatever the operators are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

from dslc.egraph.graph import EGraph
from dslc.egraph.rewrite import state
from dslc.errors import DslcError
from dslc.ir.facts import fact_of
from dslc.ir.graph import Call, Graph, Node, Value, Values, with_args
from dslc.match import CompiledRule
from dslc.prove.evidence.dependencies import proved_traits
from dslc.search.candidates.candidate import PlacedFact, rewritten
from dslc.semantics.apply import apply
from dslc.semantics.env import Mismatch, Unbound
from dslc.semantics.library import Rules
from dslc.semantics.nary import nested_in, parts_attribute, takes_many

TURNS = 64  #: times that a graph is gone through: each takes what does not overlap


#: the nodes that a step concerns, and what it replaces
Flattening: TypeAlias = tuple[set[Node], dict[Value, Value]]


def flattened(rules: Rules, graph: Graph) -> Graph:
    """The graph without nested associative calls and inverses; the same graph where there are none."""
    for _ in range(TURNS):
        new: dict[Value, Value] = {}
        touched: set[Node] = set()
        nodes = graph.nodes()
        uses = Counter(arg for node in nodes for arg in node.args)
        uses.update(graph.outputs)
        for node in nodes:
            if isinstance(node, Call):
                for concerned, found in flatter(rules, node, uses):
                    if not touched & concerned:
                        touched |= concerned
                        new.update((old, value) for old, value in found.items() if old != value)
        if not new:
            break
        graph = rewritten(graph, new)
    return graph


def flatter(rules: Rules, node: Call, uses: Counter[Value]) -> Iterator[Flattening]:
    """The nodes that a step concerns, and what it replaces."""
    traits = proved_traits(rules, node.op)
    try:
        if takes_many(rules, rules.operators[node.op], traits) and not traits.commutative:
            yield from _nested(rules, node, uses)
            yield from _joined_again(rules, node, uses)
        elif traits.inverse is not None:
            yield from _parts_of_part(rules, node, uses)
    except (Mismatch, Unbound, DslcError):
        return


def _nested(rules: Rules, node: Call, uses: Counter[Value]) -> Iterator[Flattening]:
    """f(f(a, b), c) is f(a, b, c)."""
    inner = {arg.node for arg in node.args if nested_in(node, arg.node) and uses[arg] == 1}
    if inner:
        operands = [part for arg in node.args for part in (arg.node.args if arg.node in inner else (arg,))]
        yield {node, *inner}, {node.values[0]: apply(rules, node.op, operands, dict(node.attrs))[0]}


def _parts_of_part(rules: Rules, node: Call, uses: Counter[Value]) -> Iterator[Flattening]:
    """A part that is only taken apart again is taken apart where the whole is."""
    (part,) = node.args if len(node.args) == 1 else (None,)
    if not part or not isinstance(part.node, Call) or part.node.op != node.op or uses[part] != 1:
        return
    outer, operator = part.node, rules.operators[node.op]
    name = parts_attribute(operator, dict(node.attrs))
    if name is None or _without(outer, name) != _without(node, name):
        return
    sizes, own = _sizes(outer, name), _sizes(node, name)
    results = _taken_apart(rules, outer, name, [*sizes[: part.index], *own, *sizes[part.index + 1 :]])
    new = dict(zip(node.values, results[part.index : part.index + len(own)], strict=True))
    others = [*results[: part.index], *results[part.index + len(own) :]]
    new.update(zip([value for value in outer.values if value != part], others, strict=True))
    yield {node, outer}, new


def _joined_again(rules: Rules, node: Call, uses: Counter[Value]) -> Iterator[Flattening]:
    """Neighbouring parts that are only put together again are one part; all parts are the whole."""
    at = 0
    while at < len(node.args):
        run = _run(rules, node, at, uses)
        if len(run) < 2:
            at += 1
            continue
        source = run[0].node
        assert isinstance(source, Call)
        name = parts_attribute(rules.operators[source.op], dict(source.attrs))
        assert name is not None
        first, last = run[0].index, run[-1].index
        if len(run) == len(source.types):
            whole, new = source.args[0], {}
        else:
            sizes = _sizes(source, name)
            total = sum(sizes[first + 1 : last + 1], sizes[first])
            results = _taken_apart(rules, source, name, [*sizes[:first], total, *sizes[last + 1 :]])
            whole = results[first]
            kept = [value for value in source.values if value not in run]
            new = dict(zip(kept, [*results[:first], *results[first + 1 :]], strict=True))
        operands = [*node.args[:at], whole, *node.args[at + len(run) :]]
        joined = operands[0] if len(operands) == 1 else apply(rules, node.op, operands, dict(node.attrs))[0]
        yield {node, source}, {**new, node.values[0]: joined}
        at += len(run)


def _run(rules: Rules, node: Call, at: int, uses: Counter[Value]) -> Sequence[Value]:
    """The longest run of arguments that are consecutive results of one inverse, and of no other use."""
    source = node.args[at].node
    if not isinstance(source, Call) or proved_traits(rules, source.op).inverse != node.op or len(source.args) != 1:
        return ()
    attrs = dict(source.attrs)
    if parts_attribute(rules.operators[source.op], attrs) is None or any(attrs.get(k) != v for k, v in node.attrs):
        return ()
    run: list[Value] = []
    for arg in node.args[at:]:
        if arg.node is not source or uses[arg] != 1 or (run and arg.index != run[-1].index + 1):
            break
        run.append(arg)
    return run


def _sizes(node: Call, name: str) -> list[Any]:
    sizes: Any = dict(node.attrs)[name]
    return list(sizes)


def _without(node: Call, name: str) -> dict[str, Any]:
    return {key: value for key, value in node.attrs if key != name}


def _taken_apart(rules: Rules, like: Call, name: str, sizes: Sequence[Any]) -> Values:
    return apply(rules, like.op, list(like.args), {**dict(like.attrs), name: tuple(sizes)})


LEVELS = 4  #: times that what is made one is looked at again
WAYS = 8  #: ways to nest a call in another one that are looked at, for each node
MOST = 200  #: calls that are made one at a time


def level(egraph: EGraph, rule: CompiledRule, fresh: Iterable[Node], nodes: int, most: int = MOST) -> int:
    """Add one call beside calls inside each other where one of both is among some e-nodes; return how many classes became another's.

    Args:
        rule: what made these e-nodes: the facts are its.
        nodes: nothing is added once there are so many e-nodes.
        most: so many are made one.
    """
    merged = 0
    for _ in range(LEVELS):
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


def _facts(egraph: EGraph, rules: Rules, node: Node, rule: str) -> Iterator[PlacedFact]:
    """Yield the calls that are one where a node stands in another one, or another one in it."""
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


def _one(egraph: EGraph, rules: Rules, above: Node, below: Call, rule: str) -> Iterator[PlacedFact]:
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

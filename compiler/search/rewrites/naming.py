"""Names of a rewritten graph: they go with values through every rewrite, and new nodes are named after what they replaced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dslc.ir.graph import Constant, Graph, Node, Value
from dslc.onnx.context import Context
from dslc.onnx.naming import CalledNode, Naming, naming_of
from dslc.search.rewrites.candidate import Candidate
from dslc.search.rewrites.rewriting import Rewritten, rewritings, rewritten


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """The names of a candidate's graph, and where each rule was applied: what was replaced, by the names of the file."""

    naming: Naming
    places: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class NamesStory:
    """Names of candidates, each followed from the nearest one before it that is known."""

    context: Context
    _known: dict[Candidate, Told] = field(default_factory=dict)

    def of(self, candidate: Candidate) -> Told:
        path = [candidate]
        while path[-1] not in self._known and path[-1].parent is not None:
            path.append(path[-1].parent)
        first = path.pop()
        told = self._known.get(first)
        if told is None:
            told = self._known[first] = Told(naming_of(self.context))
        for step in reversed(path):
            assert step.parent is not None
            made = rewritings(step.graph, step.parent.graph)
            if made is None:
                told = _jumped(told, step.parent.graph, step.graph, step.rule)
                continue
            for one in reversed(list(made)):
                told = _followed(told, one, step.rule)
        self._known[candidate] = told
        return told


def _followed(told: Told, step: Rewritten, rule: str) -> Told:
    """The names after some replacements.

    `relu_1: relu(relu(x))` with `x → neg(y)` by `r` replaced below it: the relu is still `relu_1`, the neg is `x's node/r`.
    """
    before = [value for node in step.origin.nodes() for value in node.values]
    # the same replacements once more, for every value: hash-consed terms, so these are the nodes of the result
    after = rewritten(Graph(step.origin.inputs, tuple(before)), step.new).outputs
    images = dict(zip(before, after, strict=True))
    values = _weights(told.naming)
    nodes: dict[Node, CalledNode] = {}
    kept: set[Node] = set()
    replaced = [old for old in before if step.new.get(old, old) != old]
    own = set(replaced)
    for old in before:
        if old not in own:
            new = images[old]
            kept.add(new.node)
            if old in told.naming.values:
                values.setdefault(new, told.naming.values[old])
            if old.node in told.naming.nodes:
                nodes.setdefault(new.node, told.naming.nodes[old.node])
    for old in replaced:
        if old in told.naming.values:
            values.setdefault(images[old], told.naming.values[old])
        called = told.naming.nodes.get(old.node)
        if called is not None:
            _call(images[old], called, rule, kept, nodes)
    places = (told.naming.nodes[old.node].place for old in replaced if old.node in told.naming.nodes)
    return Told(Naming(values, nodes), (*told.places, *((rule, place) for place in dict.fromkeys(places))))


def _weights(naming: Naming) -> dict[Value, str]:
    """The names of weights: also of those that a graph has as attributes (sizes, axes), and that nodes are written with again."""
    return {value: name for value, name in naming.values.items() if isinstance(value.node, Constant)}


def _call(new: Value, called: CalledNode, rule: str, kept: set[Node], nodes: dict[Node, CalledNode]) -> None:
    """Names the nodes of a replacement that were not there before."""
    for node in _below(new, kept):
        nodes.setdefault(node, called.made_by(rule, node is new.node))


def _below(new: Value, kept: set[Node]) -> Iterator[Node]:
    stack, seen = [new.node], set[Node]()
    while stack:
        node = stack.pop()
        if node not in kept and node not in seen:
            seen.add(node)
            yield node
            stack.extend(arg.node for arg in node.args)


def _jumped(told: Told, before: Graph, after: Graph, rule: str) -> Told:
    """The names where nobody says what was replaced: of what is the same, and of the results."""
    nodes = set(after.nodes())
    values = _weights(told.naming) | {value: name for value, name in told.naming.values.items() if value.node in nodes}
    called = {node: one for node, one in told.naming.nodes.items() if node in nodes}
    kept = set(before.nodes())
    places: dict[str, None] = {}
    for old, new in zip(before.outputs, after.outputs, strict=True):
        if old in told.naming.values:
            values.setdefault(new, told.naming.values[old])
        if old != new and old.node in told.naming.nodes:
            places[told.naming.nodes[old.node].place] = None
            _call(new, told.naming.nodes[old.node], rule, kept, called)
    return Told(Naming(values, called), (*told.places, *((rule, place) for place in places)))

"""Names of a rewritten graph: they go with values through every rewrite, and new nodes are named after what they replaced."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from onnx import ModelProto

from dslc.codegen.generate import generate, variants
from dslc.codegen.host.compiler import NotBuilt, compiler
from dslc.codegen.host.processor import Processor
from dslc.codegen.limits import SECONDS as LIMITED_SECONDS
from dslc.codegen.limits import TooLong, within
from dslc.codegen.text import KernelText, NotGenerated
from dslc.errors import DslcError
from dslc.ir.graph import (
    Call,
    Constant,
    Graph,
    Kernel,
    Node,
    ScopeNode,
    Value,
    Values,
    kernel_value,
    nodes_of,
    rebuild,
    with_args,
)
from dslc.ir.holes import hole, program
from dslc.kernels import prepared
from dslc.onnx.context import Context
from dslc.onnx.exporter import exportable, function_of, unsaid
from dslc.onnx.importer import group_of
from dslc.onnx.naming import CalledNode, Naming, naming_of
from dslc.search.candidates.candidate import Candidate, Rewritten, built, rewritings, rewritten
from dslc.semantics.library import Rules, rules_cache


@dataclass(frozen=True, slots=True, eq=False)
class CandidateNames:
    """The names of a candidate's graph, and where each rule was applied: what was replaced, by the names of the file."""

    naming: Naming
    places: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class NameHistory:
    """Names of candidates, each followed from the nearest one before it that is known."""

    context: Context
    _known: dict[Candidate, CandidateNames] = field(default_factory=dict)

    def of(self, candidate: Candidate) -> CandidateNames:
        path = [candidate]
        while path[-1] not in self._known and path[-1].parent:
            path.append(path[-1].parent)
        first = path.pop()
        told = self._known.get(first)
        if not told:
            told = self._known[first] = CandidateNames(naming_of(self.context))
        for step in reversed(path):
            assert step.parent
            made = rewritings(step.graph, step.parent.graph)
            if made is None:
                told = _jumped(told, step.parent.graph, step.graph, step.rule)
                continue
            for one in reversed(list(made)):
                told = _followed(told, one, step.rule)
        self._known[candidate] = told
        return told


def _followed(told: CandidateNames, step: Rewritten, rule: str) -> CandidateNames:
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
        if called:
            _call(images[old], called, rule, kept, nodes)
    places = (told.naming.nodes[old.node].place for old in replaced if old.node in told.naming.nodes)
    return CandidateNames(Naming(values, nodes), (*told.places, *((rule, place) for place in dict.fromkeys(places))))


def _weights(naming: Naming) -> dict[Value, str]:
    """The names of weights: also of those that a graph has as attributes (sizes, axes), and that nodes are written with again."""
    return {value: name for value, name in naming.values.items() if isinstance(value.node, Constant)}


def _call(new: Value, called: CalledNode, rule: str, kept: set[Node], nodes: dict[Node, CalledNode]) -> None:
    """Names the nodes of a replacement that were not there before."""
    for node in built([new], kept):
        nodes.setdefault(node, called.made_by(rule, node is new.node))


def _jumped(told: CandidateNames, before: Graph, after: Graph, rule: str) -> CandidateNames:
    """Return the names where it is not known what was replaced: of equal nodes, and of the results."""
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
    return CandidateNames(Naming(values, called), (*told.places, *((rule, place) for place in places)))


def as_kernels(rules: Rules, outputs: Iterable[Value], opset: int) -> Values:
    """Make calls that ONNX has no nodes for kernels of their own: `distances(A, B)` → `kernel{h0, h1 -> distances(h0, h1)}(A, B)`."""
    outputs = tuple(outputs)
    return _with_kernels(outputs, {node for node in nodes_of(outputs) if _unsaid(rules, node, opset)})


def graph_as_kernels(rules: Rules, graph: Graph, context: Context) -> Graph:
    """Make such calls of a graph kernels; nodes of the file are said as the file says them."""
    found = unsaid_in(rules, graph, context)
    return Graph(graph.inputs, _with_kernels(graph.outputs, found)) if found else graph


def unsaid_in(rules: Rules, graph: Graph, context: Context) -> frozenset[Node]:
    """The calls of a graph that no ONNX nodes express as they stand in it."""
    return (
        unsaid(context, graph, rules)
        if any(_unsaid(rules, node, context.opset) for node in graph.nodes())
        else frozenset()
    )


def readable(rules: Rules, group: Graph, opset: int) -> bool:
    """Return whether the file says what a group computes in words that are read back: as nodes, or as an equation of its own."""
    try:
        function = function_of(rules, group, opset)
    except DslcError:
        return False
    return (
        group_of(rules, function.proto, [value.type for value in function.group.inputs], function.definition)
        is not None
    )


def derived(rules: Rules, graph: Graph, context: Context) -> bool:
    """Return whether some kernel of the graph is no group of nodes that ONNX has: its function spells an equation out."""
    return any(
        isinstance(node, Kernel)
        and any(isinstance(inner, ScopeNode) or _unsaid(rules, inner, context.opset) for inner in node.group.nodes())
        for node in graph_as_kernels(rules, graph, context).nodes()
    )


def _with_kernels(outputs: Values, calls: Collection[Node]) -> Values:
    def step(node: Node, args: Values) -> Values:
        if node not in calls:
            return with_args(node, args)
        holes = tuple(hole(k, arg.type) for k, arg in enumerate(args))
        inside = with_args(node, holes)
        return kernel_value(program(holes, inside), args)

    return rebuild(outputs, step) if calls else outputs


def _unsaid(rules: Rules, node: Node, opset: int) -> bool:
    """Return whether a node is a call that ONNX has no nodes for."""
    if not isinstance(node, Call) or node.constant:
        return False
    cache = rules_cache(rules, "said in ONNX")
    key = (node.head, tuple(arg.type for arg in node.args), opset)
    if key not in cache:
        cache[key] = exportable(node, rules, opset)
    return not cache[key]


def texts_of(
    rules: Rules,
    outputs: Iterable[Value],
    opset: int,
    known: Mapping[str, KernelText] = MappingProxyType({}),
    processor: Processor | None = None,
) -> dict[str, KernelText]:
    """Return the C++ of the kernels of a graph by the names of their operators, as far as it can be generated.

    `known` has some of it; of the others it is that of their likely best variants.
    """
    found: dict[str, KernelText] = dict(known)
    for node in nodes_of(outputs):
        if isinstance(node, Kernel):
            try:
                function = function_of(rules, node.group, opset)
                if function.name not in found:
                    found[function.name] = within(LIMITED_SECONDS, partial(_first, rules, function.group, processor))
            except (DslcError, NotGenerated, TooLong):
                continue
    return found


def _first(rules: Rules, group: Graph, processor: Processor | None) -> KernelText:
    return generate(rules, group, variants(rules, group, processor)[0])


def ready(model: ModelProto | bytes, texts: Mapping[str, KernelText]) -> None:
    """Build the library of a model, where there is one, for the processes that run the model; without, its functions run."""
    if texts:
        prepared(model, texts=texts)


def no_compiler() -> str:
    """Return why there are no kernels on this machine; nothing where a compiler is found."""
    try:
        compiler()
    except NotBuilt as problem:
        return f"no kernels: {problem}"
    return ""

"""Operators that ONNX has no node for, as kernels: what a user defined by an equation runs, and has a price like any other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from types import MappingProxyType

from onnx import ModelProto

from dslc.codegen.generate import generate, variants
from dslc.codegen.host.processor import Processor
from dslc.codegen.limits import SECONDS as LIMITED_SECONDS
from dslc.codegen.limits import TooLong, within
from dslc.codegen.text import KernelText, NotGenerated
from dslc.errors import DslcError
from dslc.ir.graph import Call, Graph, Kernel, Node, ScopeNode, Value, kernel_value, rebuild, topological, with_args
from dslc.ir.holes import hole, program
from dslc.kernels import prepared
from dslc.onnx.context import Context
from dslc.onnx.exporter import exportable, function_of, unsaid
from dslc.onnx.importer import group_of
from dslc.semantics.library import Rules, rules_cache


def as_kernels(rules: Rules, outputs: Iterable[Value], opset: int) -> tuple[Value, ...]:
    """Calls that ONNX has no nodes for become kernels of their own: `distances(A, B)` → `kernel{h0, h1 -> distances(h0, h1)}(A, B)`."""
    outputs = tuple(outputs)
    return _with_kernels(
        outputs, {node for node in topological(value.node for value in outputs) if _unsaid(rules, node, opset)}
    )


def graph_as_kernels(rules: Rules, graph: Graph, context: Context) -> Graph:
    """The graph with such calls as kernels; itself where there are none. Nodes of the file are said as the file says them."""
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
    """Whether the file says what a group computes in words that are read back: as nodes, or as an equation of its own."""
    try:
        function = function_of(rules, group, opset)
    except DslcError:
        return False
    return (
        group_of(rules, function.proto, [value.type for value in function.group.inputs], function.definition)
        is not None
    )


def derived(rules: Rules, graph: Graph, context: Context) -> bool:
    """Whether some kernel of the graph is no group of nodes that ONNX has: its function spells an equation out."""
    return any(
        isinstance(node, Kernel)
        and any(isinstance(inner, ScopeNode) or _unsaid(rules, inner, context.opset) for inner in node.group.nodes())
        for node in graph_as_kernels(rules, graph, context).nodes()
    )


def _with_kernels(outputs: tuple[Value, ...], calls: Collection[Node]) -> tuple[Value, ...]:
    def step(node: Node, args: tuple[Value, ...]) -> tuple[Value, ...]:
        if node not in calls:
            return with_args(node, args)
        holes = tuple(hole(k, arg.type) for k, arg in enumerate(args))
        inside = with_args(node, holes)
        return kernel_value(program(holes, inside), args)

    return rebuild(outputs, step) if calls else outputs


def _unsaid(rules: Rules, node: Node, opset: int) -> bool:
    return isinstance(node, Call) and not node.constant and not _said(rules, node, opset)


def _said(rules: Rules, node: Call, opset: int) -> bool:
    cache = rules_cache(rules, "said in ONNX")
    key = (node.head, tuple(arg.type for arg in node.args), opset)
    found = cache.get(key)
    if found is None:
        found = cache[key] = exportable(node, rules, opset)
    return bool(found)


def texts_of(
    rules: Rules,
    outputs: Iterable[Value],
    opset: int,
    known: Mapping[str, KernelText] = MappingProxyType({}),
    processor: Processor | None = None,
) -> dict[str, KernelText]:
    """The C++ of the kernels of a graph by the names of their operators, as far as it can be generated: `known`, and
    the likely best variants of the others."""
    found: dict[str, KernelText] = dict(known)
    for node in topological(value.node for value in outputs):
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
    """Builds the library of a model, where there is one, for the processes that run the model; without, its functions run."""
    if texts:
        prepared(model, texts=texts)

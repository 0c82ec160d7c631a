"""Operators that ONNX has no node for, as kernels: what a user defined by an equation runs, and has a price like any other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from onnx import ModelProto

from dslc.codegen.generate import generate, variants
from dslc.codegen.text import KernelText, NotGenerated
from dslc.errors import DslcError
from dslc.ir.graph import Call, Graph, Kernel, Node, Value, kernel_value, rebuild, topological, with_args
from dslc.ir.holes import hole, program
from dslc.kernels import prepared
from dslc.onnx.exporter import exportable
from dslc.onnx.functions import function_of
from dslc.semantics.apply import rules_cache
from dslc.semantics.library import Rules


def as_kernels(rules: Rules, outputs: Iterable[Value], opset: int) -> tuple[Value, ...]:
    """Calls that ONNX has no nodes for become kernels of their own: `distances(A, B)` → `kernel{h0, h1 -> distances(h0, h1)}(A, B)`."""

    def step(node: Node, args: tuple[Value, ...]) -> tuple[Value, ...]:
        if not isinstance(node, Call) or node.constant or _said(rules, node, opset):
            return with_args(node, args)
        holes = tuple(hole(k, arg.type) for k, arg in enumerate(args))
        inside = with_args(node, holes)
        return kernel_value(program(holes, inside), args)

    return rebuild(tuple(outputs), step)


def graph_as_kernels(rules: Rules, graph: Graph, opset: int) -> Graph:
    """The graph with such calls as kernels; itself where there are none."""
    outputs = as_kernels(rules, graph.outputs, opset)
    return graph if outputs == graph.outputs else Graph(graph.inputs, outputs)


def _said(rules: Rules, node: Call, opset: int) -> bool:
    cache = rules_cache(rules, "said in ONNX")
    key = (node.head, tuple(arg.type for arg in node.args), opset)
    found = cache.get(key)
    if found is None:
        found = cache[key] = exportable(node, rules, opset)
    return bool(found)


def texts_of(
    rules: Rules, outputs: Iterable[Value], opset: int, known: Mapping[str, KernelText] = MappingProxyType({})
) -> dict[str, KernelText]:
    """The C++ of the kernels of a graph by the names of their operators, as far as it can be generated: `known`, and
    the likely best variants of the others."""
    found: dict[str, KernelText] = dict(known)
    for node in topological(value.node for value in outputs):
        if isinstance(node, Kernel):
            try:
                function = function_of(rules, node.group, opset)
                if function.name not in found:
                    found[function.name] = generate(rules, function.group, variants(rules, function.group)[0])
            except (DslcError, NotGenerated):
                continue
    return found


def ready(model: ModelProto | bytes, texts: Mapping[str, KernelText]) -> None:
    """Builds the library of a model, where there is one, for the processes that run the model; without, its functions run."""
    if texts:
        prepared(model, texts=texts)


__all__ = ["as_kernels", "graph_as_kernels", "ready", "texts_of"]

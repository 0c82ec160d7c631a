"""Functions that a model brings with it: their nodes in place of their calls, so that rules and kernels see through them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import TypeAlias

from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped]
from onnx import AttributeProto, ModelProto, NodeProto, ValueInfoProto, helper
from onnx.checker import ValidationError
from onnx.inliner import inline_selected_functions

from dslc.errors import error
from dslc.onnx.metadata import DOMAIN
from dslc.onnx.protos import captured, domain_of, every_node, subgraphs

#: the domain and the name of a function
_Name: TypeAlias = tuple[str, str]


MOST_NODES = 1e6  #: nodes that a model may grow to
DEEPEST = 200  #: how deep its functions may call each other


def inlined_functions(model: ModelProto, where: str) -> ModelProto:
    """`y = own.Gelu(x)` → the nodes of the model's function `own.Gelu`; the model as it is where it has no function.

    Kernels that dslc wrote stay, and what ONNX does not inline: functions for other versions of operators than the model's.

    Raises:
        DslcError: E0808 for functions that call each other in a circle, or stand for more nodes than anyone can run.
    """
    theirs = [f for f in model.functions if f.domain != DOMAIN]
    own = {(f.domain, f.name): f for f in theirs}
    if not own or len(own) < len(theirs):
        return model  # two of one name are ambiguous
    inside = {name: (*f.node, NodeProto(attribute=f.attribute_proto)) for name, f in own.items()}
    if _size(model, inside) > MOST_NODES:
        hint = "functions that call others many times over, or themselves, cannot be inlined; ONNX Runtime does not load them either"
        raise error(
            "E0808",
            f"the calls of functions in {where} stand for more than {MOST_NODES:,.0f} nodes",
            path=where,
            hint=hint,
        )
    defaults = {name: f.attribute_proto for name, f in own.items() if f.attribute_proto}
    out = model
    try:
        for level in _levels(inside) if defaults else [list(own)]:
            out = inline_selected_functions(_with_defaults(out, defaults) if defaults else out, level)
    except (RuntimeError, ValueError, DecodeError, EncodeError, ValidationError):
        return model
    return out


def _levels(functions: dict[_Name, tuple[NodeProto, ...]]) -> Iterator[list[_Name]]:
    """The functions, each after all that call it: only then is it known which attributes its calls give."""
    left = functions
    while left:
        called = {(node.domain, node.op_type) for nodes in left.values() for node in every_node(nodes)}
        level = [name for name in left if name not in called] or list(left)
        yield level
        left = {name: nodes for name, nodes in left.items() if name not in level}


def _with_defaults(model: ModelProto, defaults: dict[_Name, Sequence[AttributeProto]]) -> ModelProto:
    """The model whose calls give every attribute that has a default: ONNX's inliner forgets these."""
    out = ModelProto()
    out.CopyFrom(model)
    for node in every_node(out.graph.node):
        given = {attribute.name for attribute in node.attribute}
        node.attribute.extend(one for one in defaults.get((node.domain, node.op_type), ()) if one.name not in given)
    return out


def _size(model: ModelProto, functions: dict[_Name, tuple[NodeProto, ...]]) -> float:
    """Nodes of the model with all calls of its functions inlined; infinity for functions that call each other in a circle."""
    known: dict[_Name, float] = {}

    def of(nodes: Iterable[NodeProto], path: tuple[_Name, ...]) -> float:
        total = 0.0
        for node in nodes:
            name = (node.domain, node.op_type)
            total += 1 + sum(of(graph.node, path) for graph in subgraphs(node))
            if name in path or len(path) > DEEPEST:
                return inf
            if name in functions:
                if name not in known:
                    known[name] = of(functions[name], (*path, name))
                total += known[name]
        return total

    return of(model.graph.node, ())


def apart(
    model: ModelProto, known: Collection[tuple[str, str]], types: Mapping[str, ValueInfoProto]
) -> tuple[ModelProto, list[str]]:
    """Cut a model down to what the runtime can run; also return the operators that were taken out.

    `known` are domains and names of operators that the runtime has, `types` what is known of values by their names. What a node gives
    of which nothing is known is not fed, and what is computed from it is left out. Nodes lose their names: runtimes refuse equal ones.
    """
    whole = inlined_functions(model, "the model")
    out = ModelProto()
    out.CopyFrom(whole)
    graph = out.graph
    del graph.node[:], graph.value_info[:], graph.output[:]
    left_out: dict[str, None] = {}
    lost: set[str] = set()
    given: set[str] = set()
    for node in whole.graph.node:
        reads = [name for name in (*node.input, *captured(node)) if name]
        if all((domain_of(one), one.op_type) in known for one in every_node([node])):
            if lost.intersection(reads):
                lost.update(node.output)
                continue
            graph.node.append(node)
            graph.node[-1].name = ""
            continue
        left_out.setdefault(node.op_type)
        results = [name for name in node.output if name]
        graph.input.extend(types[name] for name in results if name in types)
        given.update(results)
        lost.update(name for name in results if name not in types)
        for k, name in enumerate(reads):
            if name not in lost and name not in given:
                graph.node.append(helper.make_node("Identity", [name], [f"{''.join(results[:1])} reads {k}"]))
                graph.output.append(ValueInfoProto(name=graph.node[-1].output[0]))
    graph.output.extend(info for info in whole.graph.output if info.name not in lost | given)
    return out, list(left_out)

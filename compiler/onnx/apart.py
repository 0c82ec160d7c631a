"""A model without the nodes that a runtime does not know: what these give is fed, and what they read is given."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from onnx import ModelProto, NodeProto, ValueInfoProto, helper

from dslc.onnx.inlining import inlined_functions
from dslc.onnx.protos import captured, domain_of, every_node


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
                graph.node.append(_copy(name, f"{''.join(results[:1])} reads {k}"))
                graph.output.append(ValueInfoProto(name=graph.node[-1].output[0]))
    graph.output.extend(info for info in whole.graph.output if info.name not in lost | given)
    return out, list(left_out)


def _copy(name: str, to: str) -> NodeProto:
    return helper.make_node("Identity", [name], [to])

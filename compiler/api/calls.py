"""Calls as users write them, an operator of a file, or a node of a model; and their operators as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dslc.derivation.calls import CallProgram, call_of, read_call, region_of
from dslc.errors import error
from dslc.inspection.describe import plain
from dslc.ir.dtype import TensorType
from dslc.ir.graph import Call
from dslc.onnx.importer import import_model
from dslc.semantics.library import Rules


def file_of_call(call: str) -> list[str]:
    """The file of `FILE.rules::NAME`, as one more library; none of another call."""
    file = call.rpartition("::")[0]
    return [file] if file.endswith(".rules") else []


def plain_calls(calls: Iterable[Call]) -> tuple[Mapping[str, Any], ...]:
    """Operators with attributes and shapes, for JSON."""
    return tuple(
        {
            "operator": node.op,
            "attributes": {name: plain(value) for name, value in node.attrs},
            "shapes": [[size if isinstance(size, int) else str(size) for size in arg.type.shape] for arg in node.args],
        }
        for node in calls
    )


def called_as(
    rules: Rules, call: str, node: str | None, binds: Mapping[str, int], known: Mapping[str, TensorType] | None = None,
    several: bool = False,
) -> CallProgram:  # fmt: skip
    """A call as it is written, an operator of a file (`FILE.rules::NAME`), or a node of a model.

    `known`, `several`: as for `read_call`.
    """
    if file_of_call(call):
        return call_of(rules, call.rpartition("::")[2], binds)
    if node is None:
        return read_call(rules, call, known, several)
    imported = import_model(call, rules, binds)
    names = imported.context.names
    for value, origin in imported.context.origins.items():
        if node in {origin.proto.name, names.get(value)} and value in origin.outputs:
            return region_of(value, [each for each in origin.inputs if each is not None], names)
    for proto in imported.context.model.graph.node:
        if node and node in {proto.name, *proto.output}:
            why = f"no library has its {proto.op_type} as an operator, or it is folded away"
            hint = "`dslc show OPERATOR` prints the ONNX nodes that an operator stands for"
            raise error("E0911", f"the node `{node}` of {call} has no equation: {why}", hint=hint)
    raise error("E0909", f"{call} has no node that is named `{node}`", hint="the name of a node, or of its result")

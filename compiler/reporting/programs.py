"""Programs of operators as they are drawn."""

from __future__ import annotations

from collections.abc import Mapping

from dslc.ir.graph import Call, Input, Node, Opaque, ScopeNode, Value, nodes_of
from dslc.reporting.data import DrawnNode, Picture


def picture_of(value: Value) -> Picture:
    """The program of a value: calls of operators, and expressions of no operator as `generated`."""
    nodes = nodes_of([value])
    names = {
        one: str(getattr(node, "name", "")) or f"t{k}" + (f".{n}" if n else "")
        for k, node in enumerate(nodes) for n, one in enumerate(node.values)
    }  # fmt: skip
    inputs = tuple(names[one] for node in nodes if isinstance(node, Input) for one in node.values)
    drawn = tuple(drawn_node(node, names[node.values[0]], names) for node in nodes if not isinstance(node, Input))
    return Picture(inputs, (names[value],), drawn)


def drawn_node(node: Node, name: str, names: Mapping[Value, str]) -> DrawnNode:
    """A node over tensors with names."""
    return DrawnNode(
        name, node.op if isinstance(node, Call) else node.label if isinstance(node, Opaque) else "generated",
        tuple(names[arg] for arg in node.args), tuple(names[one] for one in node.values), attributes=_attributes(node),
        changed=isinstance(node, ScopeNode),
    )  # fmt: skip


def _attributes(node: Node) -> dict[str, str]:
    if isinstance(node, Call):
        return {name: str(value) for name, value in node.attrs}
    return {"expression": str(node.scope)} if isinstance(node, ScopeNode) else {}

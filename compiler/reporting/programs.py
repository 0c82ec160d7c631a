"""Programs of operators as they are drawn."""

from __future__ import annotations

from dslc.ir.graph import Call, Input, Node, ScopeNode, Value, nodes_of
from dslc.reporting.data import DrawnNode, Picture


def picture_of(value: Value) -> Picture:
    """The program of a value: calls of operators, and expressions of no operator as `generated`."""
    nodes = nodes_of([value])
    names = {
        one: str(getattr(node, "name", "")) or f"t{k}" + (f".{n}" if n else "")
        for k, node in enumerate(nodes) for n, one in enumerate(node.values)
    }  # fmt: skip
    inputs = tuple(names[one] for node in nodes if isinstance(node, Input) for one in node.values)
    drawn = tuple(
        DrawnNode(
            names[node.values[0]], node.op if isinstance(node, Call) else "generated", tuple(names[arg] for arg in node.args),
            tuple(names[one] for one in node.values), attributes=_attributes(node), changed=isinstance(node, ScopeNode),
        )
        for node in nodes if not isinstance(node, Input)
    )  # fmt: skip
    return Picture(inputs, (names[value],), drawn)


def _attributes(node: Node) -> dict[str, str]:
    if isinstance(node, Call):
        return {name: str(value) for name, value in node.attrs}
    return {"expression": str(node.scope)} if isinstance(node, ScopeNode) else {}

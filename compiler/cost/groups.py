"""Which nodes the runtime may run as one: an operator together with the pointwise operators that alone use its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dslc.ir.graph import Call, Constant, Graph, Input, Node, Opaque, Value

#: an operator and this many pointwise ones after it are measured together
LONGEST = 8
AFTER_OTHERS = 4


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring nodes, producers first; everything that others use of them comes out of the last."""

    nodes: tuple[Node, ...]


def working_nodes(outputs: Sequence[Value]) -> list[Node]:
    """The nodes that run: those below the outputs that depend on more than weights, arguments first."""
    out: list[Node] = []
    seen: set[Node] = set()
    for output in outputs:
        if output.node.constant or output.node in seen:
            continue
        stack = [output.node]
        while stack:
            node = stack[-1]
            if node in seen:
                stack.pop()
                continue
            below = [arg.node for arg in node.args if not arg.node.constant and arg.node not in seen]
            if below:
                stack.extend(reversed(below))
            else:
                seen.add(node)
                out.append(node)
                stack.pop()
    return out


def groups_of(graph: Graph, pointwise: Callable[[Call], bool]) -> list[Group]:
    """Divides the nodes that run into groups.

    A pointwise operator joins the group of one of its arguments (the one computed last) where nothing else uses that argument.
    """
    nodes = working_nodes(graph.outputs)
    uses: dict[Value, int] = {}
    for node in nodes:
        for arg in node.args:
            uses[arg] = uses.get(arg, 0) + 1
    for value in graph.outputs:
        uses[value] = uses.get(value, 0) + 1
    position = {node: k for k, node in enumerate(nodes)}
    # the groups by their last node
    open_groups: dict[Node, list[Node]] = {}
    order: list[list[Node]] = []
    for node in nodes:
        if isinstance(node, Input | Constant | Opaque):
            continue
        joined = None
        if isinstance(node, Call) and pointwise(node):
            found = [arg for arg in node.args if arg.node in open_groups and uses[arg] == node.args.count(arg)]
            found = [arg for arg in found if len(arg.node.types) == 1 and _room(open_groups[arg.node], pointwise)]
            if found:
                joined = max(found, key=lambda arg: position[arg.node]).node
        if joined is None:
            own = [node]
            order.append(own)
        else:
            own = open_groups.pop(joined)
            own.append(node)
        open_groups[node] = own
    return [Group(tuple(group)) for group in order]


def _room(group: list[Node], pointwise: Callable[[Call], bool]) -> bool:
    first = group[0]
    return len(group) < (LONGEST if isinstance(first, Call) and pointwise(first) else AFTER_OTHERS)

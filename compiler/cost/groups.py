"""Groups of nodes that are measured together: what a lowering runs as one, and the pointwise operators that alone use a result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dslc.cost.lowered import Arguments, Lowered
from dslc.ir.graph import Call, Constant, Input, Node, Opaque, Value

#: nodes of an operator and the pointwise ones after it that are measured together, where the operator is pointwise
#: itself
AFTER_ONE = 8
AFTER_OTHERS = 4  #: the same after any other operator


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring nodes, producers first, with their arguments; what others use of them comes out of the last.

    The first `fused` of them run as one.
    """

    nodes: tuple[Node, ...]
    args: tuple[tuple[Value, ...], ...]
    fused: int = 1


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


def groups_of(
    nodes: Iterable[Node],
    args_of: Arguments,
    uses: Callable[[Value], int],
    pointwise: Callable[[Node], bool],
    lowered: Sequence[Lowered] = (),
) -> list[Group]:
    """Divides nodes, producers first, into groups.

    What is lowered together is one group. A pointwise operator joins the group of the first of its arguments that nothing else uses.
    """
    piece_of = {node: piece.nodes for piece in lowered for node in piece.nodes}
    # groups by their last node
    open_groups: dict[Node, list[Node]] = {}
    order: list[list[Node]] = []
    for node in nodes:
        if isinstance(node, Input | Constant | Opaque):
            continue
        joined = None
        args = args_of(node)
        if node in piece_of:
            if node is piece_of[node][-1]:
                own = list(piece_of[node])
                order.append(own)
                open_groups[node] = own
            continue
        if any(arg.node in open_groups for arg in args) and isinstance(node, Call) and pointwise(node):
            for arg in args:
                group = open_groups.get(arg.node)
                if group is not None and len(arg.node.types) == 1 and uses(arg) == args.count(arg):
                    first = group[0]
                    more = len(group) - len(piece_of.get(first, (first,)))
                    if more + 1 < (AFTER_ONE if isinstance(first, Call) and pointwise(first) else AFTER_OTHERS):
                        joined = arg.node
                        break
        if joined is None:
            own = [node]
            order.append(own)
        else:
            own = open_groups.pop(joined)
            own.append(node)
        open_groups[node] = own
    return [
        Group(tuple(group), tuple(args_of(node) for node in group), len(piece_of.get(group[0], group[:1])))
        for group in order
    ]

"""Groups of nodes that are measured together: what a lowering runs as one, and the pointwise operators that alone use a result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from dslc.cost.fused_groups import Arguments, Lowered
from dslc.ir.graph import Call, Constant, Input, Node, Opaque, Value, Values, nodes_of
from dslc.records import record

#: nodes of an operator and the pointwise ones after it that are measured together, where the operator is pointwise
#: itself
AFTER_ONE = 8
AFTER_OTHERS = 4  #: the same after any other operator


#: a group's name
Key = tuple[int, ...]


@record
class Group:
    """Neighbouring nodes, producers first, with their arguments; what others use of them comes out of the last.

    The first `fused` of them run as one.
    """

    nodes: tuple[Node, ...]
    args: tuple[Values, ...]
    fused: int = 1


def working_nodes(outputs: Sequence[Value]) -> list[Node]:
    """The nodes that run: those below the outputs that depend on more than weights, arguments first."""
    return [node for node in nodes_of(outputs) if not node.constant]


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
        args = args_of(node)
        if node in piece_of:
            if node is piece_of[node][-1]:
                open_groups[node] = list(piece_of[node])
                order.append(open_groups[node])
            continue
        if any(arg.node in open_groups for arg in args) and isinstance(node, Call) and pointwise(node):
            for arg in args:
                group = open_groups.get(arg.node)
                if group is not None and len(arg.node.types) == 1 and uses(arg) == args.count(arg):
                    first = group[0]
                    more = len(group) - len(piece_of.get(first, (first,)))
                    if more + 1 < (AFTER_ONE if isinstance(first, Call) and pointwise(first) else AFTER_OTHERS):
                        group.append(node)
                        open_groups[node] = open_groups.pop(arg.node)
                        break
        if node not in open_groups:
            open_groups[node] = [node]
            order.append(open_groups[node])
    return [
        Group(tuple(group), tuple(args_of(node) for node in group), len(piece_of.get(group[0], group[:1])))
        for group in order
    ]


MEMORY = 1e10  #: bytes a second
ARITHMETIC = 5e10  #: operations a second
LAUNCH = 2e-6  #: seconds of a node


@dataclass
class GuessedWork:
    """Seconds by operations and bytes at the speed of an everyday processor.

    Args:
        flops: operations of an application, None where they are not known; asked once for each number.
        number: equal for applications that do the same.
        bytes_of: the size of a tensor.
    """

    flops: Callable[[Call], float | None]
    number: Callable[[Call], int]
    bytes_of: Callable[[Value], int]
    _known: dict[int, float] = field(default_factory=dict)

    def of(self, group: Group) -> float:
        total = self._passed(group)
        for place, (node, args) in enumerate(zip(group.nodes, group.args, strict=True)):
            if place >= group.fused:
                total += LAUNCH + sum(map(self.bytes_of, (*args, *node.values))) / MEMORY
            if isinstance(node, Call):
                local = self.number(node)
                if local not in self._known:
                    self._known[local] = self.flops(node) or 0.0
                total += self._known[local] / ARITHMETIC
        return total

    def _passed(self, group: Group) -> float:
        """Count a fused group as one launch, which reads and writes only the tensors that it shares with others."""
        nodes = group.nodes[: group.fused]
        inside = {value for node in nodes for value in node.values}
        read = [arg for args in group.args[: group.fused] for arg in args if arg not in inside]
        return LAUNCH + sum(map(self.bytes_of, (*read, *nodes[-1].values))) / MEMORY

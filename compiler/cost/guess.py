"""About what a group takes, before anything was measured: where to look first, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

from dslc.cost.groups import Group
from dslc.ir.graph import Call, Value

MEMORY = 1e10  #: bytes a second
ARITHMETIC = 5e10  #: operations a second
LAUNCH = 2e-6  #: seconds of a node


class GuessedWork:
    """Seconds by operations and bytes at the speed of an everyday processor.

    Args:
        flops: operations of an application, None where they are not known; asked once for each number.
        number: equal for applications that do the same.
        bytes_of: the size of a tensor.
    """

    def __init__(
        self, flops: Callable[[Call], float | None], number: Callable[[Call], int], bytes_of: Callable[[Value], int]
    ) -> None:
        self._flops, self._number, self._bytes_of = flops, number, bytes_of
        self._known: dict[int, float] = {}

    def of(self, group: Group) -> float:
        total = self._passed(group)
        for place, (node, args) in enumerate(zip(group.nodes, group.args, strict=True)):
            if place >= group.fused:
                total += LAUNCH + sum(map(self._bytes_of, (*args, *node.values))) / MEMORY
            if isinstance(node, Call):
                local = self._number(node)
                if local not in self._known:
                    self._known[local] = self._flops(node) or 0.0
                total += self._known[local] / ARITHMETIC
        return total

    def _passed(self, group: Group) -> float:
        """Count a fused group as one launch, which reads and writes only the tensors that it shares with others."""
        nodes = group.nodes[: group.fused]
        inside = {value for node in nodes for value in node.values}
        read = [arg for args in group.args[: group.fused] for arg in args if arg not in inside]
        return LAUNCH + sum(map(self._bytes_of, (*read, *nodes[-1].values))) / MEMORY

"""Weights that a graph reads beside the original's: beyond what the farthest cache holds, all of them come from memory in every run.

Groups are measured with weights that are as near as the original's. A rewrite that joins the same weights in other ways at every place
reads each of these joined ones once, where the original reads the same few again and again. And the runtime packs a weight anew for
each kind of kernel that reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dslc.cost.groups import Group
from dslc.cost.machine import farthest_cache
from dslc.ir.graph import Call, Node, Value

if TYPE_CHECKING:
    from dslc.cost.start import Start


ROOM = 0.75  #: share of the farthest cache that weights have room in beside all else
MEMORY = 2e10  #: bytes that one thread reads from memory in a second
LARGE = 1 << 15  #: bytes; smaller weights do not matter

#: seconds for each byte where a graph begins to read more than the cache holds: it drives another one out, which was there before
DRIVEN = 2 / MEMORY
#: a weight, and the operator that reads it with how many nodes run as one there
Packed = tuple[Value, tuple[str, int]]


def room() -> float:
    """Bytes of weights that stay in the farthest cache from one run to the next."""
    return ROOM * farthest_cache()


def spilled(bytes: float) -> float:
    """Seconds of a run for reading so many bytes of weights from memory, which the farthest cache does not hold."""
    return min(bytes / MEMORY, max(0.0, (bytes - room()) * DRIVEN))


def kind_of(node: Node) -> str:
    """Equal for nodes that read weights in the same way."""
    return node.op if isinstance(node, Call) else type(node).__name__


def packed(groups: Iterable[Group]) -> Counter[Packed]:
    """The weights that groups read, with what reads them, and how often."""
    out: Counter[Packed] = Counter()
    for group in groups:
        reader = (kind_of(group.nodes[0]), group.fused)
        for args in group.args:
            for arg in args:
                if arg.constant and arg.known and arg.type.is_static and arg.type.bytes >= LARGE:
                    out[arg, reader] += 1
    return out


def bytes_of(weights: Iterable[Packed]) -> int:
    """Bytes of all of them."""
    return sum(value.type.bytes for value, _ in weights)


@dataclass(frozen=True, slots=True)
class Caches:
    """Capacity of the last-level cache: `read` bytes of weights of the original, `start`; None where nothing is measured."""

    read: int = 0
    start: Start | None = None

    @property
    def near(self) -> bool:
        """True where the original's weights are measured, and held, by the caches of a processor."""
        return self.start is not None and self.read < room()

    def spill(self, bytes: int) -> float:
        """Extra seconds of a graph for so many bytes of weights, beyond the original's and the caches."""
        if not self.near or self.start is None:
            return 0.0
        return max(0.0, spilled(self.read + bytes - self.start.evaluation.weights) - spilled(self.read))

    def crowded(self, bytes: int) -> bool:
        """Return whether weights of so many bytes are more than caches hold, which hold those of the original."""
        return self.near and bytes > room()

    def weight(self, value: Value, node: Node, bytes: int) -> float:
        """Seconds that it may add at most that nodes like one read a weight of so many bytes.

        Where caches are full. Nothing where such nodes of the original read it.
        """
        if bytes < LARGE or not self.near or self.start is None:
            return 0.0
        return 0.0 if (value, kind_of(node)) in self.start.evaluation.readers else bytes * DRIVEN

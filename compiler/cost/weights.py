"""Weights that a graph reads beside the original's: beyond what the farthest cache holds, all of them come from memory in every run.

Groups are measured with weights that are as near as the original's. A rewrite that joins the same weights in other ways at every place
reads each of these joined ones once, where the original reads the same few again and again. And the runtime packs a weight anew for
each kind of kernel that reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from dslc.cost.groups import Group
from dslc.cost.machine import farthest_cache
from dslc.ir.graph import Call, Node, Value


@dataclass(frozen=True, slots=True)
class WeightsTuning:
    """Numbers that decide what weights cost that a graph reads beside the original's.

    Attributes:
        room: share of the farthest cache that weights have room in beside all else.
        memory: bytes that one thread reads from memory in a second.
        large: bytes; smaller weights do not matter.
    """

    room: float = 0.75
    memory: float = 2e10
    large: int = 1 << 15


TUNING = WeightsTuning()

#: seconds for each byte where a graph begins to read more than the cache holds: it drives another one out, which was there before
DRIVEN = 2 / TUNING.memory
#: a weight, and the operator that reads it with how many nodes run as one there
Packed = tuple[Value, tuple[str, int]]


def room() -> float:
    """Bytes of weights that stay in the farthest cache from one run to the next."""
    return TUNING.room * farthest_cache()


def spilled(bytes: float) -> float:
    """Seconds of a run for reading so many bytes of weights from memory, which the farthest cache does not hold."""
    return min(bytes / TUNING.memory, max(0.0, (bytes - room()) * DRIVEN))


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
                if arg.constant and arg.known and arg.type.is_static and arg.type.bytes >= TUNING.large:
                    out[arg, reader] += 1
    return out


def bytes_of(weights: Iterable[Packed]) -> int:
    """How large all of them are."""
    return sum(value.type.bytes for value, _ in weights)


__all__ = ["DRIVEN", "TUNING", "Packed", "WeightsTuning", "bytes_of", "kind_of", "packed", "room", "spilled"]

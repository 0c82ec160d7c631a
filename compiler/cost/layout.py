"""Changes of layout between groups: measured alone, a group enters and leaves the runtime's blocked layout; in a chain it need not.

TASO searches layouts jointly with substitutions. Here the runtime chooses them, and the cost model follows it: a value that
leaves one group in blocks and is wanted in blocks by the next costs nothing on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dslc.cost.groups import Group
from dslc.ir.graph import Value

#: chains of groups that keep a layout are followed this far
_DEEPEST = 150


@dataclass(frozen=True, slots=True)
class Info:
    """What one group costs: `body` without changes of layout, `enter` for each input that it wants in blocks, `leave` if it gives
    blocks; `carries`: it works in whatever layout its inputs have."""

    body: float
    enter: float = 0.0
    leave: float = 0.0
    carries: bool = False


@dataclass(frozen=True, slots=True)
class Port:
    """A group's values from outside and its results."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


def port_of(group: Group) -> Port:
    """Weights aside."""
    inside = set(group.nodes)
    found = dict.fromkeys(a for args in group.args for a in args if not a.constant and a.node not in inside)
    return Port(tuple(found), group.nodes[-1].values)


def layout_cost(
    groups: Sequence[tuple[Info, Port]], outputs: Sequence[Value], resolve: Callable[[Value], Value] = lambda v: v
) -> float:
    """Seconds for all changes of layout in a graph. `resolve` gives the value that stands for another one now."""
    producer = {value: k for k, (_, port) in enumerate(groups) for value in port.outputs}
    blocked: dict[int, float] = {}

    def leaving(value: Value, depth: int) -> float:
        """Seconds for bringing a value out of the blocked layout; 0 where it is not in blocks."""
        k = producer.get(value)
        if k is None:
            return 0.0
        known = blocked.get(k)
        if known is not None:
            return known
        info, port = groups[k]
        if not info.carries:
            blocked[k] = info.leave
            return info.leave
        blocked[k] = 0.0
        if depth < _DEEPEST and port.inputs:
            costs = [leaving(resolve(one), depth + 1) for one in port.inputs]
            if min(costs) > 0:
                blocked[k] = max(costs)
        return blocked[k]

    total = 0.0
    left: set[Value] = set()
    entered: set[Value] = set()

    def leave(value: Value) -> None:
        nonlocal total
        seconds = leaving(value, 0)
        if seconds > 0 and value not in left:
            left.add(value)
            total += seconds

    for info, port in groups:
        inputs = [resolve(value) for value in port.inputs]
        if info.enter > 0:
            for value in inputs:
                if leaving(value, 0) == 0 and value not in entered:
                    entered.add(value)
                    total += info.enter
        elif not info.carries or not all(leaving(value, 0) > 0 for value in inputs):
            for value in inputs:
                leave(value)
    for value in outputs:
        leave(resolve(value))
    return total

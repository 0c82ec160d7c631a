"""Changes of layout between groups: measured alone, a group enters and leaves the runtime's blocked layout; in a chain it need not.

TASO searches layouts jointly with substitutions. Here the runtime chooses them, and the cost model follows it: a value that
leaves one group in blocks and is wanted in blocks by the next costs nothing on the way. What a change of layout costs is measured
by itself, for each type of tensor: differences between graphs are then differences between numbers that were taken in one way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from dslc.cost.groups import Group
from dslc.cost.measure import LEAST as MEASURE_LEAST
from dslc.ir.graph import Value, Values
from dslc.records import record

DEEPEST = 150  #: groups of a chain that keep a layout, as far as they are followed


@record
class Info:
    """Cost of one group, with its changes of layout set apart.

    `body`: without changes of layout. `enters`: for each of its inputs (0: not wanted in blocks; none at all: no input is).
    `leave`: for its result where that is in blocks (0: it is not).

    Where all inputs that it does not want in blocks come in blocks nevertheless, the runtime may go on in blocks: it then takes
    `blocked` (None: it never does), and its result leaves for `blocked_leave`.
    """

    body: float
    enters: tuple[float, ...] = ()
    leave: float = 0.0
    blocked: float | None = None
    blocked_leave: float = 0.0

    @property
    def alone(self) -> float:
        """With its own changes of layout."""
        return self.body + sum(self.enters) + self.leave

    def at_most(self, seconds: float) -> Info:
        """The same, of so many seconds alone at most; what cannot be run stays so."""
        if self.body == inf or self.alone <= seconds:
            return self
        return replace(self, body=max(MEASURE_LEAST, self.body - (self.alone - seconds)))


@record
class Port:
    """A group's values from outside and its results."""

    inputs: Values
    outputs: Values


def port_of(group: Group) -> Port:
    """Weights aside."""
    inside = set(group.nodes)
    found = dict.fromkeys(a for args in group.args for a in args if not a.constant and a.node not in inside)
    return Port(tuple(found), group.nodes[-1].values)


@record
class Reorder:
    """A value that is brought into blocks, or out of them, and what that takes in seconds."""

    value: Value
    into: bool
    seconds: float


def layout_cost(
    groups: Sequence[tuple[Info, Port]], outputs: Sequence[Value], resolve: Callable[[Value], Value] = lambda v: v
) -> float:
    """Seconds for all changes of layout in a graph, and what its groups take more or less on blocks than their `body`.

    `resolve` gives the value that stands for another one now.
    """
    changes, more = reorders(groups, outputs, resolve)
    return sum(change.seconds for change in changes) + sum(more)


def reorders(
    groups: Sequence[tuple[Info, Port]], outputs: Sequence[Value], resolve: Callable[[Value], Value] = lambda v: v
) -> tuple[list[Reorder], list[float]]:
    """The changes of layout in a graph, and what each of its groups takes more or less on blocks than its `body`.

    See `layout_cost`.
    """
    producer = {value: k for k, (_, port) in enumerate(groups) for value in port.outputs}
    # whether a group goes on in blocks because its inputs come in blocks
    joined: dict[int, bool] = {}

    def leaving(value: Value, depth: int) -> float:
        """Seconds for bringing a value out of the blocked layout; 0 where it is not in blocks."""
        k = producer.get(value)
        if k is None:
            return 0.0
        info = groups[k][0]
        return info.blocked_leave if joins(k, depth) else info.leave

    def joins(k: int, depth: int) -> bool:
        info, port = groups[k]
        if info.blocked is None or depth >= DEEPEST:
            return False
        known = joined.get(k)
        if known is None:
            others = [value for value, wanted in zip(port.inputs, _wanted(info, port), strict=True) if not wanted]
            joined[k] = False
            known = joined[k] = bool(others) and all(leaving(resolve(one), depth + 1) > 0 for one in others)
        return known

    found: list[Reorder] = []
    more = [0.0] * len(groups)
    left: set[Value] = set()
    entered: set[Value] = set()

    def leave(value: Value) -> None:
        seconds = leaving(value, 0)
        if seconds > 0 and value not in left:
            left.add(value)
            found.append(Reorder(value, False, seconds))

    for k, (info, port) in enumerate(groups):
        on = joins(k, 0)
        if on and info.blocked is not None:
            more[k] = info.blocked - info.body
        for one, wanted in zip(port.inputs, _wanted(info, port), strict=True):
            value = resolve(one)
            if wanted > 0:
                if value not in entered and leaving(value, 0) == 0:
                    entered.add(value)
                    found.append(Reorder(value, True, wanted))
            elif not on:
                leave(value)
    for value in outputs:
        leave(resolve(value))
    return found, more


def _wanted(info: Info, port: Port) -> tuple[float, ...]:
    # a rewrite that is only tried may lead a group's result back into it: it then has fewer inputs than what was measured
    return info.enters if len(info.enters) == len(port.inputs) else (0.0,) * len(port.inputs)

"""Groups that follow each other: what they take together is not always what each of them takes alone.

Alone, a group finds its inputs where its own threads left them in the caches, run after run; in a graph another operator wrote
them, divided among the threads in its own way, and the runtime may compute both as one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from dslc.cost.groups import Group
from dslc.cost.layout import Info, layout_cost, port_of
from dslc.ir.graph import Value

PAIRS = 32  #: pairs that are measured, at most: those that decide most


@dataclass(frozen=True, slots=True)
class GroupPair:
    """A group and one that works on its result; `shared`: others want that result too."""

    first: Group
    then: Group
    shared: bool

    @property
    def group(self) -> Group:
        """Both as one."""
        return Group((*self.first.nodes, *self.then.nodes), (*self.first.args, *self.then.args), self.first.fused)

    def sum(self, first: Info, then: Info) -> float:
        """Seconds for both after each other, by what each costs."""
        results = [*self.then.nodes[-1].values, *(self.first.nodes[-1].values if self.shared else ())]
        parts = [(first, port_of(self.first)), (then, port_of(self.then))]
        return first.body + then.body + layout_cost(parts, results)


def pairs_of(groups: Sequence[Group], uses: Callable[[Value], int]) -> list[GroupPair]:
    """Every group with each one that it gets an argument from."""
    producer = {value: group for group in groups for value in group.nodes[-1].values}
    found = []
    for then in groups:
        given = [arg for args in then.args for arg in args]
        for first in {id(producer[arg]): producer[arg] for arg in given if arg in producer}.values():
            if first is not then:
                shared = any(uses(value) > given.count(value) for value in first.nodes[-1].values)
                found.append(GroupPair(first, then, shared))
    return found


def deciding(counts: Sequence[Mapping[Hashable, int]], weight: Callable[[Hashable], float]) -> list[Hashable]:
    """The pairs that some graphs have more often than others, those first that weigh most."""
    more: dict[Hashable, int] = {}
    for key in dict.fromkeys(key for one in counts for key in one):
        of = [one.get(key, 0) for one in counts]
        if max(of) > min(of):
            more[key] = max(of) - min(of)
    return sorted(more, key=lambda key: -more[key] * weight(key))[:PAIRS]

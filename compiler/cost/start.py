"""The original graph as a whole, and how its groups by themselves compare with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from dslc.cost.groups import Group
from dslc.cost.layout import Info
from dslc.cost.measure import LEAST as MEASURE_LEAST

if TYPE_CHECKING:
    from dslc.cost.evaluation import Evaluation

Key = tuple[int, ...]


MOST_ALONE = 0.5  #: share of the original that a run without nodes takes, at most


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """The original graph, what it takes as a whole in seconds, and its groups: how many of each, and one of them."""

    seconds: float
    evaluation: Evaluation
    keys: Mapping[Key, int]
    groups: Mapping[Key, Group]
    #: the sum over known groups, by how many groups were known
    _parts: dict[int, float] = field(default_factory=dict)

    def part(self, known: Mapping[Key, Info], excused: Collection[Key]) -> float:
        """Seconds of the groups that are known, each by itself."""
        found = self._parts.get(len(known))
        if found is None:
            bodies = (
                (known[key].body, count) for key, count in self.keys.items() if key in known and key not in excused
            )
            found = sum(count * body for body, count in bodies if body < inf)
            self.forget()
            self._parts[len(known)] = found
        return found

    def forget(self) -> None:
        """Groups were measured again."""
        self._parts.clear()

    def share(self, part: float, alone: Callable[[], float]) -> float:
        """Ratio of the whole's time to the sum of its groups' times.

        Not all of it where the known groups, `part` in sum, take longer than the whole without a run without nodes (`alone`).

        A group by itself does not find in the caches what another one left there, and two spells of a machine are not alike.
        """
        if part <= (1 - MOST_ALONE) * self.seconds:
            return 1.0
        inside = self.seconds - min(alone(), MOST_ALONE * self.seconds)
        return min(1.0, inside / max(part, MEASURE_LEAST))

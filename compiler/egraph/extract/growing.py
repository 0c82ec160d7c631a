"""The best program of an e-graph that grows: what did not change is not looked at again."""

from __future__ import annotations

from dslc.egraph.extract.joint import joint_of, switched
from dslc.egraph.extract.shared import Shared, shared_of
from dslc.egraph.extract.table import Choice, EGraphTable, Extraction, Price, Problem, walk
from dslc.egraph.graph import EGraph

#: joint switches tried after one change
_SWITCHES = 60


class Growing:
    """The program of an e-graph's roots by shared costs, and by joint switches where `joint`. One for each e-graph."""

    __slots__ = ("_joint", "_over", "_shared", "_table")

    def __init__(self, egraph: EGraph, price: Price, joint: bool = True) -> None:
        self._table = EGraphTable(egraph, price)
        self._shared = Shared(self._table)
        self._over: dict[int, Choice] = {}
        self._joint = joint
        self._shared.update(list(egraph.members) + list(egraph.units))
        egraph.changes()

    def clone(self, egraph: EGraph) -> Growing:
        """The same for a clone of the e-graph."""
        new = Growing.__new__(Growing)
        new._table = self._table.over(egraph)
        new._shared = self._shared.clone(new._table)
        new._over = self._over.copy()
        new._joint = self._joint
        return new

    def best(self) -> Extraction | None:
        """The program now. What the e-graph's changes concern is looked at; None where a root cannot be had."""
        table = self._table
        egraph, shared = table.egraph, self._shared
        changed = egraph.changes()
        shared.update(changed)
        roots = [egraph.find(root) for root in egraph.roots]
        over = self._alive()
        program = walk(shared.best, roots, table.find)
        if over:
            other = walk(lambda n: over.get(n) or shared.best(n), roots, table.find, program.cost if program else float("inf"))
            program, over = (other, over) if other is not None else (program, {})
        if program is None:
            return self._anew(roots)
        if self._joint:
            program, over = switched(
                table, roots, shared.best, program, dict.fromkeys(map(egraph.find, changed)), most=_SWITCHES
            )
        self._over = over
        return Extraction(program.cost, program.choice, sum(map(shared.cost, roots)))

    def _alive(self) -> dict[int, Choice]:
        """The switches made before, in terms of what there is now."""
        table, out = self._table, dict[int, Choice]()
        for number, choice in self._over.items():
            at = table.find(number)
            kids = tuple([table.find(kid) for kid in choice.kids])
            found = next((one for one in table.choices(at) if one == choice or (one.kids == kids and one.cost == choice.cost)), None)
            if found is not None:
                out[at] = found
        return out

    def _anew(self, roots: list[int]) -> Extraction | None:
        """By everything: choices that were made at different times may read each other in a circle."""
        problem = Problem(self._table, roots)
        found = (joint_of if self._joint else shared_of)(problem)
        if found is None:
            return None
        found = problem.named(found)
        self._over = dict(found.choice)
        return found


__all__ = ["Growing"]

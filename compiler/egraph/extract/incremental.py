"""The best program of an e-graph that grows: what did not change is not looked at again."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace
from math import inf

from dslc.deadline import Deadline
from dslc.egraph.extract.dag_cost import DagCosts, shared_of
from dslc.egraph.extract.local_search import joint_of, switched
from dslc.egraph.extract.program import extract
from dslc.egraph.extract.table import Choice, EGraphTable, Extraction, ExtractionProblem, Price, walk
from dslc.egraph.graph import EGraph
from dslc.records import record

SWITCHES = 60  #: joint switches tried after one change
FIRST = 500  #: joint switches tried at first


class IncrementalExtraction:
    """The program of an e-graph's roots by shared costs, and by joint switches where `joint`. One for each e-graph."""

    __slots__ = ("_begun", "_joint", "_over", "_shared", "_table")

    def __init__(self, egraph: EGraph, price: Price, joint: bool = True) -> None:
        self._table = EGraphTable(egraph, price)
        self._shared = DagCosts(self._table)
        self._over: dict[int, Choice] = {}
        self._joint = joint
        self._begun = False
        self._shared.update(list(egraph.members) + list(egraph.units))
        egraph.changes()

    def clone(self, egraph: EGraph) -> IncrementalExtraction:
        """The same for a clone of the e-graph."""
        new = IncrementalExtraction.__new__(IncrementalExtraction)
        new._table = self._table.over(egraph)
        new._shared = self._shared.clone(new._table)
        new._over = self._over.copy()
        new._joint, new._begun = self._joint, self._begun
        return new

    def best(self) -> Extraction | None:
        """The program now. What the e-graph's changes concern is looked at; None where a root cannot be had."""
        table = self._table
        egraph, shared = table.egraph, self._shared
        changed = egraph.changes()
        shared.update(changed)
        roots = [egraph.find(root) for root in egraph.roots]
        over = self._alive({*changed, *map(egraph.find, changed)})
        program = walk(shared.best, roots, table.find)
        if over:
            most = program.cost if program else inf
            other = walk(lambda number: over.get(number) or shared.best(number), roots, table.find, most)
            program, over = (other, over) if other is not None else (program, {})
        if program is None:
            return self._anew(roots)
        if self._joint:
            # what changed, and at first everything
            near: Iterable[int] = map(egraph.find, changed) if self._begun else (*egraph.members, *egraph.units)
            tried = SWITCHES if self._begun else FIRST
            program, over = switched(table, roots, shared.best, program, dict.fromkeys(near), most=tried)
            self._begun = True
        self._over = over
        return Extraction(program.cost, program.choice, sum(map(shared.cost, roots)))

    def _alive(self, touched: Container[int]) -> dict[int, Choice]:
        """The switches made before, in terms of what there is now.

        Args:
            touched: the classes whose e-nodes changed; a choice of another one is what it was.
        """
        table, out = self._table, dict[int, Choice]()
        for number, choice in self._over.items():
            if number not in touched:
                out[number] = choice
                continue
            at = table.find(number)
            kids = tuple([table.find(kid) for kid in choice.kids])
            found = next(
                (one for one in table.choices(at) if one == choice or (one.kids == kids and one.cost == choice.cost)),
                None,
            )
            if found is not None:
                out[at] = found
        return out

    def _anew(self, roots: list[int]) -> Extraction | None:
        """By everything: choices that were made at different times may read each other in a circle."""
        problem = ExtractionProblem(self._table, roots)
        found = (joint_of if self._joint else shared_of)(problem)
        if not found:
            return None
        found = problem.named(found)
        self._over = dict(found.choice)
        return found


@record
class FreshExtraction:
    """The program of an e-graph's roots by any extractor, which looks at all of it whenever it is asked.

    `how` is one of `EXTRACTORS`, and `seconds` what it may take each time.
    """

    egraph: EGraph
    price: Price
    how: str
    seconds: float

    def clone(self, egraph: EGraph) -> FreshExtraction:
        return replace(self, egraph=egraph)

    def best(self) -> Extraction | None:
        return extract(self.egraph, self.price, self.how, until=Deadline.after(self.seconds))

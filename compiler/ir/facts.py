"""Facts: what a source of equivalents says, and what a strategy, a proof and a report go by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any

from dslc.ir.graph import Graph, Value, Values, replace
from dslc.ir.holes import abstracted, instantiated, program
from dslc.ir.places import places_of
from dslc.records import record


@record
class Fact:
    """Two programs over the same holes that are equal for all values of the holes.

    `rule` says where it comes from (`std.relu_of_transpose`), `proof` is its evidence, kept as it is. A partial fact has `differs`:
    the part of the results where the two may differ, to be corrected; a fact without is true everywhere. Facts of one rule about
    the same programs are one, whatever their evidence.
    """

    rule: str
    old: Graph
    new: Graph
    proof: Any = field(default=None, compare=False)
    differs: Any = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.old.inputs != self.new.inputs:
            raise ValueError(f"{self.rule}: the two programs have different holes")
        types = [[value.type_or_none for value in side.outputs] for side in (self.old, self.new)]
        if types[0] != types[1]:
            raise ValueError(f"{self.rule}: the two programs have results of different types")


@record
class Chain:
    """Evidence of a fact: others that lead from its old program to its new one, each at one place of what the one before gives."""

    steps: tuple[Fact, ...]

    def shows(self, fact: Fact) -> bool:
        """Return whether the steps lead from one program of a fact to the other; they are proved by themselves."""
        reached = {fact.old.outputs}
        for step in self.steps:
            reached = {after for before in reached for after in _after(step, Graph(fact.old.inputs, before))}
        return fact.new.outputs in reached


def _after(step: Fact, graph: Graph) -> Iterator[Values]:
    """Apply a fact to a program, at each place where it holds."""
    for holes, values in places_of(step.old, graph):
        new = dict(zip(values, instantiated(step.new, holes), strict=True))
        yield replace(graph.outputs, new)


def fact_of(
    rule: str,
    old: Sequence[Value],
    new: Sequence[Value],
    leaves: Iterable[Value],
    proof: Any = None,
    differs: Any = None,
) -> tuple[Fact, Values]:
    """Two regions of graphs over common leaves as a fact, and what its holes stand for.

    Raises:
        ValueError: results of different types, or an input that is none of the leaves is reached.
    """
    both, order = abstracted((*old, *new), leaves)
    sides = [program(both.inputs, each) for each in (both.outputs[: len(old)], both.outputs[len(old) :])]
    return Fact(rule, sides[0], sides[1], proof, differs), order

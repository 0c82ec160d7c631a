"""Facts: what a source of equivalents says, and what a strategy, a proof and a report go by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dslc.ir.graph import Graph, Value
from dslc.ir.holes import abstracted, program


@dataclass(frozen=True, slots=True)
class Fact:
    """Two programs over the same holes that are equal whatever the holes hold.

    `rule` says where it comes from (`std.relu_of_transpose`), `proof` is its evidence, kept as it is. A partial fact has `differs`:
    the part of the results where the two may differ, for who corrects it; a fact without is true everywhere.
    """

    rule: str
    old: Graph
    new: Graph
    proof: Any = None
    differs: Any = None

    def __post_init__(self) -> None:
        if self.old.inputs != self.new.inputs:
            raise ValueError(f"{self.rule}: the two programs have different holes")
        types = [[value.node.types[value.index] for value in side.outputs] for side in (self.old, self.new)]
        if types[0] != types[1]:
            raise ValueError(f"{self.rule}: the two programs have results of different types")


def fact_of(
    rule: str, old: Sequence[Value], new: Sequence[Value], leaves: Iterable[Value], proof: Any = None, differs: Any = None
) -> tuple[Fact, tuple[Value, ...]]:
    """Two regions of graphs over common leaves as a fact, and what its holes stand for.

    Raises:
        ValueError: results of different types, or an input that is none of the leaves is reached.
    """
    both, order = abstracted((*old, *new), leaves)
    sides = [program(both.inputs, each) for each in (both.outputs[: len(old)], both.outputs[len(old) :])]
    return Fact(rule, sides[0], sides[1], proof, differs), order


__all__ = ["Fact", "fact_of"]

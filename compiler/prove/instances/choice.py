"""Choices of what is unknown in the instances of a rule, and of what is a number: the bounds of a set of instances, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dslc.analysis.conditions import unknowns
from dslc.ir.dtype import DType
from dslc.ir.graph import ScopeNode, Values, nodes_of
from dslc.ir.scalar import Apply, Iter, Scalar, Sym, scalars, walk
from dslc.prove.instances.cases import AssumedCase, Restart
from dslc.semantics.values import Numbers

STEPS: tuple[int, ...] = (1, 2, 3)  #: steps (strides, dilations) that stand for names in turn

#: all steps are 1, or they are 1, 2, 3 in turn: from one attribute to the next and along a list
SHIFTS = (None, 0, 1, 2)
#: what else those are that guards do not keep above 0: all of them -1, the negatives of the turning ones, and 0
SIGNED = ("minus", "turned", "zero")
Shift = int | str | None
#: what is unknown: everything; all but what positions are multiplied with (strides); no attribute; no size either
LEVELS = ("symbolic", "steps", "attributes", "sizes")


@dataclass
class Choice:
    """The unknowns of instances, the numbers among them, and their highest ranks.

    `types`: meanings of the names of element types, `dtype` where they are not in it; `near`: the numbers that the rule and what it
    reaches name; `padded`: packs of which only the longest that a guard allows are looked at.
    """

    level: str
    most_rank: Mapping[str, int]
    dtype: DType
    types: Mapping[str, DType]
    near: Numbers
    padded: frozenset[str] = frozenset()
    # what exploring it has shown
    #: integer attributes that multiply or divide positions, and are numbers
    steps: set[str] = field(default_factory=set)
    #: those that stay unknown
    multiplied: set[str] = field(default_factory=set)
    #: steps are lists of more than one entry
    turning: bool = False
    #: unknown numbers on which a condition depends
    reals: set[str] = field(default_factory=set)
    #: attributes that may have any number of entries, with the largest that is looked at
    lists: dict[str, int] = field(default_factory=dict)
    #: the values that numbers have in instances, with the names that they were drawn under
    tried: set[tuple[str, Any]] = field(default_factory=set)
    #: steps that guards do not keep above 0
    signed: set[str] = field(default_factory=set)
    #: unknown numbers of which guards alone speak
    assumed: set[str] = field(default_factory=set)
    #: integer attributes, and numbers, that are unknown
    integers: set[str] = field(default_factory=set)
    #: how many numbers of each kind a case has at most
    together: dict[str, int] = field(default_factory=dict)


def shifts(choice: Choice) -> tuple[Shift, ...]:
    """The rows of numbers that steps are."""
    return (*SHIFTS, *SIGNED) if choice.signed else SHIFTS


def step(shift: Shift, place: int, signed: bool = False) -> int:
    """The number at a place among all steps; `signed`: of one that need not be positive."""
    turning = STEPS[place % len(STEPS)]
    if isinstance(shift, str):
        return {"minus": -1, "turned": -turning, "zero": 0}[shift] if signed else 1
    return 1 if shift is None else STEPS[(shift + place) % len(STEPS)]


def scope_text(choice: Choice, bounded: tuple[str, ...], lists: Mapping[str, int]) -> str:
    """The ranks of some packs, steps, numbers and sizes that a choice looks at; empty where it looks at all.

    `lists`: how many entries those have at most that may have any number.
    """
    parts = []
    by_rank: dict[int, list[str]] = {}
    for name in bounded:
        if name in choice.most_rank:
            by_rank.setdefault(choice.most_rank[name], []).append(name)
    for rank, names in sorted(by_rank.items()):
        parts.append(f"ranks of {', '.join(names)} up to {rank}")
    for count in sorted(set(lists.values())):
        names = [name for name in sorted(lists) if lists[name] == count]
        parts.append(f"lists {', '.join(names)} of up to {count} entries")
    if choice.steps:
        names, along = sorted(choice.steps), ", turning along the axes" if choice.turning else ""
        signed = [name in choice.signed for name in names]
        rows = dict.fromkeys(_tuple(step(shift, k, one) for k, one in enumerate(signed)) for shift in shifts(choice))
        parts.append(f"{_tuple(names)} in {', '.join(rows)}{along}")
    alike: dict[tuple[Any, ...], list[str]] = {}
    tried = sorted({name for name, _ in choice.tried})
    for name in tried:
        alike.setdefault(tuple(sorted(value for each, value in choice.tried if each == name)), []).append(name)
    for values, names in alike.items():
        paired = len(names) > 2 or (len(names) > 1 and len(tried) > 2)
        parts.append(f"{'each two of ' if paired else ''}{', '.join(names)} in {', '.join(map(str, values))}")
    return "; ".join(parts)


def _tuple(parts: Iterable[object]) -> str:
    """`(a, b)`, and one by itself."""
    texts = [str(part) for part in parts]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def check_numbers(outputs: Values, facts: AssumedCase, choice: Choice) -> None:
    """Raises Restart where something computed depends on an unknown real number, a guard does, or an attribute multiplies positions.

    Where all integers stay unknown, such attributes, and numbers of which guards alone speak, are noted only: what holds for all
    numbers holds for those that a guard lets in.
    """
    steps: set[str] = set()
    reals: set[str] = set()
    assumed = {facts.reals[node] for node in unknowns(*facts.conditions) & facts.reals.keys()}
    nodes = [node for node in nodes_of(outputs) if isinstance(node, ScopeNode)]
    extents = {size.name for node in nodes for size in node.scope.extents if isinstance(size, Sym)}
    for node in nodes:
        for root in (node.scope.body, *(e for e in node.scope.extents if isinstance(e, Scalar))):
            sums = {arg for part in scalars(Apply, root) if part.name == "+" for arg in part.args}
            for part in walk(root):
                if part.reads:
                    continue
                if part.op == "+" and part.free:
                    factors: dict[frozenset[Iter], set[str]] = {}
                    for term in part.args:
                        factors.setdefault(term.free, set()).update(_names(term))
                    for iters, names in factors.items():
                        _step(iters, names, facts, steps)
                if part.op in {"//", "%"} and len(part.args) == 2:
                    _step(part.args[1].free or part.args[0].free, _names(part.args[1]), facts, steps)
                if part.op in _DECIDING:
                    reals |= {facts.reals[node] for node in unknowns(part) & facts.reals.keys()}
                if part.op == "*" and part not in sums:
                    _step(part.free, _names(part), facts, steps)
    steps -= {facts.integers[name] for name in extents & set(facts.integers)}
    if choice.level == "symbolic":
        choice.multiplied |= steps
        choice.assumed |= assumed - choice.reals
    else:
        reals |= assumed
        if steps - choice.steps:
            choice.steps |= steps
            raise Restart
    if reals - choice.reals:
        choice.reals |= reals
        raise Restart


_DECIDING = frozenset("== != < <= > >= // % min max abs sign floor ceil round trunc".split())


def _step(iters: frozenset[Iter], names: set[str], facts: AssumedCase, steps: set[str]) -> None:
    """Positions times attributes alone; what is multiplied with sizes is a place in a merged dimension."""
    if names and iters and all(name in facts.integers for name in names):
        steps |= {facts.integers[name] for name in names}


def _names(scalar: Scalar) -> set[str]:
    return {unknown.name for unknown in unknowns(scalar)}

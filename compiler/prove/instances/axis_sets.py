"""Sets of axes for which lists in a rule have entries, in an order that attributes say. docs/proofs.md, "Ranks", Lemma 3.

A list has one entry for every axis of some *sets*: the axes of a pack, the same axes as a list of axes names them, those that are
left, those before and after one of them. Two lists whose sets are the same have at every place an entry for the same axis, at
every rank and for all values of the attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from dslc.records import record


class NotRankPolymorphic(Exception):
    """Something depends on an axis in another way than through the lists that have an entry for it."""


@record
class Pack:
    """The axes of a pack."""

    name: str


@record
class Chosen:
    """The axes that an attribute lists, in its order; all of them where it is a permutation."""

    name: str
    every: bool


@record
class Complement:
    """The axes of some sets that a list of axes does not name."""

    of: AxisSets
    listed: AxisSets


@record
class Reversed:
    """Axes in the opposite order."""

    of: AxisSets


@record
class Part:
    """The axes before (`side` -1) or after (1) the axis that an attribute names."""

    of: AxisSets
    axis: str
    side: int


@record
class Named:
    """The axis that an attribute names."""

    axis: str


@record
class One:
    """A place that is no axis of a pack."""


@record
class Loose:
    """Axes of which it is not followed which ones they are, nor how many."""


AxisSet: TypeAlias = "Pack | Chosen | Complement | Reversed | Part | Named | One | Loose"
AxisSets: TypeAlias = "tuple[AxisSet, ...]"

LOOSE: AxisSets = (Loose(),)

_Kind = TypeVar("_Kind")


def of_kind(kind: type[_Kind], value: object) -> _Kind:
    """The value, which is of a kind; else raises NotRankPolymorphic."""
    if isinstance(value, kind):
        return value
    raise NotRankPolymorphic


# ---- values -------------------------------------------------------------------------------------------------------


@record
class Number:
    """One number; `folded`: it has a product of sizes in it."""

    folded: bool = False


@record
class Entries:
    """A list of numbers; `sizes`: of sizes and ones; `flat`: all those for axes are ones; `given`: it is an attribute."""

    sets: AxisSets
    sizes: bool = False
    flat: bool = False
    given: bool = False


@record
class AxisList:
    """A list of positions in a list of the sets `target`, each of which is where the entry's own axis is."""

    sets: AxisSets
    target: AxisSets | str


@record
class Place:
    """The position of the axis that an attribute names (or of the axis at hand) in a list of the sets `target`."""

    axis: str
    target: AxisSets | str


@record
class Fixed:
    """A position by its number, counted from the front or from the end, where no axis of a pack comes before."""

    at: int


@record
class AllAxes:
    """All positions in order: `range(rank(S))`."""

    sets: AxisSets


@record
class Count:
    """A number of axes."""

    sets: AxisSets


@record
class Linear:
    """A number of axes more or less a number."""


@record
class Tensor:
    """A tensor; `flat`: its axes have size 1."""

    sets: AxisSets
    flat: bool = False


@record
class Truth:
    """Holds where it holds at every axis."""


@dataclass
class Spaces:
    """Equalities of sets of axes, and the lists that positions in attributes are positions in."""

    #: packs of as many axes, axis by axis
    same: dict[str, str] = field(default_factory=dict)
    #: sets that a guard makes equal
    equal: dict[AxisSets, AxisSets] = field(default_factory=dict)
    targets: dict[str, AxisSets] = field(default_factory=dict)
    #: whether it is followed of every list for which axes its entries are
    exact: bool = True

    def loosen(self) -> AxisSets:
        """Axes that are not followed: what is said of a rule is then no more than that it treats all axes alike."""
        self.exact = False
        return LOOSE

    def root(self, name: str) -> str:
        while name in self.same:
            name = self.same[name]
        return name

    def normal(self, sets: AxisSets) -> AxisSets:
        """The sets with one name for what is the same."""
        out: list[AxisSet] = []
        for each in sets:
            out.append(self._one(each))
            while len(out) >= 3 and (whole := _whole(out[-3:])) is not None:
                out[-3:] = whole
        found = tuple(out)
        return self.equal.get(found, found)

    def _one(self, segment: AxisSet) -> AxisSet:
        if isinstance(segment, Pack):
            return Pack(self.root(segment.name))
        if isinstance(segment, Complement):
            return Complement(self.normal(segment.of), self.normal(segment.listed))
        if isinstance(segment, Reversed):
            return Reversed(self.normal(segment.of))
        if isinstance(segment, Part):
            return Part(self.normal(segment.of), segment.axis, segment.side)
        return segment

    def unify(self, one: AxisSets, other: AxisSets, equal_length: bool = False) -> AxisSets:
        """The same sets; loose ones where nothing says that they are.

        `equal_length`: where the lists have different lengths the rule is not used, so two packs go together axis by axis.
        """
        one, other = self.normal(one), self.normal(other)
        if len(one) != len(other) or one == LOOSE:
            return self.loosen()
        for a, b in zip(one, other, strict=True):
            if a == b or (_single(a) and _single(b)):
                continue
            if not (equal_length and len(one) == 1 and isinstance(a, Pack) and isinstance(b, Pack)):
                return self.loosen()
            self.same[b.name] = a.name
        return self.normal(one)

    def declare_equal(self, one: AxisSets, other: AxisSets) -> None:
        """Note that a guard makes two lists of positions in one list equal."""
        one, other = self.normal(one), self.normal(other)
        if one != other:
            if one in self.equal.values():
                one, other = other, one
            if one in self.equal.values() or any(_mentions(each, one) for each in other):
                raise NotRankPolymorphic  # equal lists of axes, in more than one way
            self.equal[one] = other

    def aim(self, value: AxisList | Place, sets: AxisSets, equal_length: bool = False) -> None:
        """Positions are used as those in a list of these sets, and of no others."""
        sets = self.normal(sets)
        known = value.target
        if isinstance(known, str):
            known = self.targets.setdefault(known, sets)
        self.unify(known, sets, equal_length)

    def target(self, value: AxisList | Place) -> AxisSets:
        """The list that positions are in."""
        if not isinstance(value.target, str):
            return self.normal(value.target)
        if value.target not in self.targets:
            return self.loosen()
        return self.normal(self.targets[value.target])

    def full(self, sets: AxisSets) -> str | None:
        """The pack of which sets have every axis once, beside places that are no axes."""
        axes = [each for each in self.normal(sets) if not _single(each)]
        if len(axes) != 1:
            return None
        (only,) = axes
        if isinstance(only, Pack):
            return only.name
        if isinstance(only, Reversed):
            return self.full(only.of)
        if isinstance(only, Chosen) and only.every and only.name in self.targets:
            return self.full(self.targets[only.name])
        return None

    def as_many(self, one: AxisSets, other: AxisSets) -> bool:
        """Return whether both have every axis of one pack, and as many other places."""
        pack = self.full(one) if self.exact else None
        return pack is not None and self.full(other) == pack and len(self.normal(one)) == len(self.normal(other))

    # ---- numbers ------------------------------------------------------------------------------------------------

    def axes(self, sets: AxisSets, ranks: Mapping[str, int], names: Mapping[str, Any]) -> tuple[int | None, ...]:
        """The positions in the pack of the axes that entries are for, in one case; None for a place that is none."""
        out: list[int | None] = []
        for each in self.normal(sets):
            if isinstance(each, Pack):
                out.extend(range(ranks[each.name]))
            elif isinstance(each, Chosen):
                target = self.axes(self.targets[each.name], ranks, names)
                out.extend(target[k] for k in names[each.name])
            elif isinstance(each, Complement):
                gone = {k for k in self.axes(each.listed, ranks, names) if k is not None}
                out.extend(k for k in self.axes(each.of, ranks, names) if k not in gone)
            elif isinstance(each, Reversed):
                out.extend(reversed(self.axes(each.of, ranks, names)))
            elif isinstance(each, Part):
                inside, named = self.axes(each.of, ranks, names), self.axis(each.axis, ranks, names)
                if named is None:
                    raise NotRankPolymorphic  # an attribute names what is no axis of a pack
                at = inside.index(named)
                out.extend(inside[:at] if each.side < 0 else inside[at + 1 :])
            elif isinstance(each, Named):
                out.append(self.axis(each.axis, ranks, names))
            else:
                out.append(None)
        return tuple(out)

    def axis(self, name: str, ranks: Mapping[str, int], names: Mapping[str, Any]) -> int | None:
        """The axis of the pack that an attribute names in one case."""
        at: int = names[name]
        return self.axes(self.targets[name], ranks, names)[at]


def _single(segment: AxisSet) -> bool:
    return isinstance(segment, One | Named)


def _whole(parts: list[AxisSet]) -> AxisSets | None:
    """The whole of the axes before an axis, one place, and the axes after it."""
    before, at, after = parts
    if not (isinstance(before, Part) and isinstance(after, Part) and (isinstance(at, One) or at == Named(before.axis))):
        return None
    return before.of if (before.of, before.axis, before.side, after.side) == (after.of, after.axis, -1, 1) else None


def _mentions(segment: AxisSet, sets: AxisSets) -> bool:
    """Return whether some sets occur in another one."""
    inner: list[AxisSets] = []
    if isinstance(segment, Complement):
        inner = [segment.of, segment.listed]
    elif isinstance(segment, Reversed | Part):
        inner = [segment.of]
    return any(each == sets or any(_mentions(part, sets) for part in each) for each in inner)

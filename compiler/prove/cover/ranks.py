"""Few instances for all ranks, where the text of a rule says the same of every axis: docs/proofs.md, "Ranks", Lemmas 3 to 5."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dslc.ir.dtype import DType
from dslc.ir.scalar import Scalar, Sym, walk
from dslc.prove.cover.draw import LEVELS, Choice
from dslc.prove.ranks.bound import Labels, Probe, packs_of
from dslc.prove.ranks.maps import Mapped, mapped
from dslc.prove.ranks.moves import bases, enough
from dslc.prove.ranks.reading import Readings, natural
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.env import AttrSet
from dslc.semantics.values import numbers_of

RANKS: tuple[int, ...] = (2, 3)  #: ranks that may be enough where attributes permute or name axes
LONGEST = 6  #: rank at which a padded list is looked at first

#: the instances of a choice, and whether the right side had a meaning in all cases that the left side allows
Run = Callable[[Choice], "tuple[Sequence[Probe], bool]"]


def naturally(sub: SubstitutionDef, choice: Choice, run: Run) -> tuple[list[Probe], Choice] | None:
    """The instances that stand for all ranks where the rule says the same of every axis; None where that is not known of it."""
    read = natural(sub)
    for rank in RANKS if read is not None else ():
        if read is None or any(each.padded for each in read.values()) or not enough(read, rank):
            continue
        ranks = dict.fromkeys(packs_of(sub), rank)
        each = Choice(
            choice.level, ranks, choice.dtype, steps=set(choice.steps), reals=set(choice.reals), turning=choice.turning,
            types=choice.types, near=choice.near, signed=set(choice.signed),
        )  # fmt: skip
        probes, whole = run(each)
        small = bases(read, probes, rank) if whole else None
        if small is not None:
            return small, each
    return None


@dataclass(frozen=True, slots=True)
class Maps:
    """An instance at rank 1, and the same with arbitrary maps in the place of its windows."""

    probe: Probe
    sides: Mapped


def by_maps(sub: SubstitutionDef, run: Run, types: Mapping[str, DType]) -> list[Maps] | None:
    """Instances at rank 1 that stand for every rank and every number of the lists with one for each axis; None where none do."""
    read: Readings | None = natural(sub)
    if not packs_of(sub) or read is None or not all(reading.alike for reading in read.values()):
        return None
    first = next(iter(read.values()))
    ranks = {name: LONGEST if name in first.padded else 1 for name in packs_of(sub)}
    dtype = next(iter(types.values()), DType.F32)
    probes, whole = run(Choice(LEVELS[0], ranks, dtype, first.padded, types=types, near=numbers_of(sub)))
    probes = [probe for probe in probes if all(probe.ranks[name] == 1 for name in first.packs)]
    own = frozenset(f"{pack}0" for pack in first.packs)
    derived = tuple(f"{pack}0_" for pack in first.packs)
    cases = [
        _case(probe, first.packs, names, own | probe.entries, derived) for probe in probes for names in probe.names
    ]
    if not probes or not whole or len(set(cases)) < len(cases) or not all(probe.same_shape for probe in probes):
        return None
    found = []
    for probe in probes:
        sides = mapped(probe, first.packs, own | probe.entries, derived)
        if sides is None:
            return None
        found.append(Maps(probe, sides))
    # without windows the other lemmas say as much
    return found if any(len(each.sides.inputs) > len(each.probe.axes) for each in found) else None


def _axes_of(labels: Labels, packs: frozenset[str]) -> set[int]:
    return {axis for axis, label in labels.items() if any(f"{pack}.0" in label for pack in packs)}


def _case(
    probe: Probe, packs: frozenset[str], names: Mapping[str, Any], own: frozenset[str], derived: tuple[str, ...]
) -> tuple[object, ...]:
    """What tells cases apart that are no matter of the axis: flags, texts and types, and other sizes and what is known of them."""
    flat = dict(names)
    for name, value in names.items():
        if isinstance(value, AttrSet):
            flat.update((f"{name}.{inner}", each) for inner, each in value.values.items())
    flags = sorted((name, str(value)) for name, value in flat.items() if isinstance(value, bool | str | DType))

    def other(scalar: Any) -> bool:
        parts = walk(scalar) if isinstance(scalar, Scalar) else ()
        return not any(isinstance(part, Sym) and (part.name in own or part.name.startswith(derived)) for part in parts)

    shapes = tuple(
        tuple(str(size) if k not in axes and other(size) else "" for k, size in enumerate(value.type.shape))
        for value, axes in ((value, _axes_of(labels, packs)) for value, labels in probe.axes.items())
    )
    return tuple(flags), shapes, frozenset(condition for condition in probe.conditions if other(condition))

"""What a cover is bounded to, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dslc.prove.instance_draw import NUMBERS, SHIFTS, SIZES, Choice, step


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
        rows = dict.fromkeys(_tuple(step(shift, place) for place in range(len(names))) for shift in SHIFTS)
        parts.append(f"{_tuple(names)} in {', '.join(rows)}{along}")
    if choice.reals:
        parts.append(f"{', '.join(sorted(choice.reals))} at a few values")
    if choice.level in {"attributes", "sizes"}:
        parts.append(f"integer attributes in {_listed(NUMBERS)}")
    if choice.level == "sizes":
        parts.append(f"sizes in {_listed(SIZES)}")
    return "; ".join(parts)


def _tuple(parts: Iterable[object]) -> str:
    """`(a, b)`, and one by itself."""
    texts = [str(part) for part in parts]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _listed(values: tuple[int, ...]) -> str:
    return ", ".join(str(value) for value in values)

"""What a cover is bounded to, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dslc.prove.cover.draw import Choice, shifts, step


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
    for name, found in sorted(choice.tried.items()):
        alike.setdefault(tuple(sorted(found)), []).append(name)
    for values, names in alike.items():
        paired = len(names) > 2 or (len(names) > 1 and len(choice.tried) > 2)
        parts.append(f"{'each two of ' if paired else ''}{', '.join(names)} in {', '.join(map(str, values))}")
    return "; ".join(parts)


def _tuple(parts: Iterable[object]) -> str:
    """`(a, b)`, and one by itself."""
    texts = [str(part) for part in parts]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"

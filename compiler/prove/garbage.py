"""Rare collections of cyclic garbage, for work that makes millions of small objects of which hardly any is such garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Tuning:
    """Numbers that decide when garbage is collected.

    Attributes:
        objects: objects that are made until the youngest ones are looked at; Python's own number is 700.
    """

    objects: int = 200_000


_TUNING = _Tuning()


@contextmanager
def rare_collections() -> Iterator[None]:
    """What exists is not looked at again, and what is made inside seldom: terms and scalars hold no cycles."""
    before = gc.get_threshold()
    if before[0] >= _TUNING.objects:
        # within another such
        yield
        return
    gc.freeze()
    gc.set_threshold(_TUNING.objects, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()

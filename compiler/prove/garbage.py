"""Rare collections of cyclic garbage, for work that makes millions of small objects of which hardly any is such garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS = 200_000  #: objects that are made until the youngest ones are looked at; Python's own number is 700


@contextmanager
def gc_paused() -> Iterator[None]:
    """Look at no object that exists, and seldom at those made inside: terms and scalars hold no cycles."""
    before = gc.get_threshold()
    if before[0] >= OBJECTS:
        # within another such
        yield
        return
    gc.freeze()
    gc.set_threshold(OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()

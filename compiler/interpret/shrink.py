"""Smaller counterexamples: the smallest names and elements for which two sides still differ, by trying what is a step smaller."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from dslc.ir.graph import Value
from dslc.semantics.env import AttrSet

Found = TypeVar("Found")


NEGATIVE = 5  #: how much harder to read a negative number is
EVERY = 13  #: size up to which every size is tried


def smaller_names(
    found: Found,
    names: Callable[[Found], Mapping[str, Any]],
    again: Callable[[Mapping[str, Any]], Found | None],
    tries: int = 200,
) -> Found:
    """The same difference with smaller names: `again` looks for it where some names are given, and has it or None.

    `tries`: how often it looks, at most, so that every run finds the same.
    """
    changed = True
    while changed:
        changed = False
        for name, value in dict(names(found)).items():
            for other in smaller(value):
                if measure(other) >= measure(names(found).get(name)):
                    continue
                if tries <= 0:
                    return found
                tries -= 1
                new = again({**names(found), name: other})
                if new is not None and _total(names(new)) < _total(names(found)):
                    found, changed = new, True
                    break
    return found


def smaller_elements(
    feeds: Mapping[Value, Any], wrong: Callable[[Mapping[Value, Any]], bool], tries: int = 400
) -> Mapping[Value, Any]:
    """Inputs for which the sides still differ, with as many zeros, then ones and other small numbers as `tries` find."""
    feeds = dict(feeds)
    for value in feeds:
        zeros = np.zeros_like(feeds[value])
        if feeds[value].any() and wrong({**feeds, value: zeros}):
            feeds[value] = zeros
    for value, array in list(feeds.items()):
        for at in np.ndindex(array.shape):
            for other in _elements(feeds[value][at]):
                if tries <= 0:
                    return feeds
                tries -= 1
                new = feeds[value].copy()
                new[at] = other
                if wrong({**feeds, value: new}):
                    feeds[value] = new
                    break
    return feeds


def _elements(item: Any) -> Iterator[Any]:
    """Simpler numbers of the same type, the simplest first."""
    if item.dtype.kind == "b":
        if item:
            yield item.dtype.type(False)
        return
    whole = item.dtype.kind in "iu" or float(item) == np.round(float(item))
    for other in (0, 1, -1, 2, 3, 5):
        fits = other >= 0 or item.dtype.kind != "u"
        if fits and (not whole or abs(other) < abs(int(item)) or other == -int(item) > 0):
            yield item.dtype.type(other)
    if not whole and abs(float(item)) < 1e6:
        yield item.dtype.type(round(float(item)))


def smaller(value: Any) -> Iterator[Any]:
    """What a name may be instead, the smallest first."""
    if isinstance(value, bool):
        if value:
            yield False
    elif isinstance(value, int):
        for other in (
            0,
            1,
            -1,
            2,
            -2,
            value // 2,
            *range(3, min(value, EVERY)),
            value - 1 if value > 0 else value + 1,
        ):
            if measure(other) < measure(value):
                yield other
    elif isinstance(value, Fraction):
        for fraction in (*map(Fraction, (0, 1, -1, 2, -2, round(value))), Fraction(1, 2), Fraction(-1, 2)):
            if measure(fraction) < measure(value):
                yield fraction
    elif isinstance(value, tuple):
        for k in range(len(value)):
            yield (*value[:k], *value[k + 1 :])
        for k, item in enumerate(value):
            for other in smaller(item):
                yield (*value[:k], other, *value[k + 1 :])
    elif isinstance(value, AttrSet):
        for name, item in value.values.items():
            for other in smaller(item):
                yield AttrSet({**value.values, name: other})


def measure(value: Any) -> int:
    """How large a value is to a reader."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return 2 * abs(value) + NEGATIVE * (value < 0)
    if isinstance(value, Fraction):
        return 2 * abs(value.numerator) + NEGATIVE * (value < 0) + 4 * (value.denominator - 1)
    if isinstance(value, tuple):
        return sum(2 + measure(item) for item in value)
    if isinstance(value, AttrSet):
        return sum(measure(item) for item in value.values.values())
    return 0


def _total(names: Mapping[str, Any]) -> int:
    return sum(measure(value) for value in names.values())

"""Matching attributes: values that a pattern gives, binds or leaves to be evaluated later."""

from __future__ import annotations

from typing import Any

from dslc.ir.graph import Call
from dslc.match.describe import show
from dslc.match.pattern import AttrPattern, Bound, Entries, Equal, Literal, Rest
from dslc.match.state import AttributeEquals, Pending
from dslc.match.types import equal
from dslc.semantics.env import AttrSet

_MISSING = object()


def fits(
    pattern: AttrPattern,
    actual: Any,
    node: Call,
    name: str,
    at: int | None,
    names: dict[str, Any],
    pending: list[Pending],
) -> bool:
    """Return whether the attribute `name` of a call (its entry `at`, or the whole) may be what a pattern says.

    Binds names in `names`; what has to be evaluated is added to `pending`.
    """
    if isinstance(pattern, Literal):
        return equal(pattern.value, actual)
    if isinstance(pattern, Bound):
        known = names.get(pattern.name, _MISSING)
        if known is _MISSING:
            names[pattern.name] = actual
            return True
        return equal(known, actual)
    if isinstance(pattern, Equal):
        pending.append(AttributeEquals(node, name, at, pattern.quoted, actual))
        return True
    assert isinstance(pattern, Entries)
    if not isinstance(actual, tuple):
        return False
    return _entries_fit(pattern, actual, node, name, names, pending)


def _entries_fit(
    pattern: Entries, actual: tuple[Any, ...], node: Call, name: str, names: dict[str, Any], pending: list[Pending]
) -> bool:
    rests = sum(isinstance(element, Rest) for element in pattern.elements)
    width = len(actual) - (len(pattern.elements) - rests)
    if width < 0 or (not rests and width):
        return False
    at = 0
    for element in pattern.elements:
        if isinstance(element, Rest):
            part = actual[at : at + width]
            if not equal(names.setdefault(element.name, part), part):
                return False
            at += width
        else:
            if not fits(element, actual[at], node, name, at, names, pending):
                return False
            at += 1
    return True


def same_set(a: AttrSet, b: AttrSet) -> bool:
    """Return whether two sets of attributes have the same names and equal values."""
    if a is b:
        return True
    return a.values.keys() == b.values.keys() and all(equal(value, b.values[name]) for name, value in a.values.items())


def misfit(name: str, actual: Any, pattern: AttrPattern, names: dict[str, Any]) -> str:
    """Describe an attribute that is not what a pattern says."""
    entries = ""
    if isinstance(pattern, Entries) and isinstance(actual, tuple):
        rests = any(isinstance(element, Rest) for element in pattern.elements)
        if not rests and len(actual) != len(pattern.elements):
            entries = f": {len(actual)} entries, {len(pattern.elements)} wanted"
    return f"attribute `{name}` is {show(actual)}, expected {expected(pattern, names)}{entries}"


def expected(pattern: AttrPattern, names: dict[str, Any]) -> str:
    """Describe the values that a pattern takes, for an explanation."""
    if isinstance(pattern, Literal):
        return show(pattern.value)
    if isinstance(pattern, Bound):
        return f"`{pattern.name}`, which is {show(names.get(pattern.name))}"
    if isinstance(pattern, Entries):
        parts = [
            f"*{one.name}" if isinstance(one, Rest) else one.name if isinstance(one, Bound) else expected(one, names)
            for one in pattern.elements
        ]
        return f"[{', '.join(parts)}]"
    return pattern.quoted.expr.span.text if isinstance(pattern, Equal) else "the default"

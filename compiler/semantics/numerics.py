"""Floating-point declarations of rules: `verify numerics = reassociates`, or a list of such words, and `error = 1e-5`."""

from __future__ import annotations

from dslc.semantics.walk import nodes
from dslc.syntax import tree as t
from dslc.syntax.vocabulary import NUMERICS

#: the word for rules that keep finite results only
NONFINITE = "nonfinite"


def entries(syntax: t.Node) -> tuple[t.Entry, ...]:
    """The `numerics` entries of a rule."""
    return tuple(entry for entry in nodes(t.Entry, syntax) if entry.name == "numerics")


def errors(syntax: t.Node) -> tuple[t.Entry, ...]:
    """The `error` entries of a rule."""
    said = (entry for verify in nodes(t.Verify, syntax) for entry in verify.entries)
    return tuple(entry for entry in said if entry.name == "error")


def error_in(entry: t.Entry) -> float | None:
    """The number of an `error` entry: above 0 and at most 1; None where it holds something else."""
    value = entry.value
    number = float(value.value) if isinstance(value, t.Float | t.Int) else 0.0
    return number if 0.0 < number <= 1.0 else None


def error_of(syntax: t.Node) -> float | None:
    """By how much results in 32 bits may be off, relative to the largest element; None where a rule does not say."""
    found = [error for entry in errors(syntax) if (error := error_in(entry)) is not None]
    return max(found, default=None)


def words(entry: t.Entry) -> tuple[str, ...]:
    """The words of one entry, as they are written; empty where it holds something else."""
    parts = entry.value.elements if isinstance(entry.value, t.ListExpr) else (entry.value,)
    names = tuple(part.id for part in parts if isinstance(part, t.Name))
    return names if len(names) == len(parts) else ()


def numerics_of(syntax: t.Node) -> tuple[str, ...]:
    """A rule's declarations, in the order of the vocabulary; empty without one."""
    said = {word for entry in entries(syntax) for word in words(entry)}
    return tuple(word for word in NUMERICS if word in said)


def keeps_nonfinite(syntax: t.Node) -> bool:
    """Return whether a rule says of no infinities, NaN and overflows that they may change."""
    return NONFINITE not in numerics_of(syntax)

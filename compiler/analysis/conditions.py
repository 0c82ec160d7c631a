"""Conditions as cases: a truth value over integers becomes a list of alternatives, each a conjunction of `polynomial >= 0`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from dslc.analysis.poly import NotIntegral, Poly, polynomial
from dslc.ir.scalar import Apply, Num, Scalar, apply

MOST_CASES = 64  #: alternatives of a condition; one with more is not used, which is sound

_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


@dataclass(frozen=True)
class Case:
    """A conjunction: every polynomial of `nonneg` is >= 0, every one of `zero` is 0."""

    nonneg: tuple[Poly, ...] = ()
    zero: tuple[Poly, ...] = ()

    def __and__(self, other: Case) -> Case:
        return Case(
            tuple(dict.fromkeys((*self.nonneg, *other.nonneg))), tuple(dict.fromkeys((*self.zero, *other.zero)))
        )


TRUE = (Case(),)


def cases(condition: Scalar, holds: bool = True) -> tuple[Case, ...]:
    """Alternatives that together contain every point where the condition is `holds`.

    What is not about integers (data, floating point) is dropped, which only makes the alternatives larger.
    """
    if isinstance(condition, Num):
        return TRUE if bool(condition.value) == holds else ()
    if isinstance(condition, Apply):
        if condition.name == "not":
            return cases(condition.args[0], not holds)
        if condition.name in {"and", "or"}:
            parts = [cases(arg, holds) for arg in condition.args]
            return both(*parts) if (condition.name == "and") == holds else either(*parts)
        if condition.name in _NEGATED and len(condition.args) == 2:
            name = condition.name if holds else _NEGATED[condition.name]
            return _comparison(name, *condition.args)
    return TRUE


def both(*parts: tuple[Case, ...]) -> tuple[Case, ...]:
    """The conjunction; a part that would make too many alternatives is left out."""
    out: tuple[Case, ...] = TRUE
    for part in parts:
        if len(out) * len(part) > MOST_CASES:
            continue
        out = tuple(a & b for a, b in product(out, part))
    return out


def either(*parts: tuple[Case, ...]) -> tuple[Case, ...]:
    out = tuple(dict.fromkeys(case for part in parts for case in part))
    return out if len(out) <= MOST_CASES else TRUE


def _comparison(name: str, left: Scalar, right: Scalar) -> tuple[Case, ...]:
    try:
        a, b = polynomial(left), polynomial(right)
    except NotIntegral:
        return TRUE
    if name == "<":
        return (Case((b - a - 1,)),)
    if name == "<=":
        return (Case((b - a,)),)
    if name == ">":
        return (Case((a - b - 1,)),)
    if name == ">=":
        return (Case((a - b,)),)
    if name == "==":
        return (Case((), (a - b,)),)
    return Case((a - b - 1,)), Case((b - a - 1,))


def split_atom(node: Apply) -> tuple[tuple[tuple[Case, ...], Scalar], ...] | None:
    """What min, max, abs and a choice are, by cases: (when, value); None for other functions."""
    if node.name in {"min", "max"}:
        a, b = node.args
        small = ">=" if node.name == "max" else "<="
        other = "<" if node.name == "max" else ">"
        return (cases(apply(small, a, b)), a), (cases(apply(other, a, b)), b)
    if node.name == "abs":
        (a,) = node.args
        zero = Num._make(0)
        return (cases(apply(">=", a, zero)), a), (cases(apply("<", a, zero)), apply("*", Num._make(-1), a))
    if node.name == "select":
        condition, then, otherwise = node.args
        return (cases(condition), then), (cases(condition, False), otherwise)
    return None

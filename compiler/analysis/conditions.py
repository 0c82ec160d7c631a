"""Conditions as cases: a truth value over integers becomes a list of alternatives, each a conjunction of `polynomial >= 0`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from dslc.analysis.poly import COMPARISONS, NotIntegral, Poly, compared
from dslc.ir.scalar import Num, Scalar, Sym, apply, num, scalars

MOST_CASES = 64  #: alternatives of a condition; one with more is not used, which is sound


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
    if condition.op == "not":
        return cases(condition.args[0], not holds)
    if condition.op in {"and", "or"}:
        parts = [cases(arg, holds) for arg in condition.args]
        return both(*parts) if (condition.op == "and") == holds else either(*parts)
    if condition.op in COMPARISONS:
        name = condition.op if holds else COMPARISONS[condition.op]
        try:
            poly = compared(name, *condition.args)
        except NotIntegral:
            return TRUE
        if name == "!=":
            return Case((-poly - 1,)), Case((poly - 1,))
        return (Case((), (-poly,)) if name == "==" else Case((poly,)),)
    return TRUE


def unknowns(*roots: Scalar) -> frozenset[Sym]:
    """The unknowns in expressions."""
    return frozenset(node for root in roots for node in scalars(Sym, root))


def both(*parts: tuple[Case, ...]) -> tuple[Case, ...]:
    """The conjunction; a part that would make too many alternatives is left out."""
    out: tuple[Case, ...] = TRUE
    for part in parts:
        if len(out) * len(part) > MOST_CASES:
            continue
        out = tuple(a & b for a, b in product(out, part))
    return out


def either(*parts: tuple[Case, ...]) -> tuple[Case, ...]:
    """The disjunction; true where it would have too many alternatives."""
    out = tuple(dict.fromkeys(case for part in parts for case in part))
    return out if len(out) <= MOST_CASES else TRUE


def split_atom(node: Scalar) -> tuple[tuple[tuple[Case, ...], Scalar], ...] | None:
    """The values of min, max, abs and a choice by cases: (when, value); None for other functions."""
    if node.op in {"min", "max"}:
        a, b = node.args
        small = ">=" if node.op == "max" else "<="
        return (cases(apply(small, a, b)), a), (cases(apply(small, a, b), False), b)
    if node.op == "abs":
        (a,) = node.args
        positive = apply(">=", a, num(0))
        return (cases(positive), a), (cases(positive, False), apply("*", num(-1), a))
    if node.op == "select":
        condition, then, otherwise = node.args
        return (cases(condition), then), (cases(condition, False), otherwise)
    return None

"""Conditions with an equals sign: a size that an equation gives is replaced everywhere, so that equal sizes look equal."""

from __future__ import annotations

from collections.abc import Sequence

from dslc.analysis.conditions import Case, cases
from dslc.analysis.poly import NotIntegral, Poly, polynomial
from dslc.ir.scalar import Apply, Scalar, Sym, apply, num, rebuild, walk


def conjuncts(conditions: Sequence[Scalar]) -> list[Scalar]:
    """The conditions, with every `and` taken apart."""
    out: list[Scalar] = []
    for condition in conditions:
        if isinstance(condition, Apply) and condition.name == "and":
            out.extend(conjuncts(condition.args))
        else:
            out.append(condition)
    return out


def solved(conditions: Sequence[Scalar]) -> tuple[dict[Scalar, Scalar], list[Scalar]]:
    """What sizes are by the equations (in terms of sizes that stay unknown), and the conditions in terms of those.

    A size is replaced where it stands alone with coefficient 1 or -1, the last by name first; its own lower bound is kept as a condition.
    """
    known: dict[Scalar, Scalar] = {}
    left = conjuncts(conditions)
    while True:
        found = next((answer for condition in left if (answer := _solution(condition)) is not None), None)
        if found is None:
            return known, left
        size, value = found
        known = {name: replaced(old, size, value) for name, old in known.items()} | {size: value}
        left = [new for old in left if (new := replaced(old, size, value)) is not num(True)]
        if size.least is not None and (bound := apply(">=", value, num(size.least))) is not num(True):
            left.append(bound)


def replaced(root: Scalar, size: Scalar, value: Scalar) -> Scalar:
    return rebuild(root, lambda node: value if node is size else None)


def _solution(condition: Scalar) -> tuple[Sym, Scalar] | None:
    if not (isinstance(condition, Apply) and condition.name == "=="):
        return None
    try:
        difference = polynomial(condition.args[0]) - polynomial(condition.args[1])
    except NotIntegral:
        return None
    singles = [(m[0], c) for m, c in difference.terms if len(m) == 1 and abs(c) == 1 and isinstance(m[0], Sym)]
    for size, coefficient in sorted(singles, key=lambda item: str(item[0]), reverse=True):
        rest = Poly(tuple(term for term in difference.terms if term[0] != (size,)))
        if not any(part is size for factor in rest.atoms for part in walk(factor)):
            assert isinstance(size, Sym)
            return size, as_scalar_of(rest * -coefficient)
    return None


def as_scalar_of(poly: Poly) -> Scalar:
    """The expression that a polynomial stands for."""
    terms = [apply("*", num(coefficient), *monomial) for monomial, coefficient in poly.terms]
    return apply("+", *terms) if terms else num(0)


def facts(conditions: Sequence[Scalar]) -> Case:
    """The conditions as polynomials that are never negative, or zero; alternatives are left out."""
    total = Case()
    for condition in conditions:
        alternatives = cases(condition)
        if len(alternatives) == 1:
            total = total & alternatives[0]
    return total

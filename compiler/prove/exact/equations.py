"""Conditions with an equals sign: a size that an equation gives is replaced everywhere, so that equal sizes look equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dslc.analysis.conditions import Case, cases
from dslc.analysis.poly import NotIntegral, Poly, atom, polynomial, scalar_of
from dslc.ir.scalar import Apply, Num, Scalar, Sym, apply, conjuncts, num, replaced, sym, walk


def solved(conditions: Sequence[Scalar]) -> tuple[dict[Scalar, Scalar], list[Scalar]]:
    """The values of sizes by the equations (in terms of sizes that stay unknown), and the conditions in terms of those.

    A size is replaced where it stands alone with coefficient 1 or -1, the last by name first; its lower bound is kept as a condition.
    Sizes with a known remainder are that and a multiple: `K % 2 == 1` is `K == 2 * q + 1`.
    """
    known: dict[Scalar, Scalar] = {}
    left = [_with_quotient(condition) for condition in conjuncts(*conditions)]
    while True:
        found = next((answer for condition in left if (answer := _solution(condition)) is not None), None)
        if found is None:
            return known, left
        size, value = found
        known = {name: replaced(old, size, value) for name, old in known.items()} | {size: value}
        left = [new for old in left if (new := replaced(old, size, value)) is not num(True)]
        if size.least is not None and (bound := apply(">=", value, num(size.least))) is not num(True):
            left.append(bound)


def _with_quotient(condition: Scalar) -> Scalar:
    """`p % n == c` for numbers `n > c >= 0` as `p == n * q + c`, with a name for the quotient, where that gives a size."""
    if condition.op == "==":
        for pair in (condition.args, condition.args[::-1]):
            match pair:
                case (Apply(name="%", args=(top, Num(value=int() as by))), Num(value=int() as number)):
                    if not 0 <= number < by:
                        continue
                    least = top.least if isinstance(top, Sym) else None
                    quotient = Sym._make(None if least is None else -((number - least) // by), f"({top}) // {by}")
                    equation = apply("==", top, apply("+", apply("*", num(by), quotient), num(number)))
                    if _solution(equation) is not None:
                        return equation
    return condition


def _alone(poly: Poly) -> Iterator[tuple[Scalar, Poly]]:
    """The factors that stand alone with coefficient 1 or -1, each with what it equals where the polynomial is 0."""
    for monomial, coefficient in poly.terms:
        if len(monomial) == 1 and abs(coefficient) == 1:
            rest = Poly(tuple(term for term in poly.terms if term[0] != monomial))
            if not any(part is monomial[0] for factor in rest.atoms for part in walk(factor)):
                yield monomial[0], rest * -coefficient


def _solution(condition: Scalar) -> tuple[Sym, Scalar] | None:
    if condition.op != "==":
        return None
    try:
        difference = polynomial(condition.args[0]) - polynomial(condition.args[1])
    except NotIntegral:
        return None
    sizes = [(size, rest) for size, rest in _alone(difference) if isinstance(size, Sym)]
    if not sizes:
        return None
    size, rest = max(sizes, key=lambda item: str(item[0]))
    return size, scalar_of(rest)


def facts(conditions: Sequence[Scalar]) -> Case:
    """The conditions as polynomials that are never negative, or zero; alternatives are left out."""
    total = Case()
    for condition in conditions:
        alternatives = cases(condition)
        if len(alternatives) == 1:
            total = total & alternatives[0]
    return total


def named(extents: Iterable[Scalar]) -> tuple[dict[Scalar, Scalar], list[Scalar]]:
    """A name for every extent that is a sum, so that products with it are monomials.

    Returns what is to be replaced (a size, or a quotient, in terms of the names), and what is known of quotients that were replaced.
    """
    known: dict[Scalar, Scalar] = {}
    conditions: list[Scalar] = []
    for extent in dict.fromkeys(extents):
        for name, value in known.items():
            extent = replaced(extent, name, value)
        try:
            poly = polynomial(extent)
        except NotIntegral:
            continue
        if sum(bool(m) for m, _ in poly.terms) < 2 or any(a.free for a in poly.atoms):
            continue
        # where the sum is named, a factor is that name less the rest
        total = atom(sym(f"size {len(known)}"))
        factors = [each for each in _alone(poly - total) if each[0] not in total.atoms and _nameable(each[0])]
        if not factors:
            continue
        factor, rest = min(factors, key=lambda item: (isinstance(item[0], Sym), str(item[0])))
        value = scalar_of(rest)
        known = {name: replaced(old, factor, value) for name, old in known.items()} | {factor: value}
        if isinstance(factor, Apply):
            top, by = (replaced(arg, factor, value) for arg in factor.args)
            below = apply("*", by, value)
            conditions += [apply("<=", below, top), apply("<", top, apply("+", below, by))]
        elif isinstance(factor, Sym) and factor.least is not None:
            conditions.append(apply(">=", value, num(factor.least)))
    return known, conditions


def _nameable(node: Scalar) -> bool:
    return isinstance(node, Sym) or (node.op == "//" and isinstance(node.args[1], Num))

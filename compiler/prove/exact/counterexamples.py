"""Sizes and a position at which a term of a difference does not vanish."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

from dslc.analysis.numeric import DataDependent, value
from dslc.analysis.poly import Poly, monomial_of, scalar_of
from dslc.ir.graph import Input
from dslc.ir.scalar import Scalar, Sym, apply, num
from dslc.prove.exact.answers import Differs
from dslc.prove.exact.question import Question, comparison
from dslc.prove.exact.terms import Term

SMALL: tuple[int, ...] = (2, 3, 5, 9)  #: bounds of sizes, one after the other
ASSIGNMENTS = 2_000  #: assignments of sizes that are tried


def counterexample(question: Question, number: int, term: Term) -> Differs | None:
    """Small sizes at which a term of output number `number` is there; None where none are found."""
    products = [
        k for k, monomial in enumerate(question.monomials) if len(monomial) > 1 or not isinstance(monomial[0], Sym)
    ]
    for bound in SMALL:
        small = term.map.intersect_params(_small(question, bound))
        if small.is_empty():
            continue
        for candidate in _candidates(question, small, bound) if products else (small,):
            point = question.frame.point(candidate)
            if point is None:
                continue
            found = _checked(question, number, term, *point)
            if found is not None:
                return found
    return None


def _small(question: Question, bound: int) -> Any:
    total = question.frame.universe(0)
    for monomial in question.monomials:
        if len(monomial) == 1 and isinstance(monomial[0], Sym):
            total = total.intersect(question.affine.condition(comparison("<=", monomial[0], num(bound)), ()))
    return total.params()


def _candidates(question: Question, map: Any, bound: int) -> Iterator[Any]:
    """The map at fixed sizes, where some parameter stands for a product of them."""
    symbols = [m[0] for m in question.monomials if len(m) == 1 and isinstance(m[0], Sym)]
    for count, numbers in enumerate(product(range(1, bound + 1), repeat=len(symbols))):
        if count >= ASSIGNMENTS:
            return
        at: dict[Scalar, int] = dict(zip(symbols, numbers, strict=True))
        where = question.frame.universe(0)
        for monomial in question.monomials:
            fixed = num(value(apply("*", num(1), *monomial), at))
            is_fixed = comparison("==", scalar_of(monomial_of(monomial)), fixed)
            where = where.intersect(question.affine.condition(is_fixed, ()))
        yield map.intersect_params(where.params())


def _checked(
    question: Question,
    number: int,
    term: Term,
    parameters: Mapping[str, int],
    position: Sequence[int],
    reads: Sequence[int],
) -> Differs | None:
    """The counterexample at a point, if the conditions hold there and the coefficient does not vanish."""
    problem = question.problem
    at: dict[Scalar, int] = {}
    for monomial, size in zip(question.monomials, parameters.values(), strict=True):
        if len(monomial) == 1 and isinstance(monomial[0], Sym):
            at[monomial[0]] = size
    try:
        for name, meaning in problem.known.items():
            if isinstance(name, Sym):
                at[name] = int(value(meaning, at))
        if not all(value(condition, at) for condition in problem.given):
            return None
        coefficient = Fraction(_poly_at(term.coefficient.top, at), 1) / Fraction(
            _poly_at(term.coefficient.bottom, at), 1
        )
        if coefficient == 0:
            return None
        at.update(zip(question.variables(number), position, strict=True))
        whole: dict[Scalar, int] = {
            it: int(value(part, at)) for it, part in problem.parts.items() if all(f in at for f in part.free)
        }
        at.update(whole)
        shown = tuple(int(value(each, at)) for each in problem.positions[number])
    except (DataDependent, ZeroDivisionError):
        return None
    sizes = {name.name: size for name, size in at.items() if isinstance(name, Sym) and " " not in name.name}
    return Differs(dict(sorted(sizes.items())), number, shown, _monomial(question, term, reads, at))


def _monomial(question: Question, term: Term, reads: Sequence[int], at: Mapping[Scalar, int]) -> str:
    parts: list[str] = []
    start = 0
    for tensor in term.atoms:
        operand = int(tensor.name[1:])
        index = list(reads[start : start + tensor.arity])
        start += tensor.arity
        shown: list[int] = []
        axes = len([1 for place in question.layouts if place[0] == operand])
        for axis in range(axes):
            total = 0
            for stride in question.layouts[operand, axis]:
                total += int(value(apply("*", num(1), *stride), at)) * index.pop(0)
            shown.append(total)
        node = question.problem.inputs[operand].node
        name = node.name if isinstance(node, Input) else "constant"
        parts.append(f"{name}[{', '.join(map(str, shown))}]")
    return " * ".join(parts) or "1"


def _poly_at(poly: Poly, at: Mapping[Scalar, int]) -> Any:
    total: Any = 0
    for monomial, coefficient in poly.terms:
        part: Any = coefficient
        for factor in monomial:
            part = part * value(factor, at)
        total = total + part
    return total

"""Sizes and a position at which a term of a difference does not vanish."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import islice, product
from math import prod
from typing import Any

import numpy as np

from dslc.analysis.numeric import DataDependent, value
from dslc.analysis.poly import Monomial, monomial_of, scalar_of
from dslc.analysis.reads import inputs_of
from dslc.interpret.domain import Domain, Redraw
from dslc.interpret.field import Field
from dslc.interpret.floats import Floats
from dslc.interpret.run import InterpretError, run_scopes
from dslc.ir.dtype import DType
from dslc.ir.graph import Input, ScopeNode, Value, nodes_of
from dslc.ir.scalar import Num, Reduce, Scalar, Sym, num, scalars
from dslc.prove.exact.answers import Differs
from dslc.prove.exact.question import Question, comparison
from dslc.prove.exact.terms import Term
from dslc.prove.sizes import at_sizes

SMALL: tuple[int, ...] = (2, 3, 5, 9)  #: bounds of sizes, one after the other
ASSIGNMENTS = 2_000  #: assignments of sizes that are tried


def counterexample(question: Question, number: int, term: Term) -> Differs | None:
    """Small sizes at which a term of output number `number` is there; None where none are found."""
    sizes = [m[0] for m in question.monomials if len(m) == 1 and isinstance(m[0], Sym)]
    for bound in SMALL:
        small = question.frame.universe(0)
        for size in sizes:
            small = small.intersect(question.affine.condition(comparison("<=", size, num(bound)), ()))
        found = term.map.intersect_params(small.params())
        if found.is_empty():
            continue
        products = len(sizes) < len(question.monomials)
        for candidate in _candidates(question, sizes, found, bound) if products else (found,):
            point = question.frame.point(candidate)
            checked = None if point is None else _checked(question, number, term, *point)
            if checked:
                return checked
    return None


def _candidates(question: Question, sizes: Sequence[Scalar], map: Any, bound: int) -> Iterator[Any]:
    """The map at fixed sizes, where some parameter stands for a product of them."""
    for numbers in islice(product(range(1, bound + 1), repeat=len(sizes)), ASSIGNMENTS):
        at: dict[Scalar, int] = dict(zip(sizes, numbers, strict=True))
        where = question.frame.universe(0)
        for monomial in question.monomials:
            fixed = num(_product_at(monomial, at))
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
    values = zip(question.monomials, parameters.values(), strict=True)
    at: dict[Scalar, int] = {m[0]: size for m, size in values if len(m) == 1 and isinstance(m[0], Sym)}
    try:
        at.update({name: int(value(is_, at)) for name, is_ in problem.known.items() if isinstance(name, Sym)})
        if not all(value(condition, at) for condition in problem.given):
            return None
        top, bottom = (
            sum(c * _product_at(monomial, at) for monomial, c in poly.terms)
            for poly in (term.coefficient.top, term.coefficient.bottom)
        )
        if Fraction(top) / Fraction(bottom) == 0:
            return None
        at.update(zip(question.variables(number), position, strict=True))
        whole = {it: part for it, part in problem.parts.items() if all(f in at for f in part.free)}
        at.update({it: int(value(part, at)) for it, part in whole.items()})
        shown = tuple(int(value(each, at)) for each in problem.positions[number])
    except (DataDependent, ZeroDivisionError):
        return None
    sizes = {name.name: size for name, size in at.items() if isinstance(name, Sym) and " " not in name.name}
    return Differs(dict(sorted(sizes.items())), number, shown, _monomial(question, term, reads, at))


def _monomial(question: Question, term: Term, reads: Sequence[int], at: Mapping[Scalar, int]) -> str:
    parts: list[str] = []
    rest = iter(reads)
    for tensor in term.atoms:
        operand = int(tensor.name[1:])
        layouts = [layout for (read, _), layout in sorted(question.layouts.items()) if read == operand]
        index = [sum(int(_product_at(stride, at)) * next(rest) for stride in layout) for layout in layouts]
        node = question.problem.inputs[operand].node
        name = node.name if isinstance(node, Input) else "constant"
        parts.append(f"{name}[{', '.join(map(str, index))}]")
    return " * ".join(parts) or "1"


def _product_at(monomial: Monomial, at: Mapping[Scalar, int]) -> Any:
    return prod(value(factor, at) for factor in monomial)


DRAWS = 3  #: draws of numbers
WORK = 1 << 21  #: elements that are computed, at most


def refuted_by_numbers(left: Sequence[Value], right: Sequence[Value], found: Differs) -> bool:
    """False where both programs have the same values at the sizes of a counterexample, for every draw.

    True where some differ, and where that is not known: a size is not given, there is too much to compute, or a draw has no values.
    Terms of sums that meet a place several times may cancel others.
    """
    values = at_sizes((*left, *right), found.sizes)
    inputs = inputs_of(values)
    if not all(value.known and value.type.is_static for value in (*values, *inputs)) or _work(values) > WORK:
        return True
    half = len(left)
    domains: tuple[Domain, ...] = (Field(1), Floats(rounded=False))
    for domain in domains:
        with suppress(InterpretError, Redraw, ArithmeticError, ValueError, TypeError, MemoryError):
            for seed in range(DRAWS):
                drawn = np.random.default_rng(seed)
                ends = {each: (0, 2) if each.type.dtype is DType.BOOL else (-99, 100) for each in inputs}
                feeds = {each: drawn.integers(*ends[each], each.type.sizes) for each in inputs}
                results = [each.astype(np.float64) for each in run_scopes(values, feeds, domain)]
                for a, b in zip(results[:half], results[half:], strict=True):
                    if a.shape != b.shape or not np.allclose(a, b, rtol=1e-9, atol=1e-9, equal_nan=True):
                        return True
            return False
    return True


def _work(values: Sequence[Value]) -> int:
    """Elements that are computed, those of sums included."""
    total = 0
    for node in nodes_of(values):
        count = 1
        if isinstance(node, ScopeNode):
            count = prod(size for size in node.values[0].type.shape if isinstance(size, int))
            extents = [extent for each in scalars(Reduce, node.scope.body) for extent in each.extents]
            count *= prod(
                int(extent.value) if isinstance(extent, Num) and isinstance(extent.value, int) else WORK
                for extent in extents
            )
        total += count
    return total

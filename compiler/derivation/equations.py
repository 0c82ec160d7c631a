"""Equations of sizes: what an operator's unknown sizes and attributes are, where it computes what an expression does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import is_

from dslc.analysis.iterators import coefficient_of
from dslc.analysis.numeric import DataDependent
from dslc.analysis.numeric import value as number_of
from dslc.derivation.pieces import Unfit
from dslc.derivation.tables import unknowns_in
from dslc.ir.scalar import Apply, Num, Scalar, Sym, apply, num

MOST = 1 << 16  #: attributes beyond which nothing is looked for


def put(node: Scalar, known: Mapping[Sym, Scalar]) -> Scalar:
    """Sizes and attributes in the place of their names."""
    if not known or isinstance(node, Num):
        return node
    if isinstance(node, Sym):
        return known.get(node, node)
    if isinstance(node, Apply):
        args = [put(arg, known) for arg in node.args]
        return node if all(map(is_, args, node.args)) else apply(node.name, *args)
    return node


def unknowns(node: Scalar, known: Mapping[Sym, Scalar]) -> list[Sym]:
    return unknowns_in(put(node, known))


def integer(node: Scalar) -> int:
    if not isinstance(node, Num) or not isinstance(node.value, int):
        raise Unfit("an unknown size")
    return node.value


def solved_linear(equations: Sequence[tuple[Scalar, Scalar]], known: dict[Sym, Scalar]) -> bool:
    """Solves what is linear in one unknown, as often as that helps; False where something has no solution."""
    grew = True
    left_over = list(equations)
    while grew:
        grew = False
        equations, left_over = left_over, []
        for left, right in equations:
            now = put(left, known)
            names = unknowns_in(now)
            if len(names) != 1:
                if names:
                    left_over.append((now, right))
                continue
            (name,) = names
            if now is name:
                known[name] = right
                grew = True
                continue
            slope = coefficient_of(now, name)
            if slope is None or not isinstance(right, Num):
                left_over.append((now, right))
                continue
            rest = apply("-", right, put(now, {name: num(0)}))
            if not isinstance(rest, Num) or not isinstance(rest.value, int) or rest.value % slope:
                return False
            known[name] = num(rest.value // slope)
            grew = True
    return True


def solved_least(equation: tuple[Scalar, Scalar], name: Sym, known: dict[Sym, Scalar]) -> bool:
    """The least value of an unknown with which a size that grows with it is what is wanted."""
    left, right = put(equation[0], known), equation[1]
    if not isinstance(right, Num):
        return False

    def at(value: int) -> int:
        return int(number_of(left, {name: value}))

    try:
        low, high = 0, 1
        while at(high) < right.value and high < MOST:
            low, high = high, 2 * high
        if at(0) >= right.value:
            low = high = 0
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if at(middle) < right.value else (low, middle)
        if at(low) != right.value:
            return False
    except DataDependent:
        return False
    known[name] = num(low)
    return True

"""Programs at unknown sizes: they are derived at sizes that stand for all, and put back.

Each unknown size becomes a number so large that no other number of the program is near it: `N -> 10000019`. What is derived of such an
expression has numbers like `810001539`, which can only be `81 * N`. Whoever takes a program that was put back proves it for every `N`:
what holds by chance of the one number that stood for it, as a rest by 4, does not get through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from itertools import product
from math import prod

from dslc.ir.constants import FillRef, fill
from dslc.ir.dtype import Dim, TensorType
from dslc.ir.graph import (
    Call,
    Constant,
    Graph,
    Input,
    Node,
    Scope,
    ScopeNode,
    Value,
    Values,
    call,
    rebuild,
    retyped,
    scope_value,
    with_args,
)
from dslc.ir.scalar import Num, Number, Scalar, Sym, apply, flat, num, scalars, substitute
from dslc.ir.scalar import rebuild as rebuild_body
from dslc.ir.sizes import expressions, unknowns, with_sizes

#: primes, each about the third power of the one before: so products of two of one size and of others are told apart
NUMBERS: tuple[int, ...] = (10**7 + 19, 10**21 + 117, 10**63 + 121)
POWER = 2  #: powers of one size in a product, at most
LARGE = 5 * 10**6  #: what is no number of the program itself


class NotSymbolic(Exception):
    """A number is no sum of products of the unknown sizes: what was derived holds at some sizes only."""


@dataclass(frozen=True)
class SizeNumbers:
    """Numbers that stand for unknown sizes, each far greater than what is made of those before it."""

    numbers: Mapping[Sym, int]
    #: numbers of the program itself that are as large
    own: frozenset[Number] = frozenset()

    @staticmethod
    def of(program: Graph) -> SizeNumbers | None:
        """Numbers for all unknown sizes of a program; None where these are too many, or a type is not known."""
        nodes = dict.fromkeys((*program.nodes(), *(value.node for value in program.inputs)))
        if any(type is None for node in nodes for type in node.types):
            return None
        parts = [*expressions([*nodes])]
        found = unknowns(parts)
        own = {each.value for part in parts for each in scalars(Num, part) if _is_large(each.value)}
        if len(found) > len(NUMBERS):
            return None
        return SizeNumbers(dict(zip(found, NUMBERS, strict=False)), frozenset(own))

    def at(self, program: Graph) -> Graph:
        """A program with the numbers in the place of its sizes."""
        if not self.numbers:
            return program
        table: dict[Scalar, Scalar] = {each: num(number) for each, number in self.numbers.items()}
        values = with_sizes((*program.inputs, *program.outputs), lambda item: substitute(item, table))
        return Graph(values[: len(program.inputs)], values[len(program.inputs) :])

    def back(self, value: Value) -> Value:
        """A value with sizes in the place of the numbers. Raises NotSymbolic."""
        if not self.numbers:
            return value
        memo: dict[Scalar, Scalar] = {}
        return rebuild((value,), lambda node, args: self._node(node, args, memo))[0]

    def priced(self, sizes: Mapping[str, int]) -> Callable[[int], int]:
        """The value of a number at given sizes (1 for others): 810001539 is 1296 where `N` is 16."""

        @cache
        def at(number: int) -> int:
            try:
                return sum(
                    factor * prod(sizes.get(each.name, 1) ** power for each, power in powers)
                    for factor, powers in self._monomials(number)
                )  # fmt: skip
            except NotSymbolic:
                return number

        return at

    # ---- numbers -----------------------------------------------------------------------------------------------

    @cached_property
    def _products(self) -> Sequence[tuple[int, tuple[tuple[Sym, int], ...]]]:
        """The products of powers of sizes, the greatest first."""
        powers = product(*([(each, power) for power in range(POWER + 1)] for each in self.numbers))
        values = {each: prod(self.numbers[size] ** power for size, power in each) for each in powers}
        return sorted(((value, each) for each, value in values.items()), key=lambda one: -one[0])

    def _monomials(self, number: int) -> Iterator[tuple[int, tuple[tuple[Sym, int], ...]]]:
        """The products of sizes that a number is the sum of, each with its factor. Raises NotSymbolic."""
        for value, powers in self._products:
            # the nearest: a factor may be negative, as in `N - 1`
            factor = (2 * number + value) // (2 * value)
            number -= factor * value
            if abs(factor) >= LARGE:
                raise NotSymbolic
            if factor:
                yield factor, powers

    def _size(self, number: int) -> Scalar:
        total: Scalar = num(0)
        for factor, powers in self._monomials(number):
            part: Scalar = num(factor)
            for size, power in powers:
                for _ in range(power):
                    part = apply("*", part, size)
            total = apply("+", total, part)
        return total

    # ---- programs ----------------------------------------------------------------------------------------------

    def _node(self, node: Node, args: Values, memo: dict[Scalar, Scalar]) -> Values:
        types = [self._type(type) for type in node.types if type]
        if isinstance(node, Input):
            return (retyped(node, types[0]),)
        if isinstance(node, Call):
            # an attribute is a number of the model
            if any(
                isinstance(part, int | float | Fraction) and self._stands_for_a_size(part) for part in flat(node.attrs)
            ):
                raise NotSymbolic
            return call(node.op, args, node.attrs, tuple(types))
        if isinstance(node, ScopeNode):
            scope = node.scope
            extents = tuple(map(self._dim, scope.extents))
            return (
                scope_value(
                    Scope(extents, rebuild_body(scope.body, self._leaf, memo), scope.dtype, scope.groups), args
                ),
            )
        if (
            isinstance(node, Constant)
            and isinstance(node.data, FillRef)
            and not self._stands_for_a_size(node.data.value)
        ):
            return (fill(node.data.value, types[0]),)
        if tuple(types) != node.types:
            raise NotSymbolic
        return with_args(node, args)

    def _type(self, type: TensorType) -> TensorType:
        return TensorType(type.dtype, tuple(map(self._dim, type.shape)))

    def _dim(self, size: Dim) -> Dim:
        if not isinstance(size, int) or not _is_large(size):
            return size
        found = self._size(size)
        return int(found.value) if isinstance(found, Num) else found

    def _stands_for_a_size(self, number: Number) -> bool:
        return _is_large(number) and number not in self.own

    def _leaf(self, part: Scalar) -> Scalar | None:
        if not isinstance(part, Num) or not self._stands_for_a_size(part.value):
            return None
        number = Fraction(part.value)
        found = self._size(number.numerator)
        return found if number.denominator == 1 else apply("/", found, self._size(number.denominator))


def unknown_sizes(program: Graph) -> tuple[str, ...]:
    """The names of the unknown sizes of what a program is given."""
    return tuple(dict.fromkeys(size.name for size in unknowns([value.type for value in program.inputs])))


def _is_large(number: Number) -> bool:
    """Return whether an exact number is as large, or as small, as what is made of sizes."""
    if isinstance(number, float):
        return False
    number = Fraction(number)
    return abs(number.numerator) >= LARGE or number.denominator >= LARGE

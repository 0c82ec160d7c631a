"""Shapes of the tensors of a foreign rule, inferred from its operators by unification.

A dimension is a size, a number, a sum (of what was joined there, so that a split knows where to cut: TASO's split trees), a product
of groups and channels, or the number of windows of a convolution. A shape is a list of dimensions that may go on (`tail`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from dslc.records import record


class Clash(Exception):
    """No sizes fit these operators."""


class UnboundTensor(Clash):
    """The target reads a tensor that the source does not."""


@dataclass(frozen=True, slots=True, eq=False)
class Size:
    """An unknown size; identity tells sizes apart. A `pack` stands for any number of dimensions."""

    hint: str
    pack: bool = False


@record
class Number:
    """A size that is a number."""

    value: int


@record
class Sum:
    """A size of joined parts."""

    parts: tuple[Dim, ...]


@record
class SizeProduct:
    """(groups, channels)."""

    first: Dim
    second: Dim


@record
class Windows:
    """Positions of a window of `kernel` along `size`, with zeros around where `same`; stride 0: strides and padding are any."""

    size: Dim
    kernel: Dim
    stride: int
    same: bool


Dim: TypeAlias = "Size | Number | Sum | SizeProduct | Windows"


@dataclass(eq=False, slots=True)
class DimensionRow:
    """Dimensions that are not known yet."""


@record
class Shape:
    """Dimensions, and a row of further ones where the rank is open."""

    dims: tuple[Dim, ...]
    tail: DimensionRow | None = None


@dataclass
class Unifier:
    """Known sizes and rows; equations between compound dimensions wait until nothing else is left."""

    sizes: dict[Size, Dim] = field(default_factory=dict)
    rows: dict[DimensionRow, Shape] = field(default_factory=dict)
    waiting: list[tuple[Dim, Dim]] = field(default_factory=list)

    def shape(self, shape: Shape) -> Shape:
        """With what is known of its tail."""
        dims, tail = list(shape.dims), shape.tail
        while tail and tail in self.rows:
            more = self.rows[tail]
            dims += more.dims
            tail = more.tail
        return Shape(tuple(dims), tail)

    def dim(self, dim: Dim) -> Dim:
        """With what is known of its sizes, in normal form."""
        match dim:
            case Size():
                return self.dim(self.sizes[dim]) if dim in self.sizes else dim
            case Sum(parts):
                return Sum(tuple(map(self.dim, parts)))
            case SizeProduct(first, second):
                first, second = self.dim(first), self.dim(second)
                if first == Number(1):
                    return second
                return first if second == Number(1) else _times(first, second)
            case Windows(size, kernel, stride, same):
                size, kernel = self.dim(size), self.dim(kernel)
                if stride == 1 and (same or kernel == Number(1)):
                    return size
                # with zeros on both sides the kernel, which is odd, makes no difference
                return Windows(size, Number(1) if same else kernel, stride, same)
        return dim

    def equal_shapes(self, a: Shape, b: Shape) -> None:
        """Raises Clash where the ranks differ, or sizes."""
        a, b = self.shape(a), self.shape(b)
        common = min(len(a.dims), len(b.dims))
        for left, right in zip(a.dims[:common], b.dims[:common], strict=True):
            self.equal(left, right)
        if len(a.dims) < len(b.dims):
            a, b = b, a
        more = Shape(a.dims[common:], a.tail)
        if not b.tail:
            if more.dims:
                raise Clash(f"tensors of {len(a.dims)} and of {len(b.dims)} dimensions are equal")
            if a.tail:
                self.rows[a.tail] = Shape(())
        elif not more.dims and more.tail is b.tail:
            return
        elif more.tail is b.tail:
            raise Clash("a tensor has more dimensions than itself")
        else:
            self.rows[b.tail] = more

    def equal(self, a: Dim, b: Dim) -> None:
        """Raises Clash where two sizes cannot be equal."""
        a, b = self.dim(a), self.dim(b)
        if a == b:
            return
        if isinstance(b, Size):
            a, b = b, a
        if isinstance(a, Size):
            if a.pack != (isinstance(b, Size) and b.pack):
                raise Clash("a batch of any rank is a single dimension")
            if any(part is a for part in parts_of(b)):
                self._factor(a, b)
                return
            self.sizes[a] = b
            return
        first, second = value_of(a), value_of(b)
        if first is None or second is None:
            self.waiting.append((a, b))
        elif first != second:
            raise Clash(f"a size is both {first} and {second}")

    def _factor(self, a: Dim, b: Dim) -> None:
        """A size that is a product with itself: the other factor is 1."""
        if isinstance(b, SizeProduct) and (b.first == a or b.second == a):
            other = b.second if b.first == a else b.first
            if isinstance(other, Number):
                raise Clash(f"a size is {other.value} times itself")
            self.equal(other, Number(1))
            return
        raise Clash("a size is larger than itself")

    def settle(self) -> None:
        """Compound dimensions are equal where their parts are: enough, though not always needed. Raises Clash."""
        while self.waiting:
            a, b = _cancelled(*(self.dim(each) for each in self.waiting.pop(0)))
            if a == b:
                continue
            known = value_of(a) is not None and value_of(b) is not None
            for left, right in [(a, b)] if known else _pairs(a, b):
                self.equal(left, right)


def _times(first: Dim, second: Dim) -> Dim:
    """A product of one factor and the others; neighbouring numbers are one."""
    match first, second:
        case SizeProduct(a, b), rest:
            return _times(a, _times(b, rest))
        case Number(a), Number(b):
            return Number(a * b)
        case Number(a), SizeProduct(Number(b), rest):
            return SizeProduct(Number(a * b), rest)
        case Number(1), rest:
            return rest
    return SizeProduct(first, second)


def _cancelled(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """Two products without common factors, or two dimensions, of which one is a sum, without what both add; sums in sums are one."""
    if isinstance(a, SizeProduct) and isinstance(b, SizeProduct):
        left, right = _uncommon(factors_of(a), factors_of(b))
        return _product(left), _product(right)
    if not isinstance(a, Sum) and not isinstance(b, Sum):
        return a, b
    left, right = _uncommon(_terms(a), _terms(b))
    if not left and not right:
        return a, a
    if not left or not right:
        raise Clash("a size is larger than itself")
    first, second = (terms[0] if len(terms) == 1 else Sum(tuple(terms)) for terms in (left, right))
    return first, second


def _uncommon(first: Iterable[Dim], second: Iterable[Dim]) -> tuple[list[Dim], list[Dim]]:
    left, right = list(first), list(second)
    for dim in tuple(left):
        if dim in right:
            left.remove(dim)
            right.remove(dim)
    return left, right


def _product(factors: list[Dim]) -> Dim:
    return functools.reduce(lambda rest, factor: _times(factor, rest), reversed(factors)) if factors else Number(1)


def factors_of(dim: Dim) -> Iterator[Dim]:
    """The factors of a dimension, the outermost first; a dimension that is no product is one factor."""
    if isinstance(dim, SizeProduct):
        yield from factors_of(dim.first)
        yield from factors_of(dim.second)
    else:
        yield dim


def _terms(dim: Dim) -> Iterator[Dim]:
    if isinstance(dim, Sum):
        for part in dim.parts:
            yield from _terms(part)
    else:
        yield dim


def _pairs(a: Dim, b: Dim) -> list[tuple[Dim, Dim]]:
    """Pairs that have to be equal for two different dimensions to be equal."""
    match a, b:
        case (Size(), _) | (_, Size()):
            return [(a, b)]
        case (SizeProduct(), _) if b in (a.first, a.second):
            return [(a.second if b == a.first else a.first, Number(1))]
        case (_, SizeProduct()) if a in (b.first, b.second):
            return _pairs(b, a)
        case (SizeProduct(Number(m), left), SizeProduct(Number(n), right)) if m % n == 0 or n % m == 0:
            return [(_times(Number(m // n), left), right) if m % n == 0 else (left, _times(Number(n // m), right))]
        case (SizeProduct(Number(m), part), Number(n)) | (Number(n), SizeProduct(Number(m), part)) if n % m == 0:
            return [(part, Number(n // m))]
        case (SizeProduct(Number(m), part), Sum(parts)) | (Sum(parts), SizeProduct(Number(m), part)) if (
            m % len(parts) == 0
        ):
            return [(each, _times(Number(m // len(parts)), part)) for each in parts]
        case (Sum(left), Sum(right)) if len(left) == len(right):
            return list(zip(left, right, strict=True))
        case (SizeProduct(), SizeProduct()):
            return [(a.first, b.first), (a.second, b.second)]
        case (Windows(), Windows()) if (a.stride, a.same) == (b.stride, b.same):
            return [(a.size, b.size), (a.kernel, b.kernel)]
    raise Clash("two sizes that are computed differently would have to be equal")


def value_of(dim: Dim) -> int | None:
    """The number that a dimension without unknown sizes is."""
    match dim:
        case Number(value):
            return value
        case Sum(parts):
            values = [value_of(part) for part in parts]
            return None if None in values else sum(value for value in values if value is not None)
        case SizeProduct(first, second):
            a, b = value_of(first), value_of(second)
            return None if a is None or b is None else a * b
        case Windows(size, kernel, stride, same):
            n, k = value_of(size), value_of(kernel)
            return None if n is None or k is None or not stride else (n - (1 if same else k)) // stride + 1
    return None


def parts_of(dim: Dim) -> Iterator[Dim]:
    """A dimension and everything in it."""
    yield dim
    match dim:
        case Sum(parts):
            for part in parts:
                yield from parts_of(part)
        case SizeProduct(first, second):
            yield from parts_of(first)
            yield from parts_of(second)
        case Windows(size, kernel, _, _):
            yield from parts_of(size)
            yield from parts_of(kernel)

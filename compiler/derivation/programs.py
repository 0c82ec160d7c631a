"""Programs that were found: their prices by estimate, and which of them are worth showing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from math import prod

from dslc.derivation.pieces import scopes_of
from dslc.derivation.steps import Path
from dslc.derivation.targets import summed
from dslc.ir.graph import Call, Input, Node, ScopeNode, Value, nodes_of
from dslc.ir.scalar import Num, Read, Reduce, Scalar, flat
from dslc.ir.scopes import each_of
from dslc.records import record
from dslc.semantics.library import Rules

OPERATIONS = 2e11  #: operations a second of products
SCALAR = 2e10  #: operations a second of anything else
BYTES = 3e10  #: bytes a second
LAUNCH = 2e-6  #: seconds that a call takes


@record
class PricedProgram:
    """An equal program of operators and generated operators: how it was derived, and the estimate of its price in seconds."""

    value: Value
    steps: Path
    targets: tuple[str, ...]
    seconds: float

    @property
    def calls(self) -> tuple[Call, ...]:
        return calls_of(self.value)

    @property
    def generated(self) -> tuple[ScopeNode, ...]:
        return tuple(scopes_of(self.value))


Price = Callable[[Node], float]
#: what a number is that stands for a size
At = Callable[[int], int]


def calls_of(*values: Value) -> tuple[Call, ...]:
    """Return the calls that values need, arguments first."""
    return tuple(node for node in nodes_of(values) if isinstance(node, Call))


def _as_it_is(number: int) -> int:
    return number


def estimated(rules: Rules, at: At = _as_it_is) -> Price:
    """Seconds of a node by its operations and bytes; `at` says what numbers are that stand for sizes."""
    products = cache(partial(summed, rules))

    def price(node: Node) -> float:
        if isinstance(node, Input) or node.constant:
            return 0.0
        sizes = sum(elements(value, at) * value.type.dtype.bytes for value in (*dict.fromkeys(node.args), *node.values))
        if isinstance(node, ScopeNode):
            per = _operations(node.scope.body, at)
            return LAUNCH / 2 + max(per * elements(node.values[0], at) / SCALAR, sizes / BYTES)
        if isinstance(node, Call):
            count = 2.0 * elements(node.values[0], at) * at(int(products(node)))
            return LAUNCH + max(count / OPERATIONS, sizes / BYTES)
        return LAUNCH

    return price


def elements(value: Value, at: At = _as_it_is) -> int:
    """The number of elements of a value; an unknown size counts as 128."""
    return prod(at(size) if isinstance(size, int) else 128 for size in value.type.shape)


def _positions(total: Reduce, at: At = _as_it_is) -> float:
    return prod(
        (at(each.value) if isinstance(each, Num) and isinstance(each.value, int) else 128 for each in total.extents),
        start=1.0,
    )


def _operations(body: Scalar, at: At = _as_it_is) -> float:
    if isinstance(body, Reduce):
        return _positions(body, at) * (1 + _operations(body.body, at))
    if body.op:
        return sum(_operations(arg, at) for arg in body.args) + (len(body.args) - 1 if body.reads else 0)
    return 0.0


def operations(value: Value) -> float:
    """The number of operations of the scopes of an expression."""
    return sum(_operations(node.scope.body) * elements(node.values[0]) for node in scopes_of(value))


def intensity(node: ScopeNode) -> float:
    """Operations per element that is read or written; 1 at most for what adds elements of one tensor, each of them as it is."""
    count, body = 1.0, node.scope.body
    while isinstance(body, Reduce):
        count *= _positions(body)
        body = body.body
    if sum(1 for _ in each_of(Read, body)) < 2:
        return min(1.0, _operations(body) + 1.0)
    moved = sum(min(elements(arg), count * elements(node.values[0])) for arg in dict.fromkeys(node.args))
    return _operations(node.scope.body) * elements(node.values[0]) / max(1.0, moved + elements(node.values[0]))


@record
class _Size:
    """The operators of a program and their sizes: numbers of attributes, elements of the result, terms that are added for each.

    `dimensions`: of all operands.
    """

    operators: tuple[str, ...]
    numbers: tuple[tuple[int, ...], ...]
    sums: bool
    dimensions: int

    def within(self, other: _Size) -> bool:
        """Return whether another program has the same operators, all as large at least, and equal ones not in fewer dimensions."""
        if (self.operators, self.sums) != (other.operators, other.sums) or [*map(len, self.numbers)] != [
            *map(len, other.numbers)
        ]:
            return False
        if self.numbers == other.numbers:
            # one product is another one than a batch of products with as many elements
            return self.dimensions <= other.dimensions
        return all(
            a <= b for own, its in zip(self.numbers, other.numbers, strict=True) for a, b in zip(own, its, strict=True)
        )


def _size_of(rules: Rules, nodes: Iterable[Node]) -> _Size:
    found, sums, dimensions = [], False, 0
    for node in nodes:
        if isinstance(node, Call):
            numbers = [int(each) for _, value in node.attrs for each in flat(value) if isinstance(each, int)]
            sizes = sorted(int(elements(arg)) for arg in node.args)
            dimensions += sum(len(arg.type.shape) for arg in node.args)
            found.append((node.op, (*numbers, elements(node.values[0]), int(summed(rules, node)), *sizes)))
        elif isinstance(node, ScopeNode):
            sums = sums or node.scope.body.binds
    found.sort()
    return _Size(tuple(name for name, _ in found), tuple(numbers for _, numbers in found), sums, dimensions)


def unlike(rules: Rules, programs: Iterable[PricedProgram], given: Iterable[Node] = ()) -> Iterator[PricedProgram]:
    """Of programs, the cheapest first, those that are no others (or the `given` one) with more to compute by the same operators."""
    kept = [_size_of(rules, given)]
    for each in programs:
        size = _size_of(rules, nodes_of([each.value]))
        if not any(known.within(size) for known in kept):
            kept.append(size)
            yield each

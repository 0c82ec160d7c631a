"""The algebra of scopes and their normal form, whose identity is EinNet's fingerprint (OSDI'23, section 6.2)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dslc.interpret.floats import Floats
from dslc.interpret.run import run_scopes
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Input, Scope, Value, input_value, scope_value, topological
from dslc.ir.normal import normal
from dslc.ir.scalar import (
    Apply,
    Iter,
    Read,
    Reduce,
    Scalar,
    apply,
    dimension,
    iterator,
    num,
    raw_apply,
    read,
    reduce,
)
from dslc.ir.scalar import substitute as put
from dslc.ir.scopes import inline, renumber, restrict, split_iterator, stack, substitute

I0, I1, R0, R1 = (iterator(name) for name in ("i0", "i1", "r0", "r1"))
A = input_value("A", TensorType(DType.I64, (4, 6)))
B = input_value("B", TensorType(DType.I64, (6, 4)))


def scope(extents: Sequence[int], body: Scalar, args: Sequence[Value], groups: tuple[int, ...] | None = None) -> Value:
    return scope_value(Scope(tuple(extents), body, DType.I64, groups), tuple(args))


def product(a: Value, b: Value) -> Value:
    """The matrix product as one scope."""
    rows, inner, columns = a.type.shape[0], a.type.shape[1], b.type.shape[1]
    body = reduce("sum", (R0,), (num(inner),), apply("*", read(0, (I0, R0)), read(1, (R0, I1))))  # type: ignore[arg-type]
    return scope((rows, columns), body, (a, b))  # type: ignore[arg-type]


def computed(value: Value, seed: int = 0) -> np.ndarray[Any, Any]:
    feeds = {}
    for node in (n for n in topological([value.node]) if isinstance(n, Input)):
        rng = np.random.default_rng([seed, *node.name.encode()])
        feeds[Value(node)] = rng.integers(-9, 9, size=[int(str(d)) for d in Value(node).type.shape])
    (array,) = run_scopes([value], feeds, Floats())
    return np.asarray(array)


def same(a: Value, b: Value) -> None:
    np.testing.assert_array_equal(computed(a), computed(b))


# ---- the algebra -----------------------------------------------------------------------------------------------------


def test_nothing_is_captured() -> None:
    inner = reduce("sum", (R0,), (num(3),), read(0, (I0, R0)))
    moved = substitute(inner, {I0: read(1, (R0,))}, depth=1)
    assert str(moved) == "(sum[r1: 3] $0[$1[r0], r1])"


def test_a_producer_is_inlined_below_the_sums_of_its_consumer() -> None:
    """`(A B) A` as one expression: the sum of the inner product is named apart from the outer one's."""
    whole = product(product(A, B), A)
    inlined = inline(whole, 0)
    assert "sum[r0: 4]" in str(inlined.node.scope) and "sum[r1: 6]" in str(inlined.node.scope)  # type: ignore[attr-defined]
    same(whole, inlined)


def test_what_is_read_outside_a_producer_keeps_its_value_outside() -> None:
    square = scope((4, 4), apply("*", read(0, (I0, I1)), read(0, (I0, I1))), (scope((4, 4), read(0, (I0, I1)), (A,)),))
    shifted = scope((4, 4), read(0, (apply("+", I0, num(-2)), I1), other=num(7)), (square,))
    same(shifted, inline(shifted, 0))


@pytest.mark.parametrize("factor", [1, 2, 3, 6])
def test_an_iterator_of_a_result_is_split_within_its_dimension(factor: int) -> None:
    value = product(B, A)
    split = split_iterator(value, I0, factor)
    assert split.type == value.type
    assert split.node.scope.groups == (2, 1)  # type: ignore[attr-defined]
    same(value, split)


def test_an_iterator_of_a_sum_is_split() -> None:
    value = product(A, B)
    split = split_iterator(value, R0, 3)
    assert "sum[r0: 2, r1: 3]" in str(split.node.scope)  # type: ignore[attr-defined]
    same(value, split)


def test_a_symbolic_extent_is_split_where_the_factor_divides_it() -> None:
    n = dimension("N")
    x = input_value("X", TensorType(DType.F32, (apply("*", n, num(4)),)))
    value = scope_value(Scope((apply("*", n, num(4)),), read(0, (I0,)), DType.F32), (x,))
    assert split_iterator(value, I0, 4).type == value.type
    with pytest.raises(ValueError, match="3 does not divide"):
        split_iterator(value, I0, 3)


def test_a_box_of_a_result() -> None:
    value = split_iterator(product(B, A), I0, 2)
    np.testing.assert_array_equal(computed(restrict(value, {0: (1, 4), 1: (2, 3)})), computed(value)[1:5, 2:5])


def test_results_are_stacked() -> None:
    first, second = product(A, B), scope((4, 4), read(0, (I0, I1)), (A,))
    stacked = stack([first, second, first])
    np.testing.assert_array_equal(computed(stacked), np.stack([computed(first), computed(second), computed(first)]))
    with pytest.raises(ValueError, match="several types"):
        stack([product(A, B), product(B, A)])


def test_operands_are_numbered_as_they_are_read() -> None:
    value = scope((4, 4), apply("+", read(2, (I0, I1)), read(0, (I0, I1))), (A, B, A))
    assert renumber(value).node.args == (A,)


# ---- fingerprints: the four redundancies of EinNet, section 6.2 ---------------------------------------------------------


def matmul_of_three(order: tuple[Iter, Iter], extents: tuple[int, int], nested: bool) -> Value:
    x, y = (order[extents.index(4)], order[extents.index(6)])
    body = apply("*", read(0, (I0, y)), read(1, (y, x)))
    if nested:
        inner = reduce("sum", (order[1],), (num(extents[1]),), body)
        return scope((4,), reduce("sum", (order[0],), (num(extents[0]),), inner), (A, B))
    return scope((4,), reduce("sum", order, tuple(num(e) for e in extents), body), (A, B))


def test_summation_reordering() -> None:
    """`sum[x] sum[y] f`, `sum[y] sum[x] f` and `sum[x, y] f` are one expression."""
    forms = {
        normal(matmul_of_three(order, extents, nested))
        for order in ((R0, R1), (R1, R0)) for extents in ((4, 6), (6, 4)) for nested in (True, False)
    }  # fmt: skip
    assert len(forms) == 1


def test_operand_reordering() -> None:
    """Of the elements, `A[i] + B[i]`, and of the positions, in every commutative function."""
    a, b = read(0, (I0, I1)), read(1, (I1, I0))
    for name in ("min", "max"):
        one = scope((4, 4), raw_apply(name, a, b), (A, B))
        other = scope((4, 4), raw_apply(name, b, a), (A, B))
        swapped = scope((4, 4), raw_apply(name, read(1, (I0, I1)), read(0, (I1, I0))), (B, A))
        assert normal(one) == normal(other) == normal(swapped)
    plus = scope((4, 4), apply("+", a, b), (A, B))
    assert normal(plus) == normal(scope((4, 4), apply("+", read(0, (I1, I0)), read(1, (I0, I1))), (B, A)))


def test_iterator_renaming() -> None:
    """Bound names do not matter, the order of traversal iterators does."""
    k, m = iterator("r7"), iterator("r3")
    named = reduce("sum", (k,), (num(6),), apply("*", read(0, (I0, k)), read(1, (k, I1))))
    again = reduce("sum", (m,), (num(6),), apply("*", read(0, (I0, m)), read(1, (m, I1))))
    assert normal(scope((4, 4), named, (A, B))) == normal(scope((4, 4), again, (A, B)))
    swapped = reduce("sum", (k,), (num(6),), apply("*", read(0, (I1, k)), read(1, (k, I0))))
    assert normal(scope((4, 4), named, (A, B))) != normal(scope((4, 4), swapped, (A, B)))


def test_tensor_renaming() -> None:
    """Tensors that different scopes introduce are one where their expressions are; inputs keep their identity."""
    first = scope((4, 4), apply("+", read(0, (I0, I1)), read(1, (I1, I0))), (A, B))
    second = scope((4, 4), apply("+", read(1, (I0, I1)), read(0, (I1, I0))), (B, A))
    assert normal(product(first, A)) == normal(product(second, A))
    other = input_value("A2", A.type)
    assert normal(product(other, B)) != normal(product(A, B))


def test_scopes_and_traversal_axes_stay() -> None:
    """A split does not look like what it came from, and an axis of size 1 is an axis."""
    value = product(A, B)
    assert normal(split_iterator(value, I0, 2)) != normal(value)
    assert normal(split_iterator(value, I0, 1)) != normal(value)
    assert normal(inline(product(value, A), 0)) != normal(product(value, A))


def test_what_is_said_twice_is_said_once() -> None:
    """The larger of a thing and itself reads one operand, and maxima nest in one way."""
    a, b = read(0, (I0, I1)), read(1, (I0, I1))
    wide = input_value("A3", TensorType(DType.I64, (4, 6)))
    once = scope((4, 6), a, (A,))
    twice = normal(scope((4, 6), raw_apply("max", raw_apply("max", a, a), a), (A, wide)))
    assert twice == normal(once) and twice.node.args == (A,)
    left = raw_apply("max", raw_apply("max", a, b), raw_apply("max", num(1), num(2)))
    right = raw_apply("max", num(2), raw_apply("max", raw_apply("max", b, num(1)), raw_apply("max", a, b)))
    assert normal(scope((4, 6), left, (A, wide))) == normal(scope((4, 6), right, (A, wide)))


def test_a_normal_form_is_its_own() -> None:
    square = input_value("S", TensorType(DType.I64, (4, 4)))
    for seed in range(300):
        value = normal(
            scope((2, 3), random_body(random.Random(seed), [I0, I1], 4), (square, input_value("T", square.type)))
        )
        assert normal(value) == value, seed


def test_sums_over_one_position_go() -> None:
    body = reduce("sum", (R0, R1), (num(1), num(6)), apply("*", read(0, (I0, R1)), read(1, (R1, apply("+", I1, R0)))))
    assert normal(scope((4, 4), body, (A, B))) == normal(product(A, B))


# ---- random expressions ----------------------------------------------------------------------------------------------


def random_body(rng: random.Random, iters: list[Iter], depth: int) -> Scalar:
    """An expression over A and B, every index in bounds: positions of iterators below 4."""
    kind = rng.choice(["read", "read", "+", "*", "sum", "sum", "max", "reduce", "select"]) if depth > 0 else "read"
    if kind == "read":
        return read(rng.randrange(2), (rng.choice(iters), rng.choice(iters)))
    if kind in {"sum", "reduce"}:
        inner = [iterator(f"r{rng.randrange(100, 10**6)}") for _ in range(rng.randint(1, 3))]
        extents = tuple(num(rng.choice([1, 2, 3, 3])) for _ in inner)
        body = random_body(rng, [*iters, *inner], depth - 1)
        return reduce("sum" if kind == "sum" else rng.choice(["max", "min"]), tuple(inner), extents, body)
    parts = [random_body(rng, iters, depth - 1) for _ in range(2)]
    if kind == "select":
        return apply("select", apply("<", rng.choice(iters), num(rng.randint(1, 3))), *parts)
    return apply(kind, *parts)


def shuffled(node: Scalar, rng: random.Random) -> Scalar:
    """The same expression: other names of bound iterators, summations, operands and nesting in another order."""
    if isinstance(node, Reduce):
        order = list(range(len(node.iters)))
        rng.shuffle(order)
        names: dict[Scalar, Scalar] = {it: iterator(f"r{rng.randrange(10**6, 10**9)}") for it in node.iters}
        body = shuffled(put(node.body, names), rng)
        iters = [names[node.iters[k]] for k in order]
        extents = [node.extents[k] for k in order]
        cut = rng.randint(0, len(iters) - 1)
        if cut:
            body = reduce(node.kind, tuple(iters[cut:]), tuple(extents[cut:]), body)  # type: ignore[arg-type]
            iters, extents = iters[:cut], extents[:cut]
        return reduce(node.kind, tuple(iters), tuple(extents), body)  # type: ignore[arg-type]
    if isinstance(node, Apply):
        args = [shuffled(arg, rng) for arg in node.args]
        if node.name in {"+", "*", "max", "min"}:
            rng.shuffle(args)
            return raw_apply(node.name, *args)
        return raw_apply(node.name, *args)
    if isinstance(node, Read):
        return read(1 - node.operand, node.index, node.other)
    return node


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 10**9))
def test_a_shuffled_expression_has_the_same_normal_form(seed: int) -> None:
    rng = random.Random(seed)
    square = input_value("S", TensorType(DType.I64, (4, 4)))
    other = input_value("T", TensorType(DType.I64, (4, 4)))
    body = random_body(rng, [I0, I1], 3)
    value = scope((2, 3), body, (square, other))
    mixed = scope((2, 3), shuffled(body, rng), (other, square))
    assert normal(value) == normal(mixed), f"{normal(value).node.scope} and {normal(mixed).node.scope}"  # type: ignore[attr-defined]
    assert normal(normal(value)) == normal(value)
    same(value, normal(value))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_what_differs_has_another_normal_form(seed: int) -> None:
    """Two expressions of one form compute the same."""
    rng = random.Random(seed)
    square = input_value("S", TensorType(DType.I64, (4, 4)))
    other = input_value("T", TensorType(DType.I64, (4, 4)))
    one, two = (scope((2, 3), random_body(rng, [I0, I1], 2), (square, other)) for _ in range(2))
    if not np.array_equal(computed(one), computed(two)):
        assert normal(one) != normal(two)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_a_random_producer_is_inlined(seed: int) -> None:
    rng = random.Random(seed)
    square = input_value("S", TensorType(DType.I64, (4, 4)))
    other = input_value("T", TensorType(DType.I64, (4, 4)))
    producer = scope((4, 4), random_body(rng, [I0, I1], 2), (square, other))
    consumer = scope((2, 3), random_body(rng, [I0, I1], 2), (producer, square))
    if producer in consumer.node.args:
        same(consumer, inline(consumer, consumer.node.args.index(producer)))

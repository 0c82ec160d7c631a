"""The interpreter on scopes built by hand, against numpy and ONNX Runtime's definition of a convolution."""

from __future__ import annotations

import time
from fractions import Fraction

import numpy as np
import pytest

from dslc.interpret import Exact, Field, Floats, InterpretError, Redraw, run_scopes
from dslc.interpret.field import P
from dslc.ir.constants import array_value
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Scope, Value, input_value, opaque, scope_value
from dslc.ir.scalar import Scalar, apply, iterator, num, raw_apply, read, reduce

I = [iterator(f"i{k}") for k in range(6)]  # noqa: E741
R = [iterator(f"r{k}") for k in range(4)]
RNG = np.random.default_rng(0)


def tensor(name: str, *shape: int, dtype: DType = DType.F32) -> Value:
    return input_value(name, TensorType(dtype, shape))


def scope(extents: tuple[int, ...], body: Scalar, *args: Value, dtype: DType = DType.F32) -> Value:
    return scope_value(Scope(extents, body, dtype), args)


def product(body_a: Scalar, body_b: Scalar) -> Scalar:
    return raw_apply("*", body_a, body_b)


def conv_scope(x: Value, k: Value, stride: int = 1, pad: int = 1, groups: int = 1) -> Value:
    n, _, h, w = (int(str(s)) for s in x.type.shape)
    f, d, r, s = (int(str(s)) for s in k.type.shape)
    oh, ow = (h + 2 * pad - r) // stride + 1, (w + 2 * pad - s) // stride + 1
    group = apply("//", I[1], num(f // groups))
    channel = apply("+", apply("*", group, num(d)), R[0])
    row = apply("+", apply("*", I[2], num(stride)), R[1], num(-pad))
    column = apply("+", apply("*", I[3], num(stride)), R[2], num(-pad))
    body = reduce(
        "sum",
        (R[0], R[1], R[2]),
        (num(d), num(r), num(s)),
        product(read(0, (I[0], channel, row, column), num(0)), read(1, (I[1], R[0], R[1], R[2]))),
    )
    return scope((n, f, oh, ow), body, x, k)


def conv_numpy(x: np.ndarray, k: np.ndarray, stride: int, pad: int, groups: int) -> np.ndarray:
    f, d, r, s = k.shape
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    if x.dtype == object:
        x = np.frompyfunc(int, 1, 1)(x)  # padding with numpy's integers would overflow
    windows = np.lib.stride_tricks.sliding_window_view(x, (r, s), (2, 3))[:, :, ::stride, ::stride]
    parts = []
    for out in range(f):
        group = out // (f // groups)
        taps = windows[:, group * d : (group + 1) * d] * k[out][:, None, None]
        parts.append(taps.sum(axis=(1, 4, 5)))
    return np.stack(parts, axis=1)


@pytest.mark.parametrize(("stride", "pad", "groups"), [(1, 0, 1), (2, 1, 1), (1, 1, 2), (1, 1, 6)])
def test_convolution(stride: int, pad: int, groups: int) -> None:
    x, k = tensor("x", 2, 6, 7, 5), tensor("k", 6, 6 // groups, 3, 3)
    a, b = RNG.standard_normal((2, 6, 7, 5)), RNG.standard_normal((6, 6 // groups, 3, 3))
    y = conv_scope(x, k, stride, pad, groups)
    (got,) = run_scopes([y], {x: a, k: b}, Floats(rounded=False))
    assert np.allclose(got, conv_numpy(a, b, stride, pad, groups))
    p, q = RNG.integers(0, P, a.shape), RNG.integers(0, P, b.shape)
    (residues,) = run_scopes([y], {x: p, k: q}, Field())
    want = conv_numpy(p.astype(object), q.astype(object), stride, pad, groups) % P
    assert (residues == want).all()
    u, v = RNG.integers(-9, 9, a.shape), RNG.integers(-9, 9, b.shape)
    (exact,) = run_scopes([y], {x: u, k: v}, Exact())
    assert exact.dtype == object and (exact == conv_numpy(u, v, stride, pad, groups)).all()


@pytest.mark.parametrize("domain", [Floats(), Field()], ids=["floats", "field"])
def test_a_large_convolution_takes_seconds_and_not_minutes(domain: Floats | Field) -> None:
    x, k = tensor("x", 1, 64, 56, 56), tensor("k", 64, 64, 3, 3)
    rng = np.random.default_rng(1)
    feeds = {x: domain.draw((1, 64, 56, 56), rng), k: domain.draw((64, 64, 3, 3), rng)}
    y = conv_scope(x, k)
    start = time.process_time()
    (got,) = run_scopes([y], feeds, domain)
    # about a second of processor time on one idle core
    assert time.process_time() - start < 8
    assert got.shape == (1, 64, 56, 56)


def test_batched_products_and_a_running_sum() -> None:
    a, b = tensor("a", 2, 3, 4), tensor("b", 2, 4, 5)
    x, y = RNG.standard_normal((2, 3, 4)), RNG.standard_normal((2, 4, 5))
    body = reduce("sum", (R[0],), (num(4),), product(read(0, (I[0], I[1], R[0])), read(1, (I[0], R[0], I[2]))))
    (got,) = run_scopes([scope((2, 3, 5), body, a, b)], {a: x, b: y}, Floats(rounded=False))
    assert np.allclose(got, x @ y)
    triangle = reduce("sum", (R[0],), (apply("+", I[1], num(1)),), read(0, (I[0], R[0], I[2])))
    (got,) = run_scopes([scope((2, 3, 4), triangle, a)], {a: x}, Floats(rounded=False))
    assert np.allclose(got, np.cumsum(x, axis=1))


def test_conditions_on_one_iterator_read_each_tensor_only_where_it_is_valid() -> None:
    a, b = tensor("a", 2, 3), tensor("b", 2, 4)
    x, y = RNG.standard_normal((2, 3)), RNG.standard_normal((2, 4))
    body = apply("select", apply("<", I[1], num(3)), read(0, (I[0], I[1])), read(1, (I[0], apply("+", I[1], num(-3)))))
    (got,) = run_scopes([scope((2, 7), body, a, b)], {a: x, b: y}, Floats(rounded=False))
    assert (got == np.concatenate([x, y], axis=1)).all()


def test_row_major_reshape_and_merged_dimensions() -> None:
    a = tensor("a", 4, 6)
    x = RNG.standard_normal((4, 6))
    flat = apply("+", apply("*", I[0], num(8)), I[1])
    reshaped = scope((3, 8), read(0, (apply("//", flat, num(6)), apply("%", flat, num(6)))), a)
    (got,) = run_scopes([reshaped], {a: x}, Floats(rounded=False))
    assert (got == x.reshape(3, 8)).all()
    heads = scope((24,), read(0, (apply("%", I[0], num(4)), apply("//", I[0], num(4)))), a)
    (got,) = run_scopes([heads], {a: x}, Floats(rounded=False))
    assert (got == x.T.reshape(-1)).all()


def test_positions_from_data() -> None:
    a, j = tensor("a", 5, 3), tensor("j", 2, 2, dtype=DType.I64)
    x, at = RNG.standard_normal((5, 3)), np.array([[4, 0], [1, 1]])
    (got,) = run_scopes([scope((2, 2, 3), read(0, (read(1, (I[0], I[1])), I[2])), a, j)], {a: x, j: at}, Floats(False))
    assert (got == x[at]).all()


def test_a_read_out_of_bounds_is_an_error() -> None:
    a = tensor("a", 3)
    with pytest.raises(InterpretError, match="axis 0 of size 3 is read at 3"):
        run_scopes([scope((4,), read(0, (I[0],)), a)], {a: np.zeros(3)}, Floats())


def test_extremes_windows_and_conditions_of_reductions() -> None:
    a = tensor("a", 6)
    x = np.array([3.0, -1, 4, 1, -5, 9])
    window = reduce("max", (R[0],), (num(3),), read(0, (apply("+", I[0], R[0], num(-1)),), num(float("-inf"))))
    (got,) = run_scopes([scope((6,), window, a)], {a: x}, Floats())
    assert got.tolist() == [3, 4, 4, 4, 9, 9]
    where = raw_apply("==", read(0, (R[0],)), num(4))
    first = scope((), reduce("min", (R[0],), (num(6),), R[0], where), a, dtype=DType.I64)
    (at,) = run_scopes([first], {a: x}, Floats())
    assert at == 2 and at.dtype == np.int64
    counted = scope((6,), reduce("sum", (R[0],), (num(6),), num(1), raw_apply("<=", R[0], I[0])), dtype=DType.I64)
    assert run_scopes([counted], {}, Floats())[0].tolist() == [1, 2, 3, 4, 5, 6]


def test_integers_stay_integers() -> None:
    a, b = tensor("a", 2, dtype=DType.I64), tensor("b", 2, dtype=DType.I64)
    big = np.array([2**62 + 1, -7])
    quotient = apply("trunc", raw_apply("/", read(0, (I[0],)), read(1, (I[0],))))
    y = scope((2,), quotient, a, b, dtype=DType.I64)
    for domain in (Floats(), Field(), Exact()):
        (got,) = run_scopes([y], {a: big, b: np.array([1, 2])}, domain)
        assert got.tolist() == [2**62 + 1, -3]
    shifted = scope((2,), raw_apply("*", read(0, (I[0],)), num(200)), tensor("c", 2, dtype=DType.U8), dtype=DType.U8)
    (got,) = run_scopes([shifted], {tensor("c", 2, dtype=DType.U8): np.array([2, 1], np.uint8)}, Floats())
    assert got.tolist() == [144, 200] and got.dtype == np.uint8


def test_casts() -> None:
    a = tensor("a", 4)
    x = np.array([1.75, -1.75, 0, 300])
    for dtype, want in ((DType.I32, [1, -1, 0, 300]), (DType.BOOL, [1, 1, 0, 1])):
        y = scope((4,), raw_apply(f"convert:{dtype}", read(0, (I[0],))), a, dtype=dtype)
        for domain in (Floats(), Exact()):
            assert run_scopes([y], {a: x}, domain)[0].tolist() == want
    # what an integer type does not hold has no value there
    y = scope((4,), raw_apply("convert:uint8", read(0, (I[0],))), a, dtype=DType.U8)
    for domain in (Floats(), Exact()):
        with pytest.raises((InterpretError, Redraw)):
            run_scopes([y], {a: x}, domain)
    half = scope((1,), raw_apply("convert:f16", num(0.1)))
    assert run_scopes([half], {}, Floats(rounded=False))[0].tolist() == [float(np.float16(0.1))]


def test_fractions_of_positions_are_exact() -> None:
    third = raw_apply("/", I[0], num(3))
    y = scope((4,), apply("select", raw_apply("==", raw_apply("*", third, num(3)), I[0]), num(1), num(0)))
    for domain in (Floats(), Field(), Exact()):
        assert run_scopes([y], {}, domain)[0].tolist() == [1, 1, 1, 1]


def test_the_field_knows_decimal_numbers_and_inverses() -> None:
    a = tensor("a", 1)
    y = scope((1,), raw_apply("/", raw_apply("*", read(0, (I[0],)), num(0.1)), num(Fraction(1, 10))), a)
    assert run_scopes([y], {a: np.array([123])}, Field())[0].tolist() == [123]
    with pytest.raises(Redraw):
        run_scopes([scope((1,), raw_apply("/", num(1), read(0, (I[0],))), a)], {a: np.array([0])}, Field())


def test_functions_of_the_field_are_random_and_max_is_a_lattice() -> None:
    a, b, c = (tensor(name, 50) for name in "abc")
    x, y, z = (read(k, (I[0],)) for k in range(3))
    rng = np.random.default_rng(2)
    feeds = {v: Field(1).draw((50,), rng) for v in (a, b, c)}

    def same(left: Scalar, right: Scalar) -> bool:
        domain = Field(1)
        got = run_scopes([scope((50,), left, a, b, c), scope((50,), right, a, b, c)], feeds, domain)
        return bool((got[0] == got[1]).all())

    assert same(raw_apply("max", x, y), raw_apply("max", y, x))
    assert same(raw_apply("max", x, raw_apply("max", y, z)), raw_apply("max", raw_apply("max", x, y), z))
    assert same(raw_apply("max", x, raw_apply("min", x, y)), x)
    assert same(raw_apply("max", x, num(float("-inf"))), x)
    assert same(raw_apply("select", raw_apply("<", x, y), y, x), raw_apply("max", x, y))
    assert same(raw_apply("exp", raw_apply("+", x, y)), raw_apply("exp", raw_apply("+", y, x)))
    assert not same(raw_apply("exp", x), raw_apply("tanh", x))
    assert not same(raw_apply("max", x, y), x)
    # what rules name keeps its true order
    clipped = raw_apply(
        "min", raw_apply("max", raw_apply("min", raw_apply("max", x, num(0)), num(6)), num(1)), num(5.5)
    )
    assert same(clipped, raw_apply("min", raw_apply("max", x, num(1)), num(5.5)))


def test_exact_numbers_may_be_symbols() -> None:
    import sympy

    a = tensor("a", 2)
    u, v = sympy.symbols("u v")
    y = scope((), reduce("sum", (R[0],), (num(2),), raw_apply("^", read(0, (R[0],)), num(2))), a)
    (got,) = run_scopes([y], {a: np.array([u, v], dtype=object)}, Exact())
    assert got[()] == u**2 + v**2
    (root,) = run_scopes(
        [scope((), raw_apply("sqrt", read(0, (num(0),))), a)], {a: np.array([u, v], dtype=object)}, Exact()
    )
    assert root[()] == sympy.sqrt(u)


def test_large_intermediates_are_computed_in_pieces() -> None:
    a = tensor("a", 3000, 3)
    x = RNG.standard_normal((3000, 3))
    distance = raw_apply(
        "^", raw_apply("+", read(0, (I[0], R[1])), raw_apply("*", num(-1), read(0, (R[0], R[1])))), num(2)
    )
    nearest = reduce("max", (R[0],), (num(3000),), reduce("sum", (R[1],), (num(3),), distance))
    (got,) = run_scopes([scope((3000,), nearest, a)], {a: x}, Floats(rounded=False))
    want = [float(((x - row) ** 2).sum(axis=1).max()) for row in x[:20]]
    assert np.allclose(got[:20], want)


def test_constants_are_read_and_opaque_nodes_refused() -> None:
    weights = array_value(np.array([1.5, 2.5], np.float32))
    y = scope((2,), raw_apply("*", num(2), read(0, (I[0],))), weights)
    assert run_scopes([y], {}, Floats())[0].tolist() == [3, 5]
    assert run_scopes([y], {}, Exact())[0].tolist() == [3, 5]
    (strange,) = opaque("k", "Loop", None, (), (TensorType(DType.F32, (2,)),))
    with pytest.raises(InterpretError, match="Loop"):
        run_scopes([scope((2,), read(0, (I[0],)), strange)], {}, Floats())


@pytest.mark.parametrize("exponent", [10**18, -(10**18), Fraction(10**18, 7)])
def test_an_exact_power_that_would_fill_the_memory_is_drawn_anew(exponent: Fraction) -> None:
    base, given = np.array([Fraction(3)], object), np.array([Fraction(exponent)], object)
    with pytest.raises(Redraw, match="too many digits"):
        Exact().power(base, given, False)
    assert list(Exact().power(np.array([Fraction(1)], object), given, False)) == [1]


@pytest.mark.parametrize("dtype", [DType.U8, DType.I8, DType.I64])
def test_positions_that_are_elements_are_read_in_any_order(dtype: DType) -> None:
    """Descending ones of an unsigned type too, whose differences it has not."""
    x, at = tensor("x", 4), tensor("at", 2, 2, dtype=dtype)
    y = scope((2, 2), read(0, (read(1, (I[0], I[1])),)), x, at)
    for places in ([[3, 2], [1, 0]], [[0, 1], [2, 3]], [[0, 2], [1, 2]], [[2, 2], [2, 2]]):
        index = np.array(places)
        (got,) = run_scopes([y], {x: np.arange(4.0), at: index.astype(dtype.value)}, Floats())
        assert got.tolist() == index.astype(float).tolist()

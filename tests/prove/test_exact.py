"""The exact prover on pairs of programs at symbolic sizes: true ones are proved, wrong ones are refuted where it says they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dslc.interpret.exact import Exact
from dslc.interpret.run import run
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Input, Value, input_value, topological
from dslc.ir.scalar import Scalar, as_scalar, dimension, sym
from dslc.ir.scalar import apply as scalar
from dslc.prove.exact import Differs, Equal, Undecided, compare, difference
from dslc.prove.sizes import at_sizes
from dslc.semantics.apply import apply
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules, standard
from tests.regions import points_of

Sides = tuple[Sequence[Value], Sequence[Value], Sequence[Scalar]]
Program = Callable[[], Sides]
P, Q, E = sym("p"), sym("q"), dimension("e")


@pytest.fixture(scope="module")
def rules() -> Rules:
    return standard()


STD = standard()


def size(of: Any) -> Any:
    return dimension(of) if isinstance(of, str) else of


def total(*parts: Any) -> Scalar:
    return scalar("+", *(as_scalar(size(part)) for part in parts))


def product(*parts: Any) -> Scalar:
    return scalar("*", *(as_scalar(size(part)) for part in parts))


def at_least(what: Any, bound: Any) -> Scalar:
    return scalar(">=", as_scalar(size(what)), as_scalar(size(bound)))


def tensor(name: str, *shape: Any, dtype: DType = DType.F32) -> Value:
    return input_value(name, TensorType(dtype, tuple(size(of) for of in shape)))


def op(name: str, *args: Any, **attrs: Any) -> Value:
    return apply(STD, f"std.{name}", args, attrs)[0]


def split(x: Value, axis: int, *sizes: Any) -> tuple[Value, ...]:
    return apply(STD, "std.split", (x,), {"axis": axis, "sizes": tuple(size(of) for of in sizes)})


def matmul(a: Value, b: Value) -> Value:
    return op("matmul", a, b)


def transpose(a: Value, *perm: int) -> Value:
    return op("transpose", a, perm=perm or (1, 0))


def concat(axis: int, *parts: Value) -> Value:
    return op("concat", *parts, axis=axis)


def add(a: Value, b: Any) -> Value:
    return op("add", a, b)


def mul(a: Value, b: Any) -> Value:
    return op("mul", a, b)


def relu(a: Value) -> Value:
    return op("relu", a)


def conv(x: Value, k: Value, pads: Any = (P, Q, P, Q), stride: tuple[int, ...] = (1, 1), groups: Any = 1) -> Value:
    return op("conv", x, k, pads=pads, stride=stride, groups=size(groups))


def reshape(x: Value, *shape: Any) -> Value:
    return op("reshape", x, shape=tuple(size(of) for of in shape))


def mean(x: Value, a: int, b: int) -> Value:
    """Average pooling with a window of 2 a + 1 by 2 b + 1 and the padding that keeps the size; padding is counted."""
    return op("avg_pool", x, kernel=(2 * a + 1, 2 * b + 1), pads=(a, b, a, b))


A, B, C = tensor("A", "N", "K"), tensor("B", "K", "M"), tensor("C", "M", "L")
S, T = tensor("S", "N", "N"), tensor("T", "N", "N")
X, Z = tensor("X", "N", "C", "H", "W"), tensor("Z", "N", "D", "H", "W")
KC, KD, KG = tensor("KC", "F", "C", "R", "S"), tensor("KD", "F", "D", "R", "S"), tensor("KG", "G", "C", "R", "S")
FITS = (
    at_least(P, 0), at_least(Q, 0), at_least(total("H", P, P), "R"), at_least(total("W", Q, Q), "S"),
)  # fmt: skip


def fused_products() -> Sides:
    b = tensor("B2", "K", "Q")
    return split(matmul(A, concat(1, B, b)), 1, "M", "Q"), [matmul(A, B), matmul(A, b)], ()


def sum_of_products() -> Sides:
    a, b = tensor("A2", "N", "L"), tensor("B2", "L", "M")
    return [add(matmul(A, B), matmul(a, b))], [matmul(concat(1, A, a), concat(0, B, b))], ()


def enlarged_kernel(shift: int = 0) -> Sides:
    """A kernel with e rows of zeros above and below, under padding that is larger by e (off centre where they differ)."""
    padded = op("pad", KC, before=(0, 0, total(E, -shift), 0), after=(0, 0, total(E, shift), 0))
    return [conv(X, KC)], [conv(X, padded, pads=(total(P, E), Q, total(P, E), Q))], FITS


def channels() -> Sides:
    return [conv(concat(1, X, Z), concat(1, KC, KD))], [add(conv(X, KC), conv(Z, KD))], FITS


def outputs(stride: int = 1) -> Sides:
    s = (stride, stride)
    return [conv(X, concat(0, KC, KG), stride=s)], [concat(1, conv(X, KC, stride=s), conv(X, KG, stride=s))], FITS


def identity_kernel() -> Sides:
    kernel = op("conv_identity", dtype=DType.F32, channels=size("C"), kernel=(3, 3))
    return [op("conv", X, kernel, pads=(1, 1, 1, 1))], [X], ()


def two_pools(off: int = 0) -> Sides:
    """Two averages and their sum are one depthwise convolution (NasNet)."""
    small = op("pool_kernel", dtype=DType.F32, channels=size("C"), kernel=(3, 3))
    large = op("pool_kernel", dtype=DType.F32, channels=size("C"), kernel=(5, 5))
    kernel = add(op("pad", small, before=(0, 0, 1 - off, 1), after=(0, 0, 1 + off, 1)), large)
    return [add(mean(X, 1, 1), mean(X, 2, 2))], [conv(X, kernel, pads=(2, 2, 2, 2), groups="C")], ()


def square_of_sum() -> Sides:
    s = add(S, T)
    return [mul(s, s)], [add(add(mul(S, S), mul(mul(S, T), 2)), mul(T, T))], ()


def relu_of_convs() -> Sides:
    return [concat(1, relu(conv(X, KC)), relu(conv(X, KG)))], [relu(conv(X, concat(0, KC, KG)))], FITS


def pool_of_concat() -> Sides:
    def pool(x: Value) -> Value:
        return op("max_pool", x, kernel=(3, 3), pads=(1, 1, 1, 1))

    return [pool(concat(1, X, Z))], [concat(1, pool(X), pool(Z))], ()


def merged_rows() -> Sides:
    """A product of rows that were merged for it: mixed radix."""
    x, w = tensor("x", "N", "H", "K"), tensor("w", "K", "M")
    return [reshape(matmul(reshape(x, product("N", "H"), "K"), w), "N", "H", "M")], [matmul(x, w)], ()


def grouped() -> Sides:
    """The groups of a convolution, cut apart."""
    x, k = tensor("x", "N", product(2, "C"), "H", "W"), tensor("k", product(2, "F"), "C", "R", "S")
    xs, ks = split(x, 1, "C", "C"), split(k, 0, "F", "F")
    return [conv(x, k, groups=2)], [concat(1, conv(xs[0], ks[0]), conv(xs[1], ks[1]))], FITS


def softmax_of_transpose() -> Sides:
    return [transpose(op("softmax", A, axis=1))], [op("softmax", transpose(A), axis=0)], ()


EQUAL: dict[str, Program] = {
    "products are associative": lambda: ([matmul(matmul(A, B), C)], [matmul(A, matmul(B, C))], ()),
    "split of a product with a concat": fused_products,
    "sum of products is a product of concats": sum_of_products,
    "enlarged kernel": enlarged_kernel,
    "concat of channels is a sum": channels,
    "concat of kernels is a concat": outputs,
    "the same at stride 2": lambda: outputs(2),
    "convolutions are linear in the kernel": lambda: (
        [conv(X, add(KC, tensor("K2", "F", "C", "R", "S")))], [add(conv(X, KC), conv(X, tensor("K2", "F", "C", "R", "S")))], FITS
    ),
    "identity kernel": identity_kernel,
    "transpose of a product": lambda: ([transpose(matmul(A, B))], [matmul(transpose(B), transpose(A))], ()),
    "two poolings and a sum": two_pools,
    "square of a sum": square_of_sum,
    "a product with its transpose is symmetric": lambda: (
        [transpose(matmul(A, transpose(A)))], [matmul(A, transpose(A))], ()
    ),
    "relu of a concat": lambda: ([relu(concat(1, A, S))], [concat(1, relu(A), relu(S))], ()),
    "relu inside a chain": lambda: (
        [matmul(relu(matmul(A, B)), C)],
        [transpose(matmul(transpose(C), relu(matmul(transpose(B), transpose(A)))))], (),
    ),
    "relu of convolutions": relu_of_convs,
    "max pooling of a concat": pool_of_concat,
    "merged rows": merged_rows,
    "groups cut apart": grouped,
    "softmax of a transpose": softmax_of_transpose,
    "mean of a repeated row": lambda: (
        [op("reduce_mean", op("expand", tensor("r", 1, "K"), shape=(size("N"), size("K"))), axes=(0,), keepdims=True)],
        [tensor("r", 1, "K")], (),
    ),
    "relu of a relu's opposite is zero": lambda: ([relu(op("neg", relu(S)))], [mul(S, 0)], ()),
    "an absolute value squared": lambda: ([mul(op("abs", S), op("abs", S))], [mul(S, S)], ()),
    "sigmoid of an opposite": lambda: (
        [op("sigmoid", op("neg", S))], [add(mul(op("sigmoid", S), -1), 1)], ()
    ),
    "a rounded sixth": lambda: (
        [op("div", op("clip", add(S, 3), 0, 6), 6)], [op("hard_sigmoid", S, alpha=1 / 6, beta=0.5)], ()
    ),
    "logarithm of a softmax": lambda: ([op("log", op("softmax", A, axis=1))], [op("log_softmax", A, axis=1)], ()),
    "the larger is associative": lambda: (
        [op("maximum", op("maximum", S, T), tensor("U", "N", "N"))],
        [op("maximum", S, op("maximum", tensor("U", "N", "N"), T))], (),
    ),
}  # fmt: skip

WRONG: dict[str, Program] = {
    "products commute": lambda: ([matmul(S, T)], [matmul(T, S)], ()),
    "transposed factors in the same order": lambda: ([transpose(matmul(S, T))], [matmul(transpose(S), transpose(T))], ()),
    "enlarged off centre": lambda: enlarged_kernel(1),
    "split one too far": lambda: (
        [split(matmul(A, concat(1, B, tensor("B2", "K", "Q"))), 1, total("M", 1), total("Q", -1))[1]],
        [split(concat(1, matmul(A, tensor("B2", "K", "Q")), matmul(A, B)), 1, total("M", 1), total("Q", -1))[1]],
        (at_least("Q", 2),),
    ),
    "channels swapped": lambda: (
        [conv(concat(1, X, tensor("X2", "N", "C", "H", "W")), concat(1, KC, tensor("K2", "F", "C", "R", "S")))],
        [add(conv(X, tensor("K2", "F", "C", "R", "S")), conv(tensor("X2", "N", "C", "H", "W"), KC))], FITS,
    ),
    "pooling off centre": lambda: two_pools(1),
    "a cut without halo": lambda: cut(),
}  # fmt: skip


def cut() -> Sides:
    x = tensor("x", "N", "C", total("J", "I"), "W")
    upper, lower = split(x, 2, "J", "I")
    kernel = tensor("k", "F", "C", total(P, P, 1), total(Q, Q, 1))
    fits = (at_least(P, 0), at_least(Q, 0))
    return [conv(x, kernel)], [concat(2, conv(upper, kernel), conv(lower, kernel))], fits


def bound(values: Sequence[Value], sizes: dict[str, int]) -> tuple[tuple[Value, ...], dict[Value, Value]]:
    """The programs at numbers: every symbol of types and bodies replaced."""
    at = at_sizes(values, sizes)
    inputs = [Value(node) for node in topological(value.node for value in values) if isinstance(node, Input)]
    return at, dict(zip(inputs, at_sizes(inputs, sizes), strict=True))


def replayed(rules: Rules, left: Value, right: Value, sizes: dict[str, int]) -> np.ndarray[Any, Any]:
    """Where both sides differ at given sizes and random whole numbers, in exact arithmetic."""
    (a, b), inputs = bound((left, right), sizes)
    rng = np.random.default_rng(0)
    feeds = {
        new: np.vectorize(Fraction, otypes=[object])(rng.integers(-50, 50, tuple(int(str(n)) for n in new.type.shape)))
        for new in inputs.values()
    }
    one, other = run(rules, (a, b), feeds, Exact())
    return np.asarray(one != other)


@pytest.mark.parametrize("name", EQUAL)
def test_true_pairs_are_proved(rules: Rules, name: str) -> None:
    left, right, conditions = EQUAL[name]()
    assert compare(expand(rules, tuple(left)), expand(rules, tuple(right)), conditions) == Equal()


@pytest.mark.parametrize("name", WRONG)
def test_wrong_pairs_are_refuted_where_the_interpreter_sees_it(rules: Rules, name: str) -> None:
    left, right, conditions = WRONG[name]()
    one, other = expand(rules, tuple(left)), expand(rules, tuple(right))
    answer = compare(one, other, conditions)
    assert isinstance(answer, Differs)
    wrong = replayed(rules, one[answer.output], other[answer.output], dict(answer.sizes))
    assert wrong[answer.position], answer
    assert answer.monomial


def test_a_difference_in_functions_is_not_decided(rules: Rules) -> None:
    left, right = expand(rules, (relu(add(S, T)),)), expand(rules, (add(relu(S), relu(T)),))
    assert isinstance(compare(left, right), Undecided)


def test_conditions_are_used(rules: Rules) -> None:
    wide = expand(rules, (split(tensor("y", total("J", "I")), 0, "J", "I")[0],))
    narrow = expand(rules, (split(tensor("y", total("J", "I")), 0, "I", "J")[0],))
    assert isinstance(compare(wide, narrow), Undecided)
    assert compare(wide, narrow, (scalar("==", size("J"), size("I")),)) == Equal()


def test_where_a_cut_is_wrong(rules: Rules) -> None:
    """Rows within p of the cut, on both sides of it: the region that a correction has to compute again."""
    left, right, conditions = cut()
    one, other = expand(rules, tuple(left)), expand(rules, tuple(right))
    region = difference(one, other, conditions)
    assert region.exact and not all(each.is_empty() for each in region.sets)
    sizes = {"N": 1, "C": 1, "F": 1, "W": 2, "J": 3, "I": 4, "p": 2, "q": 1}
    (found,) = points_of(region, sizes)
    assert {position[2] for position in found} == {1, 2, 3, 4}
    wrong = replayed(rules, one[0], other[0], sizes)
    assert found == {tuple(int(k) for k in position) for position in np.argwhere(wrong)}


def test_no_difference_is_an_empty_region(rules: Rules) -> None:
    left, right, conditions = channels()
    region = difference(expand(rules, tuple(left)), expand(rules, tuple(right)), conditions)
    assert all(each.is_empty() for each in region.sets)


def test_time_is_limited(rules: Rules) -> None:
    left, right, conditions = relu_of_convs()
    answer = compare(expand(rules, tuple(left)), expand(rules, tuple(right)), conditions, seconds=0.0)
    assert answer == Undecided("the time is up")


def test_positions_in_mixed_radix_never_refute_a_true_rule(rules: Rules) -> None:
    """Four slices side by side against one reshaped kernel: one position has two forms, (a, b) and a * C + b."""
    from dslc.prove.instances.exploration import instance_set

    for instance in instance_set(rules, rules.substitutions["std.focus_into_conv"]).instances[:2]:
        assert not isinstance(compare(instance.left, instance.right, instance.conditions), Differs)


@pytest.mark.parametrize("name", ["branches_to_grouped_conv", "gather_to_slice", "conv_transpose_to_matmul_last"])
def test_rules_over_merged_dimensions(rules: Rules, name: str) -> None:
    from dslc.prove.instances.exploration import instance_set

    for instance in instance_set(rules, rules.substitutions[f"std.{name}"]).instances[:3]:
        assert compare(instance.left, instance.right, instance.conditions) == Equal()


def test_averages_over_windows_that_may_be_empty(rules: Rules) -> None:
    """A window past the end counts nothing: one divided by zero there, on both sides alike."""
    from dslc.prove.instances.exploration import instance_set

    for instance in instance_set(rules, rules.substitutions["std.add_of_avg_pools"]).instances[:6]:
        assert compare(instance.left, instance.right, instance.conditions) == Equal()

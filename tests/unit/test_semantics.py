"""What a rule file means: names, sizes, attributes, elaboration."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslc.errors import DslcError
from dslc.ir.constants import fill, number_of
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Call, ScopeNode, Value, input_value
from dslc.ir.scalar import sym
from dslc.semantics.apply import apply
from dslc.semantics.elaborate import elaborate, expand
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules, load

LIBRARY = """dslc 1
let halved(n) = n // 2
operator matmul(A: T[*P, M, K], B: T[*Q, K, N]) -> Y: T[*broadcast(P, Q), M, N] {
  Y[*b, m, n] = sum[k] A[*fit(b, P), m, k] * B[*fit(b, Q), k, n]
}
operator conv(X: T[N, (G, C), *D], K: T[(G, F), C, *R]) -> Y: T[N, (G, F), *O] {
  attr stride: int[rank(D)] = 1
  attr pads: int[2 * rank(D)] = 0
  attr groups: int = 1
  where G == groups
  let before = take(pads, rank(D))
  let O = (D + before + drop(pads, rank(D)) - R) // stride + 1
  Y[n, (g, f), *o] = sum[c, *r] X[n, (g, c), *(o * stride + r - before), other=0] * K[(g, f), c, *r]
}
operator softmax(X: T[*L, A, *R]) -> Y: T[*L, A, *R] {
  attr axis: axis = -1
  where rank(L) == axis
  let E[*l, a, *r] = exp(X[*l, a, *r])
  Y[*l, a, *r] = E[*l, a, *r] / (sum[j: A] E[*l, j, *r])
}
operator join(X: T[*L, P, *R], Z: T[*L, Q, *R]) -> Y: T[*L, P + Q, *R] {
  attr axis: axis
  where rank(L) == axis
  Y[*l, a, *r] = X[*l, a, *r] if a < P else Z[*l, a - P, *r]
}
operator cut(X: T[*L, P + Q, *R]) -> Y: T[*L, P, *R], Z: T[*L, Q, *R] {
  attr axis: axis = 0
  attr sizes: int[2]
  where rank(L) == axis, sizes == [P, Q]
  Y[*l, a, *r] = X[*l, a, *r]
  Z[*l, a, *r] = X[*l, a + P, *r]
}
property join is associative
property cut is inverse join
operator sigmoid(X: T[*S]) -> Y: T[*S] { Y[*i] = 1 / (1 + exp(-X[*i])) }
operator silu(X: T[*S]) -> Y: T[*S] { Y[*i] = X[*i] * sigmoid(X[*i]) }
operator plus(A: T[*S], B: T[*R] = 0) -> Y: T[*broadcast(S, R)] { Y[*i] = A[*fit(i, S)] + B[*fit(i, R)] }
operator band(A: T[M, 2 * W + 1]) -> Y: T[M, W] { Y[m, w] = A[m, 2 * w] }
operator affine(X: T[M, K], W: T[K, N], B: T[N]) -> Y { Y = plus(matmul(X, W), B) }
operator quarter(X: T[N]) -> Y: T[halved(halved(N))] { Y[n] = X[n] }
"""


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Rules:
    path: Path = tmp_path_factory.mktemp("lib") / "small.rules"
    path.write_text(LIBRARY)
    return load(path)


def tensor(name: str, *shape: int, dtype: DType = DType.F32) -> Value:
    return input_value(name, TensorType(dtype, shape))


def test_batch_dimensions_broadcast(rules: Rules) -> None:
    (y,) = apply(rules, "matmul", (tensor("a", 5, 1, 2, 3), tensor("b", 4, 3, 6)))
    assert y.type == TensorType(DType.F32, (5, 4, 2, 6))


def test_one_number_stands_for_every_entry_of_a_list(rules: Rules) -> None:
    (y,) = apply(rules, "conv", (tensor("x", 1, 4, 9, 9), tensor("k", 8, 2, 3, 3)), {"groups": 2, "pads": 1})
    assert y.type.shape == (1, 8, 9, 9)
    assert isinstance(y.node, Call)
    assert y.node.attrs == (("stride", (1, 1)), ("pads", (1, 1, 1, 1)), ("groups", 2))


def test_merged_dimensions_keep_their_iterators_apart(rules: Rules) -> None:
    (y,) = apply(rules, "conv", (tensor("x", 1, 4, 5), tensor("k", 8, 2, 3)), {"groups": 2})
    (meaning,) = expand(rules, (y,))
    assert isinstance(meaning.node, ScopeNode)
    scope = meaning.node.scope
    assert scope.extents == (1, 2, 4, 3)
    assert scope.groups == (1, 2, 1)
    assert scope.type == y.type


def test_negative_axes_count_from_the_end(rules: Rules) -> None:
    (y,) = apply(rules, "softmax", (tensor("x", 2, 3, 4),), {"axis": -2})
    assert isinstance(y.node, Call) and y.node.attr("axis") == 1


def test_an_associative_operator_takes_any_number_of_tensors(rules: Rules) -> None:
    parts = (tensor("a", 2, 1), tensor("b", 2, 2), tensor("c", 2, 3))
    (y,) = apply(rules, "join", parts, {"axis": 1})
    assert y.type.shape == (2, 6)
    assert y.node.args == parts


def test_its_inverse_gives_any_number_of_results(rules: Rules) -> None:
    values = apply(rules, "cut", (tensor("x", 6, 2),), {"sizes": (1, 2, 3)})
    assert [value.type.shape for value in values] == [(1, 2), (2, 2), (3, 2)]
    assert len(elaborate(rules, "cut", (values[0].node.args[0].type,), values[0].node.attrs).outputs) == 3  # type: ignore[attr-defined]


def test_a_pointwise_operator_is_called_on_values(rules: Rules) -> None:
    (y,) = expand(rules, apply(rules, "silu", (tensor("x", 2),)))
    assert isinstance(y.node, ScopeNode)
    assert str(y.node.scope.body) == "$0[i0] * (1 / (1 + exp(-1 * $0[i0])))"


def test_a_parameter_with_a_default_may_be_left_out(rules: Rules) -> None:
    (y,) = apply(rules, "plus", (tensor("x", 2),))
    assert number_of(y.node.args[1]) == 0
    assert apply(rules, "plus", (tensor("x", 2), fill(0, TensorType(DType.F32, ()))))[0] == y


def test_sizes_linear_in_one_unknown_are_solved(rules: Rules) -> None:
    assert apply(rules, "band", (tensor("a", 4, 7),))[0].type.shape == (4, 3)
    with pytest.raises(Mismatch, match="does not fit"):
        apply(rules, "band", (tensor("a", 4, 6),))


def test_a_composite_has_the_type_of_its_body(rules: Rules) -> None:
    (y,) = apply(rules, "affine", (tensor("x", 2, 3), tensor("w", 3, 4), tensor("b", 4)))
    assert y.type.shape == (2, 4)


def test_functions_are_expanded(rules: Rules) -> None:
    assert apply(rules, "quarter", (tensor("x", 13),))[0].type.shape == (3,)


def test_equal_terms_are_one_object(rules: Rules) -> None:
    x = tensor("x", 2)
    assert apply(rules, "silu", (x,))[0].node is apply(rules, "silu", (x,))[0].node


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "reason"),
    [
        ("matmul", [(2, 3), (4, 5)], {}, "size 4 where 3"),
        ("conv", [(1, 4, 9), (8, 3, 3)], {"groups": 2}, "size 4 where 6"),
        ("conv", [(1, 5, 9), (8, 2, 3)], {"groups": 2}, "size 5 where 4"),
        ("softmax", [(2, 3)], {"axis": 4}, "rank"),
        ("cut", [(6, 2)], {"sizes": (1, 2)}, "size 6 where 3"),
    ],
)
def test_what_does_not_fit_has_a_reason(
    rules: Rules, op: str, shapes: list[tuple[int, ...]], attrs: dict[str, object], reason: str
) -> None:
    with pytest.raises(Mismatch, match=reason):
        apply(rules, op, [tensor(f"t{k}", *shape) for k, shape in enumerate(shapes)], attrs)


@pytest.mark.parametrize("op", ["reduce_sum", "squeeze"])
def test_a_number_has_no_axes(op: str, std: Rules) -> None:
    for shape, axis in (((), 0), ((), -1), ((1,), 1)):
        with pytest.raises(Mismatch, match=f"axis {axis} is outside a rank of {len(shape)}"):
            apply(std, op, [tensor("X", *shape)], {"axes": (axis,)})


def test_unknown_attributes_are_errors(rules: Rules) -> None:
    with pytest.raises(DslcError, match="E0302"):
        apply(rules, "softmax", (tensor("x", 2),), {"axes": 1})


def test_unknown_sizes_stay_symbols(rules: Rules) -> None:
    x = input_value("x", TensorType(DType.F32, (sym("N"), 3)))
    (y,) = apply(rules, "matmul", (x, tensor("b", 3, 4)))
    assert y.type.shape == (sym("N"), 4)
    (z,) = expand(rules, apply(rules, "plus", (x, x)))
    assert isinstance(z.node, ScopeNode) and str(z.node.scope.body) == "$0[i0, i1] + $1[i0, i1]"


def test_a_circular_import_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.rules").write_text("dslc 1\nimport .b (g)\nlet f(x) = x\n")
    (tmp_path / "b.rules").write_text("dslc 1\nimport .a (f)\nlet g(x) = x\n")
    with pytest.raises(DslcError, match="E0207"):
        load(tmp_path / "a.rules")


def test_a_recursive_function_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.rules").write_text("dslc 1\nlet f(x) = f(x)\noperator o(X: T[N]) -> Y: T[f(N)] { Y[n] = X[n] }\n")
    with pytest.raises(DslcError, match="E0317"):
        apply(load(tmp_path / "a.rules"), "o", (tensor("x", 2),))


def test_a_library_states_what_it_requires(tmp_path: Path) -> None:
    (tmp_path / "mine.rules").write_text("dslc 1\nlibrary mine 1.0.0\nrequires std >=99.0\n")
    with pytest.raises(DslcError, match="E0211"):
        load(tmp_path)
    (tmp_path / "mine.rules").write_text(
        "dslc 1\nlibrary mine 1.0.0\nrequires std >=0.1,<99.0\nimport std.linalg (matmul)\n"
    )
    assert "std.matmul" in load(tmp_path).operators

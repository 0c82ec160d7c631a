"""Matching: each feature of patterns on a case where it decides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dslc.errors import DslcError
from dslc.ir.constants import array_value, fill
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Call, Graph, Input, Value, input_value, topological
from dslc.ir.scalar import sym
from dslc.match import (
    CompiledRule,
    GraphIndex,
    Match,
    Refused,
    apply_match,
    compile_directions,
    compile_rule,
    find_matches,
    replaced,
    why_not,
)
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules, load

IMPORTS = """dslc 1
import std.pointwise (add, sub, mul, neg, abs, exp)
import std.activation (relu, clip)
import std.linalg (matmul, gemm)
import std.layout as layout
import std.layout (transpose, reshape)
import std.join (concat, split, slice, pad)
import std.conv (conv, per_channel)
import std.pool (avg_pool, max_pool)
import std.softmax (softmax)
import std.taso (enlarge, same)
"""


class Case:
    """A few rules, and graphs written with the operators of the standard library."""

    def __init__(self, folder: Path, text: str) -> None:
        path = folder / "mine.rules"
        path.write_text(IMPORTS + text)
        self.rules: Rules = load(path)

    def rule(self, name: str, reverse: bool = False) -> CompiledRule:
        return compile_rule(self.rules, self.rules.substitutions[f"mine.{name}"], reverse=reverse)

    def call(self, op: str, *args: Value | float, **attrs: object) -> Value:
        return self.calls(op, *args, **attrs)[0]

    def calls(self, op: str, *args: Value | float, **attrs: object) -> tuple[Value, ...]:
        return apply(self.rules, f"std.{op}", list(args), attrs)

    def matches(self, name: str, *outputs: Value, reverse: bool = False) -> list[Match]:
        return list(find_matches(self.rule(name, reverse), GraphIndex(graph(*outputs))))

    def result(self, name: str, *outputs: Value, reverse: bool = False) -> Graph:
        """The graph after the only match."""
        (match,) = self.matches(name, *outputs, reverse=reverse)
        return replaced(match, match.index.graph)


def graph(*outputs: Value) -> Graph:
    inputs = tuple(Value(n) for n in topological(v.node for v in outputs) if isinstance(n, Input))
    return Graph(inputs, outputs)


def tensor(name: str, *shape: int) -> Value:
    return input_value(name, TensorType(DType.F32, shape))


def weight(*shape: int, seed: int = 0) -> Value:
    return array_value(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def operators(g: Graph) -> list[str]:
    return [node.op.removeprefix("std.") for node in g.nodes() if isinstance(node, Call)]


MERGE = """
substitution merge(A: T[*P, M, K], B: T[K, N], C: T[K, Q]) -> Y, Z {
  Y = matmul(A, B)
  Z = matmul(A, C)
  =>
  Y, Z = split(matmul(A, concat(B, C, axis=1)), axis=-1, sizes=[N, Q])
}
"""


def test_results_are_joined_by_a_shared_input(tmp_path: Path) -> None:
    case = Case(tmp_path, MERGE)
    x, z = tensor("x", 7, 2, 3), tensor("z", 7, 2, 3)
    y0, y1 = case.call("matmul", x, weight(3, 4)), case.call("matmul", x, weight(3, 5))
    other = case.call("matmul", z, weight(3, 6))
    (match,) = case.matches("merge", y0, y1, other)
    assert match.variables["A"] == x
    out = replaced(match, match.index.graph)
    assert operators(out) == ["concat", "matmul", "split", "matmul"]
    assert [v.type for v in out.outputs] == [y0.type, y1.type, other.type]
    assert out.outputs[0].node is out.outputs[1].node
    assert out.outputs[2] == other


def test_one_order_of_results_that_may_be_exchanged(tmp_path: Path) -> None:
    case = Case(tmp_path, MERGE)
    x = tensor("x", 2, 3)
    products = [case.call("matmul", x, weight(3, n)) for n in (4, 5, 6)]
    found = case.matches("merge", *products)
    assert len(found) == 3, "three pairs, none twice"
    assert len({frozenset(v for _, v in m.roots) for m in found}) == 3


def test_never_a_cycle_figure_6(tmp_path: Path) -> None:
    """TASO, figure 6: the second product reads the first one's result, so they cannot become one product."""
    case = Case(tmp_path, MERGE)
    x = tensor("x", 3, 3)
    first = case.call("matmul", x, weight(3, 3))
    second = case.call("matmul", x, case.call("relu", first))
    assert case.matches("merge", second) == []
    index = GraphIndex(graph(second))
    index.memory.few = True
    (match,) = find_matches(case.rule("merge"), index)
    assert apply_match(match, match.index.graph) is None
    with pytest.raises(Refused, match="cycle"):
        replaced(match, match.index.graph)
    assert "cycle" in why_not(case.rule("merge"), graph(second)).reason


def test_other_users_of_an_intermediate_do_not_block(tmp_path: Path) -> None:
    case = Case(
        tmp_path,
        """
substitution fold(X: T[*S]) -> Y {
  Y = neg(neg(X))
  =>
  Y = X
}
""",
    )
    x = tensor("x", 4)
    inner = case.call("neg", x)
    used = case.call("exp", inner)
    out = case.result("fold", case.call("relu", case.call("neg", inner)), used)
    assert operators(out) == ["relu", "neg", "exp"]
    assert out.outputs == (case.call("relu", x), used)


CONV = """
substitution plain(X: T[N, C, *D], K: T[F, C, *R]) -> Y {
  Y = conv(X, K)
  where all(R == 1)
  =>
  Y = reshape(matmul(reshape(K, shape=[F, C]), reshape(X, shape=[N, C, prod(D)])), shape=[N, F, *D])
}
substitution merge(X: T[N, C, *D], K: T[F, P, *R], L: T[E, P, *R]) -> Y, Z {
  Y = conv(X, K, groups=1, **a)
  Z = conv(X, L, groups=1, **a)
  =>
  Y, Z = split(conv(X, concat(K, L, axis=0), groups=1, **a), axis=1, sizes=[F, E])
}
substitution square(X: T[N, C, H, W], K: T[F, C, 3, 3]) -> Y {
  Y = conv(X, K, stride=[d, d], pads=[1, 1, 1, 1])
  where d > 1
  =>
  Y = slice(conv(X, K, pads=[1, 1, 1, 1]), start=[0, 0, 0, 0], step=[1, 1, d, d], size=shape(Y))
}
substitution residual(X: T[N, C, *D], K: T[C, C, *R]) -> Y {
  Y = add(conv(X, K, pads=same(R)), X)
  =>
  Y = add(X, conv(X, K, pads=same(R)))
}
"""


def test_an_attribute_that_is_not_named_has_its_default(tmp_path: Path) -> None:
    case = Case(tmp_path, CONV)
    x, k = tensor("x", 1, 3, 8, 8), weight(4, 3, 1, 1)
    out = case.result("plain", case.call("conv", x, k))
    assert operators(out) == ["reshape", "reshape", "matmul", "reshape"]
    assert case.matches("plain", case.call("conv", x, k, stride=2)) == []
    assert case.matches("plain", case.call("conv", x, k, pads=(0, 0, 1, 0))) == []
    assert case.matches("plain", case.call("conv", x, weight(4, 3, 3, 3))) == []


def test_a_set_of_attributes_is_equal_where_it_is_used_again(tmp_path: Path) -> None:
    case = Case(tmp_path, CONV)
    x, k, n = tensor("x", 1, 3, 8, 8), weight(4, 3, 3, 3), weight(5, 3, 3, 3)
    same = [case.call("conv", x, w, stride=(2, 1), pads=(1, 1, 1, 1)) for w in (k, n)]
    out = case.result("merge", *same)
    joined = next(node for node in out.nodes() if isinstance(node, Call) and node.op == "std.conv")
    assert dict(joined.attrs)["stride"] == (2, 1)
    assert case.matches("merge", same[0], case.call("conv", x, n, stride=(2, 2), pads=(1, 1, 1, 1))) == []
    depthwise = [case.call("conv", x, weight(3, 1, 3, 3, seed=s), groups=3) for s in (1, 2)]
    assert case.matches("merge", *depthwise) == []


def test_a_list_pattern_binds_its_entries(tmp_path: Path) -> None:
    case = Case(tmp_path, CONV)
    x, k = tensor("x", 1, 3, 8, 8), weight(4, 3, 3, 3)
    (match,) = case.matches("square", case.call("conv", x, k, stride=2, pads=1))
    assert match.names["d"] == 2
    assert case.matches("square", case.call("conv", x, k, stride=(2, 1), pads=1)) == []
    assert case.matches("square", case.call("conv", x, k, stride=1, pads=1)) == [], "the guard"


def test_an_attribute_may_be_an_expression_over_sizes(tmp_path: Path) -> None:
    case = Case(tmp_path, CONV)
    x, k = tensor("x", 1, 4, 8, 8), weight(4, 4, 3, 5)
    assert len(case.matches("residual", case.call("add", x, case.call("conv", x, k, pads=(1, 2, 1, 2))))) == 1
    assert case.matches("residual", case.call("add", x, case.call("conv", x, k, pads=(2, 1, 0, 3)))) == []


JOIN = """
substitution undo(A: T[*L, P, *R], B: T[*L, Q, *R]) -> Y, Z {
  Y, Z = split(concat(A, B, axis=a), axis=a, sizes=[P, Q])
  where rank(L) == a
  =>
  Y = A
  Z = B
}
substitution redo(X: T[*S]) -> Y {
  A, B = split(X, axis=a, sizes=s)
  Y = concat(A, B, axis=a)
  =>
  Y = X
}
substitution last(A: T[*L, P], B: T[*L, Q]) -> Y {
  Y = relu(concat(A, B, axis=-1))
  =>
  Y = concat(relu(A), relu(B), axis=-1)
}
substitution through(X: T[*L, P, *R], Z: T[*L, Q, *R]) -> Y {
  term f(X)
  where pointwise(f), rank(L) == a
  Y = concat(f(X, **b), f(Z, **b), axis=a)
  <=>
  Y = f(concat(X, Z, axis=a), **b)
}
substitution pads(X: T[*S], K: T[F, C, *R]) -> Y {
  Y = conv(pad(X, before=[0, 0, *u], after=[0, 0, *w]), K, pads=p, **a)
  where all(u >= 0), all(w >= 0)
  =>
  Y = conv(X, K, pads=p + [*u, *w], **a)
}
"""


def test_two_packs_are_taken_apart_by_a_guard(tmp_path: Path) -> None:
    case = Case(tmp_path, JOIN)
    a, b = tensor("a", 2, 3, 5), tensor("b", 2, 4, 5)
    y, z = case.calls("split", case.call("concat", a, b, axis=1), axis=1, sizes=(3, 4))
    assert case.result("undo", y, z).outputs == (a, b)
    wrong = case.calls("split", case.call("concat", a, b, axis=1), axis=1, sizes=(4, 3))
    assert case.matches("undo", *wrong) == []


def test_results_are_matched_by_position(tmp_path: Path) -> None:
    case = Case(tmp_path, JOIN)
    x = tensor("x", 2, 6)
    y, z = case.calls("split", x, axis=1, sizes=(3, 3))
    assert case.result("redo", case.call("concat", y, z, axis=1)).outputs == (x,)
    assert case.matches("redo", case.call("concat", z, y, axis=1)) == []


def test_an_associative_call_of_any_length(tmp_path: Path) -> None:
    """Patterns of two arguments on calls of three: parts of it for a result, and groups below one."""
    case = Case(tmp_path, JOIN)
    x = tensor("x", 2, 9)
    three = case.calls("split", x, axis=1, sizes=(2, 3, 4))
    assert {g.outputs for g in _all(case, "redo", case.call("concat", *three, axis=1))} == {(x,)}
    a, b, c = (tensor(n, 2, k) for n, k in (("a", 1), ("b", 2), ("c", 3)))
    parts = [case.call("relu", v) for v in (a, b, c)]
    found = _all(case, "through", case.call("concat", *parts, axis=1))
    assert {str(sorted(operators(g))) for g in found} == {str(["concat", "concat", "relu", "relu"])}
    assert len(found) == 2, "the first two, and the last two"
    whole = case.call("relu", case.call("concat", a, b, c, axis=1))
    assert len(_all(case, "last", whole)) == 2, "(a, b c) and (a b, c)"


def _all(case: Case, name: str, *outputs: Value) -> list[Graph]:
    return [replaced(m, m.index.graph) for m in case.matches(name, *outputs)]


def test_axes_that_count_from_the_end(tmp_path: Path) -> None:
    case = Case(tmp_path, JOIN)
    a, b = tensor("a", 2, 3), tensor("b", 2, 3)
    assert len(case.matches("last", case.call("relu", case.call("concat", a, b, axis=1)))) == 1
    assert case.matches("last", case.call("relu", case.call("concat", a, b, axis=0))) == []


def test_a_pack_in_a_list_takes_what_the_others_leave(tmp_path: Path) -> None:
    case = Case(tmp_path, JOIN)
    for rank in (1, 2, 3):
        x, k = tensor("x", 1, 2, *[5] * rank), weight(2, 2, *[3] * rank)
        padded = case.call("pad", x, before=(0, 0, *[1] * rank), after=(0, 0, *[2] * rank))
        out = case.result("pads", case.call("conv", padded, k))
        assert dict(out.outputs[0].node.attrs)["pads"] == (1,) * rank + (2,) * rank  # type: ignore[attr-defined]
    channels = case.call("pad", tensor("x", 1, 1, 5), before=(0, 1, 0), after=(0, 0, 0))
    assert case.matches("pads", case.call("conv", channels, weight(2, 2, 3))) == []


def test_any_operator_that_a_guard_allows(tmp_path: Path) -> None:
    case = Case(tmp_path, JOIN)
    a, b = tensor("a", 2, 3), tensor("b", 2, 4)
    for op in ("relu", "exp", "neg"):
        out = case.result("through", case.call("concat", case.call(op, a), case.call(op, b), axis=1))
        assert operators(out) == ["concat", op]
    mixed = case.call("concat", case.call("relu", a), case.call("neg", b), axis=1)
    assert case.matches("through", mixed) == [], "two different operators are no `f`"
    rows = [case.call("softmax", v, axis=1) for v in (a, b)]
    assert case.matches("through", case.call("concat", *rows, axis=1)) == [], "softmax is not pointwise"
    assert len(case.matches("through", case.call("relu", case.call("concat", a, b, axis=1)), reverse=True)) == 1


def test_operands_with_defaults_are_carried_by_a_term(tmp_path: Path) -> None:
    case = Case(tmp_path, JOIN)
    a, b = tensor("a", 2, 3), tensor("b", 2, 4)
    six = [case.call("clip", v, 0, 6) for v in (a, b)]
    out = case.result("through", case.call("concat", *six, axis=1))
    assert out.outputs[0] == case.call("clip", case.call("concat", a, b, axis=1), 0, 6)
    assert case.matches("through", case.call("concat", six[0], case.call("clip", b, 0, 7), axis=1)) == []


NUMBERS = """
substitution zero(X: T[*S]) -> Y {
  Y = add(X, 0)
  =>
  Y = X
}
substitution double(X: T[*S]) -> Y {
  Y = mul(X, 2)
  <=>
  Y = add(X, X)
}
substitution scale(X: T[*S]) -> Y {
  Y = mul(mul(X, c), d)
  =>
  Y = mul(X, c * d)
}
substitution relu6(X: T[*S]) -> Y {
  Y = clip(X, 0, inf)
  =>
  Y = relu(X)
}
substitution product(A: T[M, K], B: T[K, N]) -> Y {
  Y = gemm(A, B)
  =>
  Y = matmul(A, B)
}
substitution slope(X: T[*S]) -> Y {
  Y = mul(X, sqrt(4) + 1)
  =>
  Y = add(add(X, X), X)
}
"""


def test_numbers_match_constants_with_that_value_everywhere(tmp_path: Path) -> None:
    case = Case(tmp_path, NUMBERS)
    x = tensor("x", 2, 3)
    zeros = array_value(np.zeros((2, 3), np.float32))
    assert case.result("zero", case.call("add", zeros, x)).outputs == (x,)
    assert case.matches("zero", case.call("add", x, weight(2, 3))) == []
    wider = case.call("add", x, array_value(np.zeros((4, 2, 3), np.float32)))
    (match,) = case.matches("zero", wider)
    assert apply_match(match, graph(wider)) is None, "the sum is larger than x"
    assert len(case.matches("slope", case.call("mul", x, 3))) == 1
    assert case.matches("slope", case.call("mul", x, 4)) == []


def test_a_bare_name_takes_a_number(tmp_path: Path) -> None:
    case = Case(tmp_path, NUMBERS)
    x = tensor("x", 2, 3)
    found = case.matches("scale", case.call("mul", case.call("mul", 3, x), 5))
    assert {frozenset((m.names["c"], m.names["d"])) for m in found} == {frozenset((3, 5))}
    assert replaced(found[0], found[0].index.graph).outputs == (case.call("mul", x, 15),)


def test_both_directions_of_a_two_way_rule(tmp_path: Path) -> None:
    case = Case(tmp_path, NUMBERS)
    x = tensor("x", 2, 3)
    twice = case.call("add", x, x)
    forward, back = compile_directions(case.rules, case.rules.substitutions["mine.double"])
    assert (forward.name, back.name) == ("mine.double", "mine.double^-1")
    (match,) = find_matches(back, GraphIndex(graph(twice)))
    assert replaced(match, graph(twice)).outputs == (case.call("mul", x, 2),)
    assert case.matches("double", case.call("add", x, tensor("z", 2, 3)), reverse=True) == []


def test_a_tensor_that_is_left_out_has_its_default(tmp_path: Path) -> None:
    case = Case(tmp_path, NUMBERS)
    x, y = tensor("x", 2, 3), tensor("y", 3, 4)
    assert len(case.matches("product", case.call("gemm", x, y))) == 1
    assert len(case.matches("product", case.call("gemm", x, y, 0))) == 1
    assert case.matches("product", case.call("gemm", x, y, weight(4))) == []
    assert case.matches("product", case.call("gemm", x, y, alpha=0.5)) == []
    assert len(case.matches("relu6", case.call("clip", x, 0, float("inf")))) == 1
    assert case.matches("relu6", case.call("clip", x, 0, 6)) == []
    assert case.matches("relu6", case.call("clip", x, 0)) == [], "the bound is finite"


SUMS = """
substitution factor(A: T[M, K], B: T[K, N], C: T[M, L], D: T[L, N]) -> Y {
  Y = add(matmul(A, B), matmul(C, D))
  =>
  Y = matmul(concat(A, C, axis=1), concat(B, D, axis=0))
}
substitution positive(X: T[*S]) -> Y {
  Y = add(relu(X), neg(relu(neg(X))))
  =>
  Y = X
}
substitution bias(X: T[N, C, *D], B: T[C]) -> Y {
  Y = add(X, per_channel(B, rank(D)))
  =>
  Y = add(per_channel(B, rank(D)), X)
}
substitution distribute(A: T[*S], B: T[*S]) -> Y {
  Y = mul(add(A, B), 2)
  =>
  Y = add(mul(A, 2), mul(B, 2))
}
"""


def test_commutative_arguments_in_any_order(tmp_path: Path) -> None:
    case = Case(tmp_path, SUMS)
    x = tensor("x", 4)
    plus, minus = case.call("relu", x), case.call("neg", case.call("relu", case.call("neg", x)))
    for args in ((plus, minus), (minus, plus)):
        assert case.result("positive", case.call("add", *args)).outputs == (x,)


def test_symmetric_arguments_are_found_once(tmp_path: Path) -> None:
    case = Case(tmp_path, SUMS)
    a, b = (case.call("matmul", tensor(n, 2, 3), weight(3, 4, seed=k)) for k, n in enumerate("ab"))
    assert len(case.matches("factor", case.call("add", a, b))) == 1


def test_a_sum_is_matched_however_it_is_bracketed(tmp_path: Path) -> None:
    """Two products that are not neighbours in a sum; what is left stays around the replacement."""
    case = Case(tmp_path, SUMS)
    a, b = (case.call("matmul", tensor(n, 2, 3), weight(3, 4, seed=k)) for k, n in enumerate("ab"))
    z = tensor("z", 2, 4)
    for total in (
        case.call("add", case.call("add", a, z), b),
        case.call("add", a, case.call("add", z, b)),
        case.call("add", a, z, b),
    ):
        out = case.result("factor", total)
        assert sorted(operators(out)) == ["add", "concat", "concat", "matmul"]
        assert out.outputs[0].type == total.type


def test_inside_a_pattern_no_operand_is_left_out(tmp_path: Path) -> None:
    case = Case(tmp_path, SUMS)
    x, y, z = (tensor(n, 4) for n in "xyz")
    total = case.call("mul", case.call("add", x, y, z), 2)
    found = case.matches("distribute", total)
    assert found
    for match in found:
        assert replaced(match, graph(total)).outputs[0].type == total.type
        below = {arg for v in (match.variables["A"], match.variables["B"]) for arg in (v, *v.node.args)}
        assert {x, y, z} <= below


def test_functions_of_other_files_are_expanded(tmp_path: Path) -> None:
    case = Case(tmp_path, SUMS)
    x, b = tensor("x", 1, 4, 5, 5), weight(4)
    good = case.call("add", x, case.call("reshape", b, shape=(4, 1, 1)))
    (match,) = case.matches("bias", good)
    assert match.variables["B"] == b
    assert case.matches("bias", case.call("add", x, case.call("reshape", b, shape=(1, 4, 1, 1)))) == []


def test_aliases_guards_and_search(tmp_path: Path) -> None:
    case = Case(
        tmp_path,
        """
let flip(X) = layout.transpose(X, perm=[1, 0])
substitution twice(X: T[M, N]) -> Y {
  Y = flip(flip(X))
  =>
  Y = X
}
substitution tile(X: T[M, N]) -> Y {
  Y = neg(X)
  where M % 2 == 0, half == M // 2
  =>
  Y = reshape(neg(reshape(X, shape=[half, 2 * N])), shape=[M // k, N * k])
  Y = reshape(Y, shape=[M, N])
  search k in [1, 2]
}
""",
    )
    x = tensor("x", 4, 3)
    back = case.call("transpose", case.call("transpose", x))
    assert case.result("twice", back).outputs == (x,)
    found = case.matches("tile", case.call("neg", x))
    assert [m.choice for m in found] == [{"k": 1}, {"k": 2}]
    assert found[0].names["half"] == 2
    assert {replaced(m, m.index.graph).outputs[0].type for m in found} == {x.type}
    assert case.matches("tile", case.call("neg", tensor("z", 3, 3))) == []


def test_constants_and_expressions_on_the_right(tmp_path: Path) -> None:
    case = Case(
        tmp_path,
        """
substitution pool(X: T[N, C, H, W]) -> Y {
  Y = avg_pool(X, kernel=k, stride=s, pads=p)
  =>
  const K[f, c, r, t]: T[C, 1, k[0], k[1]] = 1 / (k[0] * k[1])
  Y = conv(X, K, stride=s, pads=p, groups=C)
}
substitution scaled(X: T[N, C, *D], K: T[F, P, *R], s: T[F, 1, 1]) -> Y {
  Y = mul(conv(X, K, **a), s)
  =>
  let g = {[f: F] s[f, 0, 0]}
  Y = conv(X, {[f: F, c: P, *r: R] K[f, c, *r] * g[f]}, **a)
}
""",
    )
    x = tensor("x", 1, 3, 8, 8)
    out = case.result("pool", case.call("avg_pool", x, kernel=(2, 2), stride=2))
    conv = out.outputs[0].node
    assert isinstance(conv, Call) and conv.args[1].constant and conv.args[1].type.shape == (3, 1, 2, 2)
    scaled = case.call("mul", case.call("conv", x, weight(4, 3, 3, 3)), weight(4, 1, 1))
    kernel = case.result("scaled", scaled).outputs[0].node.args[1]
    assert kernel.constant, "weights that are computed from weights cost nothing at run time"


def test_a_replacement_of_another_type_is_refused(tmp_path: Path) -> None:
    case = Case(
        tmp_path,
        """
substitution wrong(X: T[M, N]) -> Y {
  Y = neg(X)
  =>
  Y = transpose(X, perm=[1, 0])
}
""",
    )
    y = case.call("neg", tensor("x", 2, 3))
    (match,) = case.matches("wrong", y)
    with pytest.raises(Refused, match=r"`Y` would be f32\[3, 2\], and is f32\[2, 3\]"):
        replaced(match, graph(y))


def test_a_side_that_binds_too_little_is_one_way(tmp_path: Path) -> None:
    case = Case(
        tmp_path,
        """
substitution drop(X: T[*S], Z: T[*S]) -> Y {
  Y = add(X, sub(Z, Z))
  <=>
  Y = X
}
substitution wrong(X: T[*S], Z: T[*S]) -> Y {
  Y = neg(X)
  =>
  Y = add(X, Z)
}
""",
    )
    assert [r.name for r in compile_directions(case.rules, case.rules.substitutions["mine.drop"])] == ["mine.drop"]
    with pytest.raises(DslcError) as failure:
        case.rule("wrong")
    assert failure.value.diagnostics[0].code == "E0323"
    assert failure.value.diagnostics[0].span is not None


def test_what_only_weights_compute_is_left_alone(tmp_path: Path) -> None:
    case = Case(tmp_path, NUMBERS)
    weights = case.call("add", case.call("neg", weight(2, 3)), 0)
    y = case.call("mul", tensor("x", 2, 3), weights)
    assert case.matches("zero", y) == []
    assert len(list(find_matches(case.rule("zero"), GraphIndex(graph(y)), constants=True))) == 1


def test_sizes_may_be_symbolic(tmp_path: Path) -> None:
    case = Case(tmp_path, MERGE)
    x = input_value("x", TensorType(DType.F32, (sym("N"), 3)))
    y, z = case.call("matmul", x, weight(3, 4)), case.call("matmul", x, weight(3, 5))
    out = case.result("merge", y, z)
    assert [v.type for v in out.outputs] == [y.type, z.type]


def test_element_types_unify(tmp_path: Path) -> None:
    case = Case(tmp_path, MERGE)
    x = input_value("x", TensorType(DType.F64, (2, 3)))
    y, z = (case.call("matmul", x, fill(1, TensorType(DType.F64, (3, n)))) for n in (4, 5))
    assert len(case.matches("merge", y, z)) == 1


def test_matches_come_lazily_and_in_one_order(tmp_path: Path) -> None:
    case = Case(tmp_path, MERGE)
    x = tensor("x", 2, 3)
    products = [case.call("matmul", x, weight(3, n)) for n in range(2, 12)]
    index = GraphIndex(graph(*products))
    everything = [m.key for m in find_matches(case.rule("merge"), index)]
    assert len(everything) == 45
    assert [m.key for m in find_matches(case.rule("merge"), index, limit=7)] == everything[:7]
    assert [m.key for m in find_matches(case.rule("merge"), GraphIndex(graph(*products)))] == everything

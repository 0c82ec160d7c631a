"""Why a rule does not apply: the closest match, and what fails there, in words that name nodes and values."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dslc
from dslc.cli.main import run
from dslc.ir.constants import array_value
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, Value, input_value
from dslc.match import Explanation, compile_rule, why_not
from dslc.semantics.apply import apply
from dslc.semantics.library import load
from tests.codegen.groups import needs_compiler

RULES = """dslc 1
import std.linalg (matmul)
import std.join (concat, split)
import std.conv (conv)
import std.norm (batch_norm)
import std.pointwise (add, mul, neg)
substitution merge(A: T[*P, M, K], B: T[K, N], C: T[K, Q]) -> Y, Z {
  Y = matmul(A, B)
  Z = matmul(A, C)
  where N + Q <= 8
  =>
  Y, Z = split(matmul(A, concat(B, C, axis=1)), axis=-1, sizes=[N, Q])
}
substitution fold(X: T[N, C, *D], K: T[F, C, *R]) -> Y {
  Y = mul(conv(X, K, groups=1, **a), 2)
  where constant(K)
  =>
  Y = conv(X, mul(K, 2), groups=1, **a)
}
substitution wrong(X: T[M, N]) -> Y {
  Y = neg(X)
  =>
  Y = matmul(X, X)
}
"""


@pytest.fixture(scope="module")
def explain(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    path = tmp_path_factory.mktemp("rules") / "mine.rules"
    path.write_text(RULES)
    rules = load(path)

    def go(name: str, *outputs: Value) -> Explanation:
        return why_not(compile_rule(rules, rules.substitutions[f"mine.{name}"]), Graph((), outputs))

    go.call = lambda op, *args, **attrs: apply(rules, f"std.{op}", list(args), attrs)[0]  # type: ignore[attr-defined]
    return go


def tensor(name: str, *shape: int) -> Value:
    return input_value(name, TensorType(DType.F32, shape))


def weight(*shape: int) -> Value:
    return array_value(np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32))


def test_a_guard_with_the_values_of_its_names(explain) -> None:  # type: ignore[no-untyped-def]
    x = tensor("x", 2, 3)
    found = explain("merge", explain.call("matmul", x, weight(3, 4)), explain.call("matmul", x, weight(3, 5)))
    assert not found.applies and len(found.matched) == found.total == 2
    assert found.reason == "`N + Q <= 8` does not hold"
    assert found.span is not None and found.span.text == "N + Q <= 8"
    assert ("N", "4") in found.values and ("Q", "5") in found.values


def test_an_attribute_that_differs(explain) -> None:  # type: ignore[no-untyped-def]
    grouped = explain.call("conv", tensor("x", 1, 4, 5, 5), weight(4, 2, 3, 3), groups=2)
    found = explain("fold", explain.call("mul", grouped, 2))
    assert "attribute `groups` is 2, expected 1" in found.reason


def test_an_operator_that_is_another(explain) -> None:  # type: ignore[no-untyped-def]
    between = explain.call("neg", explain.call("conv", tensor("x", 1, 4, 5, 5), weight(4, 4, 3, 3)))
    found = explain("fold", explain.call("mul", between, 2))
    assert found.reason == "`std.neg` stands between it and `std.conv`" and len(found.matched) == found.total == 2


def test_a_number_that_differs(explain) -> None:  # type: ignore[no-untyped-def]
    y = explain.call("mul", explain.call("conv", tensor("x", 1, 4, 5, 5), weight(4, 4, 3, 3)), 3)
    assert explain("fold", y).reason == "the number 2 is expected, 3 is found"


def test_a_guard_on_constness(explain) -> None:  # type: ignore[no-untyped-def]
    y = explain.call("mul", explain.call("conv", tensor("x", 1, 4, 5, 5), tensor("k", 4, 4, 3, 3)), 2)
    found = explain("fold", y)
    assert found.reason == "`constant(K)` does not hold"
    assert ("K", "f32[4, 4, 3, 3]") in found.values


def test_an_operator_that_the_graph_lacks(explain) -> None:  # type: ignore[no-untyped-def]
    assert explain("merge", explain.call("neg", tensor("x", 2, 3))).reason == "the model has no `std.matmul`"


def test_a_replacement_that_does_not_fit(explain) -> None:  # type: ignore[no-untyped-def]
    found = explain("wrong", explain.call("neg", tensor("x", 2, 3)))
    assert found.applies == 0 and "matmul" in found.reason
    assert explain("wrong", explain.call("neg", tensor("x", 3, 3))).applies == 1


def model(path: Path, batch: int | str = "N") -> Path:
    """x @ w, twice: once followed by what no rule knows."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal((3, n)).astype(np.float32), f"w{n}") for n in (4, 6)]
    nodes = [helper.make_node("MatMul", ["x", f"w{n}"], [f"y{n}"], name=f"product{n}") for n in (4, 6)]
    graph = helper.make_graph(
        nodes,
        "two",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3])],
        [helper.make_tensor_value_info(f"y{n}", TensorProto.FLOAT, [batch, n]) for n in (4, 6)],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    return path


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "mine.rules"
    rules.write_text(RULES)
    file = model(tmp_path / "two.onnx")
    assert run(["why-not", "mine.merge", str(file), "--rules", str(rules), "--bind", "N=2"]) == 0
    text = capsys.readouterr().out
    assert "mine.merge: Does not apply." in text and "closest match: 2 of 2 operators at product6; fails at " in text
    assert "`N + Q <= 8` does not hold" in text and "Q = 6" in text
    assert "is product4: std.matmul(f32[2, 3], f32[3, 4]) -> f32[2, 4]" in text
    assert run(["why-not", "merge_matmuls", str(file)]) == 0
    assert capsys.readouterr().out == "std.merge_matmuls: Applies. Its price depends on sizes: --bind NAME=N.\n"


def test_a_rule_that_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = model(tmp_path / "two.onnx")
    assert run(["why-not", "merge_matmul", str(file)]) == 2
    text = capsys.readouterr().err
    assert "E0909" in text and "did you mean `merge_matmuls`?" in text


STEPS = """dslc 1
import std (add, sub, neg, mul, relu, gelu, exp, log, abs)
substitution opened(X: T[*S], Z: T[*S]) -> Y { Y = sub(X, Z) => Y = add(X, neg(Z)) }
substitution scaled(X: T[*S]) -> Y { Y = neg(X) => Y = mul(X, -1) }
substitution wanted(X: T[*S], Z: T[*S]) -> Y { Y = add(X, mul(Z, -1)) => Y = add(mul(Z, -1), X) }
substitution dear(X: T[*S]) -> Y {
  Y = sub(X, X) where floating(T)
  => Y = sub(exp(log(exp(log(exp(X))))), exp(log(exp(log(exp(X))))))
}
substitution later(X: T[*S], Z: T[*S]) -> Y { Y = sub(X, Z) where floating(T) => Y = gelu(sub(X, Z)) }
substitution never(X: T[*S], Z: T[*S]) -> Y { Y = relu(gelu(sub(X, Z))) => Y = X }
operator unheard(X: T[*S]) -> Y: T[*S] { Y[*i] = X[*i] * X[*i] - 1 }
substitution own(X: T[*S], Z: T[*S]) -> Y { Y = sub(X, Z) => Y = unheard(sub(X, Z)) }
"""


@pytest.fixture
def difference(tmp_path: Path) -> list[str]:
    """The arguments that name a model of one subtraction, at opset 17, and the rules."""
    (tmp_path / "mine.rules").write_text(STEPS)
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [512, 512]) for name in ("x", "z", "y", "t")]
    nodes = [helper.make_node("Sub", ["x", "z"], ["y"]), helper.make_node("Sub", ["x", "x"], ["t"])]
    graph = helper.make_graph(nodes, "difference", infos[:2], infos[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    return [str(tmp_path / "m.onnx"), "--rules", str(tmp_path / "mine.rules")]


def said(rule: str, difference: list[str], capsys: pytest.CaptureFixture[str], *more: str) -> str:
    assert run(["why-not", rule, *difference, *more]) == 0
    return capsys.readouterr().out


def test_the_rules_that_come_before(difference: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    text = said("mine.wanted", difference, capsys)
    assert "mine.wanted: Does not apply." in text
    (line,) = (line for line in text.splitlines() if "Applies after" in line)
    assert line.count(", then ") == 1
    assert "Applies after" not in said("mine.wanted", difference, capsys, "--steps", "1")
    assert "Applying up to 2 other rules first does not help." in said("mine.never", difference, capsys)


@pytest.mark.parametrize(
    ("rule", "way"),
    [
        ("later", "Not used: `std.gelu` needs opset 20, the model has 17."),
        ("own", "Not used: ONNX has no node for `mine.unheard`, and there is no kernel."),
        ("dear", "Predicted from these nodes timed alone: "),
    ],
)
def test_what_stands_in_the_way_of_a_rule_that_matches(
    rule: str, way: str, difference: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no compiler that would make a kernel of an operator that ONNX has no node for."""
    monkeypatch.setenv("CXX", "/no/compiler")
    text = said(f"mine.{rule}", difference, capsys)
    assert f"mine.{rule}: Applies" in text and way in text
    assert rule != "dear" or "ms, slower." in text


@needs_compiler
@pytest.mark.parametrize("rule", ["later", "own"])
def test_an_operator_without_a_node_runs_as_a_kernel(
    rule: str, difference: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(f"mine.{rule}", difference, capsys)
    assert "Predicted from these nodes timed alone with a generated kernel: " in text and "ONNX" not in text


def test_a_rule_of_another_status_is_not_used(difference: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    text = said("mine.own", difference, capsys)
    assert "Not used: its status is refuted. " in text


PARTIAL = """dslc 1
import std (conv)

partial substitution pair(X: T[N, C, H, W], K: T[F, C, R, S]) -> Y {
  Y = conv(X, K, pads=p, stride=[1, 1], dilation=[1, 1], groups=1)
  where N % 2 == 0, S > 1, p[1] + p[3] == S - 1
  =>
  A = {[n: N // 2, c: C, h: H, (k: 2, w: W)] X[2 * n + k, c, h, w]}
  Z = conv(A, K, pads=p)
  Y = {[(n: N // 2, k: 2), f: F, h: H + p[0] + p[2] - R + 1, w: W] Z[n, f, h, k * W + w]}
  correct CORRECTION
}
"""


@pytest.mark.parametrize(
    ("width", "correction", "way"),
    [
        (10, "auto limit 1 / 100", "Not used: its sides differ in 10.0 %, and 1.0 % may be computed again."),
        (10, "Y = conv(add(X, X), K, pads=p)", "Not used: its correction is wrong at [0, 0, 0, 9]."),
        (10, "Y = conv(X, K, pads=p)", "10.0 % of the result is computed again by its correction. Predicted"),
        (10, "auto", "10.0 % of the result is computed again. Predicted"),
        ("W", "auto", "Not used: mutants need known sizes: --bind NAME=N --specialize."),
    ],
)
def test_what_stands_in_the_way_of_a_partial_rule(
    width: int | str, correction: str, way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its status does not: it is corrected where it is used."""
    rules, file = tmp_path / "own.rules", tmp_path / "m.onnx"
    rules.write_text(PARTIAL.replace("(conv)", "(conv, add)").replace("CORRECTION", correction))
    kernel = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "k")
    shape = [2, 3, 6, width]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, size)
        for name, size in (("x", shape), ("y", [2, 4, 6, width]))
    ]
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "k"], ["y"], pads=[1, 1, 1, 1])], "g", ends[:1], ends[1:], [kernel]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    assert run(["why-not", "own.pair", str(file), "--rules", str(rules)]) == 0
    text = capsys.readouterr().out
    assert way in text and "status" not in text


ATTENTION = "float[1,2,3,4] q, float[1,2,5,4] k, float[1,2,5,6] v) => (float[1,2,3,6] y) <float c = {0.5}>"
SCORES = "[t] kt = Transpose<perm=[0,1,3,2]>(k) [s] s = MatMul(q, kt)"
HEADS = ATTENTION.replace("float[1,2,3,4] q", "float[2,3,4] q")
SCALED = "[m] n = Mul(s, c) [p] p = Softmax<axis=3>(n)"
NORM = "float[2,8] x) => (float[2,8] y) <float e = {0.1}, float[1] g = {2.0}, float two = {2.0}, float three = {3.0}>"


def norm(power: str = "two", axis: int = -1) -> str:
    """An RMS norm of which the power, or the axis, may be another."""
    return (
        f"{NORM} {{ [power] a = Pow(x, {power}) [mean] v = ReduceMean<axes=[{axis}]>(a) [add] b = Add(v, e) [root] r = Sqrt(b) "
        "[over] d = Div(x, r) [gain] y = Mul(d, g) }"
    )


@pytest.mark.parametrize(
    ("rule", "model", "matched", "node", "call", "reason"),
    [
        pytest.param(
            "attention_recognized",
            f"{ATTENTION} {{ {SCORES} [m] n = Mul(s, c) [p] p = Softmax<axis=2>(n) [o] y = MatMul(p, v) }}",
            "4 of 5 operators at o", "p", "softmax", "attribute `axis` is 2, expected 3", id="attribute",
        ),
        pytest.param(
            "attention_recognized",
            f"{ATTENTION} {{ {SCORES} [m] n = Mul(s, s) [p] p = Softmax<axis=3>(n) [o] y = MatMul(p, v) }}",
            "4 of 5 operators at o", "m", "mul", "a constant number is expected, `std.matmul` (s) is found", id="not constant",
        ),
        pytest.param(
            "attention_recognized",
            f"{ATTENTION} {{ {SCORES} [m] n = Div(s, c) [p] p = Softmax<axis=3>(n) [o] y = MatMul(p, v) }}",
            "4 of 5 operators at o", "m", "mul", "`std.mul` is expected, and the model has none: `std.div` is found", id="operator",
        ),
        pytest.param(
            "attention_recognized",
            f"{ATTENTION} {{ {SCORES} {SCALED} [a] a = Abs(p) [o] y = MatMul(a, v) }}",
            "5 of 5 operators at o", "a", "matmul", "`std.abs` (a) stands between it and `std.softmax`", id="one more operator",
        ),
        pytest.param(
            "attention_recognized",
            f"{ATTENTION} {{ {SCORES} [p] p = Softmax<axis=3>(s) [o] y = MatMul(p, v) }}",
            "4 of 5 operators at o", "s", "mul", "`std.mul` is missing: `std.matmul` (s) is read without it", id="one operator less",
        ),
        pytest.param(
            "attention_recognized",
            f"{ATTENTION.replace('2,5,4] k', '2,4,5] k')} {{ [s] s = MatMul(q, k) {SCALED} "
            "[o] y = MatMul(p, v) }",
            "4 of 5 operators at o", "", "transpose", "`std.transpose` is expected, and the model has none: the input `k` is found",
            id="transposed input",
        ),
        pytest.param(
            "attention_recognized",
            f"{ATTENTION.replace('q, float[1,2,5,4]', 'q, float[1,2,4,5]')} {{ [t] kt = Transpose<perm=[0,1,2,3]>(k) "
            f"[s] s = MatMul(q, kt) {SCALED} [o] y = MatMul(p, v) }}",
            "4 of 5 operators at o", "t", "transpose", "attribute `perm` is [0, 1, 2, 3], expected [0, 1, 3, 2]", id="permutation",
        ),
        pytest.param(
            "attention_recognized",
            f"{ATTENTION.replace('0.5', '-0.5')} {{ {SCORES} {SCALED} [o] y = MatMul(p, v) }}",
            "5 of 5 operators at o", "", "c > 0", "`c > 0` does not hold", id="guard",
        ),
        pytest.param(
            "attention_recognized",
            "float[1,2,5,4] q, float[1,2,5,4] k, float[1,2,5,5] v) => (float[1,2,5,5] y) <float c = {0.5}> "
            f"{{ {SCORES} {SCALED} [o] y = MatMul(v, p) }}",
            "4 of 5 operators at p", "o", "matmul",
            "`std.matmul` is expected to read `std.softmax` (p) like this, and it is read by `std.matmul` (o)", id="order of arguments",
        ),
        pytest.param(
            "attention_recognized",
            f"{HEADS} {{ {SCORES} {SCALED} [o] y = MatMul(p, v) }}",
            "4 of 5 operators at o", "s", "matmul",
            "`Q: T[N, H, M, D]` is expected, and `q` is f32[2, 3, 4]: rank 3 where 4 is expected", id="rank",
        ),
        pytest.param(
            "rms_norm_recognized", norm(power="three"),
            "5 of 6 operators at gain", "power", "pow", "the number 2 is expected, 3 is found", id="other power",
        ),
        pytest.param(
            "rms_norm_recognized", norm(axis=0),
            "5 of 6 operators at gain", "mean", "reduce_mean", "attribute `axes` is 0, expected 1", id="other axis",
        ),
        pytest.param(
            "silu_recognized", "float[4] x, float[4] z) => (float[4] y) { [s] s = Sigmoid(x) [m] y = Mul(s, z) }",
            "1 of 2 operators at s", "m", "mul", "`X` is `x` elsewhere, and `z` here", id="another tensor",
        ),
        pytest.param(
            "gelu_recognized",
            "float[4] x) => (float[4] y) <float r = {1.5}, float one = {1.0}, float half = {0.5}> "
            "{ [d] d = Div(x, r) [e] e = Erf(d) [a] a = Add(e, one) [m] m = Mul(x, a) [h] y = Mul(m, half) }",
            "3 of 4 operators at h", "d", "div", "the number 1.4142135623730951 is expected, 1.5 is found", id="number",
        ),
        pytest.param(
            "merge_matmuls",
            "float[2,3] x, float[2,3] z, float[3,4] a, float[3,5] b) => (float[2,4] y, float[2,5] w) "
            "{ [one] y = MatMul(x, a) [two] w = MatMul(z, b) }",
            "1 of 2 operators at one", "", "matmul",
            "`std.matmul` is expected to read `x` like this, and it is read by `std.matmul` (one)", id="one reader",
        ),
        pytest.param(
            "concat_of_split",
            "float[4,4] x) => (float[2,8] y) { [s] a, b = Split<axis=0>(x) [c] y = Concat<axis=1>(a, b) }",
            "1 of 2 operators at c", "s", "split", "attribute `axis` is 0, expected `a`, which is 1", id="name",
        ),
        pytest.param(
            "concat_of_split",
            "float[4,4] x) => (float[4,4] y) { [s] a, b = Split<axis=0>(x) [c] y = Concat<axis=0>(b, a) }",
            "1 of 2 operators at c", "s", "split", "another result of `std.split` is expected", id="results",
        ),
        pytest.param(
            "fold_batch_norm",
            "float[1,1,3,3] x) => (float[1,1,3,3] y) <float[1,1,1,1] k = {2}, float[1] b = {1}, float[1] s = {2}> "
            "{ [conv] t = Conv(x, k, b) [norm] y = BatchNormalization(t, s, b, s, s) }",
            "2 of 2 operators at norm", "conv", "batch_norm", "`std.add` (conv) stands between it and `std.conv`", id="optional input",
        ),
        pytest.param(
            "concat_through_unary",
            "float[2,4] x, float[3,4] z) => (float[5,4] y) { [a] a = Relu(x) [b] b = Sigmoid(z) [c] y = Concat<axis=0>(a, b) }",
            "2 of 3 operators at c", "b", "f(", "`f` is `std.relu`, and `std.sigmoid` is found", id="term",
        ),
        pytest.param(
            "relu_of_relu", "float[4] x) => (float[4] y, float[4] z) { [a] z = Relu(x) [b] t = Neg(z) [c] y = Relu(t) }",
            "2 of 2 operators at c", "b", "relu", "`std.neg` (b) stands between it and `std.relu`", id="between equal ones",
        ),
    ],
)  # fmt: skip
def test_one_obstacle_is_named_where_it_stands(
    rule: str, model: str, matched: str, node: str, call: str, reason: str
) -> None:
    """Each model has one thing that keeps the rule away: all that matches is counted, and the call that fails is the one."""
    text = '<ir_version: 8, opset_import: ["": 17]> g (' + model
    found = dslc.why_not(rule, onnx.parser.parse_model(text), steps=0)[0]
    place = re.escape(f"  closest match: {matched}; fails at ") + r"\S*rules/std/"
    assert re.match(place, str(found).splitlines()[1])
    assert found.explanation.reason == reason
    assert (f" on {node}: " in found.explanation.fails[0]) is bool(node)
    assert found.explanation.span is not None and found.explanation.span.text.startswith(call)


DECODE = """dslc 1
import std.linalg (matmul)
import std.layout (transpose, reshape)
import std.softmax (softmax)
import std (mul)
operator gqa_decode(Q: T[B, H, D], K: T[B, G, S, D], V: T[B, G, S, D]) -> Y: T[B, H, D] {
  attr scale: float
  where H % G == 0
  let R = H // G
  Y = reshape(matmul(softmax(mul(matmul(reshape(Q, shape=[B, G, R, D]), transpose(K, perm=[0, 1, 3, 2])), scale), axis=3), V),
      shape=[B, H, D])
}
substitution gqa_found(Q: T[B, H, D], K: T[B, G, S, D], V: T[B, G, S, D]) -> Y {
  where H % G == 0
  let R = H // G
  Y = reshape(matmul(softmax(mul(matmul(reshape(Q, shape=[B, G, R, D]), transpose(K, perm=[0, 1, 3, 2])), c), axis=3), V),
      shape=[B, G * R, D])
  =>
  Y = gqa_decode(Q, K, V, scale=c)
}
"""


@pytest.fixture
def decode(tmp_path: Path) -> tuple[Path, Path]:
    """Grouped-query attention of one token as exporters write it: the first of its products is flat, and so is its result."""
    (tmp_path / "llm.rules").write_text(DECODE)
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[4,32] x, float[4,2,5,4] k, float[4,2,5,4] v) => (float[4,32] y)
      <float c = {0.5}, int64[4] heads = {4,2,4,4}, int64[2] flat = {4,32}> {
      [up] h = Neg(x) [Reshape_1] q = Reshape(h, heads) [Transpose_2] kt = Transpose<perm=[0,1,3,2]>(k) [MatMul_3] s = MatMul(q, kt)
      [Mul_4] m = Mul(s, c) [Softmax_5] p = Softmax<axis=-1>(m) [MatMul_9] o = MatMul(p, v) [Reshape_10] f = Reshape(o, flat)
      [down] y = Abs(f) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "decode.onnx")
    return tmp_path / "llm.rules", tmp_path / "decode.onnx"


def test_the_place_is_found_from_the_leaves(decode: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """The first `reshape` of the model is that of the queries; the one that should be the rule's last gives two axes."""
    rules, file = decode
    assert run(["why-not", "gqa_found", str(file), "--rules", str(rules), "--steps", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == (
        f"  closest match: 5 of 7 operators at MatMul_9; fails at {rules}:16:7 on Reshape_10: "
        "attribute `shape` is [4, 32], expected [B, G * R, D]: 2 entries, 3 wanted"
    )
    assert lines[2].endswith(
        "on Reshape_1: `Q: T[B, H, D]` is expected, and `std.neg` (up) is f32[4, 32]: rank 2 where 3 is expected"
    )
    assert lines[5] == "    matmul(..., ...)"


def test_a_page_draws_the_place(decode: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules, file = decode
    asked = ["why-not", "gqa_found", str(file), "--rules", str(rules), "--steps", "0", "--report"]
    assert run([*asked, str(tmp_path / "page.html")]) == 0
    text = (tmp_path / "page.html").read_text()
    assert "closest match" in capsys.readouterr().out and "llm.gqa_found in decode.onnx" in text
    # the rule's text: what matches, and the call that fails
    assert (
        '<span class="good">matmul(softmax(mul(matmul(</span>reshape(Q,' in text
        and 'font-weight: 700">reshape(</span>' in text
    )
    colours = {row[1]: row[0] for row in re.findall(r'style="--hue: var\(--(\w+)\)"><title>\S+ (\w+)', text)}
    matched = ("Transpose_2", "MatMul_3", "Mul_4", "Softmax_5", "MatMul_9")
    assert colours == {**dict.fromkeys(matched, "after"), "Reshape_10": "bad"}
    assert '"in the rule": "transpose(K, perm=[0, 1, 3, 2])"' in text and "down" in text
    assert run([*asked, str(tmp_path / "page.json")]) == 2 and run([*asked, str(file)]) == 2
    assert run([*asked, str(tmp_path / "none" / "page.html")]) == 2


def test_a_rule_does_not_apply_after_its_own_reverse() -> None:
    """Nor after a rule of another name that it only takes back."""
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) { t = Mul(x, x) y = Mul(t, t) }'
    (forward, reverse) = dslc.why_not("pow_two", onnx.parser.parse_model(text))
    assert (forward.applies, forward.after, reverse.applies) == (0, None, 2)
    assert "Applying up to 2 other rules first does not help." in str(forward)


UNDONE = """dslc 1
import std (neg, abs, relu, mul)
substitution there(X: T[*S]) -> Y { Y = relu(X) => Y = neg(neg(relu(X))) }
substitution back(X: T[*S]) -> Y { Y = neg(neg(X)) => Y = X }
"""


def test_a_rule_does_not_apply_after_one_that_it_takes_back(tmp_path: Path) -> None:
    (tmp_path / "u.rules").write_text(UNDONE)
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) { y = Relu(x) }'
    (found,) = dslc.why_not("u.back", onnx.parser.parse_model(text), rules=tmp_path / "u.rules", steps=1)
    assert found.after is None and str(found).endswith("Applying another rule first does not help.")


def test_what_else_reads_the_inside_of_a_match_stays() -> None:
    """The rule applies all the same; its price has that in it."""
    text = (
        '<ir_version: 8, opset_import: ["": 17]> g (float[64,64] x) => (float[64,64] y, float[64,64] z) '
        "{ [s] s = Sigmoid(x) [m] y = Mul(x, s) [other] z = Abs(s) }"
    )
    (found,) = (one for one in dslc.why_not("silu_recognized", onnx.parser.parse_model(text), steps=0) if one.applies)
    assert found.obstacles[0] == "s stays: it is read elsewhere, too."

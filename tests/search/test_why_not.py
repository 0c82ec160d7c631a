"""Why a rule does not apply: the best partial match, and what stopped it, in words that name values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

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
    assert found.reason == "`std.conv` is expected, `std.neg` is found"


def test_a_number_that_differs(explain) -> None:  # type: ignore[no-untyped-def]
    y = explain.call("mul", explain.call("conv", tensor("x", 1, 4, 5, 5), weight(4, 4, 3, 3)), 3)
    assert explain("fold", y).reason == "the number 2 is expected, 3 is found"


def test_a_guard_on_constness(explain) -> None:  # type: ignore[no-untyped-def]
    y = explain.call("mul", explain.call("conv", tensor("x", 1, 4, 5, 5), tensor("k", 4, 4, 3, 3)), 2)
    found = explain("fold", y)
    assert found.reason == "`constant(K)` does not hold"
    assert ("K", "f32[4, 4, 3, 3]") in found.values


def test_an_operator_that_the_graph_lacks(explain) -> None:  # type: ignore[no-untyped-def]
    assert explain("merge", explain.call("neg", tensor("x", 2, 3))).reason == "the graph has no `std.matmul`"


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
    assert "mine.merge: Does not apply." in text and "2 of 2 calls" in text
    assert "`N + Q <= 8` does not hold" in text and "Q = 6" in text
    assert "is y4: std.matmul(f32[2, 3], f32[3, 4]) -> f32[2, 4]" in text
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
    assert "Nor after 2 other rules." in said("mine.never", difference, capsys)


@pytest.mark.parametrize(
    ("rule", "way"),
    [
        ("later", "Not used: `std.gelu` needs opset 20, the model has 17."),
        ("own", "Not used: ONNX has no node for `mine.unheard`, and there is no kernel."),
        ("dear", "Alone: "),
    ],
)
def test_what_stands_in_the_way_of_a_rule_that_matches(
    rule: str, way: str, difference: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no compiler that would make a kernel of an operator that ONNX has no node for."""
    monkeypatch.setenv("CXX", "/no/compiler")
    text = said(f"mine.{rule}", difference, capsys)
    assert f"mine.{rule}: Applies" in text and way in text
    assert rule != "dear" or "x, slower)." in text


@needs_compiler
@pytest.mark.parametrize("rule", ["later", "own"])
def test_an_operator_without_a_node_runs_as_a_kernel(
    rule: str, difference: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(f"mine.{rule}", difference, capsys)
    assert "Alone, with a generated kernel: " in text and "ONNX" not in text


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
        (10, "Y = conv(X, K, pads=p)", "10.0 % of the result is computed again by its correction. Alone"),
        (10, "auto", "10.0 % of the result is computed again. Alone"),
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

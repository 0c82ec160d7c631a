"""Lowerings are targets by what they compute, and a miss says which iterators found no place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dslc.cli.derive import command as derive
from dslc.cli.why_not import command as why_not
from dslc.derivation.calls import read_call
from dslc.derivation.lowerings import lowerings_on, unlowered, with_lowerings
from dslc.derivation.search import DerivationLimits, DerivationSearch
from dslc.derivation.solver import MissReason
from dslc.derivation.tables import patterns_of
from dslc.derivation.targets import missed
from dslc.ir.graph import Call, topological
from dslc.prove.exact.answers import Equal
from dslc.prove.exact.compare import compare
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules, load_many

#: operators without a batch and without a dilation; lowerings of scaled rows, of a strided window, and of nothing that is known
OWN = """dslc 1
library own 0.1.0
import std.linalg (matmul)
operator product(A: T[M, K], B: T[K, N]) -> Y: T[M, N] {
  Y[m, n] = sum[k] A[m, k] * B[k, n]
}
operator band(A: T[N, M, K], B: T[N, M, K]) -> Y: T[N, M, 2 * W + 1] {
  attr width: int
  where W == width
  Y[n, m, w] = sum[k] A[n, m, k] * B[n, m + w - W, k, other=0]
}
lowering scaled_rows(A: T[M, K], C: T[K, N], s: T[M]) on cpu {
  expr  Y[m, n] = (sum[k] A[m, k] * C[k, n]) * s[m]
  template "own.j2" { rows = size(m) }
}
lowering scaled(A: T[M, K], C: T[K, N], s: T[]) on cpu {
  expr  Y[m, n] = (sum[k] A[m, k] * C[k, n]) * s
  template "own.j2" { rows = size(m) }
}
lowering steps(X: T[N, C, L], K: T[F, C, R]) on cpu {
  expr  Y[n, f, o] = sum[c, r] X[n, c, o * u + r * v, other=0] * K[f, c, r]
  where u > 1
  template "own.j2" { u = u, v = v }
}
lowering anything(X: T[*S]) on cpu {
  expr  Y[*i] = f(X[*i])
  template "own.j2" { }
}
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "own.rules"
    path.write_text(OWN, "utf-8")
    return path


@pytest.fixture(scope="module")
def rules(file: Path) -> Rules:
    return load_many(["std", "einnet", "targets", file])


def run(command: Any, *arguments: str) -> str:
    done = CliRunner().invoke(command, [*arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_lowering_of_an_expression_has_a_table(rules: Rules) -> None:
    with_them, made = with_lowerings(rules, lowerings_on(rules, ("cpu", "cuda")))
    assert {
        "targets.cublas_gemm",
        "targets.cublaslt_bias_gelu",
        "targets.cudnn_conv",
        "own.scaled_rows",
        "own.steps",
    } <= {*made}
    assert "own.anything" not in made, "nothing is known of f"
    assert [name for name in made if not patterns_of(with_them, name)] == []
    assert not {*made} & {*rules.operators}, "the rules themselves are as they were"


@pytest.mark.parametrize(
    "text, target, attributes",
    [
        ("matmul(A: f32[2, 3, 6, 4], B: f32[2, 3, 4, 5])", "targets.cublas_gemm", {}),
        ("add(matmul(A: f32[6, 4], B: f32[4, 5]), C: f32[5])", "targets.cublaslt_bias", {}),
        ("relu(add(C: f32[5], matmul(A: f32[6, 4], B: f32[4, 5])))", "targets.cublaslt_bias_relu", {}),
        ("mul(S: f32[6, 1], matmul(A: f32[6, 4], B: f32[4, 5]))", "own.scaled_rows", {}),
        ("mul(matmul(A: f32[6, 4], B: f32[4, 5]), S: f32[])", "own.scaled", {}),
        ("conv(X: f32[1, 4, 9, 8], K: f32[6, 2, 3, 2], pads=[1, 0, 1, 1], stride=[2, 1], dilation=[1, 2], groups=2)",
         "targets.cudnn_conv", {"u": (2, 1), "v": (1, 2), "w": (1, 0)}),
        ("add(Z: f32[2, 6, 7, 7], add(conv(X: f32[2, 4, 9, 8], K: f32[6, 4, 3, 2]), B: f32[6, 1, 1]))", "targets.cudnn_conv_bias_add",
         {"u": (1, 1), "v": (1, 1)}),
        ("conv(X: f32[2, 4, 9], K: f32[6, 4, 3], stride=[2])", "own.steps", {"u": 2, "v": 1}),
    ],
)  # fmt: skip
def test_an_expression_is_matched_with_what_a_lowering_computes(
    rules: Rules, text: str, target: str, attributes: dict[str, Any]
) -> None:
    with_them, made = with_lowerings(rules, [target])
    (value,) = expand(with_them, (read_call(with_them, text).value,))
    found = DerivationSearch(with_them, [], DerivationLimits(max_depth=0), made).run(value)
    program = found.programs[0]
    (call,) = program.calls
    assert call.op == target and attributes.items() <= dict(call.attrs).items()
    plain = unlowered(with_them, program.value, made)
    assert not [node for node in topological([plain.node]) if isinstance(node, Call)]
    assert isinstance(compare((value,), expand(rules, (plain,)), seconds=120.0), Equal)


def test_what_a_lowering_asks_of_coefficients_and_types_holds(rules: Rules) -> None:
    with_them, _ = with_lowerings(rules, ["own.steps", "targets.cublaslt_bias"])

    def why(text: str, target: str) -> MissReason:
        (value,) = expand(with_them, (read_call(with_them, text).value,))
        start = DerivationSearch(with_them, []).steps.start(value)
        found = [missed(with_them, node.values[0], target) for node in topological([start.node]) if node.args]
        assert None not in found
        return max((each.why for each in found if each is not None), key=[*MissReason].index)

    assert why("conv(X: f32[2, 4, 9], K: f32[6, 4, 3])", "own.steps") is MissReason.TYPES
    assert why("add(matmul(A: f64[6, 4], B: f64[4, 5]), C: f64[5])", "targets.cublaslt_bias") is MissReason.TYPES


def test_a_sum_is_no_operand_of_what_is_computed_of_it(rules: Rules) -> None:
    """`P * tanh(softplus(P))` is no product of P with a number: the sum has no place among the tensors."""
    with_them, made = with_lowerings(rules, ["own.scaled"])
    (value,) = expand(with_them, (read_call(with_them, "mish(matmul(A: f32[6, 4], B: f32[4, 5]))").value,))
    assert DerivationSearch(with_them, [], DerivationLimits(max_depth=0), made).run(value).programs == ()


def test_derive_prints_what_lowerings_run_as_expressions(file: Path) -> None:
    text = "relu(add(matmul(A: f32[6, 4], B: f32[4, 5]), C: f32[5]))"
    facts = json.loads(run(derive, text, "--on", "cuda", "--max-depth", "0", "--output-format", "json"))
    targets = [program["target"] for program in facts["programs"]]
    assert {"cublaslt_bias_relu", "cublaslt_bias", "cublas_gemm", "conv"} <= {*targets}
    first = facts["programs"][targets.index("cublaslt_bias_relu")]
    assert [call["operator"] for call in first["calls"]] == ["targets.cublaslt_bias_relu"] and "cublaslt" not in first[
        "program"
    ]
    assert "scaled_rows" in run(derive, "mul(S: f32[6, 1], matmul(A: f32[6, 4], B: f32[4, 5]))", "--rules", str(file),
                                "--rules", "einnet", "--target", "scaled_rows", "--max-depth", "0")  # fmt: skip


# ---- why not -----------------------------------------------------------------------------------------------------------


def test_why_not_says_which_iterators_an_operator_has_no_place_for(file: Path) -> None:
    lines = run(
        why_not,
        "matmul(A: f32[3, 8, 4], B: f32[3, 4, 5])",
        "--target",
        "product",
        "--rules",
        str(file),
        "--max-depth",
        "0",
    )
    assert "operand 0 + operand 1 + the result (3 positions)" in lines
    assert "its iterators are of operand 0 + the result, of operand 1 + the result, of operand 0 + operand 1" in lines


def test_why_not_says_after_which_derivations_it_is_one(file: Path) -> None:
    for dilation, how in ((1, "as it stands"), (3, "after einnet.variable_substitution")):
        call = f"g2bmm(A: f32[2, 9, 4], B: f32[2, 9, 4], width=2, dilation={dilation})"
        assert run(why_not, call, "--target", "band", "--rules", str(file), "--max-depth", "1").startswith(
            f"band: it is one {how}"
        )


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (["relu(X: f32[4, 4])", "--target", "softmax"], MissReason.NO_TABLE),
        (["relu(X: f32[4, 4])", "--target", "matmul"], MissReason.NO_PRODUCT),
        (["matmul(A: f32[4, 5], B: f32[5, 3])", "--target", "g2bmm", "--max-depth", "0"], MissReason.NOT_AFFINE),
    ],
)
def test_why_not_gives_one_reason(arguments: list[str], reason: MissReason) -> None:
    first = run(why_not, *arguments).splitlines()[0]
    assert first.partition(": ")[2].startswith(reason.value)


@pytest.mark.parametrize("arguments", [["conv"], ["relu(X: f32[4])", __file__, "--target", "relu"]])
def test_why_not_takes_a_rule_and_a_model_or_a_call_and_a_target(arguments: list[str]) -> None:
    assert CliRunner().invoke(why_not, arguments).exit_code == 2

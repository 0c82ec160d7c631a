"""Any operator with an iterator table is a target, and products between which rules of two expressions run are merged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dslc.cli.derive import command
from dslc.derivation.calls import read_call
from dslc.derivation.search import DerivationLimits, DerivationSearch, ProgramsFound
from dslc.derivation.solver import MissReason
from dslc.derivation.steps import Steps
from dslc.derivation.tables import patterns_of
from dslc.derivation.targets import instances, missed, products_of, targets_of
from dslc.ir.graph import Call, Value, topological
from dslc.ir.scalar import Read
from dslc.prove.exact.answers import Equal
from dslc.prove.exact.compare import compare
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules
from dslc.semantics.written import read_program
from tests.libraries import libraries


@pytest.fixture(scope="module")
def rules() -> Rules:
    return libraries("std", "einnet")


def expression(rules: Rules, text: str) -> Value:
    """The one scope that a call computes, merged dimensions and lookups taken off."""
    (value,) = expand(rules, (read_call(rules, text).value,))
    start = Steps([]).start(value)
    return start.node.args[0] if isinstance(start.node.scope.body, Read) else start  # type: ignore[attr-defined]


def found(rules: Rules, text: str, depth: int) -> tuple[ProgramsFound, Value]:
    called = read_call(rules, text)
    (value,) = expand(rules, (called.value,))
    targets = targets_of(rules, [call.op for call in called.calls])
    search = DerivationSearch(
        rules, list(rules.derivations.values()), DerivationLimits(max_depth=depth, beam=12), targets
    )
    return search.run(value), value


def assert_found(rules: Rules, text: str, depth: int, wanted: Callable[[tuple[Call, ...]], bool]) -> None:
    derived, value = found(rules, text, depth)
    program = next((each for each in derived.programs if wanted(each.calls)), None)
    assert program is not None, f"none of {len(derived.programs)} programs"
    assert isinstance(compare((value,), expand(rules, (program.value,)), seconds=120.0), Equal)


@pytest.mark.parametrize(
    "text, target, attributes",
    [
        ("conv(X: f32[2, 6, 7, 9], K: f32[4, 3, 3, 2], pads=[1, 0, 1, 1], groups=2, stride=[2, 1], dilation=[1, 2])", "conv",
         {"stride": (2, 1), "pads": (1, 0, 1, 1), "dilation": (1, 2), "groups": 2}),
        ("matmul(A: f32[3, 4, 5], B: f32[3, 5, 2])", "matmul", {}),
        ("matmul(A: f32[N, 4, 5], B: f32[N, 5, 2])", "matmul", {}),
        ("g2bmm(A: f32[2, 9, 4], B: f32[2, 9, 4], width=2, dilation=3)", "g2bmm", {"width": 2, "dilation": 3}),
        ("gbmm(A: f32[2, 9, 5], B: f32[2, 9, 3], dilation=2)", "gbmm", {"dilation": 2}),
        ("add(A: f32[3, 4], B: f32[4])", "add", {}),
        ("relu(A: f32[3, 4])", "relu", {}),
    ],
)  # fmt: skip
def test_table_2_an_operator_is_matched_with_its_own_expression(
    rules: Rules, text: str, target: str, attributes: dict[str, Any]
) -> None:
    value = expression(rules, text)
    made = [each for _, each in instances(rules, value, [f"std.{target}"])]
    calls = [node for each in made for node in topological([each.node]) if isinstance(node, Call)]
    assert attributes in [dict(call.attrs) for call in calls]
    for each in made:
        assert isinstance(compare((value,), expand(rules, (each,)), seconds=120.0), Equal)


def test_figure_8_operands_may_be_transposed_strided_and_of_any_rank(rules: Rules) -> None:
    """`Y[a, b, c] = sum[k] A[b, k, a] * B[c, k]`: one product, its columns a and b together, and B as it is."""
    value = expression(
        rules, "matmul(transpose(A: f32[4, 5, 3], perm=[2, 0, 1]), transpose(B: f32[6, 5], perm=[1, 0]))"
    )
    (made,) = (each for _, each in instances(rules, value, ["std.matmul"]))
    (call,) = (node for node in topological([made.node]) if isinstance(node, Call))
    assert [arg.type.shape for arg in call.args] == [(6, 5), (5, 12)]
    assert isinstance(compare((value,), expand(rules, (made,)), seconds=120.0), Equal)


def test_products_are_found_by_their_equations(rules: Rules) -> None:
    assert {"std.matmul", "std.conv"} <= set(products_of(rules))
    assert all(pattern.kind == "sum" for name in products_of(rules) for pattern in patterns_of(rules, name))


def test_a_miss_says_what_does_not_fit(rules: Rules) -> None:
    product = expression(rules, "matmul(A: f32[4, 5], B: f32[5, 3])")
    assert missed(rules, product, "std.matmul") is None
    for target, why in (
        ("std.g2bmm", MissReason.NOT_AFFINE),
        ("std.relu", MissReason.NO_PRODUCT),
        ("std.softmax", MissReason.NO_TABLE),
        ("std.reduce_max", MissReason.NO_PRODUCT),
    ):
        reason = missed(rules, product, target)
        assert reason is not None and reason.why is why, (target, reason)


@pytest.mark.parametrize("width, dilation, rows", [(1, 2, 8), (2, 3, 7)])
def test_figure_14_a_dilated_band_is_a_dense_one_between_two_changes_of_layout(
    rules: Rules, width: int, dilation: int, rows: int
) -> None:
    text = f"g2bmm(A: f32[2, {rows}, 3], B: f32[2, {rows}, 3], width={width}, dilation={dilation})"
    depth = 1 if rows % dilation == 0 else 3
    assert_found(
        rules,
        text,
        depth,
        lambda calls: [(c.op, dict(c.attrs)["dilation"]) for c in calls if c.attrs] == [("std.g2bmm", 1)],
    )


def test_figure_14_between_two_dilated_bands_the_changes_of_layout_go(rules: Rules) -> None:
    text = "gbmm(g2bmm(A: f32[2, 8, 3], B: f32[2, 8, 3], width=1, dilation=2), C: f32[2, 8, 3], dilation=2)"

    def dense(calls: tuple[Call, ...]) -> bool:
        ops = [call.op for call in calls]
        direct = any(arg.node is calls[0] for arg in calls[-1].args)
        return ops == ["std.g2bmm", "std.gbmm"] and direct and all(dict(call.attrs)["dilation"] == 1 for call in calls)

    assert_found(rules, text, 2, dense)


@pytest.mark.parametrize(
    "text, elements",
    [
        ("concat(matmul(X: f32[4, 5], A: f32[5, 3]), matmul(X, B: f32[5, 2]), axis=1)", 4 * 5),
        ("add(matmul(X: f32[4, 5], A: f32[5, 3]), matmul(X, B: f32[5, 3]))", 2 * 4 * 3),
        ("mul(matmul(X: f32[4, 5], A: f32[5, 3]), matmul(Z: f32[4, 5], B: f32[5, 3]))", 2 * 4 * 3),
    ],
)
def test_figure_3a_products_of_different_weights_are_one(rules: Rules, text: str, elements: int) -> None:
    assert_found(
        rules, text, 1, lambda calls: [(c.op, c.values[0].type.elements) for c in calls] == [("std.matmul", elements)]
    )


def test_a_broadcast_batch_of_products_is_one_product() -> None:
    """As many operations, and one product: no derivation leads there, and it is shown."""
    programs = printed("matmul(A: f32[6, 1, 10, 12], B: f32[5, 12, 8])", "--max-states", "5")["programs"]
    assert [[60, 12], [12, 40]] in [call["shapes"] for each in programs for call in each["calls"]]


# ---- the command -----------------------------------------------------------------------------------------------------


def printed(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(command, [*arguments, "--output-format", "json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.output)  # type: ignore[no-any-return]


def test_programs_parse_back_and_a_limit_of_states_makes_a_search_repeatable(rules: Rules) -> None:
    text = "conv(X: f32[1, 3, 5, 5], K: f32[2, 3, 3, 3], pads=[1, 1, 1, 1])"
    one, two = (printed(text, "--max-states", "15") for _ in range(2))
    assert one["states"] <= 15 and not one["complete"]
    assert {**one, "seconds": 0} == {**two, "seconds": 0}
    (value,) = expand(rules, (read_call(rules, text).value,))
    for program in one["programs"][::4]:
        graph = read_program(rules, program["program"])
        assert isinstance(compare((value,), expand(rules, graph.outputs), seconds=120.0), Equal)


def test_a_target_that_nothing_matches_is_said_to_be_missed() -> None:
    facts = printed("relu(X: f32[4, 4])", "--target", "conv")
    assert facts["programs"] == [] and facts["missed"] == {"std.conv": MissReason.NO_PRODUCT.value}


@pytest.mark.parametrize("text", ["matmul(X: f32[1, 1], Y: f32[1, 1])", "conv(X: f32[1, 1, 1, 1], K: f32[1, 1, 1, 1])"])
def test_of_one_position_there_is_nothing_to_derive(text: str) -> None:
    assert printed(text, "--max-depth", "2")["complete"]


PADDED = '''dslc 1
library padded 0.1.0
operator conv_same(X: f32[N, C, H, V], K: f32[F, C, 3, 3]) -> Y: f32[N, F, H, V] {
  """A window of nine with pads of one that are no attribute."""
  Y[n, f, h: H, w: V] = sum[c, r, s] X[n, c, h + r - 1, w + s - 1, other=0] * K[f, c, r, s]
}
'''


@pytest.mark.parametrize("window, pads, states", [(3, 0, 10), (5, 2, 60)])
def test_an_operator_with_pads_of_its_own_computes_more_and_the_result_is_cut(
    tmp_path: Path, window: int, pads: int, states: int
) -> None:
    """Where data go on at its borders the operator gets them with a margin, and of its result the borders go."""
    file = tmp_path / "padded.rules"
    file.write_text(PADDED)
    call = f"conv(X: f32[1, 2, 9, 8], K: f32[3, 2, {window}, {window}], pads={[pads] * 4})"
    arguments = [call, "--rules", str(file), "--target", "conv_same", "--max-depth", "3", "--max-states", str(states)]
    facts = json.loads(
        CliRunner().invoke(command, [*arguments, "--output-format", "json"], catch_exceptions=False).output
    )
    (found, *_) = facts["programs"]
    assert found["proved"] and {call["operator"] for call in found["calls"]} == {"padded.conv_same"}

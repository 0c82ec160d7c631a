"""The papers' derivations are found, at sizes of our own: EinNet (OSDI 2023), Figures 3, 5, 6, 7, 14 and 15."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper

from dslc.cli.derive import command
from dslc.derivation.calls import read_call
from dslc.derivation.programs import PricedProgram
from dslc.derivation.search import DerivationLimits, DerivationSearch, ProgramsFound
from dslc.derivation.solver import MissReason
from dslc.derivation.targets import missed, products_of
from dslc.errors import DslcError
from dslc.interpret.floats import Floats
from dslc.interpret.run import run_scopes
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Call, Value, input_value
from dslc.prove.exact.answers import Equal
from dslc.prove.exact.compare import compare
from dslc.semantics.apply import apply
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules
from tests.libraries import libraries


@pytest.fixture(scope="module")
def rules() -> Rules:
    return libraries("std", "einnet")


def derived(
    rules: Rules, op: str, shapes: list[tuple[int, ...]], depth: int, **attrs: object
) -> tuple[ProgramsFound, Value]:
    args = [input_value(f"h{k}", TensorType(DType.F32, shape)) for k, shape in enumerate(shapes)]
    (value,) = expand(rules, apply(rules, op, args, attrs))
    search = DerivationSearch(rules, list(rules.derivations.values()), DerivationLimits(max_depth=depth, beam=6))
    return search.run(value), value


def first(found: ProgramsFound, wanted: Callable[[Call], bool]) -> PricedProgram:
    for program in found.programs:
        if len(program.calls) == 1 and wanted(program.calls[0]):
            return program
    raise AssertionError(f"none of {len(found.programs)} programs")


def assert_proved(rules: Rules, program: PricedProgram, value: Value) -> None:
    """By the exact prover, and by random numbers."""
    (new,) = expand(rules, (program.value,))
    assert isinstance(compare((value,), (new,), seconds=120.0), Equal)


def elements(value: Value) -> int:
    return int(np.prod(value.type.shape))


@pytest.mark.parametrize("channels, size, filters", [(6, 7, 5), (4, 9, 3)])
def test_figures_3b_and_5_a_convolution_is_a_product_and_a_sum_of_shifted_planes(
    rules: Rules, channels: int, size: int, filters: int
) -> None:
    found, value = derived(
        rules, "std.conv", [(1, channels, size, size), (filters, channels, 3, 3)], 3, pads=(1, 1, 1, 1)
    )
    planes = 9 * filters * size * size
    image = channels * size * size
    program = first(
        found, lambda c: c.op == "std.matmul" and elements(c.values[0]) == planes and image in map(elements, c.args)
    )
    assert_proved(rules, program, value)


def test_im2col_is_a_product_as_it_stands(rules: Rules) -> None:
    found, value = derived(rules, "std.conv", [(1, 6, 7, 7), (5, 6, 3, 3)], 0, pads=(1, 1, 1, 1))
    program = first(found, lambda c: c.op == "std.matmul")
    assert program.steps == ()
    assert_proved(rules, program, value)


@pytest.mark.parametrize("stride, kernel, pads", [(2, 4, 1), (3, 5, 0)])
def test_a_strided_transposed_convolution_is_a_product_and_a_selective_sum(
    rules: Rules, stride: int, kernel: int, pads: int
) -> None:
    found, value = derived(
        rules, "std.conv_transpose", [(1, 4, 3, 3), (4, 2, kernel, kernel)], 3, stride=(stride,) * 2, pads=(pads,) * 4
    )
    program = first(found, lambda c: c.op == "std.matmul" and elements(c.values[0]) == 9 * 2 * kernel * kernel)
    assert_proved(rules, program, value)


def test_figure_6_a_window_of_five_is_one_of_three_with_four_times_the_channels(rules: Rules) -> None:
    found, value = derived(rules, "std.conv", [(1, 2, 8, 8), (3, 2, 5, 5)], 4, pads=(2, 2, 2, 2))
    program = first(found, lambda c: c.op == "std.conv" and c.args[1].type.shape == (12, 2, 3, 3))
    assert_proved(rules, program, value)


def test_a_dilated_convolution_is_a_dense_one_of_a_batch(rules: Rules) -> None:
    found, value = derived(rules, "std.conv", [(1, 3, 8, 8), (4, 3, 3, 3)], 2, pads=(2, 2, 2, 2), dilation=(2, 2))
    dense = [("dilation", (1, 1))]
    program = first(
        found, lambda c: c.op == "std.conv" and set(dense) <= set(c.attrs) and c.args[1].type.shape == (4, 3, 3, 3)
    )
    assert_proved(rules, program, value)


def test_figure_15_a_window_of_one_row_is_a_product_and_a_sum(rules: Rules) -> None:
    found, value = derived(rules, "std.conv", [(1, 4, 6, 6), (2, 4, 1, 5)], 3, pads=(0, 2, 0, 2))
    program = first(found, lambda c: c.op == "std.matmul" and elements(c.values[0]) == 5 * 2 * 36)
    assert_proved(rules, program, value)


def test_a_grouped_convolution_is_a_batched_product(rules: Rules) -> None:
    found, value = derived(rules, "std.conv", [(1, 6, 5, 5), (4, 3, 3, 3)], 1, groups=2)
    program = first(found, lambda c: c.op == "std.matmul" and len(c.args[0].type.shape) == 3)
    assert_proved(rules, program, value)


def test_every_program_that_is_found_computes_the_same(rules: Rules) -> None:
    found, value = derived(rules, "std.conv", [(2, 3, 5, 4), (4, 3, 2, 3)], 3, stride=(2, 1), pads=(1, 1, 0, 1))
    shapes = [(2, 3, 5, 4), (4, 3, 2, 3)]
    feeds = {
        input_value(f"h{k}", TensorType(DType.F32, shape)): np.random.default_rng(k).standard_normal(shape)
        for k, shape in enumerate(shapes)
    }
    (want,) = run_scopes([value], feeds, Floats(rounded=False))
    for program in found.programs[::7]:
        (got,) = run_scopes([*expand(rules, (program.value,))], feeds, Floats(rounded=False))
        assert np.allclose(got, want), [str(step) for step in program.steps]


def test_why_a_scope_is_no_operator(rules: Rules) -> None:
    a = input_value("A", TensorType(DType.F32, (4, 5)))
    (value,) = expand(rules, apply(rules, "std.relu", [a]))
    assert {missed(rules, value, name).why for name in products_of(rules)} == {MissReason.NO_PRODUCT}  # type: ignore[union-attr]


def test_the_command_prints_programs_that_are_proved() -> None:
    text = "conv(X: f32[1, 3, 6, 6], K: f32[4, 3, 3, 3], pads=[1, 1, 1, 1])"
    done = CliRunner().invoke(command, [text, "--max-depth", "2", "--output-format", "json"], catch_exceptions=False)
    facts = json.loads(done.output)
    assert done.exit_code == 0
    assert facts["states"] > 10 and facts["applications"] > 10
    assert 2 <= len(facts["programs"]) <= 10
    assert all(program["proved"] for program in facts["programs"])
    assert {"target", "steps", "cost_ms", "program", "calls"} <= facts["programs"][0].keys()
    assert all(program["calls"][0]["operator"] in {"std.matmul", "std.conv"} for program in facts["programs"])


@pytest.mark.parametrize(
    "text, code, marked",
    [
        ("conw(X: f32[1, 4, 8, 8], K: f32[4, 4, 3, 3])", "E0201", "conw"),
        ("conv(X: f32[1, 4, 8, 8] K: f32[4, 4, 3, 3])", "E0101", "K"),
        ("conv(X: f32[1, 4, 8, 8], K)", "E0306", "K"),
        ("relu(X: f32[4], kernel=2)", "E0302", "kernel=2"),
        ("matmul(A: f32[4, x y], B: f32[4, 4])", "E0101", "y"),
        ("hello", "E0911", "hello"),
        ("", "E0911", ""),
    ],
)
def test_a_wrong_call_is_one_error_at_its_place(rules: Rules, text: str, code: str, marked: str) -> None:
    with pytest.raises(DslcError) as raised:
        read_call(rules, text)
    (problem,) = raised.value.diagnostics
    assert problem.code == code
    assert problem.span is not None and problem.span.text.startswith(marked)


def test_sizes_may_be_unknown_and_weights_have_any_name(rules: Rules) -> None:
    called = read_call(rules, "relu(matmul(x: f32[N, 8], w1: f32[8, 4]))")
    assert called.names == ("x", "w1")
    assert [str(value.type) for value in called.graph.inputs] == ["f32[N, 8]", "f32[8, 4]"]
    (value,) = expand(rules, (called.value,))
    found = DerivationSearch(rules, list(rules.derivations.values()), DerivationLimits(max_depth=1, beam=8)).run(value)
    assert any(call.op == "std.conv" for program in found.programs for call in program.calls)


def test_patience_is_counted_from_the_best(rules: Rules) -> None:
    """As many expressions as led to the best by then, several times: what comes later is mostly no better."""
    args = [input_value(f"h{k}", TensorType(DType.F32, shape)) for k, shape in enumerate([(1, 4, 9, 9), (4, 4, 3, 3)])]
    (value,) = expand(rules, apply(rules, "std.conv", args, {"dilation": (2, 2)}))

    def found(**limits: float) -> ProgramsFound:
        return DerivationSearch(
            rules, list(rules.derivations.values()), DerivationLimits(max_states=150, **limits)
        ).run(value)

    whole, patient = found(), found(patient=40, patience=2.0)
    assert patient.states < whole.states and not patient.complete
    assert patient.programs[0].seconds <= 1.01 * whole.programs[0].seconds
    assert found(patient=40).states == whole.states


def printed(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(
        command, [*arguments, "--max-depth", "2", "--output-format", "json"], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return json.loads(done.output)  # type: ignore[no-any-return]


def test_an_operator_of_a_file_is_derived_at_the_types_that_it_declares(tmp_path: Path) -> None:
    file = tmp_path / "mine.rules"
    file.write_text(
        "dslc 1\nlibrary mine 1.0.0\n\noperator smoothed(X: f32[N, 8, 9], K: f32[6, 8, 3]) -> Y: f32[N, 6, 7] {\n"
        '  """A window of three moves along the last axis."""\n'
        "  Y[n, f, o] = sum[c, r] X[n, c, o + r] * K[f, c, r]\n}\n"
    )
    found = printed(f"{file}::smoothed", "--bind", "N=2", "--target", "matmul")["programs"]
    assert found and all(each["proved"] for each in found)
    assert all("f32[2, 8, 9]" in each["program"] for each in found)


def test_a_node_of_a_model_is_derived(tmp_path: Path) -> None:
    ends = [
        helper.make_tensor_value_info(n, 1, s)
        for n, s in (("x", ["b", 4, 6, 6]), ("k", [3, 4, 3, 3]), ("y", ["b", 3, 6, 6]))
    ]
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"], name="second"),
    ]
    graph = helper.make_graph(nodes, "small", ends[:2], ends[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    for name in ("first", "c"):
        found = printed(str(tmp_path / "m.onnx"), "--node", name, "--bind", "b=1")["programs"]
        assert found and all(each["proved"] for each in found)
    done = CliRunner().invoke(command, [str(tmp_path / "m.onnx"), "--node", "third"])
    assert done.exit_code != 0 and "third" in str(done.exception)


def test_a_node_that_no_library_has_is_said_to_be_one(tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", [2, 3]), ("y", [2, 2, 2])))
    node = helper.make_node("Einsum", ["x", "x", "x"], ["y"], name="gram", equation="ij,kj,lj->ikl")
    model = helper.make_model(
        helper.make_graph([node], "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(model, tmp_path / "m.onnx")
    for name in ("gram", "y"):
        done = CliRunner().invoke(command, [str(tmp_path / "m.onnx"), "--node", name])
        assert done.exit_code != 0 and "no library has its Einsum" in str(done.exception)

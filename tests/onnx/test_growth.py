"""What depends on weights alone is computed when a model is written, unless the file would grow by it: nodes stay then."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from small_models import info, model, ops, rules, same_results, weight

import dslc
from dslc.onnx.exporter import export
from dslc.onnx.importer import import_model

node = helper.make_node
DRAW = np.random.default_rng(0)
X = DRAW.standard_normal((2, 300)).astype("f")


def quantized(dtype: str = "int8", shape: tuple[int, int] = (300, 400)) -> ModelProto:
    """x @ (weights of 8 bits, cast and scaled), as models are quantized for their size alone."""
    nodes = [
        node("Cast", ["q"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["f", "scale"], ["w"]),
        node("MatMul", ["x", "w"], ["y"]),
    ]
    weights = [weight("q", DRAW.integers(0, 100, shape).astype(dtype)), weight("scale", np.float32([0.01]))]
    return model(nodes, [info("x", [2, shape[0]])], [info("y", [2, shape[1]])], weights)


def written(before: ModelProto, growth: float) -> ModelProto:
    imported = import_model(before, rules())
    return export(imported.context, imported.graph, rules(), growth=growth)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_small_types_stay_small(dtype: str) -> None:
    before = quantized(dtype)
    after = written(before, 0.1)
    assert after.ByteSize() < 1.1 * before.ByteSize() + 1000
    assert sorted(ops(after)) == ["Cast", "MatMul", "Mul"]
    same_results(before, after, x=X)


def test_what_may_grow_is_computed() -> None:
    before = quantized()
    after = written(before, inf)
    assert ops(after) == ["MatMul"] and after.ByteSize() > 3 * before.ByteSize()
    same_results(before, after, x=X)


def test_little_growth_is_no_growth() -> None:
    before = quantized(shape=(300, 4))
    assert ops(written(before, 0.1)) == ["MatMul"]


def test_what_only_moves_weights_is_computed() -> None:
    """Turned weights are as large as before."""
    nodes = [node("Transpose", ["w"], ["t"], perm=[1, 0]), node("MatMul", ["x", "t"], ["y"])]
    weights = [weight("w", DRAW.standard_normal((400, 300)).astype("f"))]
    before = model(nodes, [info("x", [2, 300])], [info("y", [2, 400])], weights)
    after = written(before, 0.0)
    assert ops(after) == ["MatMul"]
    same_results(before, after, x=X)


def test_a_weight_that_is_needed_as_it_is_is_not_written_twice() -> None:
    nodes = [
        node("Transpose", ["w"], ["t"], perm=[1, 0]),
        node("MatMul", ["x", "w"], ["a"]),
        node("MatMul", ["x", "t"], ["b"]),
        node("Add", ["a", "b"], ["y"]),
    ]
    weights = [weight("w", DRAW.standard_normal((300, 300)).astype("f"))]
    before = model(nodes, [info("x", [2, 300])], [info("y", [2, 300])], weights)
    after = written(before, 0.1)
    assert after.ByteSize() < 1.1 * before.ByteSize() and sorted(ops(after)) == sorted(ops(before))
    same_results(before, after, x=X)


def test_as_much_is_computed_as_the_share_allows() -> None:
    """Two weights of 8 bits, a large and a small one: the small one is computed."""
    nodes, weights, value = [], [], "x"
    for name, (rows, columns) in {"big": (300, 2000), "small": (2000, 20)}.items():
        nodes += [
            node("Cast", [f"{name}_q"], [f"{name}_w"], to=TensorProto.FLOAT),
            node("MatMul", [value, f"{name}_w"], [f"{name}_y"]),
        ]
        weights.append(weight(f"{name}_q", DRAW.integers(-9, 9, (rows, columns)).astype("int8")))
        value = f"{name}_y"
    before = model(nodes, [info("x", [2, 300])], [info(value, [2, 20])], weights)
    after = written(before, 0.3)
    assert ops(after).count("Cast") == 1
    same_results(before, after, x=X)


def test_the_option_says_how_much() -> None:
    before = quantized()
    small, large = (dslc.optimize(before, budget=0, file_growth=share).model for share in (0.1, 5.0))
    assert large.ByteSize() > 3 * small.ByteSize()

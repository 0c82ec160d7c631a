"""The networks of `benchmarks/zoo`: their shapes, that they run, and that dslc understands every operator of them."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from benchmarks.zoo import NAMES, build
from dslc.ir.graph import Opaque
from dslc.onnx.importer import import_model
from dslc.semantics.library import Rules

#: operators at the papers' sizes, counted by hand from the papers' figures
WHOLE = {
    # 1 + 16 * 3 + 4 convolutions
    "resnet50": {"Conv": 53, "MaxPool": 1, "Add": 16, "MatMul": 1},
    # 1 + 16 * 2 + 4, and 32 branches in each of the 16 blocks
    "resnext50": {"Conv": 37 + 16 * 32, "Split": 16, "Concat": 16, "Add": 16},
    # 15 normal cells of 5 separable convolutions, 3 reduction cells of 5; two convolutions before each; one for the stem
    "nasnet_a": {"Conv": 1 + 18 * (2 * 5 + 2), "AveragePool": 15 * 3 + 3 * 2, "MaxPool": 1 + 3 * 2, "Add": 18 * 5, "Concat": 18},
    "nasrnn": {"MatMul": 5 * 16, "Add": 5 * (8 + 3), "Tanh": 5 * (2 + 6), "Sigmoid": 5 * 5, "Relu": 5 * 2, "Mul": 5 * 4},
    "nasrnn_20": {"MatMul": 20 * 16, "Mul": 20 * 4},
    "bert": {"MatMul": 8 * 8, "Softmax": 8, "Gelu": 8, "LayerNormalization": 16},
    "nasnet_pools": {"AveragePool": 2, "Add": 1},
    "nasrnn_gates": {"MatMul": 16, "Add": 8},
    # 1 + 8 * 2 + 3 convolutions
    "resnet18": {"Conv": 20, "Add": 8, "MatMul": 1},
    "dcgan": {"ConvTranspose": 5, "Relu": 4, "Tanh": 1},
    "infogan": {"ConvTranspose": 5, "Relu": 4, "Tanh": 1},
    "fsrcnn": {"Conv": 7, "PRelu": 7, "ConvTranspose": 1},
    "csrnet": {"Conv": 7, "Relu": 7},
    "csrnet_14": {"Conv": 7, "Relu": 7},
    "gcn": {"Conv": 6, "Add": 2},
    "longformer": {"MatMul": 6, "Slice": 6, "Concat": 2, "Softmax": 1},
}
#: weights at the papers' sizes, in millions
MILLIONS = {"resnet50": 25.5, "resnext50": 24.95, "nasrnn": 4.19, "bert": 100.8, "resnet18": 11.69, "dcgan": 3.58}


def runs(model: ModelProto) -> list[Any]:
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    draw = np.random.default_rng(0).standard_normal
    feeds = {one.name: draw(tuple(one.shape)).astype(np.float32) for one in session.get_inputs()}
    return list(session.run(None, feeds))


@pytest.mark.parametrize("name", NAMES)
def test_whole_networks_have_the_papers_operators(name: str) -> None:
    model = build(name, weights=False)
    counted = Counter(node.op_type for node in model.graph.node)
    assert {op: counted[op] for op in WHOLE[name]} == WHOLE[name]
    assert not [one for one in model.graph.initializer if one.data_type == onnx.TensorProto.FLOAT and len(one.dims) > 0]


@pytest.mark.parametrize("name", MILLIONS)
def test_whole_networks_have_the_papers_weights(name: str) -> None:
    model = build(name, weights=False)
    shapes = {one.name: [d.dim_value for d in one.type.tensor_type.shape.dim] for one in model.graph.input}
    found = sum(int(np.prod(shape)) for weight, shape in shapes.items() if weight.startswith("w"))
    assert found / 1e6 == pytest.approx(MILLIONS[name], rel=2e-2)


@pytest.mark.parametrize("name", NAMES)
def test_small_networks_run_and_stay_finite(name: str) -> None:
    model = build(name, small=True)
    onnx.checker.check_model(model, full_check=True)
    for output in runs(model):
        assert np.isfinite(output).all()
        assert 1e-3 < float(output.std()) < 1e3


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_a_network_is_opaque(name: str, std: Rules) -> None:
    imported = import_model(build(name, small=True), std, {})
    assert not [node for node in imported.graph.nodes() if isinstance(node, Opaque)]


def test_weights_depend_on_the_seed_alone() -> None:
    first, again, other = (build("nasrnn_gates", small=True, seed=seed).SerializeToString() for seed in (0, 0, 1))
    assert first == again != other


def test_averages_count_their_padding() -> None:
    pools = [node for node in build("nasnet_a", weights=False).graph.node if node.op_type == "AveragePool"]
    assert all(onnx.helper.get_node_attr_value(node, "count_include_pad") == 1 for node in pools)


def test_an_unknown_network_is_named() -> None:
    with pytest.raises(KeyError, match=r"resnet51.*resnet50"):
        build("resnet51")


def test_the_command_writes_a_model(tmp_path: Path) -> None:
    target = tmp_path / "pools.onnx"
    command = [sys.executable, "-m", "benchmarks.zoo", "nasnet_pools", "--small", "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    assert [node.op_type for node in onnx.load(target).graph.node] == ["AveragePool", "AveragePool", "Add"]

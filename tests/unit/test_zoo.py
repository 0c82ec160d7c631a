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
from onnx import ModelProto, TensorProto

from benchmarks.zoo import NAMES, build, write
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
    "nasnet_a": {
        "Conv": 1 + 18 * (2 * 5 + 2),
        "AveragePool": 15 * 3 + 3 * 2,
        "MaxPool": 1 + 3 * 2,
        "Add": 18 * 5,
        "Concat": 18,
    },
    "nasrnn": {
        "MatMul": 5 * 16,
        "Add": 5 * (8 + 3),
        "Tanh": 5 * (2 + 6),
        "Sigmoid": 5 * 5,
        "Relu": 5 * 2,
        "Mul": 5 * 4,
    },
    "nasrnn_20": {"MatMul": 20 * 16, "Mul": 20 * 4},
    "bert": {"MatMul": 8 * 8, "Softmax": 8, "Gelu": 8, "LayerNormalization": 16},
    "nasnet_pools": {"AveragePool": 2, "Add": 1},
    "nasrnn_gates": {"MatMul": 16, "Add": 8},
    # 1 + 8 * 2 + 3 convolutions
    "resnet18": {"Conv": 20, "Add": 8, "MatMul": 1},
    # the same over frames; no pool behind the stem
    "resnet3d_18": {"Conv": 20, "Add": 8, "MatMul": 1, "MaxPool": 0},
    "dcgan": {"ConvTranspose": 5, "Relu": 4, "Tanh": 1},
    "infogan": {"ConvTranspose": 5, "Relu": 4, "Tanh": 1},
    "fsrcnn": {"Conv": 7, "PRelu": 7, "ConvTranspose": 1},
    # three convolutions before and two in each of five blocks, one behind
    "style_transfer": {"Conv": 3 + 2 * 5 + 1, "ConvTranspose": 2, "Add": 5, "Relu": 3 + 5 + 2, "Tanh": 1},
    "csrnet": {"Conv": 7, "Relu": 7},
    "csrnet_14": {"Conv": 7, "Relu": 7},
    "gcn": {"Conv": 6, "Add": 2},
    "longformer": {"MatMul": 6, "Slice": 6, "Concat": 2, "Softmax": 1},
    # rows of windows are gathered, of keys and of values
    "longformer_dilated": {"MatMul": 4, "Pad": 2, "Gather": 2, "Einsum": 2, "Softmax": 1, "Transpose": 4},
    # two ends, and three layers in each of 8 modules
    "squeezenet": {"Conv": 2 + 8 * 3, "MaxPool": 3, "Concat": 8},
    "vgg19": {"Conv": 16, "MatMul": 3, "MaxPool": 5, "Relu": 18},
    # the stem, three modules of 7, one of 4, four of 10, one of 6, two of 9
    "inception_v3": {"Conv": 5 + 3 * 7 + 4 + 4 * 10 + 6 + 2 * 9, "AveragePool": 9, "MaxPool": 4, "Concat": 11},
    "vit_base": {"Conv": 1, "MatMul": 12 * 8 + 1, "LayerNormalization": 25, "Gelu": 12, "Softmax": 12},
    "vit_large": {"Conv": 1, "MatMul": 24 * 8 + 1, "LayerNormalization": 49},
    # a stem and an end, 2 layers in the first block and 3 in each of the 16 others; sums where a stage goes on
    "mobilenet_v2": {"Conv": 2 + 2 + 3 * 16, "Relu": 2 + 1 + 2 * 16, "Add": 10, "MatMul": 1},
    # 18 layers for audio and 2 for labels, three products that join them
    "transformer_transducer": {"MatMul": 20 * 8 + 3, "Softmax": 20, "LayerNormalization": 2 * 20 + 2, "Tanh": 1},
    "vit_huge": {"Conv": 1, "MatMul": 32 * 8 + 1, "LayerNormalization": 65},
    # 12 blocks, a stem and three halvings, each with a norm that is written out
    "convnext": {"Conv": 12 + 4, "MatMul": 2 * 12 + 1, "Erf": 12, "LayerNormalization": 13, "Sqrt": 4},
    "llama": {"MatMul": 7 + 2 + 1, "Sqrt": 3, "Softmax": 1, "Expand": 2, "Sigmoid": 1, "Where": 1, "Range": 1},
}
#: weights at the papers' sizes, in millions
MILLIONS = {
    "resnet50": 25.5, "resnext50": 24.95, "nasrnn": 4.19, "bert": 100.8, "resnet18": 11.69, "resnet3d_18": 33.37, "dcgan": 3.58,
    "squeezenet": 1.248,
    "vgg19": 143.67, "inception_v3": 23.8, "vit_base": 86.57, "vit_huge": 632.0, "convnext": 3.70,
    "vit_large": 304.3, "mobilenet_v2": 3.47,
}  # fmt: skip
#: what nodes about open sizes are: they compute no element of a result
ABOUT_SIZES = {"Shape", "Range"}


def runs(model: ModelProto) -> list[Any]:
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    draw = np.random.default_rng(0).standard_normal
    shapes = {one.name: [size if isinstance(size, int) else 3 for size in one.shape] for one in session.get_inputs()}
    feeds = {name: draw(shape).astype(np.float32) for name, shape in shapes.items()}
    return list(session.run(None, feeds))


@pytest.mark.parametrize("name", NAMES)
def test_whole_networks_have_the_papers_operators(name: str) -> None:
    model = build(name, weights=False)
    counted = Counter(node.op_type for node in model.graph.node)
    assert {op: counted[op] for op in WHOLE[name]} == WHOLE[name]
    weights = [one for one in model.graph.initializer if one.data_type == TensorProto.FLOAT]
    assert all(int(np.prod(one.dims)) <= 64 for one in weights)


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
    assert {node.label for node in imported.graph.nodes() if isinstance(node, Opaque)} <= ABOUT_SIZES


def test_weights_depend_on_the_seed_alone() -> None:
    first, again, other = (build("nasrnn_gates", small=True, seed=seed).SerializeToString() for seed in (0, 0, 1))
    assert first == again != other


def test_weights_beside_a_model_are_those_inside(tmp_path: Path) -> None:
    """They are drawn one by one, and the model that is written names where each is."""
    inside = build("vit_base", small=True)
    written = write("vit_base", tmp_path / "vit.onnx", small=True, external=True)
    assert all(
        one.data_location == onnx.TensorProto.EXTERNAL for one in written.graph.initializer if one.name.startswith("w")
    )
    again = onnx.load(tmp_path / "vit.onnx")
    for one, other in zip(inside.graph.initializer, again.graph.initializer, strict=True):
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(one), onnx.numpy_helper.to_array(other))


def test_open_sizes_have_their_names() -> None:
    model = build("llama", small=True)
    ends = [
        [d.dim_param or d.dim_value for d in one.type.tensor_type.shape.dim]
        for one in (*model.graph.input, *model.graph.output)
    ]
    assert ends == [["batch", "sequence", 32]] * 2


def test_later_words_change_nothing_before_them() -> None:
    """The mask of the block of Llama is causal."""
    import onnxruntime

    session = onnxruntime.InferenceSession(
        build("llama", small=True).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    x = np.random.default_rng(1).standard_normal((1, 6, 32), np.float32)
    other = x.copy()
    other[:, 4:] += 1
    before, after = (session.run(None, {"embedded": one})[0] for one in (x, other))
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert not np.allclose(before[:, 4:], after[:, 4:])


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

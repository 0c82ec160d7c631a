"""The models that benchmarks and tests run on: random weights in networks that ship with constant ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from benchmarks import models


def test_light_network_gets_seeded_weights_that_keep_activations_alive(tmp_path: Path) -> None:
    import onnxruntime

    path = models.fetch("light_squeezenet", tmp_path)
    model = onnx.load(path)
    onnx.checker.check_model(model)
    assert "ConstantOfShape" not in {node.op_type for node in model.graph.node}
    shipped = onnx.load(models.shipped("light-squeezenet"))
    assert [n.op_type for n in shipped.graph.node if n.op_type != "ConstantOfShape"] == [
        n.op_type for n in model.graph.node
    ]
    kernels = [numpy_helper.to_array(t) for t in model.graph.initializer if len(t.dims) == 4]
    assert kernels and all(np.unique(k).size > k.size // 2 for k in kernels)

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    entry = session.get_inputs()[0]
    (out,) = session.run(None, {entry.name: np.random.default_rng(0).standard_normal(entry.shape).astype(np.float32)})
    assert np.isfinite(out).all()
    # A softmax that says nothing or everything would hide wrong logits.
    assert 1.5 / out.size < out.max() < 0.99

    first = path.read_bytes()
    path.unlink()
    assert models.fetch("light_squeezenet", tmp_path).read_bytes() == first


def test_unknown_model_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="basic-pitch"):
        models.fetch("resnet18", tmp_path)
    assert not list(tmp_path.iterdir())

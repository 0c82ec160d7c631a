"""A run says what it did not try because sizes are open."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dslc
from dslc.codegen.host.compiler import NAMES

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.skipif(not any(map(shutil.which, NAMES)), reason="there is no C++ compiler"),
]


def product(rows: str | int) -> onnx.ModelProto:
    """A large product of rows with a weight, whose number may be open."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, 512]) for name in "xy")
    weight = numpy_helper.from_array(np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32), "w")
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ("N", {"bind": {"N": 256}}, ["mutants and partial rules need", "`--bind N=256 --specialize`"]),
        ("N", {"bind": {"N": 256}, "derive": False}, ["mutants and partial rules need", "symbolic N ("]),
        ("N", {"bind": {"N": 256}, "mutate": False}, []),
        ("N", {"bind": {"N": 256}, "specialize": True}, []),
        (256, {}, []),
    ],
)
def test_a_note_names_what_open_sizes_leave_out(
    tmp_path: Path, rows: str | int, options: dict[str, object], said: list[str]
) -> None:
    report = dslc.optimize(
        product(rows), budget="40s", steps=0, timing=False, threads=1, cache=tmp_path, **options
    ).report
    notes = [note for note in report.notes if "were skipped" in note]
    assert len(notes) == bool(said) and all(text in note for note in notes for text in said)

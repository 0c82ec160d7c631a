"""Einsum is read as transposes, sums and products, and written as it was where nothing changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dslc.interpret import Floats, run
from dslc.ir.graph import Opaque
from dslc.onnx.exporter import export
from dslc.onnx.importer import import_model
from dslc.semantics.library import standard

SIZES = {"a": 2, "b": 3, "c": 4, "d": 5, "e": 2, "f": 3}


def model(equation: str, shapes: list[list[Any]], opset: int = 17) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info(f"x{k}", TensorProto.FLOAT, shape) for k, shape in enumerate(shapes)]
    node = helper.make_node("Einsum", [value.name for value in inputs], ["y"], equation=equation)
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize("opset", [12, 17])
@pytest.mark.parametrize(
    "equation",
    [
        "ab,bc->ac", "ab,cb", "abcd,aecd->abe", "acbd,aebd->abce", "abc,cd->abd", "abcd,cdef->abef", "ab,ab->a", "a,b->ab",
        "abc->cab", "abc->b", "abc,abd->", "ab,cd->bd", "abc,c->ab", "c,abc->ba", "abcd,abce->abde", "ab,bc->ca", "abc,bc->cab",
        "abc , cd -> abd", "abef,efcd->cdab", "aebf,acbf->baec",
    ],
)  # fmt: skip
def test_an_einsum_is_what_numpy_computes(equation: str, opset: int) -> None:
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    shapes = [[SIZES[letter] for letter in term] for term in terms]
    graph = import_model(model(equation, shapes, opset), standard(), {}).graph
    assert not any(isinstance(node, Opaque) for node in graph.nodes())
    random = np.random.default_rng(0)
    feeds = {f"x{k}": random.standard_normal(shape) for k, shape in enumerate(shapes)}
    (found,) = run(standard(), graph.outputs, {value: feeds[value.node.name] for value in graph.inputs}, Floats())
    np.testing.assert_allclose(np.asarray(found, float), np.einsum(equation, *feeds.values()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("equation", ["aab,bc->ac", "...a,ab->...b", "ab,bc,cd->ad"])
def test_what_has_no_such_operators_stays_as_it_is(equation: str) -> None:
    shapes: list[list[Any]] = [
        [2, 2, 3] if term == "aab" else [2, 2] for term in equation.partition("->")[0].split(",")
    ]
    graph = import_model(model(equation, shapes), standard(), {}).graph
    assert any(isinstance(node, Opaque) for node in graph.nodes())


def test_the_file_keeps_an_einsum_that_nothing_changes() -> None:
    made = model("bihd,bjhd->bhij", [["n", "i", 3, 4], ["n", "j", 3, 4]])
    imported = import_model(made, standard(), {})
    assert not any(isinstance(node, Opaque) for node in imported.graph.nodes())
    assert [node.op_type for node in export(imported.context, imported.graph, standard()).graph.node] == ["Einsum"]

"""Files that are no models, or contradict themselves: one clear error each, never a traceback."""

from __future__ import annotations

import importlib.resources
import random
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper
from small_models import I64, info, model, rules, weight

from dslc.errors import DslcError
from dslc.kernels import said
from dslc.onnx.exporter import export
from dslc.onnx.importer import import_model

node = helper.make_node


def code(source: ModelProto | Path) -> str:
    with pytest.raises(DslcError) as caught:
        import_model(source, rules())
    (finding,) = caught.value.diagnostics
    assert finding.message and finding.path
    return finding.code


def valid() -> ModelProto:
    return model(
        [
            node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1]),
            node("Relu", ["c"], ["r"]),
            node("Reshape", ["r", "s"], ["y"]),
        ],
        [info("x", [1, 2, 4, 4])],
        [info("y", [1, 48])],
        [weight("k", np.ones((3, 2, 3, 3), "f")), weight("s", np.int64([1, -1]))],
    )


def test_no_file(tmp_path: Path) -> None:
    assert code(tmp_path / "nothing.onnx") == "E0902"
    assert code(tmp_path) == "E0902"


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 100, b"not a model at all", b"\x89PNG\r\n\x1a\n", b"\x08\x08", bytes(range(256)) * 10],
    ids=["empty", "zeros", "text", "picture", "header", "bytes"],
)
def test_garbage(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "garbage.onnx"
    path.write_bytes(content)
    assert code(path) == "E0801"


def test_truncated(tmp_path: Path) -> None:
    data = valid().SerializeToString()
    path = tmp_path / "cut.onnx"
    for size in (len(data) // 4, len(data) // 2, len(data) - 3):
        path.write_bytes(data[:size])
        assert code(path) in {"E0801", "E0808"}


def test_no_opset() -> None:
    broken = valid()
    del broken.opset_import[:]
    assert code(broken) == "E0801"


@pytest.mark.parametrize("number", [0, 77, 1 << 20])
def test_an_element_type_that_there_is_not(number: int) -> None:
    broken = valid()
    broken.graph.initializer[0].data_type = number
    assert code(broken) == "E0813"
    inner = valid()
    inner.graph.node.insert(0, node("Constant", [], ["unused"], value=weight("w", np.ones(2, "f"))))
    inner.graph.node[0].attribute[0].t.data_type = number
    assert code(inner) == "E0813"


def test_weights_that_are_not_finite_say_nothing_on_the_terminal(recwarn: pytest.WarningsRecorder) -> None:
    weights = [weight("w", np.float32([np.inf, np.nan, 3e38])), weight("v", np.float32([-np.inf, 1e38, 3e38]))]
    nodes = [node("Add", ["w", "v"], ["s"]), node("Mul", ["s", "v"], ["q"]), node("Mul", ["x", "q"], ["y"])]
    before = model(nodes, [info("x", [2, 3])], [info("y", [2, 3])], weights)
    imported = import_model(before, rules())
    export(imported.context, imported.graph, rules())
    assert not recwarn.list


def test_a_newer_opset_than_onnx_knows() -> None:
    broken = valid()
    broken.opset_import[0].version = onnx.defs.onnx_opset_version() + 1
    assert code(broken) == "E0807"


def test_a_newer_ir_version() -> None:
    broken = valid()
    broken.ir_version = 1000
    assert code(broken) == "E0807"


def test_an_older_opset_passes_as_it_is() -> None:
    before = model(
        [node("Add", ["x", "b"], ["y"], broadcast=1, axis=1)],
        [info("x", [2, 3, 4]), info("b", [3])],
        [info("y", [2, 3, 4])],
        opset=6,
        ir=3,
    )
    imported = import_model(before, rules())
    assert export(imported.context, imported.graph, rules()) == before


def test_a_cycle() -> None:
    nodes = [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), node("Abs", ["b"], ["y"])]
    assert code(model(nodes, [info("x", [2])], [info("y", [2])])) == "E0806"


def test_a_cycle_through_a_subgraph() -> None:
    branch = helper.make_graph([node("Neg", ["y"], ["t"])], "b", [], [info("t", [2])])
    nodes = [node("If", ["c"], ["m"], then_branch=branch, else_branch=branch), node("Relu", ["m"], ["y"])]
    assert code(model(nodes, [info("c", [], TensorProto.BOOL)], [info("y", [2])])) == "E0806"


def test_values_that_nothing_produces() -> None:
    assert code(model([node("Relu", ["z"], ["y"])], [info("x", [2])], [info("y", [2])])) == "E0808"
    assert code(model([node("Relu", ["x"], ["y"])], [info("x", [2])], [info("z", [2])])) == "E0808"


def test_one_name_for_two_values() -> None:
    twice = [node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"])]
    assert code(model(twice, [info("x", [2])], [info("y", [2])])) == "E0808"
    assert code(model([node("Relu", ["x"], ["x"])], [info("x", [2])], [info("x", [2])])) == "E0808"
    assert code(model([node("Relu", ["x"], ["y"])], [info("x", [2]), info("x", [2])], [info("y", [2])])) == "E0808"


@pytest.mark.parametrize(
    "nodes",
    [
        [node("MatMul", ["x", "x"], ["y"])],
        [node("Add", ["x", "w"], ["y"])],
        [node("Relu", ["x"], ["r"]), node("Concat", ["r", "w"], ["y"], axis=0)],
    ],
    ids=["product", "broadcast", "concat"],
)
def test_shapes_that_contradict_each_other(nodes: list[onnx.NodeProto]) -> None:
    assert code(model(nodes, [info("x", [2, 3])], [info("y", None)], [weight("w", np.ones((4, 4), "f"))])) == "E0805"


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([node("Add", ["x", "w"], ["y"])], "at the Add of `x` [2, 3] and `w` [4, 4]:"),
        ([node("Add", ["x", "w"], ["y"], name="sum")], "at the node `sum` (Add of `x` [2, 3] and `w` [4, 4]):"),
        ([node("Add", ["x", "x"], ["r"]), node("Add", ["r", "w"], ["y"])], "at the Add of `r` [2, 3] and `w` [4, 4]:"),
        ([node("Concat", ["x", "x", "w"], ["y"], axis=0)], "at the Concat of `x` [2, 3], `x` [2, 3] and `w` [4, 4]:"),
        ([node("Constant", [], ["y"])], "at the Constant:"),
    ],
    ids=["no name", "a name", "the second of its operator", "three", "no inputs"],
)
def test_a_contradiction_names_its_node_and_shapes(nodes: list[onnx.NodeProto], said: str) -> None:
    broken = model(nodes, [info("x", [2, 3])], [info("y", None)], [weight("w", np.ones((4, 4), "f"))])
    with pytest.raises(DslcError) as caught:
        import_model(broken, rules())
    (finding,) = caught.value.diagnostics
    assert finding.code == "E0805" and said in finding.message


def test_a_contradiction_tells_the_sizes_that_were_given() -> None:
    broken = model(
        [node("Add", ["x", "w"], ["y"])], [info("x", [2, "N"])], [info("y", None)], [weight("w", np.ones((4, 4), "f"))]
    )
    with pytest.raises(DslcError) as caught:
        import_model(broken, rules(), {"N": 3})
    assert "`N` = 3" in caught.value.diagnostics[0].hint


def test_a_wrong_declared_shape_is_forgiven_as_in_onnx_runtime() -> None:
    before = model([node("Relu", ["x"], ["y"])], [info("x", [2, 3])], [info("y", [5, 7])])
    assert import_model(before, rules()).graph.outputs[0].type.shape == (2, 3)


@pytest.mark.parametrize(
    ("dims", "raw"),
    [([3], b"\0" * 4), ([3], b"\0" * 13), ([-1], b""), ([1 << 40, 1 << 40], b""), ([1 << 20], b"")],
    ids=["short", "long", "negative", "huge", "nothing"],
)
def test_weights_with_wrong_contents(dims: list[int], raw: bytes) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, raw_data=raw)
    assert code(model([node("Add", ["x", "w"], ["y"])], [info("x", [3])], [info("y", [3])], [tensor])) == "E0813"


def test_attributes_of_the_wrong_kind_do_no_harm() -> None:
    """ONNX Runtime refuses these nodes; here they stay opaque."""
    for attributes in ({"pads": 1.5}, {"pads": "text"}, {"strides": [0, 0]}, {"group": -1}, {"dilations": [1]}):
        broken = valid()
        del broken.graph.node[0].attribute[:]
        for name, value in attributes.items():
            broken.graph.node[0].attribute.append(helper.make_attribute(name, value))
        try:
            import_model(broken, rules())
        except DslcError as problem:
            assert [d.code for d in problem.diagnostics] == ["E0805"]


# ---- mutated models ----------------------------------------------------------------------------------------------

LIGHT = importlib.resources.files("onnx") / "backend" / "test" / "data" / "light" / "light_squeezenet.onnx"


def survives(data: bytes, path: Path) -> bool:
    """Whether a file is read and written; a DslcError is fine, anything else fails the test."""
    path.write_bytes(data)
    try:
        imported = import_model(path, rules())
        export(imported.context, imported.graph, rules())
    except DslcError as problem:
        assert all(d.code[:3] in {"E08", "E09"} for d in problem.diagnostics)
        return False
    return True


def test_mutated_bytes_of_a_real_model(tmp_path: Path) -> None:
    original = LIGHT.read_bytes()
    source = random.Random(0)
    outcomes = set()
    end = time.monotonic() + 8
    for _ in range(150):
        data = bytearray(original)
        for _ in range(source.choice([1, 1, 3, 20])):
            at = source.randrange(len(data))
            kind = source.randrange(4)
            if kind == 0:
                data[at] = source.randrange(256)
            elif kind == 1:
                del data[at : at + source.randrange(1, 9)]
            elif kind == 2:
                data[at:at] = source.randbytes(source.randrange(1, 9))
            else:
                data[at] ^= 1 << source.randrange(8)
        outcomes.add(survives(bytes(data), tmp_path / "mutated.onnx"))
        if time.monotonic() > end and len(outcomes) == 2:
            break
    assert outcomes == {True, False}


DIMS = st.lists(st.sampled_from([-1, 0, 1, 2, 3, 4, 1 << 31, 1 << 62]), max_size=5)
VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    DIMS.filter(bool),
    st.floats(width=32),
    st.text(max_size=5),
    st.lists(st.floats(width=32), min_size=1, max_size=3),
)


@settings(max_examples=120)
@given(st.data())
def test_mutated_graphs(data: st.DataObject) -> None:
    """Inputs, attributes and shapes that make no sense."""
    broken = valid()
    for _ in range(data.draw(st.integers(1, 3))):
        target = data.draw(st.sampled_from(broken.graph.node))
        kind = data.draw(st.integers(0, 4))
        if kind == 0 and target.input:
            target.input[0] = data.draw(st.sampled_from(["", "x", "k", "s", "c", "r", "y"]))
        elif kind == 1:
            name = data.draw(
                st.sampled_from(["pads", "strides", "group", "kernel_shape", "axis", "allowzero", "auto_pad"])
            )
            target.attribute.append(helper.make_attribute(name, data.draw(VALUES)))
        elif kind == 2:
            target.op_type = data.draw(
                st.sampled_from(
                    ["Conv", "MatMul", "Transpose", "Split", "Shape", "ConstantOfShape", "Identity", "If", "Slice"]
                )
            )
        elif kind == 3:
            broken.graph.input[0].CopyFrom(info("x", data.draw(DIMS), data.draw(st.sampled_from([1, 7, 8, 10, 99]))))
        else:
            tensor = broken.graph.initializer[1]
            tensor.CopyFrom(weight("s", np.array(data.draw(DIMS), np.int64)))
    try:
        imported = import_model(broken, rules())
        export(imported.context, imported.graph, rules())
    except DslcError as problem:
        assert all(d.code[:3] in {"E08", "E09"} for d in problem.diagnostics)


def test_a_constant_that_is_too_large_to_make(tmp_path: Path) -> None:
    """A shape of 2^60 elements is only a shape."""
    before = model(
        [node("ConstantOfShape", ["s"], ["w"]), node("Shape", ["w"], ["y"])],
        [],
        [info("y", None, I64)],
        [weight("s", np.int64([1 << 30, 1 << 30]))],
    )
    imported = import_model(before, rules())
    assert export(imported.context, imported.graph, rules()).ByteSize() < 1000


def test_functions_that_no_runtime_takes() -> None:
    """One that calls itself, and two of one name."""
    source = model([node("twice", ["x"], ["y"], domain="mine")], [info("x", [2])], [info("y", [2])])
    source.opset_import.append(helper.make_opsetid("mine", 1))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    again = helper.make_function("mine", "twice", ["a"], ["b"], [node("twice", ["a"], ["b"], domain="mine")], opsets)
    once = helper.make_function("mine", "twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])], opsets)
    for functions in ([again], [once, once]):
        del source.functions[:]
        source.functions.extend(functions)
        assert code(source) == "E0808"


def test_names_in_functions_that_are_no_text(tmp_path: Path) -> None:
    source = model([node("own", ["x"], ["y"], domain="dslc")], [info("x", [2])], [info("y", [2])])
    source.opset_import.append(helper.make_opsetid("dslc", 1))
    opsets = [helper.make_opsetid("", 17)]
    body = [node("Add", ["a", "a"], ["middle"]), node("Relu", ["middle"], ["b"])]
    source.functions.append(helper.make_function("dslc", "own", ["a"], ["b"], body, opsets))
    path = tmp_path / "damaged.onnx"
    path.write_bytes(source.SerializeToString().replace(b"middle", b"\xe7iddle"))
    assert code(path) == "E0801"
    assert said(path).functions == {} and said(source).functions.keys() == {"own"}

"""No text from outside is code: kernels of hostile names are, but for nothing, those of plain ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources

import onnx
import pytest
from onnx import TensorProto, helper

from dslc.codegen.cuda.custom import custom_cuda
from dslc.codegen.cuda.generate import generate as generate_cuda
from dslc.codegen.cuda.generate import preamble as cuda_preamble
from dslc.codegen.custom import Filling, Named, NotRendered, custom_kernel
from dslc.codegen.generate import generate, variants
from dslc.codegen.host.library import source
from dslc.codegen.render import preamble
from dslc.errors import DslcError
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, input_value
from dslc.ir.scalar import dimension
from dslc.ir.text import size_name
from dslc.kernels import texts_of
from dslc.onnx.functions import equation_of, name_of, types_of
from dslc.onnx.importer import import_model
from dslc.outside import in_code, in_line, in_stream
from dslc.semantics.apply import apply
from dslc.semantics.library import standard
from tests.codegen.rendering import rendered_here

#: what would end a comment, a string or a line of C++, or begin one, or a template's expression, or act on a terminal
HOSTILE = (
    "N\n#include </etc/passwd>\n//", "N\r#error\r//", "N\\", "N*/ x /*", 'N"); system("id', "N'", "N??/", "N\b\b\b", "%s%n",
    "{{ 7 * 7 }}", "{% raw %}", "N\u2028#error", "N\u202ex", "N\x85#error", "N]; system(id); //", "é",
    "@file", "-o/x", "$(id)", "`id`", "N\0M", "",
    "N, 64",
)  # fmt: skip
PLAIN = re.compile(r"[A-Za-z0-9_ ]*")


@pytest.fixture(scope="module", autouse=True)
def once() -> Iterator[None]:
    """Templates are rendered in this process."""
    with rendered_here():
        yield


def softmax_of(size: str) -> Graph:
    """A group whose unknown sizes and inputs have a name."""
    rules = standard()
    x = input_value(size, TensorType(DType.F32, (dimension(size), dimension(size + "2"), 64)))
    (y,) = apply(rules, "std.softmax", [x], {"axis": 2})
    (z,) = apply(rules, "std.relu", [y], {})
    return Graph((x,), (z,))


def filled(name: str) -> Filling:
    x = TensorType(DType.F32, (dimension(name), 4))
    text = "static int64_t tasks(const int64_t* sizes) { return {{ X.shape[0] }}; }"
    return Filling(text, (x,), (x,), (Named("X", 0), Named("Y", 0, True)), {}, f"lib.{name}: {name}/own.cpp.j2")


def comments(text: str) -> Iterator[str]:
    yield from (line.partition("//")[2] for line in text.splitlines() if "//" in line)


def without(text: str) -> str:
    """A text without its comments and the names of files, which are for people."""
    return re.sub(r'//[^\n]*|#line 1 "[^"\n]*"|[kc]_[0-9a-f]{12}', "", text)


@pytest.mark.parametrize("name", HOSTILE)
def test_the_names_of_sizes_are_in_no_kernel(name: str) -> None:
    rules = standard()
    for variant in variants(rules, softmax_of("N"))[:3]:
        assert generate(rules, softmax_of(name), variant).text == generate(rules, softmax_of("N"), variant).text
    assert generate_cuda(rules, softmax_of(name)).text == generate_cuda(rules, softmax_of("N")).text


@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_lowerings_and_templates_are_words_of_comments(name: str) -> None:
    texts = (
        custom_kernel(filled(name)).text.removeprefix(preamble()),
        custom_cuda(filled(name)).text.removeprefix(cuda_preamble()),
    )
    plain = (
        custom_kernel(filled("N")).text.removeprefix(preamble()),
        custom_cuda(filled("N")).text.removeprefix(cuda_preamble()),
    )
    for text, other in zip(texts, plain, strict=True):
        assert without(text) == without(other)
        assert all(PLAIN.fullmatch(each) for each in comments(text))
        assert all(re.fullmatch(r"[A-Za-z0-9_ .]*", each) for each in re.findall(r'#line 1 "([^\n]*)"\n', text))


@pytest.mark.parametrize("name", [name for name in HOSTILE if not PLAIN.fullmatch(name)])
def test_a_text_with_other_characters_is_nothing_for_a_template(name: str) -> None:
    one = filled("N")
    with pytest.raises(NotRendered, match="nothing that a template can be given"):
        custom_kernel(Filling(one.source, one.inputs, one.outputs, one.tensors, {"mode": name}, one.title))


@pytest.mark.parametrize("name", HOSTILE)
def test_the_name_of_an_operator_is_a_plain_string(name: str) -> None:
    text = generate(standard(), softmax_of("N"))
    (found,) = re.findall(r'^ +\{"([^"]*)", 1, 1, 2,$', source({name: text}), re.M)
    assert found == in_code(name)


def hostile_model(name: str) -> onnx.ModelProto:
    """A file whose kernel's definition calls a size so; its function has the name that belongs to it."""
    function = onnx.FunctionProto(
        domain="dslc", input=["h0"], output=["y0"], opset_import=[helper.make_opsetid("", 17)]
    )
    function.node.append(helper.make_node("Relu", ["h0"], ["y0"]))
    function.name = name_of(function, [TensorType(DType.F32, (dimension(name), 64))])
    given = [helper.make_tensor_value_info(each, TensorProto.FLOAT, ["N", 64]) for each in "xy"]
    graph = helper.make_graph([helper.make_node(function.name, ["x"], ["y"], domain="dslc")], "g", given[:1], given[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("dslc", 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=8)
    size = size_name(name)
    text = f"dslc 1\n\noperator {function.name}(h0: f32[{size}, 64]) -> y0: f32[{size}, 64] {{\n}}\n"
    model.metadata_props.add(key=f"dslc.kernel.{function.name}", value=text)
    return model


@pytest.mark.parametrize("name", HOSTILE)
def test_a_definition_with_another_name_than_a_plain_one_is_refused(name: str) -> None:
    model = hostile_model(name)
    (entry,) = model.metadata_props
    with pytest.raises(DslcError, match="E0818"):
        types_of(entry.value)
    texts, (missing,) = texts_of(model)
    assert not texts and "E0818" in missing.detail
    assert equation_of(standard(), entry.value) is None and import_model(model, standard()).graph.outputs


def test_a_definition_with_plain_names_is_not() -> None:
    texts, missing = texts_of(hostile_model("batch"))
    assert len(texts) == 1 and not missing


def test_every_comment_and_string_of_a_template_is_constant_or_passes_the_door() -> None:
    """Whoever writes a name into a comment or a string of C++ finds this test."""
    own = {"title", "name", "text.name", "kernel.text.name", "launch.form", "launch.block", "launch.team", "domain", "file",
           "symbols | length", "kernel.input_types", "kernel.output_types", "kernel.input_ranks", "kernel.output_ranks",
           "': %d of them' % (kernels | length) if kernels else ', and what is around them'"}  # fmt: skip
    for folder in ("cpp", "cuda"):
        for one in resources.files("dslc.templates").joinpath(folder).iterdir():
            for line in one.read_text("utf-8").splitlines() if one.name.endswith(".j2") else ():
                inside = [*re.findall(r"//.*", line), *re.findall(r'"[^"]*"', line)]
                for value in re.findall(r"\{\{ (.*?) \}\}", " ".join(inside)):
                    assert value.endswith("| outside") or value in own, (one.name, line)
    # a title without the door is the generator's own
    own_titles = [
        (resources.files("dslc.codegen") / name).read_text("utf-8") for name in ("generate.py", "cuda/generate.py")
    ]
    assert all(re.findall(r"title=(\w+)", text) in (["signature"], ["Signature"]) for text in own_titles)


@pytest.mark.parametrize("name", HOSTILE)
def test_doors(name: str) -> None:
    assert PLAIN.fullmatch(in_code(name)) and len(in_code(name)) == len(name)
    assert not re.search(r"[\0-\x1f\x7f-\x9f\u2028-\u202e]", in_line(name))
    assert "\b" not in in_stream(name)


def balanced(op: str, leaf: str, depth: int) -> str:
    return leaf if depth == 0 else f"({balanced(op, leaf, depth - 1)}{op}{balanced(op, leaf, depth - 1)})"


@pytest.mark.parametrize(
    "size",
    [
        balanced("*", "4611686018427387903", 7), balanced("*", "(s0 + s1 + s2 + s3)", 6), "(" * 5000 + "s0" + ")" * 5000, str(1 << 62),
        "4611686018427387903 * 4", "-5", "s0 // 0", "min(" * 200 + "s0" + ", s1)" * 200,
    ],
)  # fmt: skip
def test_a_size_that_would_not_end_is_none(size: str) -> None:
    """Numbers of thousands of digits, products with thousands of terms: a definition has none, and is read in no time."""
    assert types_of(f"dslc 1\n\noperator k(h0: f32[{size}]) -> y0: f32[{size}] {{\n}}\n") is None


def test_sizes_of_generated_definitions_are_read() -> None:
    text = "dslc 1\n\noperator k(h0: f32[(s0 + 1) // 2, s1 * 4 - 3, max(s0, 1), 9223372036]) -> y0: f32[1] {\n}\n"
    types = types_of(text)
    assert types is not None and types[0].rank == 4

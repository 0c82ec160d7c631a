"""Products whose factors are brought into panels first: what becomes one, and that nothing else changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from onnx import ModelProto, numpy_helper

from dslc.codegen.generate import generate, variants
from dslc.codegen.group import parts_of
from dslc.codegen.host.library import DOMAIN, build
from dslc.codegen.packing import packed_factors, panelled
from dslc.codegen.split_reductions import separated
from dslc.codegen.text import Variant
from dslc.ir.dtype import DType
from dslc.ir.graph import Graph, Value
from dslc.onnx.microbenchmarks import kernel_model
from dslc.semantics.library import standard
from tests.codegen.groups import Case, M, N, Room, compare, group, needs_compiler

#: sizes that fill panels and blocks of rows, and that leave a rest of either
SIZES = ({"N": 12, "M": 64}, {"N": 31, "M": 37}, {"N": 8, "M": 130})


def epilogue(r: Room) -> Value:
    """A product with what comes before and behind it."""
    product = r.op("matmul", r.op("tanh", r.input(N, 40)), r.op("mul", r.input(40, M), r.input(40, 1)))
    return r.op("relu", r.op("add", product, r.input(M)))


CASES = (
    Case("product", lambda r: r.op("matmul", r.input(N, 40), r.input(40, M)), SIZES),
    Case("unknown terms", lambda r: r.op("matmul", r.input(33, N), r.input(N, M)), SIZES),
    Case("transposed", lambda r: r.op("matmul", r.input(N, 40), r.op("transpose", r.input(M, 40), perm=(1, 0))), SIZES),
    Case("batches", lambda r: r.op("matmul", r.input(3, N, 24), r.input(3, 24, M)), SIZES),
    Case("shared by batches", lambda r: r.op("matmul", r.input(2, N, 24), r.input(24, M)), SIZES),
    Case("before and behind", epilogue, SIZES),
    Case(
        "half",
        lambda r: r.op("matmul", r.input(N, 40, dtype=DType.F16), r.input(40, M, dtype=DType.F16)),
        SIZES,
        tolerance=4e-3,
    ),
    Case("integers", lambda r: r.op("matmul", r.input(N, 40, dtype=DType.I32), r.input(40, M, dtype=DType.I32)), SIZES),
    Case("convolution by 1", lambda r: r.op("conv", r.input(2, 24, N, M), r.input(20, 24, 1, 1)), SIZES[1:2]),
)
PANELS = (Variant(vectors=2, block=12, panels=True), Variant(width=8, vectors=4, block=5, panels=True))


@needs_compiler
def test_as_the_interpreter_says() -> None:
    compare(CASES, PANELS[:1], known=False)
    compare(CASES[:2], PANELS[1:])


def factors(build: Callable[[Room], Value]) -> list[str]:
    """What is brought into panels."""
    parts = separated(parts_of(standard(), group(build)))
    return [str(found.factor) for part in parts.parts for found in packed_factors(part.scope)]


def test_the_factor_that_rows_share_is_packed() -> None:
    """The last loop whose factor others share; of an expression all that depends on it."""
    assert factors(lambda r: r.op("matmul", r.input(N, 40), r.input(40, M)))[0] == "$1[r0, i1]"
    assert (
        factors(lambda r: r.op("matmul", r.input(N, 40), r.op("transpose", r.input(M, 40), perm=(1, 0))))[0]
        == "$1[i1, r0]"
    )


def test_what_nothing_shares_is_not_packed() -> None:
    """A product with a vector reads each element of the matrix once; a sum that is short takes no time."""
    assert factors(lambda r: r.op("matmul", r.input(1, N), r.input(N, M))) == []
    assert factors(lambda r: r.op("matmul", r.input(N, 4), r.input(4, M))) == []
    assert factors(lambda r: r.op("reduce_sum", r.input(N, M), axes=(1,))) == []


def test_a_panel_is_a_part_of_its_own() -> None:
    parts = separated(parts_of(standard(), group(lambda r: r.op("matmul", r.input(30, 40), r.input(40, 100)))))
    panel, whole = panelled(parts, 32).parts
    assert panel.scope.extents == (4, 40, 32) and "32 * i0" in str(panel.scope)
    assert panel.value in whole.args


def test_products_have_variants_with_panels() -> None:
    product = group(lambda r: r.op("matmul", r.input(N, 40), r.input(40, M)))
    sums = group(lambda r: r.op("reduce_sum", r.input(N, M), axes=(1,)))
    assert any(one.panels for one in variants(standard(), product)) and not any(
        one.panels for one in variants(standard(), sums)
    )
    assert (
        generate(standard(), product, PANELS[0]).name
        != generate(standard(), product, Variant(vectors=2, block=12)).name
    )


# ---- panels of weights ----------------------------------------------------------------------------------------------------


def chain(r: Room) -> Value:
    """Two products, one behind the other: the second factor of either is brought into panels."""
    inner = r.op("relu", r.op("matmul", r.input(N, 40), r.input(40, 64)))
    return r.op("matmul", inner, r.input(64, 33))


def stages_kept(build: Callable[[Room], Value]) -> list[int]:
    """The inputs that each stage depends on which need not be run again, in bits; 0 for the others."""
    text = generate(standard(), group(build), PANELS[0])
    found = re.search(r"_kept\(int stage\) \{(.*?)default: return 0;", text.text, re.DOTALL)
    assert found is not None
    return [int(each) for each in re.findall(r"\(uint64_t\)1 << (\d+);", found[1])]


def test_what_makes_panels_of_one_input_need_not_be_run_again() -> None:
    """Each by itself; a panel whose size is not known would move what lies behind it."""
    assert stages_kept(chain) == [1, 2]
    assert stages_kept(lambda r: r.op("matmul", r.input(33, N), r.input(N, 64))) == []
    assert stages_kept(lambda r: r.op("relu", r.input(N, 64))) == []


@dataclass
class Session:
    """A kernel in a session: weights are some inputs, by number, which are constants of the model."""

    graph: Graph
    arrays: list[npt.NDArray[Any]]
    weights: tuple[int, ...]

    def __post_init__(self) -> None:
        text = generate(standard(), self.graph, PANELS[0])
        types = [value.type for value in self.graph.inputs]
        proto = ModelProto.FromString(
            kernel_model(DOMAIN, text.name, types, [value.type for value in self.graph.outputs], "")
        )
        self.names = [one.name for one in proto.graph.input]
        for at in reversed(self.weights):
            del proto.graph.input[at]
            proto.graph.initializer.append(numpy_helper.from_array(self.arrays[at], self.names[at]))
        options = onnxruntime.SessionOptions()
        options.register_custom_ops_library(str(build([text]).path))
        self.session = onnxruntime.InferenceSession(proto.SerializeToString(), options)

    def agrees(self, arrays: list[npt.NDArray[Any]]) -> bool:
        """Whether a run gives the second product."""
        feeds = {self.names[k]: array for k, array in enumerate(arrays) if k not in self.weights}
        expected = np.maximum(arrays[0] @ arrays[1], 0) @ arrays[2]
        return bool(np.allclose(self.session.run(None, feeds)[0], expected, rtol=1e-3, atol=1e-2))


@needs_compiler
@pytest.mark.parametrize("weights", [(1,), (2,), (1, 2), ()])
def test_panels_of_weights_are_made_once_for_a_session(weights: tuple[int, ...]) -> None:
    """Where they come with each run they are those of the run, whatever the others are, and sizes may change from run to run."""
    rng = np.random.default_rng(0)

    def drawn(rows: int) -> list[npt.NDArray[Any]]:
        return [rng.standard_normal(shape).astype(np.float32) for shape in ((rows, 40), (40, 64), (64, 33))]

    first = drawn(7)
    session = Session(group(chain), first, weights)
    for rows in (7, 31, 12, 31):
        assert session.agrees([first[k] if k in weights else each for k, each in enumerate(drawn(rows))])

"""Expressions in plain ONNX nodes mean what the interpreter says, for operators of any library."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from dslc.errors import DslcError
from dslc.interpret.floats import Floats
from dslc.interpret.run import run
from dslc.ir.constants import NUMPY
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, input_value, kernel_value
from dslc.ir.scalar import dimension
from dslc.onnx.broadcasting import runs
from dslc.onnx.exporter import function_of, node_model
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules, load_many

#: operators as a user writes them; none has an ONNX clause
OPERATORS = {
    "pointwise": ("(X: T[*S]) -> Y: T[*S] { where floating(T)\n Y[*i] = X[*i] * tanh(log(1 + exp(X[*i]))) - 2 }", [(3, 4)]),
    "broadcast": ("(X: T[N, C], b: T[C]) -> Y: T[N, C] { where floating(T)\n Y[n, c] = max(X[n, c] + b[c], 0) / 3 }", [(3, 4), (4,)]),
    "select": ("(X: T[*S]) -> Y: T[*S] { where floating(T)\n Y[*i] = X[*i] ^ 2 if X[*i] < 0 and X[*i] > -1 else -X[*i] }", [(3, 4)]),
    "reduction": ("(X: T[N, C]) -> Y: T[N] { where floating(T)\n Y[n] = (max[c: C] X[n, c]) + sum[c: C] exp(X[n, c]) }", [(3, 4)]),
    "norm": (
        "(X: T[N, C]) -> Y: T[N, C] { where floating(T)\n"
        " let m[n: N] = (sum[c: C] X[n, c]) / C\n Y[n, c] = (X[n, c] - m[n]) / sqrt(1 + (sum[k: C] (X[n, k] - m[n]) ^ 2)) }", [(3, 4)],
    ),
    "product": (
        "(A: T[M, K], B: T[N, K]) -> Y: T[N, M] { where floating(T)\n Y[n, m] = sum[k: K] A[m, k] * B[n, k] }", [(3, 4), (5, 4)],
    ),
    "scaled product": (
        "(A: T[M, K], B: T[K]) -> Y: T[M] { where floating(T)\n Y[m] = sum[k: K] (A[m, k] + 1) * B[k] * 0.5 }", [(3, 4), (4,)],
    ),
    "transposed": ("(X: T[A, B, C]) -> Y: T[C, A, B] { Y[c, a, b] = X[a, b, c] }", [(2, 3, 4)]),
    "slice": ("(X: T[A, B]) -> Y: T[A, 2] { Y[a, b] = X[a, 2 * b + 1] }", [(2, 5)]),
    "padded": ("(X: T[A, B]) -> Y: T[A, B] { Y[a, b] = X[a, b - 1, other=7] + X[a, b + 1, other=0] }", [(2, 5)]),
    "window": ("(X: T[A, B]) -> Y: T[A, B] { where floating(T)\n Y[a, b] = sum[r: 3] X[a, b + r - 1, other=0] }", [(2, 5)]),
    "chosen": ("(X: T[N, M]) -> Y: T[N, M] { Y[n, m] = X[n + 1, m] if n < N - 1 else X[n, m - 1] if m > 1 else 0 }", [(3, 4)]),
    "windows": ("(X: T[A, 40]) -> Y: T[A, 3, 30] { Y[a, r, i] = X[a, 11 * r + i - 4, other=7] }", [(2, 40)]),
    "reversed": ("(X: T[A, B]) -> Y: T[A, B] { Y[a, b] = X[a, B - 1 - b] }", [(2, 5)]),
    "depth to space": ("(X: T[N, 4]) -> Y: T[N, 2, 2] { Y[n, h, w] = X[n, 2 * h + w] }", [(3, 4)]),
    "interleaved": ("(X: T[N, 4]) -> Y: T[N, 4] { Y[n, i] = X[n, i // 2 + i % 2 * 2] }", [(3, 4)]),
    "diagonal": ("(X: T[N, N]) -> Y: T[N] { Y[n] = X[n, n] }", [(4, 4)]),
    "positions": ("(X: T[N, 4]) -> Y: T[N, 4] { where floating(T)\n Y[n, i] = X[n, i] * i + n }", [(3, 4)]),
    "repeated": ("(X: T[N]) -> Y: T[N, 3] { Y[n, i] = X[n] }", [(4,)]),
    "constant summand": ("(X: T[N]) -> Y: T[N] { where floating(T)\n Y[n] = sum[k: 5] X[n] }", [(4,)]),
    "where": ("(X: T[N, M]) -> Y: T[N] { where floating(T)\n Y[n] = sum[k: M where k > 1] X[n, k] }", [(3, 4)]),
    "table": (
        "(X: T[N, 2]) -> Y: T[N, 2] { where floating(T)\n"
        " let W = [[1, 1 / 2], [-1, 3]]\n Y[n, i] = sum[k: 2] W[i, k] * X[n, k] }", [(3, 2)],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Rules:
    """A library of these operators."""
    folder: Path = tmp_path_factory.mktemp("rules")
    text = "".join(f"operator op{k}{body}\n" for k, (body, _) in enumerate(OPERATORS.values()))
    (folder / "mine.rules").write_text(f"dslc 1\n{text}")
    return load_many(["std", str(folder / "mine.rules")])


def values_of(rules: Rules, case: str, symbolic: bool) -> tuple[Any, ...]:
    """The operator applied to inputs; with unknown sizes, those of its first axes, where `symbolic`."""
    name = f"mine.op{list(OPERATORS).index(case)}"
    if name not in rules.operators:
        (name,) = [one for one in rules.operators if one.endswith(name.removeprefix("mine"))]
    shapes = OPERATORS[case][1]
    inputs = []
    for k, shape in enumerate(shapes):
        first = dimension("N") if symbolic and shape[0] == shapes[0][0] and len(shapes) == 1 else shape[0]
        inputs.append(input_value(f"h{k}", TensorType(DType.F32, (first, *shape[1:]))))
    return tuple(inputs), apply(rules, name, tuple(inputs), {})


@pytest.mark.parametrize("case", OPERATORS)
@pytest.mark.parametrize("opset", [11, 12, 13, 18])
def test_the_nodes_compute_what_the_equation_says(mine: Rules, case: str, opset: int) -> None:
    inputs, outputs = values_of(mine, case, False)
    function = function_of(mine, Graph(inputs, outputs), opset)
    model = one_node(mine, inputs, outputs, opset)
    onnx.checker.check_model(model, full_check=True)
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in OPERATORS[case][1]]
    wanted = run(mine, outputs, dict(zip(inputs, arrays, strict=True)), Floats())
    for found in (ran(model, arrays), ReferenceEvaluator(model).run(None, feed(arrays))):
        for a, b in zip(wanted, found, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert function.name in {node.op_type for node in model.graph.node}


@pytest.mark.parametrize(
    "case", [case for case, (_, shapes) in OPERATORS.items() if len(shapes) == 1 and case != "diagonal"]
)
def test_sizes_may_be_unknown(mine: Rules, case: str) -> None:
    """The same function at every size of the first axis."""
    inputs, outputs = values_of(mine, case, True)
    model = one_node(mine, inputs, outputs, 17)
    random = np.random.default_rng(0)
    for rows in (1, 6):
        shape = OPERATORS[case][1][0]
        array = random.standard_normal((rows, *shape[1:])).astype(np.float32)
        static = input_value("h0", TensorType(DType.F32, array.shape))
        name = f"op{list(OPERATORS).index(case)}"
        (full,) = [one for one in mine.operators if one.endswith(f".{name}")]
        wanted = run(mine, apply(mine, full, (static,), {}), {static: array}, Floats())
        np.testing.assert_allclose(ran(model, [array])[0], wanted[0], rtol=1e-5, atol=1e-5)


def index(random: Random, iters: Sequence[str]) -> str:
    """A position, by some iterators."""
    i, j = random.choice(iters), random.choice(iters)
    return random.choice([
        i, f"{i} + {random.randrange(-2, 3)}", f"{random.randrange(1, 4)} * {i} + {random.randrange(-2, 3)}", f"{i} // 2",
        f"{i} % {random.randrange(2, 4)}", f"{random.randrange(1, 5)} * {i} + {j}", f"({i} + {random.randrange(3)}) // 2",
        f"{random.randrange(3, 8)} - {i}", str(random.randrange(4)),
    ])  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_reads_at_any_positions(seed: int, tmp_path: Path) -> None:
    """Cut, merged, padded and looked up, in and out of the tensor, whatever depends on which iterators."""
    random = Random(seed)
    cases, text = [], "dslc 1\n"
    for k in range(20):
        shape, sizes = ([random.randrange(1, 8) for _ in range(random.randrange(1, 4))] for _ in range(2))
        iters = ["a", "b", "c"][: len(sizes)]
        read = f"X[{', '.join(index(random, iters) for _ in shape)}, other={random.randrange(3)}]"
        cases.append(shape)
        text += f"operator op{k}(X: T[{_list(shape)}]) -> Y: T[{_list(sizes)}] {{ where floating(T)\n Y[{_list(iters)}] = {read} }}\n"
    (tmp_path / "reads.rules").write_text(text)
    rules = load_many([str(tmp_path / "reads.rules")])
    for k, shape in enumerate(cases):
        (whole,) = inputs = (input_value("h0", TensorType(DType.F32, tuple(shape))),)
        outputs = apply(rules, f"reads.op{k}", inputs, {})
        array = np.random.default_rng(k).standard_normal(shape).astype(np.float32)
        wanted = run(rules, outputs, {whole: array}, Floats())
        for opset in (11, 13, 18):
            # what is cut off at the ends of a tensor needs whole numbers' Max and Min
            with nullcontext() if opset > 11 else suppress(DslcError):
                found = ran(one_node(rules, inputs, outputs, opset), [array])
                np.testing.assert_array_equal(found[0], wanted[0], text.splitlines()[2 * k + 2])


#: of any type, and where one of truth values or of few bits has no nodes
TYPED = {
    "(X: T[N, M]) -> Y: T[N, M] { Y[n, m] = X[n + 1, m] if n < N - 1 else X[n, m - 1] if m > 1 else 0 }": {
        DType.BOOL: 13
    },
    "(X: T[A, B]) -> Y: T[A, B] { Y[a, b] = X[a, b - 1, other=0] }": {DType.BOOL: 13},
    "(X: T[A, B]) -> Y: T[A, B] { Y[a, b] = X[a, b] + X[a, 0] }": {DType.BOOL: 99, DType.I8: 14, DType.U8: 14},
    "(X: T[A, B]) -> Y: T[A, B] { Y[a, b] = -X[a, b] }": {DType.BOOL: 99, DType.I8: 14, DType.U8: 99},
    "(X: T[A, B]) -> Y: T[A, B] { Y[a, b] = max(X[a, b], X[a, 0]) }": {
        DType.BOOL: 99,
        DType.I8: 12,
        DType.U8: 12,
        DType.I64: 12,
    },
    "(X: T[A, B]) -> Y: T[A] { Y[a] = sum[b: B] X[a, b] }": {DType.BOOL: 99, DType.I8: 99, DType.U8: 99},
}


@pytest.mark.parametrize("equation", TYPED)
@pytest.mark.parametrize("dtype", [DType.BOOL, DType.I8, DType.U8, DType.I64, DType.F16, DType.F64], ids=str)
def test_every_type_that_the_nodes_take(equation: str, dtype: DType, tmp_path: Path) -> None:
    """What ONNX has no node for is refused, and no file that nobody loads."""
    (tmp_path / "typed.rules").write_text(f"dslc 1\noperator op{equation}\n")
    rules = load_many([str(tmp_path / "typed.rules")])
    (whole,) = inputs = (input_value("h0", TensorType(dtype, (3, 4))),)
    outputs = apply(rules, "typed.op", inputs, {})
    array = np.random.default_rng(0).integers(0, 5, (3, 4)).astype(NUMPY[dtype])
    for opset in (11, 12, 13, 18):
        if opset < TYPED[equation].get(dtype, 0):
            with pytest.raises(DslcError) as problem:
                one_node(rules, inputs, outputs, opset)
            assert problem.value.diagnostics[0].code == "E0814"
        else:
            found = ran(one_node(rules, inputs, outputs, opset), [array])
            np.testing.assert_array_equal(found[0], run(rules, outputs, {whole: array}, Floats())[0])


def _list(items: Sequence[object]) -> str:
    return ", ".join(map(str, items))


def test_neighbours_along_the_last_axis_are_cut_out(mine: Rules) -> None:
    far, near = [*range(5, 40)], [*range(20)]
    assert runs([9, 9, *near, 9, *far, 9]) == [([9, 9], False), (near, True), ([9], False), (far, True), ([9], False)]
    nodes = one_node(mine, *values_of(mine, "windows", symbolic=False), 18).functions[0].node
    assert [node.op_type for node in nodes if node.op_type != "Constant"][:7] == [
        "Pad",
        "Gather",
        *["Slice"] * 3,
        "Gather",
        "Concat",
    ]


def test_only_kernels_are_written_in_plain_nodes(mine: Rules) -> None:
    """Elsewhere an operator without an ONNX form has none."""
    _, outputs = values_of(mine, "pointwise", False)
    with pytest.raises(DslcError) as problem:
        node_model(outputs, mine, 17)
    assert problem.value.diagnostics[0].code == "E0814"


def test_an_opset_without_the_nodes(mine: Rules) -> None:
    inputs, outputs = values_of(mine, "reduction", False)
    with pytest.raises(DslcError) as problem:
        function_of(mine, Graph(inputs, outputs), 10)
    assert problem.value.diagnostics[0].code == "E0814"


def one_node(rules: Rules, inputs: tuple[Any, ...], outputs: tuple[Any, ...], opset: int) -> onnx.ModelProto:
    args = tuple(input_value(f"x{k}", value.type) for k, value in enumerate(inputs))
    return node_model(kernel_value(Graph(inputs, outputs), args), rules, opset, inputs=args)[0]


def feed(arrays: list[Any]) -> dict[str, Any]:
    return {f"x{k}": array for k, array in enumerate(arrays)}


def ran(model: onnx.ModelProto, arrays: list[Any]) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    outputs: list[Any] = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    ).run(None, feed(arrays))
    return outputs

"""Programs over holes as text: what is read is the object that was written."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dslc.analysis.numeric import value as number
from dslc.errors import DslcError
from dslc.inspection.names import axes_of
from dslc.inspection.samples import sample
from dslc.ir.constants import array_value, fill
from dslc.ir.dtype import Dim, DType, TensorType
from dslc.ir.fold import shorter
from dslc.ir.graph import (
    Graph,
    Input,
    Scope,
    ScopeNode,
    Value,
    call,
    input_value,
    kernel_value,
    opaque,
    scope_value,
    topological,
)
from dslc.ir.holes import abstracted, hole, program
from dslc.ir.normal import normal
from dslc.ir.scalar import Iter, Scalar, Sym, apply, dimension, iterator, num, raw_apply, read, reduce, sym, table
from dslc.ir.text import NotWritten, name_of_size, program_text, size_name
from dslc.semantics.apply import apply as apply_operator
from dslc.semantics.elaborate import expand
from dslc.semantics.env import Mismatch
from dslc.semantics.installed import find_library
from dslc.semantics.library import Rules, load
from dslc.semantics.written import read_program

F32, I64 = DType.F32, DType.I64
I0, I1, R0, R1 = (iterator(name) for name in ("i0", "i1", "r0", "r1"))
N, M = dimension("N"), dimension("M")


@pytest.fixture(scope="module")
def std() -> Rules:
    folder, _ = find_library("std")
    assert folder is not None
    return load(folder)


NOTHING = Rules()


def one(
    body: Scalar,
    types: Sequence[TensorType],
    extents: Sequence[Dim],
    dtype: DType = F32,
    groups: tuple[int, ...] | None = None,
) -> Graph:
    """A program of one scope."""
    holes = tuple(hole(k, type) for k, type in enumerate(types))
    return program(holes, [scope_value(Scope(tuple(extents), body, dtype, groups), holes)])


def same(graph: Graph, rules: Rules = NOTHING) -> str:
    text = program_text(graph)
    assert read_program(rules, text) is graph, text
    return text


def test_a_scope_is_an_operator_with_one_equation() -> None:
    body = reduce("sum", (R0,), (num(3),), apply("*", read(0, (I0, R0)), read(1, (R0,), num(0))))
    assert same(one(body, [TensorType(F32, (N, 3)), TensorType(F32, (3,))], [N])) == (
        "dslc 1\n\n"
        "operator program(h0: f32[N, 3], h1: f32[3]) -> y0: f32[N] {\n"
        "  y0[i0: N] = (sum[r0: 3] (h0[i0, r0] * h1[r0, other=0]))\n"
        "}\n"
    )


@pytest.mark.parametrize(
    "value",
    [
        0, -3, True, False, Fraction(1, 3), Fraction(-7, 2), 0.1, -0.1, 1e-45, 1e300, 2.0, math.pi, math.inf, -math.inf, math.nan,
        float("nan"),
    ],
)  # fmt: skip
def test_a_number_keeps_its_value_and_kind(value: bool | int | float | Fraction) -> None:
    element, first = read(0, (I0,)), apply("<", I0, num(2))
    for body in (num(value), apply("select", first, num(value), element), apply("max", element, num(value))):
        same(one(body, [TensorType(F32, (4,))], [4]))
    shifted = read(0, (apply("+", I0, num(1)),), num(value))
    same(one(apply("exp", shifted), [TensorType(F32, (4,))], [4]))


def test_merged_dimensions_of_any_count_are_kept() -> None:
    types = [TensorType(F32, (24,))]
    place = apply("+", apply("*", num(6), I0), apply("*", num(3), I1), iterator("i2"))
    for groups in ((3,), (2, 1), (1, 2), (0, 3), (2, 0, 1), (1, 2, 0)):
        graph = one(read(0, (place,)), types, [4, 2, 3], groups=groups)
        same(graph)
        (result,) = graph.outputs
        assert result.type.rank == len(groups)


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F64, DType.I8, DType.U64, DType.BOOL])
def test_the_element_type_is_the_declared_one(dtype: DType) -> None:
    same(one(apply(f"convert:{dtype}", read(0, (I0,))), [TensorType(F32, (4,))], [4], dtype))
    same(one(read(0, (I0,)), [TensorType(dtype, (4,))], [4], F32))


def test_unknown_sizes_keep_their_names_and_bounds() -> None:
    odd = [dimension(name) for name in ("sequence length", "h0", "max", "a_b", "_x", "z_q", "é", "where", "std")]
    body = apply("+", apply("*", read(0, (I0,)), N), sym("offset"), Sym._make(0, "least"))
    same(one(body, [TensorType(F32, (apply("*", N, M),))], [apply("*", N, M)]))
    for size in odd:
        same(one(apply("/", read(0, (I0,)), size), [TensorType(F32, (size,))], [size]))
        assert name_of_size(size_name(size.name)) == size.name
    with pytest.raises(NotWritten, match="two unknown sizes are named `N`"):
        program_text(one(apply("+", read(0, (I0,)), sym("N")), [TensorType(F32, (N,))], [N]))


def test_a_quotient_of_integers_is_the_one_of_the_language() -> None:
    types = [TensorType(I64, (4,)), TensorType(I64, (4,))]
    cut = apply("trunc", raw_apply("/", read(0, (I0,)), read(1, (I0,))))
    assert "h0[i0] / h1[i0]" in same(one(cut, types, [4], I64))
    same(one(apply("trunc", raw_apply("/", read(0, (I0,)), num(2))), types[:1], [4], I64))
    floats = [TensorType(F32, (4,)), TensorType(F32, (4,))]
    assert "trunc(h0[i0] / h1[i0])" in same(one(cut, floats, [4]))
    with pytest.raises(NotWritten, match="not cut"):
        program_text(one(raw_apply("/", read(0, (I0,)), read(1, (I0,))), types, [4], I64))


def test_matrices_conditions_and_reads_at_data() -> None:
    entries = table(((1, Fraction(1, 2)), (math.inf, 0.1)), (apply("%", I0, num(2)), R0))
    inside = apply("and", apply("<", apply("+", I0, R0), num(4)), apply("not", apply("==", I0, R0)))
    body = reduce("max", (R0,), (num(2),), apply("*", entries, read(0, (read(1, (I0,)),), num(-math.inf))), inside)
    same(one(body, [TensorType(F32, (4,)), TensorType(I64, (4,))], [4]))
    triangle = reduce("sum", (R0, R1), (num(4), apply("+", R0, num(1))), read(0, (R0, R1)))
    same(one(apply("-", triangle, apply("^", apply("*", num(-1), triangle), num(2))), [TensorType(F32, (4, 4))], []))
    same(one(apply("^", num(-2), read(0, (I0,))), [TensorType(F32, (4,))], [4]))


def test_operands_keep_their_numbers_also_those_that_are_not_read() -> None:
    types = [TensorType(F32, (4,))] * 3
    same(one(apply("-", read(2, (I0,)), read(0, (I0,))), types, [4]))


def test_a_scope_made_elsewhere_is_written_as_its_canonical_form() -> None:
    """Reductions are named by how many surround them."""
    k = iterator("r7")
    named = one(reduce("sum", (k,), (num(4),), read(0, (k,))), [TensorType(F32, (4,))], [])
    canonical = one(reduce("sum", (R0,), (num(4),), read(0, (R0,))), [TensorType(F32, (4,))], [])
    assert program_text(named) == program_text(canonical)
    same(canonical)


# ---- random expressions ----------------------------------------------------------------------------------------------


def random_body(
    rng: random.Random, types: Sequence[TensorType], iters: Sequence[Iter], depth: int, below: int = 0
) -> Scalar:
    def again() -> Scalar:
        return random_body(rng, types, iters, depth - 1, below)

    kind = rng.choice(["read", "+", "*", "-", "/", "function", "number", "reduce", "select", "convert", "table", "min"])
    if depth == 0 or kind == "read":
        k = rng.randrange(len(types))
        index = tuple(random_index(rng, iters) for _ in types[k].shape)
        return read(k, index, rng.choice([None, None, num(0), num(Fraction(1, 3)), num(-math.inf)]))
    if kind == "number":
        return num(rng.choice([2, -1, Fraction(3, 7), 0.3, -math.inf, math.nan]))
    if kind in {"+", "*", "-", "min"}:
        return apply(kind, again(), again())
    if kind == "/":
        # by what is no integer: those are cut
        return apply("/", apply("convert:f32", again()), apply("convert:f32", again()))
    if kind == "function":
        return apply(rng.choice(["exp", "sqrt", "abs", "tanh", "floor", "sign", "isnan"]), again())
    if kind == "convert":
        return apply(f"convert:{rng.choice(list(DType))}", again())
    if kind == "select":
        condition = apply(rng.choice(["<", "<=", ">", "=="]), again(), again())
        joined = apply(rng.choice(["and", "or"]), condition, apply("not", apply("<", random_index(rng, iters), num(2))))
        return apply("select", joined, again(), again())
    if kind == "table":
        at = (apply("%", rng.choice(iters), num(2)), apply("%", I0, num(2)))
        return apply("+", table(((1, Fraction(1, 2)), (-2, 0.7)), at), again())
    count = rng.randint(1, 2)
    inner = [iterator(f"r{below + k}") for k in range(count)]
    extents = [rng.choice([num(3), N, apply("+", I0, num(1))]) for _ in inner]
    where = rng.choice([None, apply("<", inner[0], I0)])
    body = random_body(rng, types, [*iters, *inner], depth - 1, below + count)
    return reduce(rng.choice(["sum", "prod", "max", "min"]), tuple(inner), tuple(extents), body, where)


def random_index(rng: random.Random, iters: Sequence[Iter]) -> Scalar:
    a, b = rng.choice(iters), rng.choice(iters)
    difference = apply("+", apply("*", num(2), a), apply("*", num(-1), b))
    return rng.choice([a, num(0), difference, apply("//", a, num(2)), apply("%", apply("+", a, N), M)])


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9))
def test_a_random_scope_reads_back_as_itself(seed: int) -> None:
    rng = random.Random(seed)
    types = [TensorType(rng.choice([F32, I64, DType.F16]), shape) for shape in ((N, 4), (4,), ())]
    groups, extents = rng.choice([(None, (4, N)), ((2,), (2, 3)), ((1, 2), (N, 2, 2)), ((0, 1), (5,))])
    iters = [iterator(f"i{k}") for k in range(len(extents))]
    same(one(random_body(rng, types, iters, 3), types, extents, rng.choice([F32, I64]), groups))


# ---- programs ----------------------------------------------------------------------------------------------------------


def test_every_operator_of_std_reads_back(std: Rules) -> None:
    """The call of each by itself, what it means, and every scope of that."""
    seen: set[Graph] = set()
    for name, op in std.operators.items():
        called = sample(std, op)
        meant = expand(std, called)
        for values in (
            called,
            meant,
            *((Value(n),) for n in topological(v.node for v in meant) if isinstance(n, ScopeNode)),
        ):
            inputs = [Value(node) for node in topological(value.node for value in values) if isinstance(node, Input)]
            graph, _ = abstracted(values, inputs)
            if graph not in seen:
                seen.add(graph)
                assert read_program(std, program_text(graph)) is graph, name
    assert len(seen) > 300


def test_every_operator_of_std_reads_back_from_its_text_for_people(std: Rules) -> None:
    """With the names of its parameters and of what runs along their dimensions; operands may be in another order by then."""
    for op in std.operators.values():
        called = sample(std, op)
        for values in (called, expand(std, called)):
            inputs = [Value(node) for node in topological(value.node for value in values) if isinstance(node, Input)]
            graph, leaves = abstracted(values, inputs)
            names = [leaf.node.name for leaf in leaves if isinstance(leaf.node, Input)]
            text = program_text(graph, inputs=names, axes=axes_of(std, graph.outputs))
            assert list(map(normal, read_program(std, text).outputs)) == list(map(normal, graph.outputs)), text
            assert all(f"{each}: " in text for each in names), text


def test_a_tensor_does_not_take_the_name_of_a_size() -> None:
    graph = one(read(0, (I0,)), [TensorType(F32, (N,))], [N])
    text = program_text(graph, inputs=("N",), axes={})
    assert "program(h0: f32[N]) -> Y" in text and read_program(NOTHING, text) is graph


def test_a_text_for_people_has_their_names_and_no_name_twice(std: Rules) -> None:
    """Iterators are named by dimensions, new ones by letters that nothing else is called; a reserved name gives way."""
    types = [TensorType(F32, (8, 3)), TensorType(F32, (3,))]
    body = reduce("sum", (R0,), (num(3),), apply("*", read(0, (apply("-", I0, num(1)), R0), num(0)), read(1, (R0,))))
    graph = one(apply("+", body, num(Fraction(1, 4))), types, [8])
    axes = {graph.inputs[0]: [["row", "n"], ["row"]]}
    text = program_text(graph, inputs=("i", "v0"), axes=axes)
    assert "Y[j: 8] = (sum[row: 3] (i[j - 1, row, other=0] * h1[row])) + 0.25" in text
    assert read_program(std, text) is graph
    assert "program(weights: f32[8, 3], h1: f32[3]) -> Y: f32[8] {" in program_text(
        graph, inputs=("weights", "h0"), axes=axes
    )
    assert "program(Y: f32[8, 3], h1: f32[3]) -> y0: f32[8] {" in program_text(graph, inputs=("Y", "y0"), axes=axes)


def test_a_program_of_calls_scopes_weights_and_numbers(std: Rules) -> None:
    x, w = input_value("X", TensorType(F32, (N, 4))), fill(3, TensorType(F32, (4, 4)))
    (product,) = call("std.matmul", (x, w), (), (x.type,))
    doubled = scope_value(Scope((N, 4), apply("*", num(2), read(0, (I0, I1))), F32), (product,))
    (total,) = call("std.add", (doubled, fill(0.1, TensorType(F32, ()))), (), (x.type,))
    graph, leaves = abstracted([total, doubled, x], [x, w])
    assert leaves == (x, w) and graph.inputs[1].constant
    text = same(graph, std)
    assert "operator program(h0: f32[N, 4], w1: f32[4, 4], c2: f32[] = max(-inf, 0.1)) -> y0, y1, y2 {" in text
    (kernel, *_) = kernel_value(graph, (x, w))
    nested, _ = abstracted([call("std.relu", (kernel,), (), (x.type,))[0]], [x, w])
    assert "operator k0(h0: f32[N, 4], w1: f32[4, 4]" in same(nested, std)


@pytest.mark.parametrize(
    "items", [[1, 2], [[True], [False]], [1.0, 2.0], [0.1, -math.inf], [[math.nan, 1e-45], [3.5, 1e30]]]
)
def test_a_small_array_is_a_list(std: Rules, items: list[object]) -> None:
    import numpy as np

    array = np.array(items)
    weight = array_value(array.astype(np.float32) if array.dtype.kind == "f" else array)
    x = hole(0, weight.type)
    (result,) = apply_operator(std, "std.concat", (x, weight), {"axis": 0})
    assert "operator chosen(h0: " in program_text(program([x], [result]), "chosen")
    same(program([x], [result]), std)


def test_what_has_no_text_says_so() -> None:
    x = hole(0, TensorType(F32, (2,)))
    (odd,) = opaque("key", "odd", None, (x,), (x.type,))
    with pytest.raises(NotWritten, match="Opaque"):
        program_text(program([x], [odd]))
    import numpy as np

    half = array_value(np.array([1.0, 2.0], np.float16))
    with pytest.raises(NotWritten, match="without literals"):
        program_text(program([x], [call("std.add", (x, half), (), (x.type,))[0]]))
    with pytest.raises(NotWritten, match="is a result"):
        program_text(program([x], [x, array_value(np.array([1, 2]))]))
    with pytest.raises(NotWritten, match="is not the hole"):
        program_text(Graph((input_value("X", x.type),), (input_value("X", x.type),)))


def test_a_text_is_no_code() -> None:
    """Whatever a model's metadata say, reading ends with a program or a reason."""
    whole = """dslc 1
operator s0(h0: f32[N, 4], h1: int64[4]) -> y0: f32[N, (2, 2)] {
  attr M: int
  where M >= 1
  let t0 = [[1, (1/2)], [inf, max(-inf, 0.1)]]
  y0[i0: N, (i1: 2, i2: 2)] = (sum[r0: 4, r1: i0 + 1 where r0 < M] h0[i0, r0, other=0] * t0[i1, i2] / h1[r0])
}
operator k1(h0: f32[N, 4], c1: f32[] = 1/2) -> y0 {
  let v0 = s0(h0, [1, 2, 3, 4], M=N)
  y0 = v0
}
operator program(h0: f32[N, 4], h1: int64[4]) -> y0, y1 {
  let v0 = k1(h0)
  y0 = v0
  y1 = s0(v0, h1, M=3)
}
"""
    read_program(NOTHING, whole)
    parts = re.findall(r"\w+|\s+|[^\w\s]", whole)
    words = [
        "0",
        "-1",
        "h0",
        "99999999999",
        "true",
        "f32",
        "inf",
        "nan",
        "s0",
        "k1",
        "program",
        "N",
        "i0",
        "[",
        "]",
        "convert",
    ]
    rng = random.Random(0)
    refused = 0
    for _ in range(120):
        changed = list(parts)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(4, len(changed))
            changed[at] = rng.choice(["", rng.choice(parts), rng.choice(words)])
        try:
            read_program(NOTHING, "".join(changed))
        except (DslcError, Mismatch):
            refused += 1
    assert refused > 60


@pytest.mark.parametrize(
    "text",
    [
        "dslc 1\n",
        "operator program(h0: f32[2]) -> y0 { y0 = nothing.relu(h0) }",
        "operator program(h0) -> y0 { y0 = h0 }",
        "property program is associative",
        "operator s1(h0: f32[N]) -> y0 { y0 = h0 } operator program(h0: f32[2]) -> y0 { y0 = s1(h0) }",
        "operator program(h0: f32[2]) -> y0 { y0 = program(h0) }",
        "operator program(h0: f32[2]) -> y0 { y0 = s1(h0) } operator s1(h0: f32[2]) -> y0: f32[2] { y0 = s1(h0) }",
    ],
)
def test_a_text_that_is_no_program_is_refused(text: str) -> None:
    with pytest.raises((DslcError, Mismatch)):
        read_program(NOTHING, text)


# ---- short indices -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "short"),
    [
        ("2 * (i // 2) + i % 2", "i"),
        ("0 + 1 * i + -1", "i - 1"),
        ("4 * (i // 4) + 2 * (i % 4 // 2) + i % 2 + j % 3", "i + j % 3"),
        ("N * (i // N) + i % N", "i"),
        ("4 * (i // 3) + i % 3", "i + i // 3"),
        ("4 * (i % 3)", "4 * (i % 3)"),
        ("5 - 3 * (i // 2)", "5 - 3 * (i // 2)"),
    ],
)
def test_an_index_is_shown_short(index: str, short: str) -> None:
    """Remainders and the quotients beside them are one position; the law holds for negative ones, too."""
    head = "dslc 1\noperator program(h0: f32[N, 9]) -> y0: f32[7, 5] { y0[i: 7, j: 5] = "
    graph = read_program(NOTHING, f"{head}h0[{index}, 0, other=0] }}")
    assert f"= h0[{short}, 0, other=0]" in program_text(graph, axes={})


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9))
def test_a_short_index_is_the_same_integer_everywhere(seed: int) -> None:
    rng = random.Random(seed)

    def made(depth: int) -> Scalar:
        if not depth:
            return rng.choice([I0, I1, num(rng.randint(-5, 5))])
        name = rng.choice(["+", "+", "*", "//", "%", "-"])
        second = num(rng.choice([-3, -2, 2, 3, 4, 6])) if name in {"//", "%", "*"} else made(depth - 1)
        return apply(name, made(depth - 1), second)

    a, k = made(2), num(rng.choice([-4, -2, 2, 3, 6]))
    index = apply("+", apply("*", k, apply("//", a, k)), apply("%", a, k), made(2))
    short = shorter(index)
    assert short.weight <= index.weight
    for i in range(-13, 14, 3):
        for j in range(-5, 6, 2):
            at: dict[Scalar, int] = {I0: i, I1: j}
            assert number(short, at) == number(index, at), (str(index), str(short))

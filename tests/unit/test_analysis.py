"""Linearity, pointwise, iterator tables, boxes and counts of operators of the standard library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dslc.analysis.boxes import read_boxes, splits
from dslc.analysis.counts import graph_counts, scope_counts
from dslc.analysis.iterators import iterator_table
from dslc.analysis.linearity import linear_classes
from dslc.analysis.numeric import value
from dslc.analysis.pointwise import is_pointwise
from dslc.inspection.describe import describe
from dslc.inspection.samples import sample
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Call, Scope, ScopeNode, Value, scope_value
from dslc.ir.scalar import Scalar, apply, dimension, iterator, num, read, reduce
from dslc.semantics.elaborate import elaborate, expand
from dslc.semantics.library import Rules, standard
from dslc.semantics.shape_free import is_pointwise as is_pointwise_at_every_shape


@pytest.fixture(scope="module")
def rules() -> Rules:
    return standard()


def meaning(rules: Rules, name: str, shapes: dict[str, tuple[int, ...]], **attrs: Any) -> tuple[Any, tuple[Value, ...]]:
    """Parameters and expanded outputs of an operator at given shapes."""
    outputs = sample(rules, rules.operator(name), shapes, attrs)
    node = outputs[0].node
    assert isinstance(node, Call)
    instance = elaborate(rules, node.op, tuple(arg.type for arg in node.args), node.attrs)
    return instance.params, expand(rules, instance.outputs)


def scope_of(outputs: tuple[Value, ...]) -> tuple[Scope, list[tuple[int, ...]]]:
    node = outputs[0].node
    assert isinstance(node, ScopeNode)
    return node.scope, [tuple(int(size) for size in arg.type.shape) for arg in node.args]  # type: ignore[arg-type]


CLASSES = [
    ("matmul", {"A": (2, 3, 4), "B": (4, 5)}, {}, [{0}, {1}]),
    ("add", {"A": (2, 3), "B": (3,)}, {}, [{0, 1}]),
    ("sub", {"A": (2, 3), "B": (3,)}, {}, [{0, 1}]),
    ("conv", {"X": (1, 4, 8, 8), "K": (6, 2, 3, 3)}, {"groups": 2}, [{0}, {1}]),
    ("relu", {"X": (2, 3)}, {}, []),
    ("softmax", {"X": (2, 3)}, {}, []),
    ("concat", {"X": (2, 3), "Z": (2, 4)}, {"axis": 1}, [{0, 1}]),
    ("resize_linear", {"X": (2, 3)}, {"size": (4, 6)}, [{0}]),
    ("avg_pool_valid", {"X": (1, 2, 8, 8)}, {"kernel": (3, 3), "pads": (1, 1, 1, 1)}, [{0}]),
    ("max_pool", {"X": (1, 2, 8, 8)}, {"kernel": (3, 3)}, []),
    ("gemm", {"A": (2, 3), "B": (3, 4), "C": (4,)}, {}, [{0, 2}, {1, 2}]),  # a composite
    ("gather", {"X": (3, 4), "I": (2,)}, {"axis": 0}, [{0}]),  # the index is data: not linear in it
    (
        "batch_norm",
        {"X": (1, 3, 4), "scale": (3,), "shift": (3,), "mean": (3,), "variance": (3,)},
        {},
        [{1, 2}, {0, 2, 3}],
    ),
]


@pytest.mark.parametrize(("name", "shapes", "attrs", "expected"), CLASSES, ids=[case[0] for case in CLASSES])
def test_linear_classes(rules: Rules, name: str, shapes: dict[str, Any], attrs: dict[str, Any], expected: Any) -> None:
    params, outputs = meaning(rules, name, shapes, **attrs)
    found = [{params.index(value) for value in group} for group in linear_classes(params, outputs)]
    assert found == expected


@pytest.mark.parametrize(
    ("name", "shapes", "expected"),
    [
        ("add", {"A": (2, 3), "B": (3,)}, True),
        ("gelu", {"X": (2, 3)}, True),
        ("mish", {"X": (2, 3)}, True),
        ("transpose", {"X": (2, 2)}, False),
        ("softmax", {"X": (2, 3)}, False),
        ("clip", {"X": (2, 3)}, True),
    ],
)
def test_pointwise(rules: Rules, name: str, shapes: dict[str, Any], expected: bool) -> None:
    assert is_pointwise(*meaning(rules, name, shapes)) is expected


def test_the_groups_of_a_batched_product_are_those_of_einnets_table(rules: Rules) -> None:
    scope, _ = scope_of(meaning(rules, "matmul", {"A": (7, 2, 3), "B": (7, 3, 5)})[1])
    assert {row.name: {each.operand for each in row.occurrences} for row in iterator_table(scope)} == {
        "i0": frozenset({0, 1, -1}),  # b: Y/Y/Y
        "i1": frozenset({0, -1}),  # m: Y/N/Y
        "i2": frozenset({1, -1}),  # n: N/Y/Y
        "r0": frozenset({0, 1}),  # k: Y/Y/N
    }


def test_coefficients_of_a_dilated_strided_convolution(rules: Rules) -> None:
    outputs = meaning(rules, "conv", {"X": (1, 1, 20, 20), "K": (1, 1, 3, 3)}, stride=(2, 1), dilation=(3, 1))[1]
    rows = {row.name: row for row in iterator_table(scope_of(outputs)[0])}
    assert [(o.operand, o.dim, o.coefficient) for o in rows["i3"].occurrences] == [(-1, 2, 1), (0, 2, 2)]
    assert [(o.operand, o.dim, o.coefficient) for o in rows["r1"].occurrences] == [(0, 2, 3), (1, 2, 1)]


def test_a_padded_convolution_has_the_nine_boxes_of_pets_figure_4(rules: Rules) -> None:
    scope, shapes = scope_of(meaning(rules, "conv", {"X": (1, 4, 56, 56), "K": (8, 4, 3, 3)}, pads=(1, 1, 1, 1))[1])
    cut = splits(scope, shapes)
    assert cut.exact and cut.points[-2:] == ((1, 55), (1, 55))
    assert cut.boxes([int(e) for e in scope.extents]) == 9  # type: ignore[arg-type]
    corner = read_boxes(scope, shapes, [(0, 0), (0, 0), (0, 7), (0, 0), (54, 55)])
    assert corner[0].box == ((0, 0), (0, 3), (0, 1), (53, 55))


def test_a_concatenation_is_cut_where_the_second_tensor_begins(rules: Rules) -> None:
    scope, shapes = scope_of(meaning(rules, "concat", {"X": (2, 3), "Z": (2, 4)}, axis=1)[1])
    assert splits(scope, shapes).points == ((), (3,))


def test_a_triangle_is_not_cut_into_boxes(rules: Rules) -> None:
    scope, shapes = scope_of(meaning(rules, "upper_triangle", {"X": (4, 4)})[1])
    assert not splits(scope, shapes).exact


COUNTS = [
    ("conv", {"X": (1, 64, 56, 56), "K": (64, 64, 3, 3)}, {"pads": (1, 1, 1, 1)}, 2 * 64 * 56 * 56 * 64 * 9),
    ("matmul", {"A": (2, 3, 4), "B": (4, 5)}, {}, 2 * 2 * 3 * 4 * 5),
    ("reshape", {"X": (2, 6)}, {"shape": (3, 4)}, 0),
    ("add", {"A": (2, 3), "B": (3,)}, {}, 6),
]


@pytest.mark.parametrize(("name", "shapes", "attrs", "flops"), COUNTS, ids=[case[0] for case in COUNTS])
def test_flops(rules: Rules, name: str, shapes: dict[str, Any], attrs: dict[str, Any], flops: int) -> None:
    assert graph_counts(meaning(rules, name, shapes, **attrs)[1]).flops == flops


def test_bytes_count_only_what_is_read(rules: Rules) -> None:
    outputs = meaning(rules, "conv", {"X": (1, 2, 8, 8), "K": (4, 2, 1, 1)}, stride=(2, 2))[1]
    found = graph_counts(outputs)
    assert (found.read, found.written) == (2 * 4 * 4 + 4 * 2, 4 * 4 * 4)
    assert found.bytes == 4 * (found.read + found.written)


def test_a_reduction_whose_length_depends_on_the_position() -> None:
    i, r = iterator("i0"), iterator("r0")
    body = reduce("sum", (r,), (apply("+", i, num(1)),), read(0, (r,)))
    scope = Scope((4,), body, DType.F32)
    operand = TensorType(DType.F32, (4,))
    assert scope_counts(scope, [operand]).read == 4
    assert splits(scope, [(4,)]).points == ((1, 2, 3),)


def test_everything_of_every_operator_is_described(rules: Rules) -> None:
    """`dslc show` works for each operator without shapes being given."""
    for op in rules.operators.values():
        facts = describe(rules, op, sample(rules, op))
        assert facts["results"] and facts["bytes"] >= 0, op.name


def test_an_operator_without_inputs(rules: Rules) -> None:
    scope = Scope((3,), apply("*", iterator("i0"), num(2)), DType.I64)
    value = scope_value(scope, ())
    assert graph_counts((value,)).written == 3
    assert linear_classes((), (value,)) == ()


def test_a_sum_divides_its_multiples_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    names = [dimension(name) for name in "ABC"]

    def drawn(terms: int) -> Scalar:
        parts = [rng.choice(names, int(rng.integers(1, 3))) for _ in range(terms)]
        return apply(
            "+", *(apply("*", num(int(rng.integers(1, 4))), *part) for part in parts), num(int(rng.integers(3)))
        )

    exact = 0
    for _ in range(60):
        divisor, quotient, rest = drawn(2), drawn(2), num(int(rng.integers(2)))
        whole = apply("+", apply("*", divisor, quotient), rest)
        shown = apply("//", whole, divisor), apply("%", whole, divisor)
        exact += shown == (quotient, num(0))
        for _ in range(5):
            at: dict[Scalar, int] = {name: int(rng.integers(1, 6)) for name in names}
            assert [value(each, at) for each in shown] == list(divmod(value(whole, at), value(divisor, at)))
    assert 20 < exact < 40


def test_what_the_text_of_an_operator_says_is_what_its_scopes_say(rules: Rules) -> None:
    """`pointwise(f)` is asked of the text, for every shape; at one shape more may be, such as a reshape to the shape that was."""
    here, everywhere = set(), set()
    for name, op in rules.operators.items():
        parameters, outputs = meaning(rules, name, {})
        here |= {name} if is_pointwise(parameters, outputs) else set()
        everywhere |= {name} if is_pointwise_at_every_shape(op, rules) else set()
    assert everywhere <= here
    assert {name.partition(".")[2] for name in here - everywhere} <= {"flatten", "expand", "reshape"}
    assert len(everywhere) > 30

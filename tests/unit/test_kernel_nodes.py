"""A kernel is a group of nodes that runs as one, and means its program over its arguments."""

from __future__ import annotations

import pytest

from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, Value, input_value, kernel_value, replace, unfolded
from dslc.semantics.apply import apply
from dslc.semantics.elaborate import expand
from dslc.semantics.library import standard

MATRIX = TensorType(DType.F32, (3, 4))


def chain(x: Value, y: Value) -> tuple[Value, Value]:
    (both,) = apply(standard(), "std.add", [x, y])
    (above,) = apply(standard(), "std.relu", [both])
    return both, above


def group() -> Graph:
    holes = tuple(input_value(f"h{k}", MATRIX) for k in range(2))
    return Graph(holes, chain(*holes))


def test_a_kernel_means_its_program_over_its_arguments() -> None:
    x, y = (input_value(name, MATRIX) for name in "xy")
    outputs = kernel_value(group(), (x, y))
    assert unfolded(outputs[0].node) == chain(x, y)
    assert expand(standard(), outputs) == expand(standard(), chain(x, y))


def test_equal_groups_over_equal_arguments_are_one_node() -> None:
    x, y = (input_value(name, MATRIX) for name in "xy")
    assert kernel_value(group(), (x, y)) == kernel_value(group(), (x, y))
    assert kernel_value(group(), (x, y))[0].node is not kernel_value(group(), (y, x))[0].node


def test_the_arguments_of_a_kernel_are_replaced_like_those_of_any_node() -> None:
    x, y, z = (input_value(name, MATRIX) for name in "xyz")
    assert replace(kernel_value(group(), (x, y)), {y: z}) == kernel_value(group(), (x, z))


def test_arguments_of_other_types_are_refused() -> None:
    with pytest.raises(ValueError, match="other types"):
        kernel_value(group(), (input_value("x", MATRIX),))

"""Operators of any number of operands or results: calls with more than two are short for calls with two."""

from __future__ import annotations

import pytest

from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Call, Value, input_value
from dslc.semantics.apply import apply, inverse_steps
from dslc.semantics.library import Rules
from dslc.semantics.nary import (
    in_pairs,
    nested_in,
    other_parts,
    part_by_part,
    parts_attribute,
    stands_for_pairs,
    takes_many,
)


def tensor(name: str, *shape: int) -> Value:
    return input_value(name, TensorType(DType.F32, shape))


def node(value: Value) -> Call:
    assert isinstance(value.node, Call)
    return value.node


def test_pairs_are_taken_from_the_left() -> None:
    assert in_pairs(["a", "b", "c", "d"], lambda a, b: f"({a}{b})") == "(((ab)c)d)"
    assert in_pairs(["a"], lambda a, b: f"({a}{b})") == "a"


def test_each_step_takes_a_part_from_the_rest() -> None:
    """[2, 3, 4] of nine: 2 and 7, then 3 and 4 of the seven."""
    steps = part_by_part((2, 3, 4), ("whole",), lambda whole, sizes: (f"{sizes[0]} of {whole[0]}", f"rest {sizes[1]}"))
    assert steps == [("2 of whole", "rest 7"), ("3 of rest 7", "rest 4")]


@pytest.mark.parametrize(
    ("name", "many"),
    [("add", True), ("concat", True), ("mul", True), ("sub", False), ("relu", False), ("split", False)],
)
def test_which_operators_take_many(std: Rules, name: str, many: bool) -> None:
    op = std.operators[f"std.{name}"]
    assert takes_many(std, op) is many
    assert [stands_for_pairs(std, op, count) for count in (1, 2, 3)] == [False, False, many]


def test_a_call_of_three_has_the_type_of_the_pairs(std: Rules) -> None:
    parts = [tensor(f"p{k}", 2, size) for k, size in enumerate((3, 4, 5))]
    (whole,) = apply(std, "std.concat", parts, {"axis": 1})
    pairs = in_pairs(parts, lambda a, b: apply(std, "std.concat", [a, b], {"axis": 1})[0])
    assert whole.type == pairs.type
    assert len(node(whole).args) == 3
    assert nested_in(node(pairs), node(pairs.node.args[0]))
    (other,) = apply(std, "std.concat", [tensor("a", 3, 4), tensor("b", 4, 4)], {"axis": 0})
    assert not nested_in(node(pairs), node(other))
    assert not nested_in(node(pairs), parts[0].node)


def test_an_inverse_lists_its_parts(std: Rules) -> None:
    op = std.operators["std.split"]
    x = tensor("x", 2, 9)
    attrs = {"axis": 1, "sizes": (2, 3, 4)}
    assert parts_attribute(op, attrs) == other_parts(std, op, attrs) == "sizes"
    assert other_parts(std, op, {"axis": 1, "sizes": (2, 7)}) is None
    assert other_parts(std, std.operators["std.relu"], {}) is None
    results = apply(std, op, [x], attrs)
    steps = inverse_steps(std, op, [x], attrs, "sizes")
    assert [value.type for value in results] == [steps[0][0].type, steps[1][0].type, steps[1][1].type]
    assert apply(std, op, [x], {"axis": 1, "sizes": (9,)}) == (x,)

"""Programs over holes, facts, and the one way to make a graph anew."""

from __future__ import annotations

import pytest

from dslc.ir.constants import fill
from dslc.ir.dtype import DType, TensorType
from dslc.ir.facts import Fact, fact_of
from dslc.ir.graph import (
    Call,
    Graph,
    Node,
    Value,
    call,
    input_value,
    kernel_value,
    opaque,
    rebuild,
    replace,
    topological,
    with_args,
)
from dslc.ir.holes import abstracted, hole, instantiated, is_hole, leaves_of, program
from dslc.ir.normal import normal

T = TensorType(DType.F32, (4, 4))
X, Y, Z = (input_value(name, T) for name in "XYZ")
W, V = (fill(number, T) for number in (2, 3))


def op(name: str, *args: Value, outputs: int = 1) -> Value:
    return call(name, args, (), (T,) * outputs)[0]


def block(data: Value, weight: Value) -> Value:
    return op("lib.relu", op("lib.add", op("lib.product", data, weight), data))


def test_equal_regions_up_to_weights_are_one_program() -> None:
    one, found = abstracted([block(X, W)], [W, X])
    other, again = abstracted([block(op("lib.relu", Y), V)], [op("lib.relu", Y), V])
    assert one is other
    assert found == (X, W)
    assert again == (op("lib.relu", Y), V)
    assert [value.constant for value in one.inputs] == [False, True]
    assert instantiated(one, again) == (block(op("lib.relu", Y), V),)


def test_a_hole_of_a_weight_is_constant_and_another_value() -> None:
    varying, weight = hole(0, T), hole(0, T, constant=True)
    assert varying != weight and not varying.constant and weight.constant
    assert op("lib.relu", weight).constant and not op("lib.add", weight, varying).constant
    assert is_hole(weight, 0) and is_hole(varying) and not is_hole(weight, 1) and not is_hole(input_value("h01", T))
    assert normal(op("lib.relu", varying)) != normal(op("lib.relu", weight))


def test_a_constant_that_is_no_leaf_stays_inside() -> None:
    graph, order = abstracted([op("lib.add", X, W)], [X])
    assert order == (X,) and graph.outputs == (op("lib.add", hole(0, T), W),)


def test_the_leaves_of_some_nodes_are_what_they_read_from_outside() -> None:
    import numpy as np

    from dslc.ir.constants import array_value

    weight = array_value(np.arange(16, dtype=np.float32).reshape(4, 4))
    inner = op("lib.product", op("lib.relu", X), weight)
    outer = op("lib.add", inner, W)
    leaves = leaves_of([outer.node, inner.node])
    assert leaves == (inner.node.args[0], weight) or leaves == (weight, inner.node.args[0])
    graph, order = abstracted([outer], leaves)
    assert order == (op("lib.relu", X), weight)
    assert graph.outputs == (op("lib.add", op("lib.product", hole(0, T), hole(1, T, constant=True)), W),)
    assert leaves_of([outer.node], inside=lambda value: False) == (inner, W)


def test_a_leaf_that_is_one_of_several_results_hides_what_is_below_it() -> None:
    first, second = call("lib.halves", (Y,), (), (T, T))
    graph, order = abstracted([op("lib.add", second, X)], [X, second])
    assert order == (second, X) and graph.outputs == (op("lib.add", hole(0, T), hole(1, T)),)
    with pytest.raises(ValueError, match="`Y` is reached"):
        abstracted([op("lib.add", second, first)], [second])


def test_a_program_says_what_its_holes_are() -> None:
    with pytest.raises(ValueError, match="input 0"):
        program([hole(1, T)], [hole(1, T)])
    with pytest.raises(ValueError, match="`X` is no hole"):
        program([hole(0, T)], [op("lib.add", hole(0, T), X)])
    with pytest.raises(ValueError, match="other types"):
        instantiated(program([hole(0, T)], [hole(0, T)]), [input_value("R", TensorType(DType.F32, (4,)))])


def test_a_hole_may_stand_for_another_hole() -> None:
    graph, _ = abstracted([op("lib.sub", X, Y)], [X, Y])
    assert instantiated(graph, (hole(1, T), hole(0, T))) == (op("lib.sub", hole(1, T), hole(0, T)),)


def test_a_fact_is_about_the_same_holes_and_types() -> None:
    fact, leaves = fact_of("lib.swap", [op("lib.add", X, Y)], [op("lib.add", Y, X)], [Y, X])
    assert leaves == (X, Y)
    assert fact.new.outputs == (op("lib.add", hole(1, T), hole(0, T)),)
    assert fact == Fact("lib.swap", fact.old, fact.new, proof=["any", "evidence"])
    assert (
        len(
            {
                fact,
                Fact("lib.swap", fact.old, fact.new, proof=["any", "evidence"]),
                Fact("lib.other", fact.old, fact.new),
            }
        )
        == 2
    )
    two = program([hole(0, T), hole(1, T)], [hole(0, T)])
    with pytest.raises(ValueError, match="different holes"):
        Fact("lib.wrong", two, program([hole(0, T)], [hole(0, T)]))
    with pytest.raises(ValueError, match="different types"):
        Fact("lib.wrong", two, program(two.inputs, [hole(0, T), hole(1, T)]))


def test_programs_are_forgotten_with_their_last_user() -> None:
    graph, _ = abstracted([op("lib.forgotten", X)], [X])
    node = id(graph)
    again, _ = abstracted([op("lib.forgotten", Y)], [Y])
    assert id(again) == node
    assert "lib.forgotten" in kept_operators()
    del graph, again
    assert "lib.forgotten" not in kept_operators()


def kept_operators() -> set[str]:
    kept = [one() for one in list(Node._pool.values())]
    assert None not in kept, "a node is gone, and what it was made of is still there"
    return {node.op for node in kept if isinstance(node, Call)}


# ---- making graphs anew ------------------------------------------------------------------------------------------------


def test_a_graph_is_made_anew_in_the_order_of_its_arguments() -> None:
    shared = op("lib.relu", X)
    root = op("lib.add", op("lib.product", shared, Y), shared)
    order: list[Node] = []

    def step(node: Node, args: tuple[Value, ...]) -> tuple[Value, ...]:
        order.append(node)
        return with_args(node, args)

    assert rebuild([root, shared], step) == (root, shared)
    assert order == topological([root.node])


def test_what_is_known_is_taken_and_not_looked_below() -> None:
    first, second = call("lib.halves", (op("lib.relu", X),), (), (T, T))
    root = op("lib.add", first, second)
    new, _ = call("lib.halves", (op("lib.relu", X),), (), (T, T))
    assert replace((root,), {first: Z}) == (op("lib.add", Z, second),)
    assert replace((root,), {first: Z, second: Z}) == (op("lib.add", Z, Z),)
    twice = op("lib.relu", first)
    assert replace((root, first), {first: twice}) == (op("lib.add", twice, second), twice)
    assert replace((root,), {X: Y}) == (op("lib.add", *call("lib.halves", (op("lib.relu", Y),), (), (T, T))),)
    assert new == first

    def step(node: Node, args: tuple[Value, ...]) -> tuple[Value, ...]:
        assert node is root.node
        return with_args(node, args)

    assert rebuild([root], step, {first: X, second: Y}) == (op("lib.add", X, Y),)


def test_results_need_not_be_values() -> None:
    """How deep a graph is, for instance."""
    root = op("lib.add", op("lib.relu", op("lib.relu", X)), Y)
    depth = rebuild([root], lambda node, args: (1 + max(args, default=0),) * len(node.types))
    assert depth == (4,)


def test_a_deep_graph_needs_no_deep_stack() -> None:
    value = X
    for _ in range(5_000):
        value = op("lib.relu", value)
    (new,) = replace((value,), {X: Y})
    assert len(topological([new.node])) == 5_001
    assert replace((value,), {Z: Y}) == (value,)


def test_kernels_are_made_anew_and_have_a_normal_form() -> None:
    group, leaves = abstracted([block(X, W)], [X, W])
    (value,) = kernel_value(group, leaves)
    assert replace((value,), {X: Y}) == kernel_value(group, (Y, W))
    other, _ = abstracted([op("lib.add", X, W)], [X, W])
    assert normal(value) == value != normal(kernel_value(other, leaves)[0])
    kept = opaque("k", "odd", None, (value,), (T,))
    assert replace(kept, {X: Y}) == opaque("k", "odd", None, kernel_value(group, (Y, W)), (T,))
    assert Graph((X,), (value,)) == Graph((X,), (value,))

"""Nested concatenations and splits become one, by the traits of their operators."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dslc.interpret import Floats, run
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Call, Graph, Value, input_value
from dslc.search.rewrites.associative_flattening import flattened
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules, load


@pytest.fixture(scope="module")
def std() -> Rules:
    return load("std")


def matrix(name: str, *shape: int) -> Value:
    return input_value(name, TensorType(DType.F32, shape))


def operators(graph: Graph) -> list[str]:
    return [node.op.rpartition(".")[2] for node in graph.nodes() if isinstance(node, Call)]


def concat(rules: Rules, *parts: Value) -> Value:
    return apply(rules, "std.concat", list(parts), {"axis": 1})[0]


def split(rules: Rules, x: Value, *sizes: int) -> tuple[Value, ...]:
    return apply(rules, "std.split", [x], {"axis": 1, "sizes": sizes})


def test_a_concatenation_in_a_concatenation(std: Rules) -> None:
    a, b, c = (matrix(name, 2, k + 1) for k, name in enumerate("abc"))
    graph = flattened(std, Graph((a, b, c), (concat(std, a, concat(std, b, c)),)))
    assert operators(graph) == ["concat"]
    assert graph.outputs[0].node.args == (a, b, c)


def test_parts_of_a_part(std: Rules) -> None:
    x = matrix("x", 2, 9)
    first, rest = split(std, x, 2, 7)
    graph = flattened(std, Graph((x,), (first, *split(std, rest, 3, 4))))
    assert operators(graph) == ["split"]
    assert [value.type.shape[1] for value in graph.outputs] == [2, 3, 4]


def test_neighbouring_parts_stay_together(std: Rules) -> None:
    x = matrix("x", 2, 9)
    a, b, c = split(std, x, 2, 3, 4)
    graph = flattened(std, Graph((x,), (concat(std, a, b), c)))
    assert operators(graph) == ["split"]
    assert [value.type.shape[1] for value in graph.outputs] == [5, 4]


def test_all_parts_are_the_whole(std: Rules) -> None:
    x = matrix("x", 2, 9)
    graph = flattened(std, Graph((x,), (concat(std, *split(std, x, 2, 3, 4)),)))
    assert graph.outputs == (x,)


def test_what_others_use_stays(std: Rules) -> None:
    x = matrix("x", 2, 9)
    a, b, c = split(std, x, 2, 3, 4)
    graph = Graph((x,), (concat(std, a, b), b, c))
    assert flattened(std, graph) is graph


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_nothing_that_a_graph_computes_changes(std: Rules, data: st.DataObject) -> None:
    x, y = matrix("x", 2, 6), matrix("y", 2, 5)
    known = [x, y]
    for _ in range(data.draw(st.integers(1, 6))):
        value = data.draw(st.sampled_from(known))
        width = value.type.shape[1]
        if isinstance(width, int) and width > 1 and data.draw(st.booleans()):
            cut = data.draw(st.integers(1, width - 1))
            known += split(std, value, cut, width - cut)
        else:
            known.append(concat(std, value, data.draw(st.sampled_from(known))))
    graph = Graph((x, y), tuple(known[-2:]))
    flat = flattened(std, graph)
    feeds = {x: np.arange(12, dtype=np.float32).reshape(2, 6), y: np.arange(10, dtype=np.float32).reshape(2, 5)}
    before, after = (run(std, one.outputs, feeds, Floats()) for one in (graph, flat))
    assert all(np.array_equal(p, q) for p, q in zip(before, after, strict=True))
    assert len(flat.nodes()) <= len(graph.nodes())

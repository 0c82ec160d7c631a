"""Random graphs: whatever rule of the standard library applies, types and values stay what they were."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dslc.interpret import Field, Redraw, run
from dslc.ir.constants import array_value
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, Input, Value, input_value, topological
from dslc.match import CompiledRule, GraphIndex, compile_all, find_matches
from dslc.match.apply import replaced
from dslc.match.recipe import Refused
from dslc.semantics.apply import apply
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules, standard


@functools.cache
def compiled() -> tuple[CompiledRule, ...]:
    return compile_all(standard())


Step = Callable[[Rules, Value, Value, int], tuple[Value, ...]]


def unary(op: str) -> Step:
    return lambda rules, a, b, n: apply(rules, op, [a])


def binary(op: str) -> Step:
    return lambda rules, a, b, n: apply(rules, op, [a, b])


def weight(n: int, *shape: int) -> Value:
    return array_value(np.random.default_rng(n).integers(-3, 4, shape).astype(np.float32))


def rotated(rank: int, n: int) -> tuple[int, ...]:
    return tuple((k + n) % rank for k in range(rank))


def halves(rules: Rules, a: Value, b: Value, n: int) -> tuple[Value, ...]:
    axis = n % max(1, a.type.rank)
    size = int(str(a.type.shape[axis]))
    return apply(rules, "std.split", [a], {"axis": axis, "sizes": (size // 2, size - size // 2)})


# polynomials, maxima and operators that only move elements: over the field these are exact
STEPS: tuple[Step, ...] = (
    unary("std.neg"),
    unary("std.relu"),
    binary("std.add"),
    binary("std.sub"),
    binary("std.mul"),
    binary("std.maximum"),
    lambda rules, a, b, n: apply(rules, "std.add", [a, n % 2]),
    lambda rules, a, b, n: apply(rules, "std.mul", [a, n % 3]),
    lambda rules, a, b, n: apply(rules, "std.transpose", [a], {"perm": rotated(a.type.rank, n)}),
    lambda rules, a, b, n: apply(rules, "std.reshape", [a], {"shape": tuple(reversed(a.type.shape))}),
    lambda rules, a, b, n: apply(rules, "std.reshape", [a], {"shape": (*a.type.shape, 1)}),
    lambda rules, a, b, n: apply(rules, "std.concat", [a, b], {"axis": n % max(1, a.type.rank)}),
    lambda rules, a, b, n: apply(rules, "std.concat", [a, b, a], {"axis": n % max(1, a.type.rank)}),
    halves,
    lambda rules, a, b, n: apply(rules, "std.matmul", [a, b]),
    lambda rules, a, b, n: apply(rules, "std.matmul", [a, weight(n, int(str(a.type.shape[-1])), 2 + n % 2)]),
    lambda rules, a, b, n: apply(
        rules, "std.slice", [a], {"start": (0,) * a.type.rank, "size": tuple(int(str(s)) - n % 2 for s in a.type.shape)}
    ),
    lambda rules, a, b, n: apply(
        rules, "std.pad", [a], {"before": (n % 2,) * a.type.rank, "after": (n // 2 % 2,) * a.type.rank}
    ),
    lambda rules, a, b, n: apply(rules, "std.conv", [a, weight(n, 2, int(str(a.type.shape[1])), 1, 1)]),
    lambda rules, a, b, n: apply(
        rules, "std.conv", [a, weight(n, 2, int(str(a.type.shape[1])), 3, 3)], {"pads": (1, 1, 1, 1)}
    ),
)

BASES = ((2, 4), (4, 2), (1, 2, 4, 4))


def build(rules: Rules, base: int, steps: list[tuple[int, int, int, int]], choice: tuple[Step, ...] = STEPS) -> Graph:
    """A graph of the steps that fit; its outputs are the values that nothing uses."""
    shape = BASES[base]
    values = [input_value(name, TensorType(DType.F32, shape)) for name in "xz"]
    for which, a, b, n in steps:
        try:
            made = choice[which](rules, values[-1 - a % len(values)], values[-1 - b % len(values)], n)
        except (Mismatch, IndexError):
            continue
        if all(v.type.is_static and 0 < v.type.elements <= 4096 for v in made):
            values.extend(v for v in made if v not in values)
    used = {arg for node in topological(v.node for v in values) for arg in node.args}
    outputs = tuple(v for v in values if v not in used)
    return Graph(tuple(v for v in values if isinstance(v.node, Input)), outputs)


@settings(max_examples=40)
@given(
    base=st.integers(0, len(BASES) - 1),
    steps=st.lists(
        st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 3), st.integers(0, 3), st.integers(0, 5)),
        min_size=4,
        max_size=14,
    ),
    seed=st.integers(0, 1000),
)
def test_rules_keep_types_and_values(base: int, steps: list[tuple[int, int, int, int]], seed: int) -> None:
    rules = standard()
    graph = build(rules, base, steps)
    index = GraphIndex(graph)
    rng = np.random.default_rng(seed)
    domain = Field(seed)
    feeds = {v: domain.draw(tuple(int(str(s)) for s in v.type.shape), rng) for v in graph.inputs}
    expected = run(rules, graph.outputs, feeds, domain)
    for rule in compiled():
        for match in find_matches(rule, index, limit=2):
            try:
                new = replaced(match, graph)
            except Refused:
                continue
            assert [v.type for v in new.outputs] == [v.type for v in graph.outputs], match
            try:
                found = run(rules, new.outputs, feeds, domain)
            except Redraw:
                continue
            assert all((a == b).all() for a, b in zip(expected, found, strict=True)), f"{match} changes values"

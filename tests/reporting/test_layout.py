"""Layered drawings: edges go down, boxes are apart, circles end somewhere."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from dslc.reporting.graphs import drawing
from dslc.reporting.layout import acyclic, layered


@pytest.mark.parametrize("count", [1, 2, 9, 60, 200])
@pytest.mark.parametrize("seed", [0, 1])
def test_boxes_are_apart_and_edges_go_down(count: int, seed: int) -> None:
    random.seed(seed)
    sizes = [(random.choice([60.0, 200.0]), random.choice([20.0, 90.0])) for _ in range(count)]
    edges = [(random.randrange(k), k) for k in range(1, count) for _ in range(random.choice([1, 1, 2]))]
    found = layered(sizes, edges)
    assert len(found.corners) == count and set(found.routes) == set(edges)
    for one, other in combinations(range(count), 2):
        (x0, y0), (x1, y1) = found.corners[one], found.corners[other]
        across = x0 + sizes[one][0] <= x1 + 1e-6 or x1 + sizes[other][0] <= x0 + 1e-6
        assert across or y0 + sizes[one][1] <= y1 or y1 + sizes[other][1] <= y0
    for (one, other), route in found.routes.items():
        assert found.corners[one][1] + sizes[one][1] < found.corners[other][1]
        assert [y for _, y in route] == sorted(y for _, y in route)
    assert all(
        x >= -1e-6 and x + size[0] <= found.width + 1e-6 for (x, _), size in zip(found.corners, sizes, strict=True)
    )


def test_circles_are_cut() -> None:
    edges = [(0, 1), (1, 2), (2, 0), (1, 1), (0, 1)]
    assert acyclic(3, edges) == [(0, 1), (1, 2)]
    assert len(layered([(10.0, 10.0)] * 3, edges).routes) == 2
    assert layered([], []).corners == ()


def test_a_long_chain_is_shortened_and_keeps_what_changed() -> None:
    def node(k: int) -> dict[str, object]:
        return {"name": f"n{k}", "operator": "Relu", "inputs": [f"v{k - 1}"], "outputs": [f"v{k}"], "rules": ["r"] if k == 20 else [],
                "milliseconds": None, "attributes": {}, "changed": k == 20}  # fmt: skip

    found = drawing(
        {"nodes": [node(k) for k in range(40)], "inputs": ["v-1"], "outputs": ["v39"], "times": []}, {"r": "red"}
    )
    assert found is not None and len(found.frames) == 1 and len(found.ends) == 2
    assert len(found.rows) == 11
    assert sorted(k for row in found.rows for k in row.nodes) == list(range(40))
    assert [row.nodes for row in found.rows if row.changed] == [(20,)]


def test_names_that_are_given_twice_or_to_nothing_are_drawn() -> None:
    node = {"name": "", "operator": "", "inputs": ["a", "a", "b"], "outputs": ["a"], "rules": [], "milliseconds": None,
            "attributes": {}, "changed": False}  # fmt: skip
    found = drawing({"nodes": [node, node], "inputs": ["b"], "outputs": ["zz"], "times": []}, {})
    assert found is not None and len(found.rows) == 2

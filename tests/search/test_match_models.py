"""Matching on the networks that the `onnx` package ships."""

from __future__ import annotations

import functools
import time
from pathlib import Path

import onnx.backend.test
import pytest

from dslc.ir.graph import Graph
from dslc.match import GraphIndex, compile_all, find_matches, replaced
from dslc.onnx.importer import import_model
from dslc.semantics.library import standard

MODELS = Path(onnx.backend.test.__file__).parent / "data" / "light"


@functools.cache
def network(name: str) -> Graph:
    return import_model(MODELS / f"light_{name}.onnx", standard()).graph


def test_all_rules_on_a_large_network_at_once() -> None:
    rules = compile_all(standard())
    index = GraphIndex(network("densenet121"))
    started = time.process_time()
    total = sum(1 for rule in rules for _ in find_matches(rule, index))
    assert total > 300
    assert time.process_time() - started < 5, "0.4 s on an idle machine"


@pytest.mark.parametrize(
    ("name", "rule", "expected"),
    [
        ("resnet50", "std.fold_batch_norm", 53),
        ("resnet50", "std.merge_convs", 1),
        ("densenet121", "std.fold_batch_norm", 59),
        ("inception_v1", "std.merge_convs", 23),
        ("inception_v1", "std.merge_three_convs", 7),
        ("squeezenet", "std.merge_convs_enlarged", 8),
        ("vgg19", "std.merge_convs", 0),
    ],
)
def test_where_rules_apply(name: str, rule: str, expected: int) -> None:
    """ResNet's first block has two 1x1 convolutions of one input, Inception nine modules with three, SqueezeNet's fire modules a 1x1
    beside a 3x3."""
    found = next(r for r in compile_all(standard()) if r.name == rule)
    assert sum(1 for _ in find_matches(found, GraphIndex(network(name)))) == expected


def test_a_rule_applied_until_it_finds_nothing_more() -> None:
    """All 53 batch norms of ResNet-50 go into the convolutions before them."""
    graph = network("resnet50")
    rule = next(r for r in compile_all(standard()) if r.name == "std.fold_batch_norm")
    steps = 0
    while (match := next(find_matches(rule, GraphIndex(graph), limit=1), None)) is not None:
        graph = replaced(match, graph)
        steps += 1
    assert steps == 53
    assert [v.type for v in graph.outputs] == [v.type for v in network("resnet50").outputs]

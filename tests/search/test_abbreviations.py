"""Rules over operators that only abbreviate: patterns see through them, replacements are spelled out."""

from __future__ import annotations

from pathlib import Path

import pytest

import dslc
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Call, Graph, Value, input_value
from dslc.match import GraphIndex, apply_match, compile_directions, find_matches
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules, load_many

TEXT = """dslc 1
import std.conv (conv)
import std.pointwise (add)
import std.activation (relu)
import std.join (concat, split)
import std.linalg (matmul)

operator layer(X: T[N, (G, C), H, W], K: T[(G, F), C, R, S]) -> Y {
  \"\"\"A convolution with its padding mode and its activation.\"\"\"
  attr stride: int[2] = 1
  attr padding: string = "same"
  attr activation: string = "none"
  where padding in ["same", "valid"], activation in ["none", "relu"], padding == "valid" or all([R, S] % 2 == 1)
  let half = [(R - 1) // 2, (S - 1) // 2]
  let Z = conv(X, K, stride=stride, groups=G, pads=[*half, *half] if padding == "same" else 0)
  Y = relu(Z) if activation == "relu" else Z
}
operator plus(A: T[*S], B: T[*S]) -> Y {
  \"\"\"A sum of equal shapes.\"\"\"
  Y = add(A, B)
}
operator parts(X: T[*L, P + Q, *R]) -> Y: T[*L, P, *R], Z: T[*L, Q, *R] {
  \"\"\"The opposite of joining.\"\"\"
  attr axis: axis
  attr sizes: int[2]
  where rank(L) == axis, sizes == [P, Q]
  Y, Z = split(X, axis=axis, sizes=sizes)
}
substitution merge(X: T[N, C, H, W], K: T[F, C, R, S], L: T[E, C, R, S]) -> Y, Z {
  Y = layer(X, K, stride=s, padding=p, activation=c)
  Z = layer(X, L, stride=s, padding=p, activation=c)
  =>
  Y, Z = parts(layer(X, concat(K, L, axis=0), stride=s, padding=p, activation=c), axis=1, sizes=[F, E])
}
substitution swap(A: T[*S], B: T[*S], C: T[*S]) -> Y {
  Y = plus(plus(A, B), C)
  =>
  Y = plus(A, plus(B, C))
}
substitution unsplit(X: T[M, N]) -> Y {
  A, B = parts(X, axis=1, sizes=[p, q])
  Y = concat(A, B, axis=1)
  =>
  Y = X
}
"""


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Rules:
    path: Path = tmp_path_factory.mktemp("rules") / "short.rules"
    path.write_text(TEXT)
    return load_many(["std", str(path)])


def tensor(name: str, *shape: int) -> Value:
    return input_value(name, TensorType(DType.F32, shape))


def results(rules: Rules, name: str, *outputs: Value) -> list[Graph]:
    found = []
    graph = Graph((), outputs)
    index = GraphIndex(graph)
    for rule in compile_directions(rules, rules.substitutions[f"short.{name}"]):
        for match in find_matches(rule, index):
            new = apply_match(match, graph)
            if new is not None:
                found.append(new)
    return found


def operators(graph: Graph) -> list[str]:
    return sorted(node.op for node in graph.nodes() if isinstance(node, Call))


@pytest.mark.parametrize("activated", [False, True])
@pytest.mark.parametrize(("pads", "padded"), [((1, 1, 1, 1), True), ((0, 0, 0, 0), True), ((1, 0, 1, 0), False)])
def test_modes_of_an_operator_are_recognized_in_a_plain_graph(
    rules: Rules, activated: bool, pads: tuple[int, ...], padded: bool
) -> None:
    x, k, m = tensor("x", 1, 4, 8, 8), tensor("k", 5, 4, 3, 3), tensor("m", 6, 4, 3, 3)
    ends = [apply(rules, "std.conv", (x, w), {"pads": pads, "stride": (2, 1)})[0] for w in (k, m)]
    if activated:
        ends = [apply(rules, "std.relu", (end,))[0] for end in ends]
    found = results(rules, "merge", *ends)
    assert bool(found) == padded
    for graph in found:
        kinds = operators(graph)
        assert {"std.concat", "std.conv", "std.split"} <= set(kinds)
        assert not any(kind.startswith("short.") for kind in kinds)
        assert [value.type for value in graph.outputs] == [end.type for end in ends]
    if padded:
        assert min(kinds.count("std.relu") for kinds in map(operators, found)) == (1 if activated else 0)


def test_the_types_of_an_abbreviation_are_its_own(rules: Rules) -> None:
    a, b, row = tensor("a", 3, 4), tensor("b", 3, 4), tensor("row", 4)

    def total(*parts: Value) -> Value:
        out = parts[0]
        for part in parts[1:]:
            (out,) = apply(rules, "std.add", (out, part))
        return out

    assert results(rules, "swap", total(total(a, b), tensor("c", 3, 4)))
    assert not results(rules, "swap", total(total(a, b), row))


def test_several_results_of_an_abbreviation(rules: Rules) -> None:
    x = tensor("x", 3, 9)
    first, second = apply(rules, "std.split", (x,), {"axis": 1, "sizes": (4, 5)})
    joined, turned = (apply(rules, "std.concat", pair, {"axis": 1})[0] for pair in ((first, second), (second, first)))
    assert [graph.outputs for graph in results(rules, "unsplit", joined)] == [(x,)]
    assert not results(rules, "unsplit", turned)


def test_a_mode_that_nothing_fixes_is_tried_with_every_value(rules: Rules) -> None:
    compiled = compile_directions(rules, rules.substitutions["short.merge"])
    assert len(compiled) == 4
    assert {rule.name for rule in compiled} == {"short.merge"}


def test_abbreviations_pass_the_tests_of_their_file(tmp_path: Path) -> None:
    (tmp_path / "short.rules").write_text(TEXT)
    assert dslc.load(tmp_path / "short.rules").operators["short.layer"].short == "layer"

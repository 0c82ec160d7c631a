"""Symbolic instances of rules: what is assumed, what is solved, what the scope says."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslc.ir.graph import Constant, Input, ScopeNode, topological
from dslc.ir.scalar import Num, Sym
from dslc.prove.instances.choice import LEVELS
from dslc.prove.instances.exploration import instance_set
from dslc.prove.instances.instances import InstanceSet, Uncovered
from dslc.prove.laws import law_substitutions
from dslc.semantics.library import Rules, load


def of(rules: Rules, name: str) -> InstanceSet:
    return instance_set(rules, rules.substitutions[f"std.{name}"])


def write(tmp_path: Path, text: str) -> Rules:
    file = tmp_path / "own.rules"
    file.write_text(f"dslc 1\n{text}", encoding="utf-8")
    return load(file)


def test_an_instance_is_expanded_and_has_unknown_sizes(std: Rules) -> None:
    found = of(std, "merge_matmuls")
    (instance,) = found.instances
    assert found.scope == ""
    assert instance.outputs == ("Y", "Z")
    assert {name.name for name in instance.sizes} == {"M", "K", "N", "Q"}
    nodes = topological(value.node for value in (*instance.left, *instance.right))
    assert all(isinstance(node, Input | Constant | ScopeNode) for node in nodes)
    assert [a.type for a in instance.left] == [b.type for b in instance.right]


def test_an_entry_of_a_pack_is_no_other_name(tmp_path: Path) -> None:
    """`S0` in a type is a size by itself, not the first one of `*S`: a rule that needs them to be equal is not proved."""
    rules = write(
        tmp_path,
        "import std.pointwise (add, mul)\nimport std.reduce (reduce_sum)\n"
        'operator sized(X: T[*S], Z: T[N]) -> Y: T[*S] {\n  """Times a size."""\n  Y[*i] = X[*i] * N\n}\n'
        'operator whole(X: T[*S]) -> Y: T[*S] {\n  """Times the number of elements."""\n  Y[*i] = X[*i] * prod(S)\n}\n'
        "substitution own(X: T[*S], Z: T[S0]) -> Y {\n  Y = sized(X, Z)\n  where rank(S) == 1\n  =>\n  Y = whole(X)\n}\n",
    )
    found = instance_set(rules, rules.substitutions["own.own"]).instances
    sizes = [{str(size) for value in instance.inputs for size in value.type.shape} for instance in found]
    assert sizes and all(len(each) == 2 for each in sizes)


def test_groups_become_factors_of_the_channels(std: Rules) -> None:
    """(G, C) against an unknown size: the size is a product."""
    texts = [instance.text for instance in of(std, "conv_of_sum").instances]
    assert any("C = P * a.groups" in text for text in texts)


def test_strides_are_numbers_and_the_scope_says_so(std: Rules) -> None:
    found = of(std, "merge_convs")
    assert "(a.dilation, a.stride) in (1, 1), (1, 2), (2, 3), (3, 1), turning along the axes" in found.scope
    assert "ranks of D, R up to 2" in found.scope
    assert all("pads = [a.pads0" in instance.text or "D = []" in instance.text for instance in found.instances)


def test_the_symbolic_level_keeps_strides_unknown(std: Rules) -> None:
    sub = std.substitutions["std.conv_of_sum"]
    assert "in 4 combinations" not in instance_set(std, sub, "symbolic").scope
    assert [instance_set(std, sub, level).unknown_steps for level in LEVELS[:2]] == [True, False]


def test_products_of_sizes_are_solved(std: Rules) -> None:
    """The guards of a depth_to_space in pieces say that M is C * b * b."""
    (instance,) = of(std, "depth_to_space_recognized").instances
    assert not instance.undischarged
    (channels,) = [size for size in instance.inputs[0].type.shape if not isinstance(size, Sym | int)]
    assert str(channels) == "C * b * b"


def test_a_number_is_solved_for(std: Rules) -> None:
    """c * prod == 1 gives c = 1 / prod, which no integer would."""
    assert any("c = 1 / S0" in instance.text for instance in of(std, "mean_recognized").instances)


def test_a_term_is_an_unknown_function(std: Rules) -> None:
    found = of(std, "transpose_through_binary")
    body = next(
        n for n in topological([found.instances[-1].left[0].node]) if isinstance(n, ScopeNode) and len(n.args) == 2
    )
    assert "unknown:f" in str(body.scope.body)


def test_sizes_that_broadcast_are_cases(tmp_path: Path) -> None:
    """Equal, or one of them is 1: without the lemma for batches, here because an axis is named."""
    rules = write(
        tmp_path,
        "import std.pointwise (add, mul)\nimport std.reduce (reduce_sum)\n"
        "substitution own(X: T[M, N], Z: T[K, N]) -> Y {\n  Y = reduce_sum(add(X, Z), axes=[1])\n  =>\n"
        "  Y = reduce_sum(add(Z, X), axes=[1])\n}\n",
    )
    shapes = {
        tuple(str(v.type) for v in i.inputs) for i in instance_set(rules, rules.substitutions["own.own"]).instances
    }
    assert ("f32[M, N]", "f32[1, N]") in shapes
    assert ("f32[1, N]", "f32[K, N]") in shapes
    assert len(shapes) == 3


def test_what_the_right_side_asks_is_an_obligation(tmp_path: Path) -> None:
    rules = write(
        tmp_path,
        "import std.join (slice)\n"
        "substitution safe(X: T[N]) -> Y {\n  Y = slice(X, start=[u], size=[n])\n  where n >= 1, u >= 0\n  =>\n"
        "  Y = slice(slice(X, start=[0], size=[u + n]), start=[u], size=[n])\n}\n"
        "substitution unsafe(X: T[N]) -> Y {\n  Y = slice(X, start=[u], size=[n])\n  =>\n"
        "  Y = slice(slice(X, start=[0], size=[N - 1]), start=[u], size=[n])\n}\n",
    )
    (safe,) = instance_set(rules, rules.substitutions["own.safe"]).instances
    (unsafe,) = instance_set(rules, rules.substitutions["own.unsafe"]).instances
    assert not safe.undischarged
    assert unsafe.undischarged


def test_shapes_that_differ_are_reported(tmp_path: Path) -> None:
    rules = write(
        tmp_path,
        "import std.layout (transpose)\n"
        "substitution own(X: T[M, N]) -> Y {\n  Y = transpose(X, perm=[1, 0])\n  =>\n  Y = X\n}\n",
    )
    (instance,) = instance_set(rules, rules.substitutions["own.own"]).instances
    assert {str(each) for each in instance.undischarged} == {"N == M", "M == N"}


def test_ranks_that_differ_are_reported(tmp_path: Path) -> None:
    rules = write(
        tmp_path,
        "import std.reduce (reduce_sum)\n"
        "substitution own(X: T[M, N]) -> Y {\n  Y = reduce_sum(X, axes=[1])\n  =>\n"
        "  Y = reduce_sum(X, axes=[1], keepdims=false)\n}\n",
    )
    (instance,) = instance_set(rules, rules.substitutions["own.own"]).instances
    assert any(isinstance(each, Num) and each.value is False for each in instance.undischarged)


def test_cases_that_never_occur_are_left_out(tmp_path: Path) -> None:
    rules = write(
        tmp_path,
        "import std.pointwise (add)\n"
        "substitution own(X: T[N], Z: T[K]) -> Y {\n  Y = add(X, Z)\n  where N >= 2, K >= 2\n  =>\n  Y = add(Z, X)\n}\n",
    )
    (instance,) = instance_set(rules, rules.substitutions["own.own"]).instances
    assert instance.inputs[0].type == instance.inputs[1].type


def test_laws_become_rules(std: Rules) -> None:
    law = std.laws["std.products"]
    found = law_substitutions(law)
    assert [sub.name for sub in found] == [f"std.products.{k}" for k in range(1, 5)]
    assert all(instance_set(std, sub).instances for sub in found)


def test_results_of_other_cases_are_used_only_where_the_same_is_assumed(std: Rules) -> None:
    sub = std.substitutions["std.add_of_convs"]
    again = load("std")
    alone = instance_set(again, again.substitutions[sub.name])
    instance_set(std, std.substitutions["std.merge_convs"])
    assert [each.text for each in instance_set(std, sub).instances] == [each.text for each in alone.instances]
    assert [each.conditions for each in instance_set(std, sub).instances] == [
        each.conditions for each in alone.instances
    ]
    assert [each.left for each in instance_set(std, sub).instances] == [each.left for each in alone.instances]


def test_a_pack_takes_the_rank_that_a_guard_gives(std: Rules) -> None:
    """What broadcasts to the product has its rank: shorter shapes are the same with leading axes of size 1."""
    found = of(std, "gemm_takes_bias")
    lists = {instance.text.partition("V = [")[2].partition("]")[0] for instance in found.instances}
    assert {text.count(",") for text in lists} == {1}
    assert found.scope == "ranks of S up to 1"


def test_a_cover_has_a_limit(std: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dslc.prove.instances.exploration._MOST_PATHS", {None: 20, 2: 20, 1: 20})
    with pytest.raises(Uncovered, match="too many cases"):
        instance_set(std, std.substitutions["std.scale_into_biased_conv"])


def test_a_term_that_may_be_any_operator_has_no_cover(tmp_path: Path) -> None:
    file = tmp_path / "own.rules"
    head = "dslc 1\nimport std.pointwise (neg, abs)\nimport std.layout (transpose)\nsubstitution own(X: T[M, N]) -> Y {\n  term f(X)\n"
    file.write_text(head + "  Y = f(X, **a)\n  =>\n  Y = f(X, **a)\n}\n", encoding="utf-8")
    rules = load(file)
    with pytest.raises(Uncovered, match="only `pointwise` ones are proved"):
        instance_set(rules, rules.substitutions["own.own"])


def test_equal_and_one_are_the_same_where_the_other_size_is_one(tmp_path: Path) -> None:
    rules = write(
        tmp_path,
        """import std (add, mul)
substitution own(X: T[N, 1, 1, M], A: T[*Q]) -> Y {
  Y = mul(add(X, 0), A)
  where broadcast(Q, [1, 1, 1, M]) == [1, 1, 1, M]
  =>
  Y = mul(X, A)
}
""",
    )
    instances = instance_set(rules, rules.substitutions["own.own"]).instances
    assert len(instances) == 2  # the last size of A is M, or it is 1

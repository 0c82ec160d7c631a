"""Groups that could run as one kernel: convex, whole, the same for equal blocks; and what is proposed for real blocks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dslc.fuse.groups import GroupLimits, NodeGroup, proposals
from dslc.fuse.kernels import Cyclic, fold_of, folded, kernels, unfold
from dslc.fuse.profile import Profiles, Reach
from dslc.interpret import Field, run
from dslc.ir.constants import array_value
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Call, Graph, Node, Value, input_value
from dslc.ir.scalar import dimension
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules
from tests.search.test_match_random import BASES, STEPS, build


def x(*shape: int | str, name: str = "x") -> Value:
    return input_value(name, TensorType(DType.F32, tuple(dimension(s) if isinstance(s, str) else s for s in shape)))


def w(*shape: int) -> Value:
    return array_value(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def chained(rules: Rules, value: Value, text: str) -> Value:
    """`chained(rules, x, "relu exp")` is exp(relu(x)); `add_x` adds x again."""
    start = value
    for name in text.split():
        args = [value, start] if name.endswith("_x") else [value]
        (value,) = apply(rules, f"std.{name.removesuffix('_x')}", args)
    return value


def names(group: NodeGroup) -> str:
    return " ".join(node.op.removeprefix("std.") for node in group.nodes if isinstance(node, Call))


def found(rules: Rules, *outputs: Value, limits: GroupLimits | None = None) -> list[str]:
    return [names(group) for group in proposals(graph(*outputs), rules, limits)]


def graph(*outputs: Value) -> Graph:
    inputs = {
        v
        for value in outputs
        for node in Graph((), (value,)).nodes()
        for v in node.values
        if not node.args and not v.constant
    }
    return Graph(tuple(sorted(inputs, key=lambda v: str(getattr(v.node, "name", "")))), outputs)


def below(node: Node) -> Iterator[Node]:
    stack, seen = [arg.node for arg in node.args], set[Node]()
    while stack:
        each = stack.pop()
        if each not in seen:
            seen.add(each)
            yield each
            stack.extend(arg.node for arg in each.args)


def is_convex(group: NodeGroup) -> bool:
    """By the definition: nothing outside lies both above and below the group."""
    own = set(group.nodes)
    under = {each for node in own for each in below(node)} - own
    return not any(own.intersection(below(each)) for each in under)


# ---- any graph ---------------------------------------------------------------------------------------------------

GRAPHS = {
    "base": st.integers(0, len(BASES) - 1),
    "steps": st.lists(
        st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 3), st.integers(0, 3), st.integers(0, 5)),
        min_size=4,
        max_size=20,
    ),
}


@settings(max_examples=60)
@given(**GRAPHS)
def test_every_proposal_is_connected_convex_and_means_its_nodes(
    std: Rules, base: int, steps: list[tuple[int, int, int, int]]
) -> None:
    whole = build(std, base, steps)
    for group in proposals(whole, std):
        assert is_convex(group)
        joined = {group.nodes[0]}
        for _ in group.nodes:
            joined |= {n for n in group.nodes if any(a.node in joined for a in n.args)}
            joined |= {arg.node for n in joined for arg in n.args if arg.node in group.nodes}
        assert joined == set(group.nodes)
        fold = fold_of(group)
        assert fold.proved
        assert set(fold.old) == set(group.outputs)
        assert unfold(folded(whole, [group])) == whole


@settings(max_examples=40)
@given(**GRAPHS, seed=st.integers(0, 1000))
def test_graphs_with_kernels_compute_the_same(
    std: Rules, base: int, steps: list[tuple[int, int, int, int]], seed: int
) -> None:
    whole = build(std, base, steps)
    chosen: list[NodeGroup] = []
    for group in proposals(whole, std):
        if not any(set(group.nodes) & set(other.nodes) for other in chosen):
            try:
                folded(whole, [*chosen, group])
            except Cyclic:
                continue
            chosen.append(group)
    with_kernels = folded(whole, chosen)
    assert sum(map(len, kernels(with_kernels).values())) == len(chosen)
    rng, domain = np.random.default_rng(seed), Field(seed)
    feeds = {v: domain.draw(tuple(int(str(s)) for s in v.type.shape), rng) for v in whole.inputs}
    before, after = run(std, whole.outputs, feeds, domain), run(std, with_kernels.outputs, feeds, domain)
    assert all((a == b).all() for a, b in zip(before, after, strict=True))


def test_groups_that_need_each_other_are_no_nodes(std: Rules) -> None:
    a, b, c, d = (chained(std, x(4, name=name), "exp") for name in "abcd")
    (left,) = apply(std, "std.add", [a, chained(std, b, "neg")])
    (right,) = apply(std, "std.add", [c, chained(std, a, "neg")])
    whole = graph(left, right, d)
    one = NodeGroup((a.node, left.node), (a, left))
    other = NodeGroup((b.node, right.node), (b, right))
    folded(whole, [one])
    minus_a, minus_b = right.node.args[1].node, left.node.args[1].node
    crossed = [NodeGroup((a.node, minus_b), (a, *minus_b.values)), NodeGroup((b.node, minus_a), (b, *minus_a.values))]
    with pytest.raises(Cyclic):
        folded(whole, crossed)
    assert other.outputs


# ---- what is proposed -------------------------------------------------------------------------------------------


def test_a_chain_is_one_group(std: Rules) -> None:
    assert "softplus tanh mul_x".replace("_x", "") in found(std, chained(std, x(8, 8), "softplus tanh mul_x"))


def test_a_product_stays_outside_and_what_surrounds_it_does_not(std: Rules) -> None:
    (product,) = apply(std, "std.matmul", [chained(std, x(256, 256), "exp neg"), w(256, 256)])
    all_found = found(std, chained(std, product, "tanh neg"))
    assert {"exp neg", "tanh neg"} <= set(all_found)
    assert not any("matmul" in each for each in all_found)


def test_a_small_product_may_be_a_part(std: Rules) -> None:
    (product,) = apply(std, "std.matmul", [x(1, 16), w(16, 16)])
    assert "matmul tanh neg" in found(std, chained(std, product, "tanh neg"))


def test_what_the_runtime_takes_along_with_a_product_may_stay_with_it(std: Rules) -> None:
    (conv,) = apply(std, "std.conv", [x(1, 64, 32, 32), w(64, 64, 3, 3)])
    all_found = found(std, chained(std, conv, "relu exp neg"))
    assert {"relu exp neg", "exp neg"} <= set(all_found)


def test_a_softmax_is_grouped_with_what_surrounds_it(std: Rules) -> None:
    (scaled,) = apply(std, "std.mul", [x(2, 8, 8), array_value(np.float32(0.125))])
    (masked,) = apply(std, "std.add", [scaled, x(1, 8, 8, name="mask")])
    (soft,) = apply(std, "std.softmax", [masked], {"axis": 2})
    assert "mul add softmax neg" in found(std, chained(std, soft, "neg"))


def test_a_reduction_is_also_proposed_without_what_follows(std: Rules) -> None:
    (mean,) = apply(std, "std.reduce_mean", [chained(std, x(64, 64), "exp")], {"axes": (1,), "keepdims": True})
    (centred,) = apply(std, "std.sub", [mean.node.args[0], mean])
    all_found = found(std, centred)
    assert {"exp reduce_mean sub", "reduce_mean sub", "exp"} <= set(all_found)


def test_movement_is_grouped_and_views_at_the_borders_are_not(std: Rules) -> None:
    (heads,) = apply(std, "std.reshape", [x(2, 8, 16)], {"shape": (2, 8, 4, 4)})
    (turned,) = apply(std, "std.transpose", [heads], {"perm": (0, 2, 1, 3)})
    (flat,) = apply(std, "std.reshape", [chained(std, turned, "neg")], {"shape": (8, 8, 4)})
    assert found(std, flat)[0] == "transpose neg"


def test_a_group_has_the_results_that_others_use(std: Rules) -> None:
    low = chained(std, x(8, 8), "exp")
    high = chained(std, low, "neg")
    (product,) = apply(std, "std.matmul", [low, w(8, 8)])
    (group,) = [g for g in proposals(graph(high, product), std, GroupLimits(products=0)) if names(g) == "exp neg"]
    assert group.outputs == (low, high)


def test_a_long_chain_is_several_groups(std: Rules) -> None:
    limits = GroupLimits(nodes=10)
    all_found = list(proposals(graph(chained(std, x(8), "exp neg " * 20)), std, limits))
    assert max(len(group.nodes) for group in all_found) == 10
    assert len({node for group in all_found for node in group.nodes}) == 40


def test_what_reads_elements_over_and_over_is_no_kernel(std: Rules) -> None:
    (sums,) = apply(std, "std.cumsum", [x(512, 512)], {"axis": 1})
    assert not any("cumsum" in each for each in found(std, chained(std, sums, "exp")))


def test_symbolic_sizes_are_grouped_as_well(std: Rules) -> None:
    assert "softplus tanh mul" in found(std, chained(std, x("N", 8), "softplus tanh mul_x"))


# ---- kernels ----------------------------------------------------------------------------------------------------


def test_equal_blocks_are_one_kernel(std: Rules) -> None:
    value, weights = x(64, 64), [w(64, 64) for _ in range(3)]
    for weight in weights:
        (value,) = apply(std, "std.matmul", [chained(std, value, "softplus tanh mul_x"), weight])
    whole = graph(value)
    groups = [g for g in proposals(whole, std, GroupLimits(products=0)) if names(g) == "softplus tanh mul"]
    assert len(groups) == 3
    assert list(map(len, kernels(folded(whole, groups)).values())) == [3]


def test_weights_are_arguments_and_numbers_are_not(std: Rules) -> None:
    (scaled,) = apply(std, "std.mul", [x(4, 4), w(4)])
    (shifted,) = apply(std, "std.add", [scaled, array_value(np.float32(2))])
    (group,) = [g for g in proposals(graph(shifted), std) if names(g) == "mul add"]
    assert [str(hole.type) for hole in fold_of(group).kernel.group.inputs] == ["f32[4, 4]", "f32[4]"]


# ---- profiles ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "attrs", "reach"),
    [
        ("exp", {}, Reach.OWN),
        ("softmax", {"axis": 1}, Reach.ROW),
        ("reduce_mean", {"axes": (0,), "keepdims": False}, Reach.ROW),
        ("transpose", {"perm": (1, 0)}, Reach.ANY),
        ("reverse", {"axis": 1}, Reach.ANY),
    ],
)
def test_how_far_an_operator_looks(std: Rules, op: str, attrs: dict[str, object], reach: Reach) -> None:
    (value,) = apply(std, f"std.{op}", [x(4, 8)], attrs)
    profile = Profiles(std).of(value.node)
    assert profile is not None
    assert profile.reach == (reach,)


def test_functions_weigh_more_than_additions(std: Rules) -> None:
    profiles = Profiles(std)
    weights = [profiles.of(chained(std, x(4, 8), op).node) for op in ("neg", "sqrt", "exp", "mish")]
    assert all(a is not None and b is not None and a.operations < b.operations for a, b in pairwise(weights))

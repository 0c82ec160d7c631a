"""EinNet's derivations, which are text, rewrite expressions: each at small sizes, and to the same values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from dslc.derivation.steps import Steps, directions, rewritten
from dslc.interpret.floats import Floats
from dslc.interpret.run import run_scopes
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Input, Scope, ScopeNode, Value, input_value, replace, scope_value, topological
from dslc.ir.scalar import apply, iterator, num, read, reduce
from dslc.semantics.apply import apply as call
from dslc.semantics.definitions import DerivationDef
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules, load_many
from dslc.semantics.ways import SearchWay, way_of
from tests.libraries import libraries

PLACES = [iterator(f"i{k}") for k in range(6)]
SUMMED = [iterator(f"r{k}") for k in range(4)]


@pytest.fixture(scope="module")
def rules() -> Rules:
    return libraries("std", "einnet")


def derivations(rules: Rules, *names: str) -> list[DerivationDef]:
    return [rules.derivations[f"einnet.{name}"] for name in names]


def tensor(name: str, *shape: int) -> Value:
    return input_value(name, TensorType(DType.F32, shape))


def expression(rules: Rules, op: str, args: list[Value], **attrs: object) -> Value:
    (value,) = expand(rules, call(rules, op, args, attrs))
    return value


def computed(values: list[Value]) -> list[np.ndarray]:
    feeds = {}
    for node in topological(value.node for value in values):
        if isinstance(node, Input):
            (value,) = node.values
            feeds[value] = np.random.default_rng(sum(map(ord, node.name))).standard_normal(value.type.shape)
    return [np.asarray(got) for got in run_scopes(values, feeds, Floats(rounded=False))]


def assert_equal(before: list[Value], after: list[Value]) -> None:
    for a, b in zip(computed(before), computed(after), strict=True):
        assert a.shape == b.shape
        assert np.allclose(a, b)


def steps(rules: Rules, value: Value, name: str) -> Iterator[Value]:
    """What one rule makes of one scope, forwards and backwards."""
    for _, rule, left, right in directions(derivations(rules, name)):
        for results in rewritten(rule, left, right, (value,)):
            yield results[value]


def convolution(rules: Rules) -> Value:
    made = expression(
        rules, "std.conv", [tensor("X", 1, 3, 5, 6), tensor("K", 4, 3, 3, 2)], pads=(1, 0, 1, 1), stride=(2, 1)
    )
    return Steps(derivations(rules, "summation_splitting")).start(made)


ONE = [
    "summation_splitting", "variable_substitution", "traversal_merging", "boundary_relaxing", "boundary_tightening",
    "summation_substitution", "summation_relaxing",
]  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_a_rule_keeps_what_an_expression_computes(rules: Rules, name: str) -> None:
    """On a convolution, on all that one other derivation makes of it, and on some of what two make."""
    every = [
        each for each in rules.derivations.values() if len(each.syntax.left) == 1 and each.syntax.left[0].name is None
    ]
    start = convolution(rules)
    some = Steps(every)
    near = [start, *(value for _, value in some.of(start))]
    near += [value for each in near[1:] for _, value in some.of(each)[::5]]
    near += [node.values[0] for value in near for node in topological([value.node]) if isinstance(node, ScopeNode)]
    count = 0
    for value in dict.fromkeys(near):
        for new in steps(rules, value, name):
            assert_equal([value], [new])
            count += 1
    assert count > 0


def joined_product(rules: Rules) -> Value:
    """A product of a matrix that is put together of two, of six rows and of three, in one expression."""
    joined = expression(rules, "std.concat", [tensor("A", 6, 4), tensor("B", 3, 4)], axis=0)
    start = Steps(list(rules.derivations.values())).start(expression(rules, "std.matmul", [joined, tensor("C", 4, 5)]))
    (whole,) = steps(rules, start, "product_merging")
    return whole


def test_expression_splitting_parts_what_was_put_together(rules: Rules) -> None:
    """`[i] sum[r] (A[i, r] if i < 6 else B[i - 6, r]) * C[r]` → a product of six rows of A, and one of three of B."""
    value = joined_product(rules)
    (new,) = steps(rules, value, "expression_splitting")
    assert_equal([value], [new])
    products = [node for node in topological([new.node]) if isinstance(node, ScopeNode) and node.scope.body.binds]
    assert sorted((node.values[0].type.shape, len(node.args)) for node in products) == [((3, 5), 2), ((6, 5), 2)]


def test_expression_splitting_leaves_what_has_no_pieces(rules: Rules) -> None:
    assert not list(steps(rules, convolution(rules), "expression_splitting"))


def test_every_rule_of_einnet_is_one_that_the_search_applies(rules: Rules) -> None:
    for rule in rules.derivations.values():
        assert isinstance(way_of(rule.syntax.left, rule.syntax.right), SearchWay), rule.name


def test_summation_splitting_materializes_part_of_a_sum(rules: Rules) -> None:
    """`sum[y, z] f` → `sum[y] {[x, y] sum[z] f}[x, y]`: both iterators outside once, and no sum over nothing."""
    a, b = tensor("A", 4, 3, 5), tensor("B", 3, 5)
    r, s = SUMMED[:2]
    body = reduce("sum", (r, s), (num(3), num(5)), apply("*", read(0, (PLACES[0], r, s)), read(1, (r, s))))
    value = scope_value(Scope((4,), body, DType.F32), (a, b))
    made = list(steps(rules, value, "summation_splitting"))
    assert sorted(new.node.args[0].type.shape for new in made) == [(4, 3), (4, 5)]


def test_terms_over_different_tensors_are_batched(rules: Rules) -> None:
    """Two products of matrices with one left operand become one of a stack of two."""
    x, a, b = tensor("X", 4, 5), tensor("A", 5, 3), tensor("B", 5, 3)
    p, q = (expression(rules, "std.matmul", [x, w]) for w in (a, b))
    rule = rules.derivations["einnet.expression_batching"].syntax
    found = list(rewritten(rule, rule.left, rule.right, (p, q)))
    assert found
    for results in found:
        assert_equal([p, q], [results[p], results[q]])
    stacked = {
        node.values[0].type.shape for r in found for node in topological([r[p].node]) if isinstance(node, ScopeNode)
    }
    assert (2, 4, 3) in stacked


def test_a_producer_is_inlined_and_materialized_again(rules: Rules) -> None:
    x, y = tensor("X", 4, 5), tensor("Y", 4, 5)
    p = expression(rules, "std.mul", [x, y])
    q = replace((expression(rules, "std.relu", [tensor("P", 4, 5)]),), {tensor("P", 4, 5): p})[0]
    rule = rules.derivations["einnet.expression_fusion"].syntax
    found = list(rewritten(rule, rule.left, rule.right, (p, q)))
    assert found
    for results in found:
        assert_equal([q], [results[q]])


def test_a_user_writes_a_rule_that_einnet_lacks(tmp_path, rules: Rules) -> None:  # type: ignore[no-untyped-def]
    """Exchanging the order of two summations by materializing the other one first: no generator, no map."""
    (tmp_path / "own.rules").write_text(
        "dslc 1\nlibrary own 0.1.0\n\nderivation halves_added {\n  index x: X, y: Y\n  term f(x, y)\n  set U, V\n"
        "  where Y <= U | V\n  expr [x] sum[y] f(x, y)\n  =>\n  expr [x] sum[y: Y] f(x, y)\n  search U in halves(Y)\n}\n"
    )
    own = load_many(["std", tmp_path / "own.rules"]).derivations["own.halves_added"].syntax
    start = convolution(rules)
    found = list(rewritten(own, own.left, own.right, (start,)))
    assert found
    assert_equal([start], [found[0][start]])


def test_a_rule_of_two_sums_finds_those_of_convolutions(tmp_path, rules: Rules) -> None:  # type: ignore[no-untyped-def]
    """A batch of one position and a group of one stand as 0 where sums are read: that is their only position."""
    (tmp_path / "own.rules").write_text(
        "dslc 1\nlibrary own 0.1.0\n\nderivation weights_added {\n  index x: X, y: Y\n  term f(x, y), g(x, y), h(x, y)\n"
        "  expr [x] {[x] sum[y] f(x, y) * g(x, y)}[x] + {[x] sum[y] f(x, y) * h(x, y)}[x]\n  =>\n"
        "  expr [x] sum[y] f(x, y) * (g(x, y) + h(x, y))\n}\n"
    )
    own = load_many(["std", tmp_path / "own.rules"])
    data, first, second = tensor("X", 1, 2, 4, 3), tensor("K", 3, 2, 2, 2), tensor("L", 3, 2, 2, 2)
    both = [call(rules, "std.conv", [data, each])[0] for each in (first, second)]
    start = Steps(list(own.derivations.values())).start(expression(rules, "std.add", both))
    made = [new for _, new in Steps(list(own.derivations.values())).of(start)]
    assert made
    for new in made:
        assert_equal([start], [new])


@pytest.mark.parametrize("size, fires", [(3, True), (2, False)])
def test_a_sum_of_a_stated_size_is_one_of_that_size(tmp_path, rules: Rules, size: int, fires: bool) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "own.rules").write_text(
        "dslc 1\nlibrary own 0.1.0\n\nderivation unrolled {\n  index x: X, r: R, y: Y\n  term f(x, r, y)\n"
        "  expr [x] sum[r: 3, y] f(x, r, y)\n  =>\n"
        "  expr [x] {[x] sum[y] f(x, 0, y)}[x] + {[x] sum[y] f(x, 1, y)}[x] + {[x] sum[y] f(x, 2, y)}[x]\n}\n"
    )
    own = load_many(["std", tmp_path / "own.rules"]).derivations["own.unrolled"].syntax
    start = Steps([]).start(expression(rules, "std.conv", [tensor("X", 1, 4, 7), tensor("K", 5, 4, size)]))
    made = list(rewritten(own, own.left, own.right, (start,)))
    assert bool(made) is fires
    for each in made:
        assert_equal([start], list(each.values()))


def test_numbers_around_a_tensor_are_its_padding(rules: Rules) -> None:
    """What an operator takes as a tensor of one number stands in the expression."""
    (padded,) = call(rules, "std.pad", [tensor("X", 1, 2, 5)], {"before": (0, 0, 1), "after": (0, 0, 2)})
    start = Steps(derivations(rules, "summation_splitting")).start(
        expression(rules, "std.conv", [padded, tensor("K", 3, 2, 3)])
    )
    assert all(isinstance(node, ScopeNode | Input) for node in topological([start.node]))
    assert_equal([expression(rules, "std.conv", [padded, tensor("K", 3, 2, 3)])], [start])

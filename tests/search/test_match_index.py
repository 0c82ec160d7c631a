"""The matcher's view of a graph is a protocol: values with several producers, parts joined by names, right sides over leaves."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from test_match import Case, graph, tensor, weight

from dslc.ir.constants import array_value, number_of
from dslc.ir.graph import Call, Node, Value, input_value
from dslc.ir.scalar import Number
from dslc.match import GraphIndex, Index, find_matches, replacements
from dslc.match.cases import cases_of
from dslc.match.index import IndexMemory
from dslc.match.substitutions import Near, PartSubstitution


class Classes:
    """A small e-graph: classes are values without a producer, and each has any number of calls over classes."""

    def __init__(self) -> None:
        self.made: dict[Value, list[Call]] = {}
        self.memory = IndexMemory()

    def leaf(self, name: str, *shape: int) -> Value:
        """A class that only an input of the model is in."""
        value = tensor(name, *shape)
        self.made[value] = []
        return value

    def union(self, name: str, *values: Value) -> Value:
        """A new class of the calls that produce some values, whose arguments are classes."""
        found = input_value(name, values[0].type)
        self.made[found] = [value.node for value in values if isinstance(value.node, Call)]
        return found

    @property
    def calls(self) -> Sequence[Call]:
        return [call for made in self.made.values() for call in made]

    @property
    def by_operator(self) -> Mapping[str, Sequence[Call]]:
        out: dict[str, list[Call]] = {}
        for call in self.calls:
            out.setdefault(call.op, []).append(call)
        return out

    @property
    def position(self) -> Mapping[Node, int]:
        nodes = [*(value.node for value in self.made), *self.calls]
        return {node: k for k, node in enumerate(nodes)}

    @property
    def rank(self) -> Mapping[Node, int]:
        return self.position

    def nodes(self, value: Value) -> Sequence[Node]:
        return self.made.get(value, ())

    def results(self, node: Call) -> tuple[Value, ...]:
        return tuple(value for value, made in self.made.items() if node in made)

    def users(self, value: Value) -> Sequence[Call]:
        return [call for call in self.calls if value in call.args]

    def number(self, value: Value) -> Number | None:
        return number_of(value)

    def below(self, values: Iterable[Value]) -> int:
        bits = 0
        seen: set[Value] = set()
        stack = list(values)
        while stack:
            value = stack.pop()
            if value not in seen:
                seen.add(value)
                for node in (value.node, *self.made.get(value, ())):
                    bits |= 1 << self.position[node]
                    stack.extend(node.args)
        return bits

    def needing(self, marks: Mapping[Value, int]) -> Mapping[Node, int]:
        out: dict[Node, int] = {}
        for value in self.made:
            out[value.node] = sum(bits for marked, bits in marks.items() if self.depends([marked], [value]))
        return out

    def depends(self, values: Iterable[Value], on: Iterable[Value]) -> bool:
        below = self.below(values)
        return any(below >> self.position[value.node] & 1 for value in on)


DISTRIBUTE = """
substitution distribute(A: f32[*P, M, K], B: f32[*P, M, K], C: f32[K, N]) -> Y {
  Y = matmul(add(A, B), C)
  =>
  Y = add(matmul(A, C), matmul(B, C))
}
"""


def test_a_value_with_two_producers_is_matched_by_each(tmp_path: Path) -> None:
    """{add(x, y), add(z, w), relu(x)} @ v: both sums are distributed over, and each result is a term over classes."""
    case = Case(tmp_path, DISTRIBUTE)
    classes: Index
    classes = found = Classes()
    x, y, z, w = (found.leaf(name, 2, 3) for name in "xyzw")
    v = found.leaf("v", 3, 4)
    inner = found.union("inner", case.call("add", x, y), case.call("relu", x), case.call("add", z, w))
    top = found.union("top", case.call("matmul", inner, v))
    matches = list(find_matches(case.rule("distribute"), classes))
    assert [value for match in matches for _, value in match.roots] == [top] * len(matches)
    operands = {frozenset((match.variables["A"], match.variables["B"])) for match in matches}
    assert operands == {frozenset((x, y)), frozenset((z, w))}
    for match in matches:
        a, b = match.variables["A"], match.variables["B"]
        assert replacements(match) == {top: case.call("add", case.call("matmul", a, v), case.call("matmul", b, v))}


def test_alternatives_below_each_other_are_all_tried(tmp_path: Path) -> None:
    """exp(exp(x)), where the inner class holds exp(x) and exp(y), and the outer one exp(inner) and abs(inner)."""
    case = Case(tmp_path, "substitution twice(X: f32[*S]) -> Y {\n  Y = exp(neg(X))\n  =>\n  Y = exp(sub(0, X))\n}\n")
    found = Classes()
    x, y = found.leaf("x", 2), found.leaf("y", 2)
    inner = found.union("inner", case.call("neg", x), case.call("abs", x), case.call("neg", y))
    found.union("outer", case.call("abs", inner), case.call("exp", inner))
    assert [match.variables["X"] for match in find_matches(case.rule("twice"), found)] == [x, y]


def test_operands_of_an_associative_call_are_taken_from_every_alternative(tmp_path: Path) -> None:
    """mul(mul(X, c), d) joins numbers, whichever product of the inner class holds one."""
    text = "substitution fold(X: f32[*S]) -> Y {\n  Y = mul(mul(X, c), d)\n  =>\n  Y = mul(X, c * d)\n}\n"
    case = Case(tmp_path, text)
    found = Classes()
    x, y = found.leaf("x", 2), found.leaf("y", 2)
    inner = found.union("inner", case.call("mul", x, y), case.call("mul", y, 3))
    found.union("outer", case.call("mul", inner, 5))
    assert {match.variables["X"] for match in find_matches(case.rule("fold"), found)} == {y}


PAIR = """
substitution pair(A: T[M, K], B: T[K, N], C: T[M, K], D: T[K, N]) -> Y, Z {
  Y = matmul(A, B)
  Z = matmul(C, D)
  =>
  Y = matmul(A, B)
  Z = matmul(C, D)
}
"""


def test_parts_that_share_no_tensor_are_joined_by_their_sizes(tmp_path: Path) -> None:
    """Of six products only those of equal sizes are pairs: 3 + 1, in the order in which each was found."""
    case = Case(tmp_path, PAIR)
    small = [case.call("matmul", tensor(f"x{k}", 2, 3), weight(3, 4, seed=k)) for k in range(3)]
    large = [case.call("matmul", tensor(f"z{k}", 5, 3), weight(3, 4, seed=k)) for k in range(2)]
    other = case.call("matmul", tensor("w", 5, 3), weight(3, 6))
    index = GraphIndex(graph(*small, *large, other))
    found = [{value for _, value in match.roots} for match in find_matches(case.rule("pair"), index)]
    assert len(found) == 4
    assert all(pair <= set(small) or pair <= set(large) for pair in found)


def test_a_right_side_is_built_once_for_all_matches_of_a_guard_key(tmp_path: Path) -> None:
    """Ten equal layers and two of other sizes are two keys; every result holds the layer's own tensors."""
    case = Case(tmp_path, DISTRIBUTE)
    layers = []
    for k in range(12):
        x, y = tensor(f"x{k}", 2 + k // 10, 3), tensor(f"y{k}", 2 + k // 10, 3)
        layers.append((x, y, weight(3, 4, seed=k), case.call("matmul", case.call("add", x, y), weight(3, 4, seed=k))))
    rule = case.rule("distribute")
    index = GraphIndex(graph(*(layer[-1] for layer in layers)))
    for (a, b, c, top), match in zip(layers, find_matches(rule, index), strict=True):
        assert replacements(match) == {top: case.call("add", case.call("matmul", a, c), case.call("matmul", b, c))}
    assert len(cases_of(rule)) == 2


@pytest.mark.parametrize("shared", [False, True])
def test_one_tensor_under_two_names_is_a_key_of_its_own(tmp_path: Path, shared: bool) -> None:
    case = Case(tmp_path, DISTRIBUTE)
    rule = case.rule("distribute")
    x = tensor("x", 2, 3)
    first = case.call("matmul", case.call("add", x, tensor("y", 2, 3)), weight(3, 4))
    second = case.call("matmul", case.call("add", x, x if shared else tensor("z", 2, 3)), weight(3, 4))
    for match in find_matches(rule, GraphIndex(graph(first, second))):
        assert replacements(match).keys() <= {first, second}
    assert len(cases_of(rule)) == (2 if shared else 1)


def test_numbers_that_constants_hold_belong_to_the_guard_key(tmp_path: Path) -> None:
    """A right side may use the number that a constant holds: weights alone are told apart by their types only."""
    text = "substitution scale(X: f32[*S], C: f32[*S]) -> Y {\n  Y = mul(neg(X), C)\n  =>\n  Y = mul(X, neg(C))\n}\n"
    case = Case(tmp_path, text)
    rule = case.rule("scale")
    x = tensor("x", 2)
    numbers = [array_value(np.full(2, k, np.float32)) for k in (3, 4)]
    weights = [weight(2, seed=k) for k in (3, 4)]
    products = [case.call("mul", case.call("neg", x), c) for c in (*numbers, *weights)]
    for match in find_matches(rule, GraphIndex(graph(*products))):
        (new,) = replacements(match).values()
        assert new == case.call("mul", x, case.call("neg", match.variables["C"]))
    assert len(cases_of(rule)) == 3


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Value, ...]]:
    """What a way of one part replaces that is looked at beside others, while a test runs."""
    out: list[tuple[Value, ...]] = []
    plain = PartSubstitution.near

    def noted(self: PartSubstitution) -> Near:
        out.append(self.roots)
        return plain(self)

    monkeypatch.setattr(PartSubstitution, "near", noted)
    return out


def test_parts_of_which_one_needs_the_other_are_never_put_together(tmp_path: Path) -> None:
    """Sixty products of random earlier values: pairs are those of which neither is computed from the other."""
    case = Case(tmp_path, PAIR)
    rng = random.Random(7)
    values = [tensor("x", 3, 3), tensor("y", 3, 3)]
    for k in range(60):
        values.append(case.call("matmul", values[rng.randrange(max(0, k - 9), len(values))], tensor(f"w{k}", 3, 3)))
    products = values[2:]
    index = GraphIndex(graph(*products))
    found = [frozenset(value for _, value in match.roots) for match in find_matches(case.rule("pair"), index)]
    apart = {
        frozenset((a, b))
        for a, b in itertools.combinations(products, 2)
        if not index.depends([a], [b]) and not index.depends([b], [a])
    }
    assert set(found) == apart
    assert len(found) == len(apart)


def test_a_chain_of_products_has_no_pairs_to_look_at(tmp_path: Path, looked_at: list[tuple[Value, ...]]) -> None:
    """Each is looked at as the first of a pair and beside itself: that it cannot stand beside any other is seen for all at once."""
    case = Case(tmp_path, PAIR)
    value = tensor("x", 3, 3)
    for k in range(200):
        value = case.call("matmul", value, tensor(f"w{k}", 3, 3))
    assert list(find_matches(case.rule("pair"), GraphIndex(graph(value)))) == []
    assert len(looked_at) == 400


def test_equal_parts_are_matched_once_for_all_rules(tmp_path: Path) -> None:
    """Names, and the rest of the rules, are no difference; an operand that stands twice, and a result with a name, are."""
    text = """
substitution one(A: f32[M, K], B: f32[K, N]) -> Y {\n  Y = matmul(relu(A), B)\n  =>\n  Y = matmul(relu(A), B)\n}
substitution two(C: f32[R, S], A: f32[S, Q]) -> U {\n  U = matmul(relu(C), A)\n  where Q > 5\n  =>\n  U = matmul(relu(C), A)\n}
substitution pair(A: f32[M, K], B: f32[K, N], C: f32[M, K]) -> Y, Z {
  Y = matmul(relu(A), B)\n  Z = matmul(relu(C), B)\n  =>\n  Y = matmul(relu(A), B)\n  Z = matmul(relu(C), B)\n}
substitution same(A: f32[M, M]) -> Y {\n  Y = matmul(relu(A), A)\n  =>\n  Y = matmul(relu(A), A)\n}
substitution inner(A: f32[M, K], B: f32[K, N]) -> Y {\n  H = relu(A)\n  Y = matmul(H, B)\n  =>\n  Y = matmul(H, B)\n}
"""
    case = Case(tmp_path, text)
    parts = {name: [one.part for one in case.rule(name).parts] for name in ("one", "two", "pair", "same", "inner")}
    assert parts["pair"] == parts["one"] * 2
    assert parts["one"] == parts["two"]
    assert len({*parts["one"], *parts["same"], *parts["inner"]}) == 3
    x, y, z = tensor("x", 2, 3), tensor("y", 2, 3), tensor("z", 3, 6)
    first, second = (case.call("matmul", case.call("relu", value), z) for value in (x, y))
    index = GraphIndex(graph(first, second))
    assert {match.variables["A"] for match in find_matches(case.rule("one"), index)} == {x, y}
    assert {(match.variables["C"], match.variables["A"]) for match in find_matches(case.rule("two"), index)} == {
        (x, z),
        (y, z),
    }
    assert [match.names["Q"] for match in find_matches(case.rule("two"), index)] == [6, 6]
    (both,) = find_matches(case.rule("pair"), index)
    assert dict(both.roots) == {"Y": first, "Z": second}
    assert dict(both.variables) == {"A": x, "B": z, "C": y}


def test_rules_share_what_they_ask_of_calls(tmp_path: Path) -> None:
    """Variables with other names are the same question; another rank, and a guard that wants a constant, are others."""
    rules = """
substitution one(A: f32[M, K], B: f32[K, N]) -> Y {\n  Y = matmul(relu(A), B)\n  =>\n  Y = matmul(relu(A), B)\n}
substitution two(X: f32[R, S], Z: f32[S, Q]) -> Y {\n  Y = matmul(relu(X), Z)\n  =>\n  Y = matmul(relu(X), Z)\n}
substitution three(X: f32[B, R, S], Z: f32[S, Q]) -> Y {\n  Y = matmul(relu(X), Z)\n  =>\n  Y = matmul(relu(X), Z)\n}
substitution four(X: f32[R, S], Z: f32[S, Q]) -> Y {\n  Y = matmul(relu(X), Z)\n  where constant(Z)\n  =>\n  Y = matmul(relu(X), Z)\n}
"""
    case = Case(tmp_path, rules)
    one, two, three, four = (case.rule(name).prefilters for name in ("one", "two", "three", "four"))
    assert one == two
    assert not set(one) & set(three)
    assert len(set(one) & set(four)) == 1
    variable, fixed = case.call("matmul", case.call("relu", tensor("x", 2, 3)), tensor("z", 3, 4)), weight(3, 4)
    both = [variable, case.call("matmul", case.call("relu", tensor("x", 2, 3)), fixed)]
    index = GraphIndex(graph(*both))
    top = case.rule("four").left.tops[0]
    assert [len(prefilters[top].fitting(index).calls) for prefilters in (one, three, four)] == [2, 0, 1]

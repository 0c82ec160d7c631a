"""Rules about any operator (`term f`): its attributes are arguments, and `pointwise` and `linear` mean what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslc.checking.rule_tests import run_tests
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Call, input_value
from dslc.prove.run.provers import exact_verdict
from dslc.prove.run.verify import verify_rule
from dslc.prove.terms import term_operators
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules, load_many
from dslc.semantics.linear import linear_at
from dslc.semantics.shape_free import is_pointwise


def library(tmp_path: Path, text: str) -> Rules:
    file = tmp_path / "own.rules"
    file.write_text("dslc 1\n" + text)
    return load_many([file])


def rule(
    left: str, right: str, terms: str = "f(X)", guards: str = "pointwise(f)", params: str = "X: T[*S], Z: T[*S]"
) -> str:
    return (
        f"substitution s({params}) -> Y {{\n  term {terms}\n  where {guards}\n  Y = {left}\n  =>\n  Y = {right}\n}}\n"
    )


# ---- attributes ---------------------------------------------------------------------------------------------------

OTHER_ATTRIBUTES = {
    "one for both": ("add(f(X, **a), f(Z, **b))", "add(f(X, **b), f(Z, **b))"),
    "forgotten on the right": ("neg(f(neg(X), **a))", "neg(f(neg(X)))"),
    "of nested uses": ("f(f(X, **a), **b)", "f(f(X, **b), **a)"),
    "merged": ("concat(f(X, **a), f(Z, **b), axis=0)", "f(concat(X, Z, axis=0), **a)"),
    "of a product": ("mul(f(X, **a), f(X, **b))", "mul(f(X, **a), f(X, **a))"),
    "in a let": ("g(f(X, **a), f(X, **b))", "g(f(X, **b), f(X, **a))"),
}


@pytest.mark.parametrize("left, right", OTHER_ATTRIBUTES.values(), ids=OTHER_ATTRIBUTES)
def test_with_other_attributes_an_operator_is_another_function(tmp_path: Path, left: str, right: str) -> None:
    params = "X: T[N], Z: T[M]" if "concat" in left else "X: T[*S], Z: T[*S]"
    text = rule(left, right, params=params)
    if "g(" in left:
        text = text.replace("  Y = g(", "  let g(u, v) = sub(u, v)\n  Y = g(", 1)
    rules = library(tmp_path, f"import std (add, sub, mul, neg, concat, leaky_relu, elu, celu, clip)\n{text}")
    sub = rules.substitutions["own.s"]
    assert exact_verdict(rules, sub).answer != "equal"
    assert verify_rule(rules, sub).status in {"refuted", "undecided", "tested"}


SAME_ATTRIBUTES = {
    "of a sum": ("add(f(X, **a), f(Z, **b))", "add(f(Z, **b), f(X, **a))"),
    "through a transposition": ("transpose(f(X, **a), perm=[1, 0])", "f(transpose(X, perm=[1, 0]), **a)"),
    "twice": ("sub(f(X, **a), f(X, **a))", "sub(f(X, **a), f(X, **a))"),
}


@pytest.mark.parametrize("left, right", SAME_ATTRIBUTES.values(), ids=SAME_ATTRIBUTES)
def test_with_the_same_attributes_it_is_the_same_function(tmp_path: Path, left: str, right: str) -> None:
    params = "X: T[N, M], Z: T[N, M]"
    rules = library(tmp_path, f"import std (add, sub, transpose, leaky_relu)\n{rule(left, right, params=params)}")
    assert exact_verdict(rules, rules.substitutions["own.s"]).answer == "equal"


def test_each_set_of_attributes_has_its_operator(tmp_path: Path) -> None:
    rules = library(tmp_path, f"import std (add)\n{rule('add(f(X, **a), f(Z, **b))', 'add(f(Z, **b), f(X, **a))')}")
    assert set(term_operators(rules.substitutions["own.s"])) == {"term.f.1", "term.f.1:a", "term.f.1:b"}


# ---- pointwise ----------------------------------------------------------------------------------------------------

BODIES = {
    "the position": "X[*i] + ravel(i, S)",
    "the rank": "X[*i] * rank(S)",
    "a size": "X[*i] / ravel(S - 1, S)",
    "a size in a let": "X[*i] + n",
    "whether it is the first": "0 if ravel(i, S) == 0 else X[*i]",
    "the sum of all": "X[*i] - (sum[*j: S] X[*j])",
    "another element": "X[*(S - 1 - i)]",
    "its own place through an operator": "placed(X)[*i]",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_what_depends_on_more_than_its_element_is_not_pointwise(tmp_path: Path, body: str) -> None:
    let = "  let n = rank(S)\n" if "+ n" in body else ""
    placed = "operator placed(X: T[*S]) -> Y: T[*S] {\n  Y[*i] = X[*i] + ravel(i, S)\n}\n"
    rules = library(tmp_path, f"{placed}operator own(X: T[*S]) -> Y: T[*S] {{\n{let}  Y[*i] = {body}\n}}\n")
    assert not is_pointwise(rules.operators["own.own"], rules)


def test_a_default_that_follows_the_rank_is_not_pointwise(tmp_path: Path) -> None:
    rules = library(tmp_path, "operator own(X: T[*S]) -> Y: T[*S] {\n  attr k: int = rank(S)\n  Y[*i] = X[*i] * k\n}\n")
    assert not is_pointwise(rules.operators["own.own"], rules)


@pytest.mark.parametrize("name", ["exp", "add", "clip", "leaky_relu", "select", "cast", "prelu", "pow"])
def test_a_function_of_elements_and_attributes_is_pointwise(std: Rules, name: str) -> None:
    assert is_pointwise(std.operators[f"std.{name}"], std)


def test_a_rule_about_pointwise_operators_is_not_used_for_others(tmp_path: Path) -> None:
    text = (
        "import std (reverse, neg)\noperator placed(X: T[*S]) -> Y: T[*S] {\n  Y[*i] = X[*i] + ravel(i, S)\n}\n"
        + rule("reverse(f(X, **a), axis=0)", "f(reverse(X, axis=0), **a)", params="X: T[N]")
        + "test s {\n  given X: f32[4]\n  fires { Y = reverse(neg(X), axis=0) }\n  silent { Y = reverse(placed(X), axis=0) }\n}\n"
    )
    rules = library(tmp_path, text)
    own = [rules.substitutions["own.s"].module]
    outcomes = [one for one in run_tests(rules, modules=own, trials=0) if one.name == "own.s"]
    assert outcomes and all(one.passed for one in outcomes), outcomes


# ---- linear -------------------------------------------------------------------------------------------------------

F32 = DType.F32
LINEAR = [
    ("conv", [(1, 2, 5, 5), (3, 2, 3, 3)], {}, True),
    ("matmul", [(2, 3), (3, 4)], {}, True),
    ("reshape", [(2, 6)], {"shape": (3, 4)}, True),
    ("slice", [(6,)], {"start": (1,), "size": (2,)}, True),
    ("pad", [(4,)], {"before": (1,), "after": (2,)}, True),
    ("transpose", [(4, 3)], {"perm": (1, 0)}, True),
    ("avg_pool", [(1, 2, 6, 6)], {"kernel": (2, 2)}, True),
    ("relu", [(4,)], {}, False),
    ("max_pool", [(1, 2, 6, 6)], {"kernel": (2, 2)}, False),
    ("clip", [(4,), (), ()], {}, False),
]


@pytest.mark.parametrize("name, shapes, attrs, expected", LINEAR)
def test_linear_is_asked_at_the_attributes_in_use(
    std: Rules, name: str, shapes: list[tuple[int, ...]], attrs: dict[str, object], expected: bool
) -> None:
    args = [input_value(f"x{k}", TensorType(F32, shape)) for k, shape in enumerate(shapes)]
    node = apply(std, f"std.{name}", args, attrs)[0].node
    assert isinstance(node, Call)
    assert linear_at(std, node, len(shapes)) is expected


def test_an_attribute_decides_whether_an_operator_is_linear(tmp_path: Path) -> None:
    """The same operator is linear with one value of its attribute and not with another."""
    text = "operator plus(X: T[*S]) -> Y: T[*S] {\n  attr by: int = 0\n  Y[*i] = X[*i] + by\n}\n"
    rules = library(tmp_path, text)
    for by in (0, 2):
        node = apply(rules, "own.plus", [input_value("x", TensorType(F32, (3,)))], {"by": by})[0].node
        assert isinstance(node, Call)
        assert linear_at(rules, node, 1) is (by == 0)


@pytest.mark.parametrize("dtype", [DType.F32, DType.I64, DType.U8])
def test_a_cast_or_a_quotient_is_linear_in_floats_only(tmp_path: Path, dtype: DType) -> None:
    """Sums of integers wrap around before they are cast, and half of 1 + 1 is not half of 1, twice."""
    cast, half = "Y[*i] = convert(X[*i], f64)", "Y[*i] = X[*i] / 2"
    rules = library(
        tmp_path,
        f"operator widened(X: T[*S]) -> Y: f64[*S] {{ {cast} }}\noperator halved(X: T[*S]) -> Y: T[*S] {{ {half} }}\n",
    )
    for name in ("widened", "halved"):
        node = apply(rules, f"own.{name}", [input_value("x", TensorType(dtype, (3,)))], {})[0].node
        assert isinstance(node, Call)
        assert linear_at(rules, node, 1) is dtype.is_float


def test_padding_with_a_number_is_not_linear(std: Rules) -> None:
    for value, expected in ((0, True), (3, False)):
        args = [input_value("x", TensorType(F32, (4,))), value]
        node = apply(std, "std.pad", args, {"before": (1,), "after": (0,)})[0].node
        assert isinstance(node, Call)
        assert linear_at(std, node, 1) is expected


@pytest.mark.parametrize(
    "left, right, expected",
    [
        ("f(add(X, Z), **a)", "add(f(X, **a), f(Z, **a))", {"tested"}),
        ("f(mul(X, Z), **a)", "mul(f(X, **a), f(Z, **a))", {"refuted"}),
        ("f(neg(X), **a)", "f(X, **a)", {"refuted"}),
        ("add(f(X, **a), 1)", "f(add(X, 1), **a)", {"refuted"}),
    ],
)
def test_rules_about_linear_operators_meet_real_ones(tmp_path: Path, left: str, right: str, expected: set[str]) -> None:
    imports = "import std (add, mul, neg, relu, reverse, transpose, cumsum, reduce_sum, exp)\n"
    rules = library(tmp_path, imports + rule(left, right, guards="linear(f)", params="X: T[N, M], Z: T[N, M]"))
    assert verify_rule(rules, rules.substitutions["own.s"]).status in expected

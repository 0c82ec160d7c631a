"""Element types: a rule is proved for each class of types that it admits, and integers are those modulo 2^bits of their type."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from dslc.prove.element_types import types_of
from dslc.prove.evidence.lock import from_dict, to_dict
from dslc.prove.run.conclusion import diagnostic_of
from dslc.prove.run.verify import verify_rule
from dslc.prove.verdict import RELIABLE, RuleVerdict
from dslc.semantics.library import Rules, load_many

HEAD = """dslc 1
import std (abs, add, cast, div_int, equal, expand, fmod, greater, invert, less, maximum, minimum, modulo, mul, neg, pow, reduce_max,
            relu, select, shift_left, shift_right, sign, sub, transpose)

operator half(X: T[*S]) -> Y: T[*S] {
  \"\"\"X / 2.\"\"\"
  where T != bool
  Y[*i] = X[*i] / 2
}
operator twice(X: T[*S]) -> Y: T[*S] {
  \"\"\"2 X.\"\"\"
  where T != bool
  Y[*i] = 2 * X[*i]
}
operator halved_twice(X: T[*S]) -> Y: T[*S] {
  \"\"\"2 (X / 2), in one equation.\"\"\"
  where T != bool
  Y[*i] = 2 * (X[*i] / 2)
}
operator average(X: T[N]) -> Y: T[1] {
  \"\"\"The sum over the count.\"\"\"
  where T != bool
  Y[k] = (sum[i] X[i]) / N
}
operator total(X: T[N]) -> Y: T[1] {
  \"\"\"The sum.\"\"\"
  where T != bool
  Y[k] = sum[i] X[i]
}
operator times(X: T[N], Z: T[1]) -> Y: T[1] {
  \"\"\"Z as often as X has elements.\"\"\"
  where T != bool
  Y[k] = Z[k] * N
}
operator larger(A: T[*S], B: T[*S]) -> Y: T[*S] {
  \"\"\"The larger one of a sum and a term, in one equation.\"\"\"
  where T != bool
  Y[*i] = max(A[*i] + B[*i], A[*i])
}
operator beyond(A: T[*S], B: T[*S]) -> Y: T[*S] {
  \"\"\"As `larger`, by what is added.\"\"\"
  where T != bool
  Y[*i] = A[*i] + max(B[*i], 0)
}
"""

ALL, NUMBERS, FLOATS, INTEGERS = "floats signed unsigned bool", "floats signed unsigned", "floats", "signed unsigned"

#: a rule, the element types for which it holds, and those for which it does not
RULES: dict[str, tuple[str, str, str]] = {
    # ---- the laws of a ring hold modulo 2^bits
    "added_and_subtracted(A: T[*S], B: T[*S])": ("sub(add(A, B), B) => A", NUMBERS, ""),
    "doubled(X: T[*S])": ("add(X, X) => mul(X, 2)", NUMBERS, ""),
    "square_of_sum(A: T[*S], B: T[*S])": (
        "mul(add(A, B), add(A, B)) => add(add(mul(A, A), mul(mul(A, B), 2)), mul(B, B))", NUMBERS, ""),
    "negative_twice(X: T[*S])": ("neg(neg(X)) => X", "floats signed", ""),
    # ---- what only moves elements, or takes the largest, holds for all
    "moved_twice(X: T[A, B])": ("transpose(transpose(X, perm=[1, 0]), perm=[1, 0]) => X", ALL, ""),
    "largest_of_moved(X: T[A, B])": (
        "reduce_max(transpose(X, perm=[1, 0]), axes=[1], keepdims=false) => reduce_max(X, axes=[0], keepdims=false)", ALL, ""),
    "chosen_twice(C: bool[*S], A: T[*S], B: T[*S])": ("select(C, A, select(C, B, A)) => A", ALL, ""),
    "larger_of_two(A: T[*S], B: T[*S])": ("maximum(maximum(A, B), A) => maximum(A, B)", NUMBERS, ""),
    "inverted_twice(X: bool[*S])": ("invert(invert(X)) => X", "all", ""),
    # ---- order after arithmetic is that of what is left of it
    "order_of_difference(A: T[*S], B: T[*S])": ("greater(sub(A, B), 0) => greater(A, B)", FLOATS, INTEGERS),
    "order_of_shifted(A: T[*S], B: T[*S])": ("less(add(A, 1), add(B, 1)) => less(A, B)", FLOATS, INTEGERS),
    "order_of_negatives(A: T[*S], B: T[*S])": ("less(neg(A), neg(B)) => less(B, A)", FLOATS, "signed"),
    "larger_of_sums(X: T[*S], Z: T[*S])": ("maximum(add(X, Z), X) => add(maximum(Z, 0), X)", FLOATS, INTEGERS),
    "larger_in_one(X: T[*S], Z: T[*S])": ("larger(X, Z) => beyond(X, Z)", FLOATS, INTEGERS),
    "extremes_of_negatives(A: T[*S], B: T[*S])": ("minimum(neg(A), neg(B)) => neg(maximum(A, B))", FLOATS, "signed"),
    "sign_of_product(A: T[*S], B: T[*S])": ("sign(mul(A, B)) => mul(sign(A), sign(B))", "", INTEGERS),
    # ---- the smallest integer has no absolute value, and an unsigned one no sign
    "absolute_is_positive(X: T[*S])": ("maximum(abs(X), 0) => abs(X)", FLOATS, "signed"),
    "squares_are_positive(X: T[*S])": ("maximum(mul(X, X), 0) => mul(X, X)", "", "signed"),
    "relu_of_absolute(X: T[*S])": ("relu(abs(X)) => abs(X)", FLOATS, "signed"),
    "positive_anyway(X: T[*S])": ("maximum(X, 0) => X", "", "floats signed"),
    "absolute_anyway(X: T[*S])": ("abs(X) => X", "unsigned", "floats signed"),
    # ---- division cuts
    "halves(X: T[*S])": ("twice(half(X)) => X", FLOATS, INTEGERS),
    "halves_in_one(X: T[*S])": ("halved_twice(X) => X", FLOATS, INTEGERS),
    "doubled_and_halved(X: T[*S])": ("half(twice(X)) => X", FLOATS, INTEGERS),
    "counted_average(X: T[N])": ("times(X, average(X)) => total(X)", FLOATS, INTEGERS),
    "quotient_of_product(X: T[*S])": ("div_int(mul(X, 3), 3) => X", "", INTEGERS),
    "rest_of_sum(X: T[*S])": ("modulo(add(X, 3), 3) => modulo(X, 3)", "", INTEGERS),
    "quotients_in_turn(X: T[*S])": ("div_int(add(X, X), 2) => X", "", INTEGERS),
    "there_and_back(X: T[*S])": ("shift_right(shift_left(X, 1), 1) => X", "", "unsigned"),
    # ---- conversions: exact only where every value of the source fits
    "widened_bytes(X: int8[*S])": ("cast(cast(X, to=int32), to=int8) => X", "all", ""),
    "bytes_as_halves(X: uint8[*S])": ("cast(cast(X, to=f16), to=uint8) => X", "all", ""),
    "narrowed_at_once(X: int32[*S])": ("cast(cast(X, to=int64), to=int8) => cast(X, to=int8)", "all", ""),
    "narrowed(X: int32[*S])": ("cast(cast(X, to=int8), to=int32) => X", "", "all"),
    "words_as_halves(X: uint16[*S])": ("cast(cast(X, to=f16), to=uint16) => X", "", "all"),
    "long_as_single(X: int64[*S])": ("cast(cast(X, to=f32), to=int64) => X", "", "all"),
    "double_as_single(X: f64[*S])": ("cast(cast(X, to=f32), to=f64) => X", "", "all"),
    "single_as_double(X: f32[*S])": ("cast(cast(X, to=f64), to=f32) => X", "all", ""),
    "sign_of_word(X: uint32[*S])": ("cast(cast(X, to=int32), to=int64) => cast(X, to=int64)", "", "all"),
    "equal_as_single(X: int64[*S], Z: int64[*S])": ("equal(cast(X, to=f32), cast(Z, to=f32)) => equal(X, Z)", "", "all"),
    "sum_of_bytes(X: uint8[*S], Z: uint8[*S])": (
        "cast(add(X, Z), to=int32) => add(cast(X, to=int32), cast(Z, to=int32))", "", "all"),
    "scaled_bytes(X: int8[*S])": ("cast(mul(X, 2), to=f32) => mul(cast(X, to=f32), 2)", "", "all"),
    "order_of_words(X: uint16[*S], Z: uint16[*S])": (
        "less(cast(X, to=int16), cast(Z, to=int16)) => less(X, Z)", "", "all"),
    "sum_of_words(X: int32[*S], Z: int32[*S])": (
        "cast(add(cast(X, to=int64), cast(Z, to=int64)), to=int32) => add(X, Z)", "all", ""),
}  # fmt: skip


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Rules:
    file = tmp_path_factory.mktemp("types") / "typed.rules"
    texts = []
    for head, (text, _, _) in RULES.items():
        left, right = text.split(" => ")
        texts.append(f"substitution {head} -> Y {{\n  Y = {left}\n  =>\n  Y = {right}\n}}\n")
    file.write_text(HEAD + "".join(texts) + MIXED, "utf-8")
    return load_many([file])


MIXED = """
substitution of_two(A: T[*S], B: U[*R]) -> Y {
  Y = mul(pow(A, B), 1)
  =>
  Y = pow(A, B)
}
substitution there_and_back_again(X: T[*S]) -> Y {
  Y = cast(cast(X, to=f32), to=T)
  =>
  Y = X
}
substitution any_two(X: T[*S]) -> Y {
  Y = cast(cast(X, to=U), to=T)
  =>
  Y = X
}
substitution with_attributes(X: T[*S]) -> Y {
  Y = cast(cast(X, **a), to=T)
  =>
  Y = X
}
"""


@cache
def verdict(rules: Rules, name: str) -> RuleVerdict:
    """What both provers say of a rule, asked once."""
    return verify_rule(rules, rules.substitutions[f"typed.{name}"], ("field", "exact"))


def answers(found: RuleVerdict) -> set[tuple[str, str]]:
    return {(one.prover, one.answer) for one in found.verdicts}


def reliable(found: RuleVerdict) -> set[str]:
    return {str(types) for types, one in found.by_type.items() if one.status in RELIABLE}


@pytest.mark.parametrize("head", RULES)
def test_classes(rules: Rules, head: str) -> None:
    """A rule is shown for the classes for which it holds, and not for others; its status is the weakest."""
    _, holds, fails = RULES[head]
    found = verdict(rules, head.partition("(")[0])
    assert set(holds.split()) <= reliable(found), found.by_type
    assert not set(fails.split()) & reliable(found), found.by_type
    assert set(fails.split()) <= {str(types) for types in found.by_type}
    assert (found.status in RELIABLE) == (not fails and bool(holds)), found.status


def test_most_wrong_ones_are_refuted(rules: Rules) -> None:
    """Not only unproved: with numbers that show it."""
    wrong = [head.partition("(")[0] for head, (_, _, fails) in RULES.items() if fails]
    found = [verdict(rules, name) for name in wrong]
    refuted = [
        one
        for one in found
        if one.status == "refuted" and one.counterexample is not None and ("field", "differs") in answers(one)
    ]
    assert len(refuted) >= 0.8 * len(wrong), [one.rule for one in found if one.status != "refuted"]


def test_several_variables(rules: Rules) -> None:
    """Every combination of classes that the operators take has a status."""
    found = verdict(rules, "of_two")
    assert {"T: floats, U: signed", "T: signed, U: floats", "T: floats, U: unsigned"} <= {
        str(types) for types in found.by_type
    }
    assert not any("bool" in str(types) or "T: unsigned" in str(types) for types in found.by_type)


def test_conversions_are_looked_at_type_by_type(rules: Rules) -> None:
    found = verdict(rules, "there_and_back_again")
    assert {"f16", "f32", "int8", "uint16", "bool"} <= reliable(found)
    assert not {"f64", "int32", "int64", "uint32", "uint64"} & reliable(found)
    assert len(found.by_type) == 13


@pytest.mark.parametrize(("name", "variable"), [("any_two", "U"), ("with_attributes", "a.to")])
def test_types_that_are_attributes(rules: Rules, name: str, variable: str) -> None:
    """The target of a cast is a variable too, also where it is in `**a`."""
    found = types_of(rules, rules.substitutions[f"typed.{name}"])
    assert all(dict(types.kinds).keys() == {"T", variable} for types in found)
    pairs = {(types.at["T"].value, types.at[variable].value) for types in found}
    assert {("f32", "f64"), ("f64", "f32"), ("uint8", "int8")} <= pairs


def test_the_lock_keeps_the_types(rules: Rules) -> None:
    found = verdict(rules, "halves")
    kept = from_dict(found.rule, to_dict(found))
    assert kept.by_type == found.by_type and kept.status == found.status == "refuted"
    (floats,) = kept.usable(RELIABLE) or ()
    assert floats.fits({"T": next(iter(floats.at.values()))}) and not floats.fits({})


def test_shown_where_they_differ(rules: Rules) -> None:
    assert verdict(rules, "halves").types_text == "floats proved; signed, unsigned refuted"
    assert verdict(rules, "doubled").types_text == ""


@pytest.mark.parametrize(
    ("name", "guard"), [("halves", "floating(T)"), ("absolute_anyway", "T in [uint8, uint16, uint32, uint64]")]
)
def test_a_guard_is_proposed(rules: Rules, name: str, guard: str) -> None:
    found = diagnostic_of(rules.substitutions[f"typed.{name}"], verdict(rules, name))
    assert found is not None and found.hint == f"it holds `where {guard}`"


def test_matching_is_restricted(rules: Rules, tmp_path: Path) -> None:
    """`dslc optimize` uses a rule for the element types for which it was shown, and for no others."""
    from dslc.ir.dtype import DType, TensorType
    from dslc.ir.graph import Graph, input_value
    from dslc.match import GraphIndex, compile_directions, find_matches
    from dslc.search.runs.selection import usable
    from dslc.semantics.apply import apply

    definition = rules.substitutions["typed.halves"]
    found = verdict(rules, "halves")
    used, left = usable(compile_directions(rules, definition), {definition.name: found}, ())
    assert len(used) == 1 and not left
    counts = {}
    for dtype in (DType.F32, DType.F64, DType.I64, DType.U8):
        x = input_value("x", TensorType(dtype, (3,)))
        (inner,) = apply(rules, "typed.half", [x], {})
        (outer,) = apply(rules, "typed.twice", [inner], {})
        index = GraphIndex(Graph((x,), (outer,)))
        counts[dtype] = len(list(find_matches(used[0], index)))
    assert counts == {DType.F32: 1, DType.F64: 1, DType.I64: 0, DType.U8: 0}


def test_pairs_of_types_are_matched_one_by_one(rules: Rules) -> None:
    """A pair that was not shown is left alone, and the reason names it."""
    from dslc.ir.dtype import DType, TensorType
    from dslc.ir.graph import Graph, input_value
    from dslc.match import GraphIndex, compile_directions, find_matches, why_not
    from dslc.search.runs.selection import usable
    from dslc.semantics.apply import apply

    definition = rules.substitutions["typed.any_two"]
    used, _ = usable(compile_directions(rules, definition), {definition.name: verdict(rules, "any_two")}, ())
    found = {}
    for middle in (DType.I8, DType.I32):
        (inner,) = apply(rules, "std.cast", [input_value("x", TensorType(DType.I16, (3,)))], {"to": middle})
        graph = Graph((), apply(rules, "std.cast", [inner], {"to": DType.I16}))
        found[middle] = len(list(find_matches(used[0], GraphIndex(graph)))), str(why_not(used[0], graph))
    assert found[DType.I32][0] == 1 and found[DType.I8][0] == 0
    assert "proved for (f32, f32), " in found[DType.I8][1] and "not for (int16, int8)" in found[DType.I8][1]

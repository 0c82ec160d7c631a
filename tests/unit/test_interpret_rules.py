"""Every substitution of the standard library, and wrong ones, at random sizes over the field."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dslc.interpret import Exact, run
from dslc.interpret.check_rule import check_law, check_substitution
from dslc.ir.constants import fill
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, Value, input_value
from dslc.match import GraphIndex, compile_all, find_matches
from dslc.match.apply import replacements
from dslc.match.recipe import Refused
from dslc.semantics.apply import apply
from dslc.semantics.env import Env
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import load, standard
from dslc.syntax import tree as t


def test_every_substitution_of_the_standard_library_holds(capsys: pytest.CaptureFixture[str]) -> None:
    rules = standard()
    outcomes = [
        check_substitution(rules, sub, seed=7, trials=1, operators=2, adverse=1) for sub in rules.substitutions.values()
    ]
    count = {status: sum(o.status == status for o in outcomes) for status in ("field", "floats", "partial")}
    with capsys.disabled():
        print(f"\n{len(outcomes)} substitutions: " + ", ".join(f"{n} by {status}" for status, n in count.items()))
    failed = [
        (o.name, o.status, [(d.message, d.counterexample, d.hint) for d in o.diagnostics])
        for o in outcomes
        if not o.passed
    ]
    assert not failed, "\n".join(map(str, failed))
    assert len(outcomes) >= 40
    # what only real functions satisfy is the exception
    assert count["floats"] < len(outcomes) / 5


def test_every_law_of_the_standard_library_holds() -> None:
    rules = standard()
    outcomes = [check_law(rules, law, seed=3, trials=1, operators=2, adverse=1) for law in rules.laws.values()]
    assert not [(o.name, o.status, o.diagnostics) for o in outcomes if not o.passed]
    assert len(outcomes) >= 25


def test_a_wrong_law_is_refuted(tmp_path: Path) -> None:
    path = tmp_path / "laws.rules"
    path.write_text(HEADER + "property wrong(A: T[M, M], B: T[M, M]) { holds matmul(A, B) == matmul(B, A) }")
    rules = load(path)
    (finding,) = check_law(rules, rules.laws["laws.wrong"]).diagnostics
    assert finding.code == "E0502" and finding.span is not None and finding.span.text == "matmul(A, B) == matmul(B, A)"


def test_examples_of_the_standard_library_hold_over_exact_numbers() -> None:
    """The interpreter's third domain on every example that states an equality with numbers."""
    rules = standard()
    checked = 0
    for operator in rules.operators.values():
        env = Env(operator.module, rules)
        for line in operator.syntax.statements:
            if not (isinstance(line, t.Example) and isinstance(line.value, t.Compare) and line.value.ops == ("==",)):
                continue
            left, right = (evaluate(side, env) for side in line.value.operands)
            if not (isinstance(left, Value) and isinstance(right, tuple)):
                continue
            (got,) = run(rules, [left], {}, Exact())
            assert [Fraction(item) for item in got.reshape(-1).tolist()] == list(_flat(right)), operator.name
            checked += 1
    assert checked >= 80


def _flat(value: Any) -> Iterator[Fraction]:
    if isinstance(value, tuple):
        for item in value:
            yield from _flat(item)
    else:
        yield Fraction(value)


WRONG = {
    "forgets_a_guard": (
        """substitution forgets_a_guard(X: T[N, C, *D], K: T[F, C, *R]) -> Y {
  Y = conv(X, K, pads=p)
  =>
  Y = conv(X, K, pads=reversed(p))
}""",
        "differs",
    ),
    "ignores_the_order_of_elements": (
        """substitution ignores_the_order_of_elements(X: T[*S]) -> Y {
  Y = reshape(transpose(X, perm=p), shape=s)
  =>
  Y = reshape(X, shape=s)
}""",
        "differs",
    ),
    "wrong_order": (
        """substitution wrong_order(A: T[M, M], B: T[M, M]) -> Y {
  Y = matmul(A, B)
  =>
  Y = matmul(B, A)
}""",
        "differs",
    ),
    "wrong_shape": (
        """substitution wrong_shape(A: T[M, N]) -> Y {
  Y = relu(A)
  =>
  Y = transpose(relu(A), perm=[1, 0])
}""",
        "differs",
    ),
    "wrong_constant": (
        """substitution wrong_constant(X: T[*S]) -> Y {
  Y = mul(X, 1/2)
  =>
  Y = mul(X, 0.5000001)
}""",
        "differs",
    ),
    "vacuous": (
        """substitution vacuous(X: T[N]) -> Y {
  Y = relu(X)
  where N > 3, N < 3
  =>
  Y = X
}""",
        "uninstantiated",
    ),
}
HEADER = "dslc 1\nimport std.conv (conv)\nimport std.linalg (matmul)\nimport std.pointwise (mul)\n"
HEADER += "import std.activation (relu)\nimport std.layout (reshape, transpose)\n"


@pytest.mark.parametrize("name", WRONG)
def test_wrong_substitutions_are_refuted_with_a_counterexample(name: str, tmp_path: Path) -> None:
    text, status = WRONG[name]
    path = tmp_path / "wrong.rules"
    path.write_text(HEADER + text)
    rules = load(path)
    outcome = check_substitution(rules, rules.substitutions[f"wrong.{name}"])
    assert not outcome.passed
    assert outcome.status in status.split("|")
    (diagnostic,) = outcome.diagnostics
    if outcome.status == "differs":
        assert diagnostic.code in {"E0501", "E0312"} and diagnostic.counterexample
    else:
        assert diagnostic.code == "E0507"


def test_no_instance_is_larger_than_a_machine(tmp_path: Path) -> None:
    path = tmp_path / "vast.rules"
    path.write_text(
        HEADER + "substitution vast(X: T[M], Y: T[N]) -> Z {\n  Z = mul(reshape(X, shape=[M, 1]), relu(Y))\n"
        "  where M > 300000, N > 300000\n  =>\n  Z = mul(relu(Y), reshape(X, shape=[M, 1]))\n}"
    )
    rules = load(path)
    found = check_substitution(rules, rules.substitutions["vast.vast"], attempts=40)
    assert found.status == "uninstantiated" and "elements" in (found.diagnostics[0].hint or "")


@pytest.mark.parametrize("dtype", ["uint8", "uint64", "int16", "bf16", "f64"])
def test_rules_of_one_element_type_are_tested_with_it(dtype: str, tmp_path: Path) -> None:
    """A rule that holds for hardly a type is no rule without an instance."""
    path = tmp_path / "one.rules"
    path.write_text(
        "dslc 1\nimport std.pointwise (add, mul)\n"
        f"substitution right(X: T[*S]) -> Y {{ Y = add(X, X) where T in [{dtype}] => Y = mul(X, 2) }}\n"
        f"substitution wrong(X: T[*S]) -> Y {{ Y = add(X, X) where T in [{dtype}] => Y = mul(X, 3) }}\n"
    )
    rules = load(path)
    assert check_substitution(rules, rules.substitutions["one.right"]).passed
    assert check_substitution(rules, rules.substitutions["one.wrong"]).status == "differs"


def test_a_number_that_a_type_does_not_hold_is_none_of_its_numbers(tmp_path: Path) -> None:
    """-3 is no `uint8`, and 259 neither: a rule that would write them there is not applied, and proves nothing of that type."""
    path = tmp_path / "number.rules"
    path.write_text(
        "dslc 1\nimport std.pointwise (add, sub)\n"
        "substitution negative(X: T[*S]) -> Y { Y = add(X, 3) => Y = sub(X, -3) }\n"
        "substitution only_there(X: T[*S]) -> Y { Y = add(X, 3) where T == uint8 => Y = add(X, 259) }\n"
    )
    rules = load(path)
    assert check_substitution(rules, rules.substitutions["number.negative"]).passed
    assert check_substitution(rules, rules.substitutions["number.only_there"], attempts=300).status == "uninstantiated"
    negative = next(rule for rule in compile_all(rules) if rule.name == "number.negative")
    for dtype, fits in ((DType.I8, True), (DType.U8, False)):
        type = TensorType(dtype, (4,))
        graph = Graph((x := input_value("x", type),), apply(rules, rules.operators["std.add"], [x, fill(3, type)], {}))
        (match,) = find_matches(negative, GraphIndex(graph))
        if fits:
            assert replacements(match)
            continue
        with pytest.raises(Refused, match="-3, which uint8 does not hold"):
            replacements(match)

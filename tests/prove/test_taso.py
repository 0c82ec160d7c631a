"""TASO's substitutions, over its operators: true ones are proved for all shapes, wrong ones refuted."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Scope, Value, input_value, scope_value
from dslc.ir.scalar import apply, num, read, traversal
from dslc.prove.exact import Equal, compare
from dslc.prove.run.provers import exact_verdict
from dslc.prove.run.verify import verify
from dslc.semantics.library import load_many

#: windows of windows, which are one expression outside
CHAINS = {
    "a kernel twice": "Y = conv(conv(X, K), smul(K, s), activation='relu') => Y = conv(conv(X, smul(K, s)), K, activation='relu')",
    "a kernel twice, scaled first": (
        "Y = conv(conv(X, K), smul(K, s), activation='relu') => Y = conv(conv(smul(X, s), K), K, activation='relu')"
    ),
    "an enlarged kernel in a chain": (
        "Y = relu(conv(conv(X, K), K)) where R <= 3, (3 - R) % 2 == 0, S <= 3, (3 - S) % 2 == 0\n"
        "=> Y = conv(conv(X, enlarge(K, size=[3, 3])), K, activation='relu')"
    ),
    "a pooled kernel": (
        "A = smul(pool_avg(K, kernel=[U, V]), s) Y = conv(A, A, activation='relu')\n"
        "=> B = pool_avg(smul(K, s), kernel=[U, V]) Y = conv(B, B, activation='relu')"
    ),
}


def test_substitutions_of_its_figures() -> None:
    rules = load_many([Path(__file__).with_name("taso_substitutions.rules")])
    names = [name for name in rules.substitutions if name.startswith("taso_substitutions.")]
    right = [name for name in names if name.startswith("taso_substitutions.right")]
    # what is proved needs no random numbers
    verdicts = verify(rules, right, 0, provers=("exact",)) + verify(rules, sorted({*names} - {*right}), 0)
    found = {one.rule.partition(".")[2]: one.status for one in verdicts}
    assert sum(name.startswith("right") for name in found) >= 21
    assert {name: status for name, status in found.items() if status != {"r": "proved", "w": "refuted"}[name[0]]} == {}
    assert {"figure_2a", "figure_2b", "figure_4a", "figure_4b", "figure_4c", "figure_5", "figure_8b"} <= {
        "_".join(name.split("_")[1:3]) for name in found
    }


@pytest.mark.parametrize("text", CHAINS.values(), ids=CHAINS)
def test_chains_of_windows(tmp_path: Path, text: str) -> None:
    file = tmp_path / "own.rules"
    file.write_text(
        "dslc 1\nimport taso.operators (conv, enlarge, pool_avg, relu, smul)\n"
        f"substitution s(X: T[N, (G, F), H, W], K: T[(G, F), F, R, S], s: T[]) -> Y {{ {text} }}\n".replace("'", '"')
    )
    rules = load_many([file])
    found = exact_verdict(rules, rules.substitutions["own.s"], 10.0)
    assert (found.answer, found.scope) == ("equal", "")


def test_merged_dimensions_of_other_sizes_are_another_expression() -> None:
    """`Y[3 i + j] = X[i]` is not `Y[2 i + j] = X[i]`, though both have one body and one shape."""
    x = input_value("X", TensorType(DType.F32, (3,)))

    def repeated(value: Value, *sizes: int) -> Value:
        return scope_value(Scope(sizes, read(0, (traversal(0),)), DType.F32, (2,)), (value,))

    def scaled(*factors: int) -> Value:
        value = x
        for factor in factors:
            value = scope_value(Scope((3,), apply("*", num(factor), read(0, (traversal(0),))), DType.F32), (value,))
        return value

    assert isinstance(compare([repeated(scaled(6), 2, 3)], [repeated(scaled(2, 3), 2, 3)]), Equal)
    assert not isinstance(compare([repeated(scaled(6), 2, 3)], [repeated(scaled(2, 3), 3, 2)]), Equal)


def test_one_expression_in_two_types_is_two() -> None:
    """What is doubled in 8 bits wraps around, and in 64 bits does not."""
    narrow, wide = (scope_value(Scope((3,), num(100), dtype), ()) for dtype in (DType.I8, DType.I64))

    def large(value: Value) -> Value:
        element = read(0, (traversal(0),))
        return scope_value(Scope((3,), apply(">", apply("+", element, element), num(150)), DType.BOOL), (value,))

    assert not isinstance(compare([large(wide)], [large(narrow)]), Equal)

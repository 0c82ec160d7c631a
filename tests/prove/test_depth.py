"""Rules with far more operators in a row than Python calls may be nested."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dslc.prove.run.provers import deeply, exact_verdict, prover_verdict
from dslc.semantics.library import Rules, load_many

_LENGTH = 150
_FUNCTIONS = ("relu", "exp", "tanh", "sqrt")


def _chain(name: str, first: str, second: str) -> str:
    """A rule about a chain of functions with one operator of two tensors in its middle, that it rewrites."""

    def side(temporary: str, middle: str) -> list[str]:
        lines, last = [], "X"
        for k in range(_LENGTH):
            new = f"{temporary}{k}" if k + 1 < _LENGTH else "Y"
            value = middle.format(last) if k == _LENGTH // 2 else f"{_FUNCTIONS[k % 4]}({last})"
            lines.append(f"  {new} = {value}")
            last = new
        return lines

    sides = [*side("A", first), "  =>", *side("C", second)]
    return "\n".join([f"substitution {name}(X: T[N, M], B: T[N, M]) -> Y {{", "  where floating(T)", *sides, "}", ""])


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Rules:
    path: Path = tmp_path_factory.mktemp("chains") / "chains.rules"
    head = "dslc 1\nimport std (add, sub, relu, exp, tanh, sqrt)\n"
    path.write_text(head + _chain("right", "add({}, B)", "add(B, {})") + _chain("wrong", "sub({}, B)", "sub(B, {})"))
    return load_many([path])


def test_a_chain_of_150_operators_is_proved(rules: Rules) -> None:
    found = prover_verdict(rules, rules.substitutions["chains.right"], "exact")
    assert (found.answer, found.scope) == ("equal", "")


def test_a_wrong_chain_of_150_operators_is_not(rules: Rules) -> None:
    found = prover_verdict(rules, rules.substitutions["chains.wrong"], "exact")
    assert found.answer != "equal" and "Recursion" not in found.reason


def test_without_a_larger_stack_the_chain_is_too_deep(rules: Rules) -> None:
    with pytest.raises(RecursionError):
        exact_verdict(rules, rules.substitutions["chains.right"])


def test_what_a_function_raises_and_the_limit_of_calls_come_back() -> None:
    before = sys.getrecursionlimit()

    def depth(left: int) -> int:
        return 0 if left == 0 else 1 + depth(left - 1)

    assert deeply(lambda: deeply(lambda: depth(20 * before))) == 20 * before
    with pytest.raises(ZeroDivisionError):
        deeply(lambda: 1 // 0)
    assert sys.getrecursionlimit() == before
    with pytest.raises(RecursionError):
        depth(20 * before)

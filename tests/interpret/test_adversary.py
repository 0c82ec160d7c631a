"""Instances that look for mistakes: at the numbers that a rule names, where ordinary ones show nothing."""

from __future__ import annotations

import numpy as np
import pytest

from dslc.interpret.adversary import differing, smallest
from dslc.interpret.check_rule import check_substitution
from dslc.semantics.library import Rules, load

RULES = """dslc 1
import std (add, cast, concat, mul)

substitution late(X: T[N]) -> Y {
  Y = mul(X, N // 37)
  =>
  Y = mul(X, 0)
}

substitution never(X: T[N]) -> Y {
  Y = mul(X, N // 37 * 37 + N % 37)
  =>
  Y = mul(X, N)
}

substitution rounds(X: int32[*S]) -> Y {
  Y = cast(cast(X, to = f16), to = int32)
  =>
  Y = X
}
"""


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Rules:
    path = tmp_path_factory.mktemp("adversary") / "near.rules"
    path.write_text(RULES)
    return load(path)


def test_what_differs_at_a_number_of_the_rule_is_found_there_only(rules: Rules) -> None:
    late = rules.substitutions["near.late"]
    assert check_substitution(rules, late, adverse=0).passed
    assert check_substitution(rules, late).status == "differs"
    found = differing(rules, late, np.random.default_rng(0), 60)
    assert found is not None
    assert found.difference.way == "values"
    assert found.instance.drawn["N"] >= 37


def test_what_differs_nowhere_is_not_found(rules: Rules) -> None:
    assert differing(rules, rules.substitutions["near.never"], np.random.default_rng(0), 60) is None


def test_two_numbers_are_shown_before_a_side_without_one(rules: Rules) -> None:
    """Most integers are none after they went through f16, and a few are others."""
    sub = rules.substitutions["near.rounds"]
    found = differing(rules, sub, np.random.default_rng(0), 60)
    assert found is not None
    small = smallest(rules, sub, found.instance, "undefined")
    assert small is not None
    assert small.difference.way == "values"
    assert np.asarray(next(iter(small.difference.feeds.values()))).size <= 4

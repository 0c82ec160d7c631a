"""Rules about merged dimensions are proved at a few group counts where they are too hard at all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslc.prove.instances.exploration import instance_set
from dslc.prove.instances.instances import at_combinations
from dslc.prove.run.provers import exact_verdict
from dslc.semantics.library import Rules, load, standard

HEADER = "dslc 1\nimport std (conv, concat)\n"
BRANCHES = """substitution branches(X: T[N, C, *D], Z: T[N, B, *D], K: T[(G, F), P, *R], L: T[(H, F), P, *R]) -> Y {
  Y = concat(conv(X, K, groups=G), conv(Z, L, groups=H), axis=1)
  where rank(D) == 1
  =>
  Y = conv(concat(X, Z, axis=1), concat(K, L, axis=0), groups=%s)
}
"""


@pytest.fixture(scope="module")
def std() -> Rules:
    return standard()


def loaded(folder: Path, text: str) -> Rules:
    (folder / "groups.rules").write_text(HEADER + text, "utf-8")
    return load(folder / "groups.rules")


def test_branches_become_groups_figure_9a(tmp_path: Path) -> None:
    rules = loaded(tmp_path, BRANCHES % "G + H")
    verdict = exact_verdict(rules, rules.substitutions["groups.branches"])
    assert verdict.answer == "equal"
    assert " in 1, 2, 3" not in verdict.scope  # at all group counts


def test_filters_in_the_wrong_order_are_never_proved(tmp_path: Path) -> None:
    wrong = (BRANCHES % "G + H").replace("concat(K, L", "concat(L, K")
    rules = loaded(tmp_path, wrong)
    assert exact_verdict(rules, rules.substitutions["groups.branches"]).answer != "equal"


def test_as_few_sizes_as_possible_are_numbers(std: Rules) -> None:
    """The number of channels that are stacked has to be known; the image and the filters do not need to."""
    sub = next(sub for name, sub in std.substitutions.items() if name.endswith("focus_into_conv"))
    # what is too hard is given up the sooner
    verdict = exact_verdict(std, sub, 2.0)
    assert verdict.answer == "equal"
    assert verdict.scope.endswith("; C in 1, 2, 3")


def test_combinations_that_a_guard_excludes_are_left_out(std: Rules) -> None:
    sub = next(sub for name, sub in std.substitutions.items() if name.endswith("merge_grouped_convs"))
    covered = instance_set(std, sub)
    numbered = at_combinations(covered, ["G"], [(1,), (2,), (3,)])
    assert numbered is not None
    assert len(numbered.instances) == 2 * len(covered.instances)  # `where G > 1`
    assert all(size.name != "G" for instance in numbered.instances for size in instance.sizes)

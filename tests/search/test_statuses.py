"""Which rules a search may use: what their locks and the cache say, and what is proved where nobody knows."""

from __future__ import annotations

from pathlib import Path

from dslc.search.rulesets import chosen_rules
from dslc.search.statuses import statuses, usable
from dslc.semantics.library import load_many, standard


def test_a_rule_with_a_mode_chosen_has_the_verdict_of_its_lock(tmp_path: Path) -> None:
    def told(_done: int, _total: int) -> None:
        raise AssertionError("a rule of the library is proved again")

    rules = load_many(["std", "taso_generated"])
    own = [name for name, sub in rules.substitutions.items() if sub.module.library == "taso_generated"]
    chosen = chosen_rules(rules, own)
    definitions = list(dict.fromkeys(rule.definition for rule in chosen))
    # a padding or an activation is chosen in some: these are definitions of their own
    assert len(definitions) > len(own)
    found = statuses(rules, definitions, tmp_path, told=told)
    assert set(found) == set(own)
    assert not usable(chosen, found, ())[1]
    assert not list(tmp_path.iterdir())


def test_strict_floats_leaves_out_rules_that_say_that_they_change_infinities() -> None:
    """`log(exp(x))` is x but where `exp` overflows; data movement changes no number at all."""
    every, strict = ({rule.name for rule in chosen_rules(standard(), strict_floats=strict)} for strict in (False, True))
    for name in ("log_of_exp", "reassociate_matmul", "reassociate_matmul^-1", "div_distributes", "max_pools_in_chain"):
        assert f"std.{name}" in every - strict
    for name in ("double_neg", "transpose_of_transpose", "merge_matmuls", "relu_of_relu"):
        assert f"std.{name}" in strict

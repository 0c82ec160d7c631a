"""The library that `dslc generate` made of TASO's Table 1 and that is shipped: it is used without any proof at run time."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest
from click.testing import CliRunner

from dslc.cli.main import cli
from dslc.interpret import special
from dslc.prove.evidence.digest import rule_digest
from dslc.prove.evidence.lock import LOCK, read_lock
from dslc.search.runs.selection import chosen_rules
from dslc.semantics.library import load, load_many

FOLDER = Path(str(resources.files("dslc.rules.taso_generated")))
FILE = FOLDER / "taso_generated.rules"
OPERATORS = (
    "ewadd", "ewmul", "smul", "transpose", "matmul", "conv", "enlarge", "relu", "pool_avg", "pool_max", "concat", "split",
)  # fmt: skip


def test_every_rule_of_it_is_proved_in_its_lock() -> None:
    rules = load("taso_generated")
    lock = read_lock(FOLDER / LOCK)
    own = [one for one in rules.substitutions.values() if one.module.library == "taso_generated"]
    assert not lock.problem
    assert len(own) > 100
    for one in own:
        verdict = lock.of(one.name, rule_digest(rules, one))
        assert verdict is not None, f"{one.name} has changed, or what it is made of: generate or verify again"
        assert verdict.status in {"proved", "bounded"}


def test_its_rule_sets_are_the_rules_by_size() -> None:
    rules = load("taso_generated")
    sets = {name.removeprefix("taso_generated.") for name in rules.rulesets if name.startswith("taso_generated.")}
    assert {"size_1", "size_2", "size_3", "size_4"} <= sets


def test_taso_itself_does_not_load_it() -> None:
    assert not [name for name in load_many(["taso"]).substitutions if name.startswith("taso_generated.")]


def test_all_operators_of_table_1_occur_in_it() -> None:
    text = FILE.read_text("utf-8").partition("export ")[2]
    assert [name for name in OPERATORS if f"{name}(" not in text] == []


@pytest.mark.parametrize("command", [["check"], ["fmt", "--check"]])
def test_it_is_well_formed(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # one instance of each rule with special numbers, as those of the other libraries have in tests
    monkeypatch.setattr(special, "INSTANCES", 1)
    monkeypatch.setattr(special, "COMPARED", 2)
    result = CliRunner().invoke(cli, [*command, str(FILE)], standalone_mode=False)
    assert result.exception is None and not result.return_value, result.output


def test_as_many_rules_as_pact_2024_has_are_a_rule_set() -> None:
    rules = load_many(["std", "taso_generated"])
    found = chosen_rules(rules, ["pact24"])
    several = {rule.name.partition("^")[0] for rule in found if len(rule.left.tops) > 1}
    every = {rule.name.partition("^")[0] for rule in found}
    assert (len(every - several), len(several)) == (124, 15)

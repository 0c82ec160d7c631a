"""`dslc list`, and operators found by the names that users know them by."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest
from click.testing import CliRunner

from dslc.cli.list import command
from dslc.cli.main import run as command_line
from dslc.errors import DslcError
from dslc.inspection.lookup import called, onnx_names, operator_named
from dslc.search.options.strategies import STRATEGIES
from dslc.semantics.installed import BUILTIN, libraries
from dslc.semantics.library import Rules, load
from dslc.semantics.targets import TARGETS

OWN = '''dslc 1
library acme.filters 0.3.0
import std (add, mul)
export twice
operator twice(X: T[N]) -> Y: T[N] {
  """Twice its input. And more."""
  Y[i] = 2 * X[i]
  onnx com.acme.Twice(X) since 1
}
substitution once(X: T[N]) -> Y {
  Y = add(X, X)
  =>
  Y = twice(X)
}
property twice_adds(A: T[N], B: T[N]) { holds twice(add(A, B)) == add(twice(A), twice(B)) }
ruleset mine { include acme.filters.* }
'''


def listed(*arguments: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(command, [*arguments, "--output-format", "json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert isinstance(found, list)
    return found


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "filters.rules"
    path.write_text(OWN)
    return path


def test_every_operator_is_listed_once(std: Rules) -> None:
    found = listed("operators")
    assert [row["name"] for row in found] == sorted(std.operators)
    by_name = {row["name"]: row for row in found}
    assert "MaxPool" in by_name["std.max_pool"]["onnx"]
    # nodes that are read as an expression of several operators
    assert set(by_name["std.silu"]["onnx"]) >= {"SwiGLU", "Swish"}
    assert by_name["std.conv"]["used_by"] > 20 and Path(by_name["std.conv"]["path"]).name == "conv.rules"


def test_operators_are_chosen_by_onnx_name_and_pattern() -> None:
    assert "std.max_pool" in [row["name"] for row in listed("operators", "--onnx", "maxpool")]
    assert {row["name"] for row in listed("operators", "--operator", "max_*")} >= {"std.max_pool"}
    assert listed("operators", "--onnx", "NoSuchNode") == []


@pytest.mark.parametrize("what", ["operators", "rules"])
def test_a_name_that_no_operator_has_is_an_error_and_a_pattern_is_none(what: str) -> None:
    with pytest.raises(DslcError, match="E0909") as caught:
        CliRunner().invoke(command, [what, "--operator", "Conv"], catch_exceptions=False)
    assert caught.value.diagnostics[0].hint == "did you mean `conv`, which ONNX calls Conv?"
    assert listed(what, "--operator", "nosuch*") == []


def test_rules_are_chosen_by_operator_status_set_and_kind(std: Rules) -> None:
    everything = listed("rules")
    assert len(everything) == len(std.substitutions) + len(std.laws) + len(std.derivations) + len(std.lowerings)
    of_conv = listed("rules", "--operator", "conv")
    assert of_conv and all("std.conv" in row["operators"] for row in of_conv)
    assert {row["name"] for row in of_conv} <= {row["name"] for row in listed("rules", "--onnx", "Conv")}
    proved = listed("rules", "--status", "proved", "--set", "simplify")
    assert proved and all(row["status"] == "proved" and "std.simplify" in row["sets"] for row in proved)
    laws = listed("rules", "--kind", "law")
    assert {row["name"] for row in laws} == set(std.laws)
    assert sum(row["tests"] for row in everything) <= len(std.tests)


def test_what_a_file_defines_is_listed_without_what_it_imports(own: Path) -> None:
    (operator,) = listed("operators", "--library", str(own))
    assert (operator["name"], operator["doc"], operator["onnx"]) == (
        "acme.filters.twice",
        "Twice its input",
        ["com.acme.Twice"],
    )
    assert operator["used_by"] == 2
    rules = {row["name"]: row for row in listed("rules", "--library", str(own))}
    assert set(rules) == {"acme.filters.once", "acme.filters.twice_adds"}
    assert rules["acme.filters.once"]["status"] == "" and rules["acme.filters.once"]["sets"] == ["acme.filters.mine"]
    assert listed("rules", "--library", str(own), "--status", "unknown") == list(rules.values())


def test_a_lock_that_anyone_may_have_written_is_in_brackets(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dslc.prove.evidence.digest import rule_digest
    from dslc.prove.evidence.lock import lock_path, write_lock
    from dslc.prove.verdict import RuleVerdict

    loaded = load(own)
    rule = loaded.substitutions["acme.filters.once"]
    write_lock(lock_path(rule), {rule.name: RuleVerdict(rule.name, "proved", (), rule_digest(loaded, rule), "")})
    (row,) = listed("rules", "--library", str(own), "--status", "proved")
    assert (row["status"], row["counts"]) == ("proved", False)
    assert command_line(["list", "rules", "--library", str(own)]) == 0
    assert "(proved)" in capsys.readouterr().out


def test_libraries_are_those_that_can_be_named(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {row["name"]: row for row in listed("libraries")}
    assert set(found) >= set(BUILTIN) and all(row["problem"] == "" for row in found.values())
    place = tmp_path / "place"
    (place / "acme.filters").mkdir(parents=True)
    own.rename(place / "acme.filters" / "filters.rules")
    (place / "broken").mkdir()
    (place / "broken" / "a.rules").write_text("dslc 1\noperator (((\n")
    monkeypatch.setenv("DSLC_PATH", str(place))
    assert set(libraries()) >= {"acme.filters", "broken", "std"}
    found = {row["name"]: row for row in listed("libraries")}
    assert (found["acme.filters"]["version"], found["acme.filters"]["operators"], found["acme.filters"]["rules"]) == (
        "0.3.0",
        1,
        2,
    )
    assert "E01" in found["broken"]["problem"]


def test_targets_and_strategies_are_those_of_the_options() -> None:
    assert [row["on"] for row in listed("targets")] == list(TARGETS)
    assert [row["name"] for row in listed("strategies")] == list(STRATEGIES)
    assert any("--simulations" in row["options"] for row in listed("strategies"))


def test_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["list", "targets", "--onnx", "Conv"]) == 2
    assert command_line(["list", "operators", "--status", "proved"]) == 2
    assert command_line(["list", "rules", "--set", "nothing"]) == 2
    assert "rule sets: " in capsys.readouterr().err
    assert command_line(["list", "rules", "--library", "no.such.library"]) == 2


def test_an_operator_is_found_by_its_onnx_name(std: Rules) -> None:
    for node, clauses in std.onnx.items():
        own = {clause.operator for clause in clauses if clause.operator is not None}
        if own:
            assert operator_named(std, node) in own
        else:
            with pytest.raises(DslcError, match=r"E0201 no operator is ONNX.s .*such a node is read as"):
                operator_named(std, node)
    # of the two operators that a node with three outputs may be, the one with one
    assert len(operator_named(std, "LayerNormalization").syntax.outputs) == 1


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("max", "`maximum`, which ONNX calls Max"),
        ("maxpool", "`max_pool`"),
        ("convolve", "`conv"),
        ("soft", "`soft"),
        ("qqq", ""),
    ],
)
def test_a_name_that_is_none_is_answered_by_the_likely_one(std: Rules, name: str, hint: str) -> None:
    with pytest.raises(DslcError) as caught:
        operator_named(std, name)
    assert hint in caught.value.diagnostics[0].hint and bool(hint) == bool(caught.value.diagnostics[0].hint)


def test_calls_are_counted_as_they_are_written(own: Path) -> None:
    rules = load(own)
    law = rules.laws["acme.filters.twice_adds"]
    assert called(law.module, law.syntax) == {"acme.filters.twice": 3, "std.add": 2}
    assert onnx_names(rules)["acme.filters.twice"] == {"com.acme.Twice": None}


def test_what_an_installed_library_defines_is_found_by_its_prefix(own: Path, tmp_path: Path) -> None:
    """As pip installs it: a package, and a folder that says which library it is."""
    package = tmp_path / "site" / "acme_filters"
    package.mkdir(parents=True)
    own.rename(package / "filters.rules")
    about = tmp_path / "site" / "acme_filters-0.3.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-filters\nVersion: 0.3.0\n")
    (about / "entry_points.txt").write_text("[dslc.libraries]\nacme.filters = acme_filters\n")
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    script = (
        "from dslc.cli.main import run\n"
        "assert run(['show', 'acme.filters.twice']) == 0\n"
        "assert run(['explain', 'acme.filters.once']) == 0\n"
        "assert run(['list', 'libraries']) == 0\n"
        "assert run(['why-not', 'acme.filters.once', 'model.onnx', '--steps', '0']) == 0\n"
        "assert run(['show', 'acme.filters.thrice']) == 2\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
    )  # fmt: skip
    assert done.returncode == 0, done
    assert "operator twice(X: T[N])" in done.stdout and "acme.filters.once: substitution" in done.stdout
    assert "acme.filters.once: Does not apply." in done.stdout
    assert "acme.filters    0.3.0" in done.stdout and "no operator is named `acme.filters.thrice`" in done.stderr

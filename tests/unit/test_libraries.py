"""Which library a `.rules` file belongs to: what its header says, the one whose file names it, or none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from dslc.checking.rule_tests import run_tests
from dslc.cli.check import command
from dslc.cli.new import command as new
from dslc.errors import DslcError
from dslc.semantics.library import load, load_many, modules_of

ROOT = "dslc 1\nlibrary acme 1.0.0\nimport .named\n"
OPERATOR = "operator twice(X: T[N]) -> Y: T[N] { Y[i] = 2 * X[i] }\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "acme.rules").write_text(ROOT)
    (tmp_path / "named.rules").write_text("dslc 1\nimport .further (thrice)\n" + OPERATOR)
    (tmp_path / "further.rules").write_text("dslc 1\n" + OPERATOR.replace("twice", "thrice"))
    (tmp_path / "apart.rules").write_text("dslc 1\n" + OPERATOR)
    return tmp_path


def operators(*names: Path) -> list[str]:
    return sorted(load_many(names).operators)


def test_a_file_that_no_library_names_stands_alone(folder: Path) -> None:
    assert operators(folder / "apart.rules") == ["apart.twice"]


def test_a_file_that_the_library_names_belongs_to_it_also_through_another(folder: Path) -> None:
    assert operators(folder / "named.rules") == ["acme.thrice", "acme.twice"]
    assert operators(folder / "further.rules") == ["acme.thrice"]


def test_what_is_loaded_again_is_the_same_until_it_or_an_import_changes(folder: Path) -> None:
    before = load(folder / "named.rules").operators
    again = load(folder / "named.rules").operators
    assert all(again[name] is one for name, one in before.items())
    # a file is another one where what it imports is, itself or by an alias
    (folder / "further.rules").write_text("dslc 1\n" + OPERATOR.replace("twice", "thrice").replace("2 *", "3 *"))
    after = load(folder / "named.rules").operators
    assert after.keys() == before.keys() and not any(after[name] is one for name, one in before.items())
    assert after["acme.twice"].module.names["thrice"] is after["acme.thrice"]
    # and in another library, or with the first text again
    (folder / "acme.rules").write_text(ROOT.replace("acme", "other"))
    assert sorted(load(folder / "named.rules").operators) == ["other.thrice", "other.twice"]
    aliased = folder / "aliased.rules"
    aliased.write_text("dslc 1\nimport .further\n" + OPERATOR.replace("2 * X[i]", "X[i]"))
    first = load(aliased).operators["aliased.twice"]
    assert load(aliased).operators["aliased.twice"] is first
    (folder / "further.rules").write_text("dslc 1\n" + OPERATOR.replace("twice", "thrice"))
    assert load(aliased).operators["aliased.twice"] is not first


def test_every_file_of_a_folder_that_is_asked_for_belongs_to_its_library(folder: Path) -> None:
    (folder / "apart.rules").write_text("dslc 1\n" + OPERATOR.replace("twice", "once"))
    assert sorted(load(folder).operators) == ["acme.once", "acme.thrice", "acme.twice"]


def test_two_files_with_the_same_names_are_two_libraries(folder: Path) -> None:
    assert operators(folder / "apart.rules", folder / "named.rules") == ["acme.thrice", "acme.twice", "apart.twice"]


def test_a_neighbour_s_mistake_does_not_hide_one_s_own(folder: Path) -> None:
    (folder / "acme.rules").write_text(ROOT + "operator (((\n")
    (folder / "apart.rules").write_text("dslc 1\n" + OPERATOR.replace("X[i]", "Z[i]"))
    result = CliRunner().invoke(command, [str(folder / "apart.rules"), "--output-format", "concise"])
    assert "apart.rules" in result.output
    assert "acme.rules" not in result.output


def test_a_library_of_a_folder_is_checked_as_one(folder: Path) -> None:
    result = CliRunner().invoke(command, [str(folder), "--output-format", "concise"])
    assert "E0204" in result.output
    with pytest.raises(DslcError, match="E0204"):
        load(folder)


def test_an_installed_library_is_read_and_never_run(tmp_path: Path) -> None:
    """As pip installs what `dslc new` starts; its `__init__.py` would leave a file behind."""
    assert CliRunner().invoke(new, ["acme.net", "--folder", str(tmp_path / "source")]).exit_code == 0
    package = tmp_path / "site" / "acme_net"
    shutil.copytree(tmp_path / "source" / "acme_net", package)
    (package / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    about = tmp_path / "site" / "acme_net-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-net\nVersion: 0.1.0\n")
    (about / "entry_points.txt").write_text("[dslc.libraries]\nacme.net = acme_net\n")
    run = subprocess.run(
        [sys.executable, "-m", "dslc", "check", "acme.net"], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
    )  # fmt: skip
    assert run.returncode == 0 and "1 file checked" in run.stderr, run
    assert not (tmp_path / "ran").exists()


def test_what_a_new_library_ships(tmp_path: Path) -> None:
    assert CliRunner().invoke(new, ["acme.net", "--folder", str(tmp_path)]).exit_code == 0
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))
    assert set(project["tool"]["setuptools"]["package-data"]["acme_net"]) == {"*.rules", "**/*.j2", "dslc.lock"}
    assert project["project"]["entry-points"]["dslc.libraries"] == {"acme.net": "acme_net"}


def test_a_place_is_shown_from_the_folder_one_works_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "apart.rules").write_text("dslc 1\n" + OPERATOR.replace("X[i]", "X[j]"))
    monkeypatch.chdir(folder)
    for name in ("apart.rules", str(folder / "apart.rules")):
        shown = CliRunner().invoke(command, [name, "--output-format", "concise"]).output
        assert [line.partition(" ")[0] for line in shown.splitlines()] == ["apart.rules:2:1:", "apart.rules:2:51:"]


def test_the_library_of_the_documentation_passes_its_own_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "libraries.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(new, ["acme.filters"]).output
    assert f"```text\n{said}```" in page
    root = tmp_path / "acme.filters" / "acme_filters" / "filters.rules"
    found = re.search(r"^```rules\n(.*?)^```$", page, re.M | re.S)
    assert found is not None
    root.write_text(found[1], "utf-8")
    assert CliRunner().invoke(command, [str(root.parent)]).exit_code == 0
    rules = load(root)
    outcomes = run_tests(rules, modules=modules_of(rules, [str(root)]), trials=2)
    named = [one for one in outcomes if one.name.startswith("acme.filters.")]
    assert {one.name.rpartition(".")[2] for one in named} >= {"emphasis", "written_out", "filter_once"}
    assert all(one.passed for one in named), named

"""Which library a `.rules` file belongs to: what its header says, the one whose file names it, or none."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dslc.cli.check import command
from dslc.errors import DslcError
from dslc.semantics.library import load, load_many

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

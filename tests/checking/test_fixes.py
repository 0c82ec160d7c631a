"""`dslc check --fix`, comments that ignore a warning, and what a project says in its `pyproject.toml`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dslc.checking.files import Edited, check_files
from dslc.checking.fixes import mend
from dslc.checking.project import project_of
from dslc.cli.main import run
from dslc.errors import DslcError
from dslc.semantics.library import load_many

BODY = '{\n  """F."""\n  Y = relu(X)\n}\n'
HEAD = "operator f(X: T[*S]) -> Y: T[*S] "


def mended(folder: Path, text: str) -> tuple[str, list[str]]:
    """A text with the edits of its diagnostics, and the codes of what is left."""
    path = (folder / "probe.rules").resolve()
    files = Edited()
    files.edit(path, text)
    found = mend(files, path)
    assert found.text == files.texts[path].file.source.text
    return found.text, [one.code for one in found.left]


FIXES = {
    "unused import": (f"dslc 1\nimport std (neg, relu, abs)\n{HEAD}{BODY}", f"dslc 1\nimport std (relu)\n{HEAD}{BODY}"),
    "whole import": (f"dslc 1\nimport std (neg)\nimport std (relu)\n{HEAD}{BODY}", f"dslc 1\nimport std (relu)\n{HEAD}{BODY}"),
    "import": (f"dslc 1\n{HEAD}{BODY}", f"dslc 1\nimport std (relu)\n{HEAD}{BODY}"),
    "first line": (f"import std (relu)\n{HEAD}{BODY}", f"dslc 1\nimport std (relu)\n{HEAD}{BODY}"),
    "name": (f"dslc 1\nimport std (relu)\n{HEAD}{BODY}".replace("relu(X)", "rel(X)"), f"dslc 1\nimport std (relu)\n{HEAD}{BODY}"),
    "imported name": (f"dslc 1\nimport std (relu_)\n{HEAD}{BODY}", f"dslc 1\nimport std (relu)\n{HEAD}{BODY}"),
    "keyword": (f"dslc 1\nimport std (relu)\n{HEAD}{BODY}".replace("operator", "opertor"), f"dslc 1\nimport std (relu)\n{HEAD}{BODY}"),
    "element type": (
        f"dslc 1\nimport std (relu)\n{HEAD}{BODY}".replace("T[", "float32["),
        f"dslc 1\nimport std (relu)\n{HEAD}{BODY}".replace("T[", "f32["),
    ),
    "signs": (
        f"dslc 1\n{HEAD}{BODY}".replace("Y = relu(X)", "Y[*s] = X[*s] × 2 if X[*s] ≤ 1 && X[*s] ≥ 0 else X[*s] ** 2"),
        f"dslc 1\n{HEAD}{BODY}".replace("Y = relu(X)", "Y[*s] = X[*s] * 2 if X[*s] <= 1  and  X[*s] >= 0 else X[*s] ^ 2"),
    ),
    "attribute": (
        f"dslc 1\nimport std (softmax)\n{HEAD}{BODY}".replace("relu(X)", "softmax(X, axs=0)"),
        f"dslc 1\nimport std (softmax)\n{HEAD}{BODY}".replace("relu(X)", "softmax(X, axis=0)"),
    ),
    "comment": (f"dslc 1\nimport std (relu)\n{HEAD}{BODY}# dslc: ignore W0008\n", f"dslc 1\nimport std (relu)\n{HEAD}{BODY}"),
}  # fmt: skip


@pytest.mark.parametrize("name", FIXES)
def test_what_a_hint_says_is_written(tmp_path: Path, name: str) -> None:
    before, after = FIXES[name]
    text, left = mended(tmp_path, before)
    assert (text, left) == (after, [])


def test_an_edit_that_does_not_help_is_not_kept(tmp_path: Path) -> None:
    # `mul` is not imported: `max` is near, and takes other things
    text = f"dslc 1\n{HEAD}{BODY}".replace("relu(X)", "mxx(X, X, y=2)")
    assert mended(tmp_path, text)[1] != []
    assert mended(tmp_path, "dslc 1\n# nothing\n") == ("dslc 1\n# nothing\n", [])


def test_the_command_mends_files_and_says_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "probe.rules"
    path.write_text(FIXES["unused import"][0], encoding="utf-8")
    assert run(["check", "--fix", str(path)]) == 0
    assert path.read_text("utf-8") == FIXES["unused import"][1]
    said = capsys.readouterr().err
    assert said.count("W0007") == 2 and "nothing found" in said


# ---- comments ------------------------------------------------------------------------------------------------------

NO_DOC = f"dslc 1\nimport std (relu)\n{HEAD}{{ Y = relu(X) }}\n"


def codes(folder: Path, text: str) -> list[str]:
    path = folder / "probe.rules"
    path.write_text(text, encoding="utf-8")
    return [one.code for one in check_files([path])]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (NO_DOC, ["W0008"]),
        (NO_DOC.replace("{ Y", "{ # dslc: ignore W0008\n  Y"), []),
        (NO_DOC.replace("operator", "# dslc: ignore W0008, W0009 as a test\noperator"), ["W0016"]),
        (NO_DOC.replace("{ Y", "{ # dslc: ignore W0007\n  Y"), ["W0008", "W0016"]),
        (NO_DOC.replace("}\n", "} # dslc: ignore E0201\n"), ["W0008", "W0016"]),
        (NO_DOC.replace("}\n", "} # dslc: ignore\n"), ["W0008", "W0016"]),
        (NO_DOC.replace("}\n", "} # dslc: ignored are all of these\n"), ["W0008"]),
        # an error is no warning, and where there is one not every warning is looked for
        (NO_DOC.replace("relu(X)", "relu(Z)").replace("{ Y", "{ # dslc: ignore W0001, E0201\n  Y"), ["W0008", "E0201"]),
    ],
)  # fmt: skip
def test_a_comment_ignores_a_warning_of_its_line(tmp_path: Path, text: str, left: list[str]) -> None:
    assert sorted(codes(tmp_path, text)) == sorted(left)


def test_a_code_without_effect_leaves_its_comment(tmp_path: Path) -> None:
    text = NO_DOC.replace("operator", "# dslc: ignore W0008, W0009 as a test\noperator")
    assert mended(tmp_path, text) == (text.replace(", W0009", ""), [])


# ---- pyproject.toml --------------------------------------------------------------------------------------------------


def test_a_project_ignores_warnings(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.dslc]\nignore = ["W0008"]\n', encoding="utf-8")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert codes(inner, NO_DOC) == []


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ('[tool.dslc]\nignored = ["W0008"]\n', "2:1", "has no key `ignored`"),
        ('[project]\nname = "x"\n\n[tool.dslc]\n  ignore = ["W0008", "E0201"]\n', "5:22", "`E0201` is an error"),
        ('[tool.dslc]\nignore = "W0008"\n', "2:1", "`ignore` is a list"),
        ("[tool.dslc]\nbudget = 3\n", "2:1", "`budget` is a time"),
        ("[tool.dslc]\nbudget = \n", "2:10", "is not TOML"),
    ],
)
def test_settings_that_make_no_sense_are_said_with_their_place(
    tmp_path: Path, text: str, place: str, message: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    with pytest.raises(DslcError) as raised:
        project_of(tmp_path)
    (found,) = raised.value.diagnostics
    assert found.code == "E0916" and message in found.message
    assert str(found.span).endswith(f"pyproject.toml:{place}")
    assert "E0916" in codes(tmp_path, NO_DOC)


def test_a_project_says_what_commands_do_without_being_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '[tool.dslc]\nrules = ["own.rules"]\nbudget = "soon"\ntarget = "cpu"\n'
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert run(["optimize", "absent.onnx", "--dry-run"]) == 1
    assert "pyproject.toml:3:1" in capsys.readouterr().err
    # what is said on the command line comes first
    (tmp_path / "pyproject.toml").write_text(text.replace("soon", "0"), encoding="utf-8")
    assert run(["optimize", "absent.onnx", "--dry-run", "--on", "nowhere"]) == 2
    assert run(["explain", "f"]) == 2
    assert "own.rules" in capsys.readouterr().err


def test_files_are_watched_until_an_interrupt(tmp_path: Path) -> None:
    path = tmp_path / "probe.rules"
    path.write_text(NO_DOC, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "dslc", "check", "--watch", "--output-format", "concise", str(path)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        # a job in the background ignores Ctrl-C, and so do its children
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stdout is not None
    try:
        assert "W0008" in process.stdout.readline()
        time.sleep(0.3)
        path.write_text(NO_DOC.replace("relu(X)", "rel(X)"), encoding="utf-8")
        found = "".join(process.stdout.readline() for _ in range(3))
        assert all(code in found for code in ("W0007", "W0008", "E0201"))
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        process.stdout.close()


def test_an_import_that_makes_a_file_part_of_the_library_stays(tmp_path: Path) -> None:
    """Without it, the file would stand alone under its own name whenever another one of the library is asked for."""
    root, part = tmp_path / "acme.rules", tmp_path / "vision.rules"
    root.write_text("dslc 1\nlibrary acme 0.1.0\nimport .vision (halve)\nimport std.pointwise (add)\n")
    part.write_text('dslc 1\noperator halve(X: T[*S]) -> Y: T[*S] {\n  """Half."""\n  Y[*i] = X[*i] / 2\n}\n')
    assert run(["check", "--fix", str(root)]) == 0
    assert root.read_text() == "dslc 1\nlibrary acme 0.1.0\nimport .vision\n"
    assert "acme.halve" in load_many([root]).operators
    assert run(["check", str(tmp_path)]) == 0

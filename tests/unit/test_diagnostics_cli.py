"""The command line as a user meets it: exit codes, clear errors, and never a traceback."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from dslc.cli.main import COMMANDS, run


def test_version_names_what_decides_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("dslc ")
    assert "onnxruntime " in out


def test_version_is_fast_and_python_dash_m_is_the_same() -> None:
    """0.06 s on an idle machine, as what takes long is not imported."""
    command = [sys.executable, "-X", "importtime", "-m", "dslc", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("dslc ")
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "dslc.cli.main" in imported
    assert not imported & {
        "numpy",
        "onnx",
        "onnxruntime",
        "lark",
        "islpy",
        "sympy",
        "z3",
        "dslc.api",
        "dslc.search.options.settings",
    }


def test_help_imports_no_command() -> None:
    code = "import sys; from dslc.cli.main import run; run(['--help']); print([m for m in sys.modules if m in ('numpy', 'lark')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("[]")
    assert all(name in done.stdout for name in COMMANDS)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["chek"], "Did you mean `check`?"),
        (["fmt", "--chek"], "--chek"),
        (["explain"], "name a code"),
        (["explain", "E9999"], "`dslc explain --list` names all codes"),
        (["mutants", "relu(X: f32[2])", "--budget", "0.01s"], "at least 0.1s"),
        (["check", "--output-format", "xml", "a.rules"], "xml"),
    ],
)
def test_wrong_use_exits_with_2(args: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(args) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_missing_is_named(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """For each command that cannot do without: its first argument, and never an internal error."""
    command = importlib.import_module(COMMANDS[name][0]).command
    if not any(isinstance(one, click.Argument) and one.required for one in command.params):
        return
    assert run([name]) == 2
    assert "Missing argument" in capsys.readouterr().err


@pytest.mark.parametrize("data", [b"\x08\x08:\xbd", b"\x08\x08:="])
def test_a_model_is_no_file_of_rules_and_the_converse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes
) -> None:
    model, rules = tmp_path / "model.onnx", tmp_path / "my.rules"
    # whether its bytes are text or not
    model.write_bytes(data)
    rules.write_text("dslc 1\n")
    assert run(["check", str(model)]) == 1
    assert "E0107]: this is an ONNX model, not a rule file" in (said := capsys.readouterr().out)
    assert "`dslc why-not RULE MODEL`" in said
    assert run(["test", str(model)]) == 1
    assert "E0107]: this is an ONNX model, not a rule file" in capsys.readouterr().err
    assert run(["optimize", str(rules), "--dry-run"]) == 1
    assert "my.rules is a rule file, not an ONNX model" in (said := capsys.readouterr().err)
    assert f"`dslc optimize MODEL --rules {rules}`" in said


def test_a_result_that_is_defined_as_a_whole_needs_no_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pack in the type of such a result has nothing that it could come from."""
    (tmp_path / "my.rules").write_text(
        "dslc 1\nimport std.activation (relu)\n"
        'operator twice(X: T[N]) -> Y: T[*O] {\n  """Twice."""\n  Y = relu(relu(X))\n}\n'
    )
    assert run(["check", str(tmp_path / "my.rules")]) == 1
    out = capsys.readouterr().out
    assert "E0310" in out and "`-> Y` without a type has that of its equation" in out


def test_an_internal_error_is_one_message(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("DSLC_DEBUG", raising=False)
    monkeypatch.setitem(COMMANDS, "explain", ("dslc.no_such_module", ""))
    assert run(["explain", "E0101"]) == 1
    assert "error[E0907]" in capsys.readouterr().err
    monkeypatch.setitem(COMMANDS, "explain", ("dslc.version", ""))
    assert run(["explain", "E0101"]) == 1
    assert "error[E0901]" in capsys.readouterr().err
    monkeypatch.setenv("DSLC_DEBUG", "1")
    with pytest.raises(AttributeError):
        run(["explain", "E0101"])


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m dslc explain --list | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env={**os.environ}, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_new_library_is_right_and_formatted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "acme"
    assert run(["new", "acme.conv", "--folder", str(root)]) == 0
    assert run(["check", str(root)]) == 0
    assert run(["fmt", "--check", str(root)]) == 0
    out = capsys.readouterr().out
    assert "error" not in out and "warning" not in out
    assert run(["new", "acme.conv", "--folder", str(root)]) == 2
    assert run(["new", "Acme", "--folder", str(tmp_path / "other")]) == 2
    assert not (tmp_path / "other").exists()


def test_explain_shows_pages_rules_and_operators(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "e0103"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("E0103: ") and "Wrong:" in page and "Right:" in page and "```" not in page
    assert run(["explain", "merge_matmuls"]) == 0
    text = capsys.readouterr().out
    assert "split(matmul(A, concat(B, C, axis=1))" in text
    assert "status: " in text and "field: equal (" in text and "exact: " in text
    assert run(["explain", "std.concat"]) == 0
    assert "properties: associative" in capsys.readouterr().out
    assert run(["explain", "merge_matmul"]) == 2
    assert "did you mean `merge_matmuls`?" in capsys.readouterr().err


def test_check_reads_libraries_files_and_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.rules"
    bad.write_text("dslc 1\nlet f(x) = (\n")
    assert run(["check", str(tmp_path), "--output-format", "concise"]) == 1
    assert capsys.readouterr().out == f"{bad}:2:12: E0103 this `(` is never closed\n"
    assert run(["check", "no_such_library"]) == 2
    assert "E0203" in capsys.readouterr().err


def test_explain_says_what_becomes_of_infinities(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "reassociate_matmul"]) == 0
    shown = capsys.readouterr().out
    assert "numerics: reassociates" in shown and "numerics: nonfinite" in shown and "--strict-floats" in shown
    assert run(["explain", "double_neg"]) == 0
    assert "numerics" not in capsys.readouterr().out

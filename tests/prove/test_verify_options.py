"""`dslc verify`: what sets its exit code, what is looked for, and how wide its table is; shell completion of every command."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dslc.checking.verification import below
from dslc.cli.main import run
from dslc.cli.verify import command
from dslc.errors import error
from dslc.prove.guards import find_guards
from dslc.semantics.library import load

RULE = "substitution twice(X: T[N]) -> Y {\n  Y = relu(relu(X))\n  =>\n  Y = relu(X)\n}\n"
WRONG = "dslc 1\nimport std (add)\nsubstitution wrong(X: T[N]) -> Y {\n  Y = add(X, X)\n  =>\n  Y = X\n}\n"


def verified(*options: str) -> Result:
    return CliRunner().invoke(command, [*options, "--jobs", "0"], standalone_mode=False)


@pytest.mark.parametrize(("require", "code"), [(None, 0), ("bounded", 0), ("proved", 1)])
def test_what_is_required_sets_the_exit_code(require: str | None, code: int) -> None:
    options = [
        "std",
        "--rule",
        "relu_of_relu",
        "--rule",
        "relu_through_max_pool",
        *(["--require", require] if require else []),
    ]
    found = verified(*options)
    assert found.return_value == code
    assert ("less than proved: std.relu_through_max_pool" in found.stderr) is (code == 1)


def test_a_rule_that_is_only_tested_is_less_than_bounded(tmp_path: Path) -> None:
    file = tmp_path / "own.rules"
    file.write_text(
        'dslc 1\nimport std (relu)\nsubstitution mine(X: T[N]) -> Y {\n  Y = relu(X)\n  =>\n  Y = X\n  trusted "so"\n}\n'
    )
    assert verified(str(file), "--require", "bounded", "--no-lock").return_value == 1


def test_guards_are_looked_for_only_where_wanted_and_take_part_in_the_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "own.rules"
    file.write_text(WRONG)
    asked = []

    def slowly(*args: object, **more: object) -> tuple[()]:
        asked.append(args)
        clock = time.perf_counter
        monkeypatch.setattr(time, "perf_counter", lambda: clock() + 100)
        return ()

    monkeypatch.setattr("dslc.checking.verification.find_guards", slowly)
    without = verified(str(file), "--no-lock", "--no-guards")
    assert asked == []
    found = verified(str(file), "--no-lock")
    assert len(asked) == 1
    assert without.return_value == found.return_value == 1
    assert float(found.stdout.split()[-2]) >= 100


def test_a_counterexample_is_shown_before_guards_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A search for guards takes seconds, and nobody should wait for a refutation that is there."""
    file, told = tmp_path / "own.rules", []

    def looked(*_: object, **more: object) -> tuple[()]:
        told.append(capfd.readouterr().err)
        return ()

    file.write_text(WRONG)
    monkeypatch.setattr("dslc.checking.verification.find_guards", looked)
    assert run(["verify", str(file), "--jobs", "0", "--no-lock"]) == 1
    assert "error[E0501]: the sides of `own.wrong` differ" in told[0]
    assert told[0].endswith("\nlooking for conditions under which `own.wrong` would hold (--no-guards skips this)\n")
    assert "E0501" not in capfd.readouterr().err
    assert run(["verify", str(file), "--jobs", "0", "--no-lock", "--output-format", "json"]) == 1
    assert told[1] == "" and capfd.readouterr().out.count('"E0501"') == 1


def test_what_is_not_named_is_named_first(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Without arguments the whole standard library is proved, or tested, which takes a while."""
    assert run(["verify", "--rule", "double_neg", "--jobs", "0"]) == 0
    said = capfd.readouterr()
    assert said.err == "proving std; name a file or a library to prove others\n"
    # the prover was not asked again
    assert run(["verify", "std", "--rule", "double_neg", "--jobs", "0"]) == 0
    said = capfd.readouterr()
    assert said.err == "" and said.out.count("cached") == 2
    assert run(["test", "-k", "double_neg"]) == 0
    assert capfd.readouterr().err == "testing std; name a file or a library to test others\n"
    assert run(["test", "-k", "double_neg", "--output-format", "json"]) == 0
    assert capfd.readouterr().err == ""
    monkeypatch.setattr("dslc.generate.library.generate", raising)
    assert run(["generate"]) == 2
    assert "comparing graphs of all operators of taso that have laws; name operators" in capfd.readouterr().err


def raising(*_: object) -> None:
    raise error("E0909", "enough")


def test_a_guard_is_found_for_a_free_number(tmp_path: Path) -> None:
    file = tmp_path / "own.rules"
    rule = "substitution scaled(X: T[*S]) -> Y {\n  Y = relu(mul(X, c))\n  =>\n  Y = mul(relu(X), c)\n}\n"
    file.write_text("dslc 1\nimport std (mul, relu)\n" + rule)
    rules = load(file)
    assert find_guards(rules, rules.substitutions["own.scaled"], steps=4000)[0].text == "c >= 0"


def test_a_table_in_a_pipe_is_as_wide_as_its_names() -> None:
    found = verified("std", "--rule", "transpose_through_left_broadcast", "--rule", "relu_of_relu")
    assert "std.transpose_through_left_broadcast" in found.stdout
    assert "…" not in found.stdout
    assert below([], "proved") == []


@pytest.mark.parametrize(("words", "wanted"), [("dslc ver", "verify"), ("dslc verify --req", "--require")])
def test_a_shell_completes_commands_and_options(words: str, wanted: str) -> None:
    env = {**os.environ, "_DSLC_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    script = "import sys; sys.argv = ['dslc']; from dslc.cli.main import run; sys.exit(run())"
    shown = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines() == [f"plain,{wanted}"]


def test_processes_load_the_same_libraries(tmp_path: Path) -> None:
    (tmp_path / "acme.rules").write_text("dslc 1\nlibrary acme 1.0.0\n")
    (tmp_path / "apart.rules").write_text("dslc 1\nimport std.activation (relu)\n" + RULE)
    for given in (tmp_path, tmp_path / "apart.rules"):
        found = CliRunner().invoke(command, [str(given), "--jobs", "1", "--no-lock"], standalone_mode=False)
        assert "1 proved" in found.stdout, found.output

"""Names of models and rules do nothing to a terminal, whatever is in them."""

from __future__ import annotations

import json
import re
import sys
import warnings
from io import StringIO
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from dslc.cli.main import run
from dslc.cli.progress import progress
from dslc.cost.clock import Clock
from dslc.diagnostics.render import FORMATS, full, render
from dslc.errors import Diagnostic, DslcError
from dslc.terminal import console, guarded, print_table, say

#: colours, titles and links, clearing, backspaces, C1 controls, turned order, markup, emojis, line ends that hide a line
NAMES = ("\x1b[31mRED", "\x1b]0;title\x07", "\x1b]8;;http://x\x1b\\", "\x9b2J", "a\b\b", "a\rb", "\u202etxt", "\u2066x",
         "\u2028b", "\0", "\x7f")  # fmt: skip
MARKUP = ("[red]a[/red]", ":warning:", "[/]", "[bold", "\\[x]", "[link=http://x]a")
ACTS = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
WHOLE = "".join(NAMES)


def model(path: Path, bad: str = "Exp") -> Path:
    given = [helper.make_tensor_value_info(f"{each}{WHOLE}", TensorProto.FLOAT, [f"N{WHOLE}", 64]) for each in "xy"]
    nodes = [
        helper.make_node(bad, [f"x{WHOLE}"], [f"t{WHOLE}"], name=f"n{WHOLE}[red]"),
        helper.make_node("Relu", [f"t{WHOLE}"], [f"y{WHOLE}"], name=f"m{WHOLE}"),
    ]
    graph = helper.make_graph(nodes, f"g{WHOLE}", given[:1], given[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def quiet(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    run(words)
    found = "".join(capsys.readouterr())
    assert found and not ACTS.search(found), repr(ACTS.search(found))
    return found


def test_commands_about_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = str(model(tmp_path / "one.onnx")), str(model(tmp_path / "other.onnx", "Nope"))
    quiet(capsys, "optimize", one, "--apply", "-v", "-o", str(tmp_path / "fast.onnx"))
    quiet(capsys, "optimize", other, "--apply", "-o", str(tmp_path / "fast.onnx"))
    quiet(capsys, "optimize", one, "--bind", f"{WHOLE}=x".replace("\0", ""))
    quiet(capsys, "why-not", "std.relu_relu", one)
    quiet(capsys, "bench", one, other, "--budget", "1s")
    quiet(capsys, "diff", one, other)
    quiet(capsys, "build", one)


def test_commands_about_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.rules"
    for text in (
        f"dslc 1\n\noperator f(X: T[N]) -> Y {{ Y[i: N] = X[{WHOLE}] }}\n",
        f'dslc 1\n\nimport "{WHOLE}" as x\n',
        WHOLE,
    ):
        file.write_text(text, "utf-8")
        for form in ("full", "concise", "github"):
            quiet(capsys, "check", str(file), "--output-format", form)
        quiet(capsys, "fmt", "--check", "--diff", str(file))
        quiet(capsys, "verify", str(file))
    quiet(capsys, "show", WHOLE.replace("\0", ""))
    quiet(capsys, "show", "std.relu")
    quiet(capsys, "check", str(tmp_path / (WHOLE.replace("\0", "").replace("/", "") + ".rules")))
    quiet(capsys, WHOLE.replace("\0", ""))


@pytest.mark.parametrize("name", NAMES)
def test_streams_tables_errors_and_warnings(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with guarded():
        print(name, file=sys.stderr)
        print(name)
        sys.stderr.write(warnings.formatwarning(name, UserWarning, "file.py", 1, ""))
        print_table(("a", name), [(name, "b")])
        console().print(f"note: {name}")
        say(full([Diagnostic("E0801", name, label=name, counterexample=name, hint=name, path=name)]), err=True)
    found = "".join(capsys.readouterr())
    assert not ACTS.search(found) and "\N{REPLACEMENT CHARACTER}" in found
    assert not ACTS.search(str(DslcError([Diagnostic("E0801", name, hint=name, path=name)])))


@pytest.mark.parametrize("form", FORMATS)
def test_diagnostics_in_every_form(form: str) -> None:
    assert not ACTS.search(
        render([Diagnostic("E0801", WHOLE, label=WHOLE, hint=WHOLE, counterexample=WHOLE, path=WHOLE)], form)
    )


def test_json_keeps_what_a_name_is(capsys: pytest.CaptureFixture[str]) -> None:
    with guarded():
        print(json.dumps({"name": WHOLE}))
    assert json.loads(capsys.readouterr().out) == {"name": WHOLE}


@pytest.mark.parametrize("name", MARKUP)
def test_markup_and_emojis_are_text(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with guarded():
        print_table((name,), [(name,)])
        console().print(f"note: {name}")
    assert capsys.readouterr().out.count(name) == 3


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("verbose", [False, True])
def test_a_bar_on_a_terminal(verbose: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What moves the cursor is the bar's own: nothing of a name is."""
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    with guarded(), progress(Clock(), False, verbose) as told:
        told.phase(f"rules of {WHOLE} [red]x")
        print(WHOLE, file=sys.stderr)
    # the bar's own: colours, the cursor, and lines that are cleared
    rest = re.sub(r"\x1b\[[0-9;?]*[A-Zhlm]|\r", "", shown.getvalue().replace("\x1b[31mRED", "BAD"))
    assert "BAD" not in rest and not ACTS.search(rest) and (not verbose or "[red]x" in rest)

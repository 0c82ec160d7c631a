"""The formatter: idempotent, keeps comments, reparses to the same tree, on real files and on generated trees."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings

from dslc.cli.fmt import command
from dslc.cli.main import run
from dslc.errors import SourceText
from dslc.syntax import tree as t
from dslc.syntax.kept import parse_kept
from dslc.syntax.parser import parse, read_source
from dslc.syntax.printer import WIDTH, format_source, print_file, show
from tests.unit.trees import files

ROOT = Path(__file__).parents[2]
RULES = sorted((ROOT / "rules").rglob("*.rules"))


def fmt(text: str) -> str:
    return format_source(SourceText("x.rules", text))


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_real_files(path: Path) -> None:
    source = read_source(path)
    text = format_source(source)
    # what comes out as it went in is the same file, formatted: so it is with shipped ones
    if text != source.text:
        before = parse(source)
        after = parse(SourceText("again", text))
        assert after == before
        assert [(c.text, c.own_line) for c in after.comments] == [(c.text, c.own_line) for c in before.comments]
        assert fmt(text) == text
    assert max(map(len, text.splitlines())) <= WIDTH


@given(files())
@settings(max_examples=15)
def test_generated_trees(file: t.File) -> None:
    text = print_file(file)
    assert parse(SourceText("printed", text)) == file, text
    formatted = fmt(text)
    assert parse(SourceText("formatted", formatted)) == file
    assert fmt(formatted) == formatted


def test_comments_stay_where_they_are() -> None:
    text = """# first
dslc 1   # version

# before
import .a (b,   # b is for
           c)
let f(x)=x# one


# free

operator g( X:T[*S] )->Y:T[*S]{   # head
  # doc is next
  \"\"\"Two
     lines.\"\"\"
  attr long_name: int=1 # a
      # between
  attr k:int = 2

  Y[*i]=X[*i]
  # at the end
}
# last"""
    assert (
        fmt(text)
        == """# first
dslc 1                                          # version

# before
import .a (b,   # b is for
           c)
let f(x) = x                                    # one

# free

operator g(X: T[*S]) -> Y: T[*S] {              # head
  # doc is next
  \"\"\"Two
     lines.\"\"\"
  attr long_name: int = 1                       # a
  # between
  attr k:         int = 2

  Y[*i] = X[*i]
  # at the end
}
# last
"""
    )


def test_parentheses_are_those_that_are_needed_or_help() -> None:
    def value(text: str) -> str:
        return fmt(f"dslc 1\nlet f(x) = {text}\n").split(" = ", 1)[1].strip()

    assert value("((a+b))*(c)") == "(a + b) * c"
    assert value("a-(b-c)-(d*e)") == "a - (b - c) - d * e"
    assert value("(sum[k: K] x[k])+1") == "(sum[k: K] x[k]) + 1"
    assert value("(-x)^2 - -x^2") == "(-x) ^ 2 - -x ^ 2"
    assert value("(a or b) and (not (c==d)) or (e and f)") == "((a or b) and not c == d) or (e and f)"
    assert value("(a if b else c) if d else (e if g else h)") == "(a if b else c) if d else e if g else h"
    assert value("1/2*x/y") == "1/2 * x / y"
    assert value("x[*(a+b), (g,c), other = 0]") == "x[*(a + b), (g, c), other=0]"


def test_long_lines_break_like_the_standard_library() -> None:
    text = "dslc 1\noperator f(" + ", ".join(f"X{k}: T[N, C, *D]" for k in range(9)) + ") -> Y: T[N] { Y[n] = 0 }"
    lines = fmt(text).splitlines()
    assert lines[2].startswith("           X6: T[N, C, *D]")
    assert max(map(len, lines)) <= WIDTH
    head = "dslc 1\nlet f(x) = "
    choice = f"{'a' * 50} if {'b' * 30} else {'c' * 50} if d else 0"
    assert fmt(head + choice) == f"{head.rstrip()}\n  {'a' * 50} if {'b' * 30} else\n  {'c' * 50} if d else 0\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a  +b*( c )", "a + b * c"),
        ("{ [ i:2 ]  x[i] }", "{[i: 2] x[i]}"),
        ("f( x , k=1 , **a ).Y", "f(x, k=1, **a).Y"),
    ],
)
def test_show_writes_nodes_on_one_line(text: str, shown: str) -> None:
    item = parse(SourceText("x", f"dslc 1\nlet f(x) = {text}")).items[0]
    assert isinstance(item, t.Function)
    assert show(item.body) == shown
    assert show(item) == f"let f(x) = {shown}"


def test_every_node_can_be_shown() -> None:
    seen: Counter[type[t.Node]] = Counter()
    for path in RULES:
        for node in t.walk(parse_kept(read_source(path))):
            seen[type(node)] += 1
            # many of a kind are shown by what the first were shown by
            if seen[type(node)] <= 200:
                assert show(node) or isinstance(node, t.Str | t.Where)
    assert len(seen) > 40


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.rules", tmp_path / "bad.rules"
    good.write_text("dslc 1\nlet f(x) = x\n")
    bad.write_bytes(b"dslc 1\r\nlet   g(x)=x\r\n")
    assert run(["fmt", "--check", str(tmp_path)]) == 1
    assert "would format" in capsys.readouterr().err
    assert run(["fmt", "--diff", str(bad)]) == 1
    assert "+let g(x) = x" in capsys.readouterr().out
    assert bad.read_bytes().endswith(b"g(x)=x\r\n")
    assert run(["fmt", str(tmp_path)]) == 0
    assert bad.read_bytes() == b"dslc 1\nlet g(x) = x\n"
    assert run(["fmt", "--check", str(tmp_path)]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.rules", "good.rules"]


def test_command_on_standard_input_and_on_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = CliRunner().invoke(command, ["-"], input="dslc 1\nlet f(x)=x", standalone_mode=False)
    assert (done.return_value, done.output) == (0, "dslc 1\nlet f(x) = x\n")
    broken = tmp_path / "broken.rules"
    broken.write_text("dslc 1\nlet f(x) =\n")
    assert run(["fmt", str(broken)]) == 1
    assert "error[E0113]" in capsys.readouterr().err
    assert broken.read_text() == "dslc 1\nlet f(x) =\n"
    assert run(["fmt", str(tmp_path / "none.rules")]) == 2

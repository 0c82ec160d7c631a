"""Options stand once: the command line and `dslc.optimize` are made from the fields of one dataclass."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import dslc
from dslc.cli.main import cli, run
from dslc.cli.options import options_of
from dslc.search.candidate import Candidate
from dslc.search.option import flag, option, options
from dslc.search.settings import Settings, WrongOption, settings_of, strategy_options
from dslc.search.strategies import STRATEGIES, name_of
from dslc.search.strategy import Space

sys.path.insert(0, str(Path(__file__).parent))
DOCS = Path(__file__).parents[2] / "docs"


def test_every_option_is_on_the_command_line_and_in_its_documentation() -> None:
    said = CliRunner().invoke(cli, ["optimize", "--help"]).output
    page = (DOCS / "cli.md").read_text("utf-8")
    for one, about in options(Settings):
        written = flag(one.name, about, one.default)
        assert f"{written} " in said, written
        assert f"`{written}" in page, f"docs/cli.md does not have {written}"
        assert " ".join(about.help.split()) in " ".join(said.split())


def test_the_signature_in_python_has_the_same_options_and_defaults() -> None:
    parameters = inspect.signature(dslc.optimize).parameters
    fields = {one.name: (one, about) for one, about in options(Settings) if about.python}
    assert set(parameters) == {"model", *fields}
    for name, (one, about) in fields.items():
        if parameters[name].default is not None:
            assert settings_of({name: parameters[name].default}) == settings_of({}), name
        assert f"{name}: " in (dslc.optimize.__doc__ or ""), name
        assert one.default in (parameters[name].default, ({},)), name
        assert about.help


@pytest.mark.parametrize(
    ("name", "texts", "value"),
    [
        ("budget", "1.5m", 90.0), ("patience", "500ms", 0.5), ("only", ("std.relu_*",), "std.relu_*"),
        ("allow", ("tested,trusted",), ["tested", "trusted"]), ("bind", ("N=1,8", "S=64"), {"N": [1, 8], "S": 64}),
        ("inputs", Path("data.npz"), "data.npz"), ("rules", ("a.rules",), Path("a.rules")),
    ],
)  # fmt: skip
def test_texts_of_the_command_line_mean_the_same_as_values_in_python(name: str, texts: Any, value: Any) -> None:
    assert settings_of({name: texts}) == settings_of({name: value})
    assert getattr(settings_of({name: value}), name) != getattr(settings_of({}), name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("budget", "soon"), ("budget", -1.0), ("patience", float("inf")), ("allow", "refuted"), ("bind", {"N": [1, 2], "M": [1, 2, 3]}),
        ("mutant_limit", 0.0), ("mutant_limit", 1.5), ("file_growth", -1.0), ("file_growth", "much"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_wrong_use_in_both(name: str, value: Any) -> None:
    with pytest.raises(WrongOption) as wrong:
        settings_of({name: value})
    assert wrong.value.name == name
    with pytest.raises(dslc.DslcError, match="E0906"):
        dslc.optimize("no.onnx", **{name: value})


@dataclass(frozen=True, slots=True)
class Greedy:
    """Finds nothing, as deep as one wants."""

    depth: int = field(default=3, metadata=option("How deep it looks.", type=int, least=1, metavar="N"))

    def explore(self, space: Space) -> Iterator[Candidate]:
        return iter(())


def test_a_strategy_is_a_class_and_a_line_and_brings_its_own_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STRATEGIES, "greedy", Greedy)  # type: ignore[arg-type]
    seen: list[Settings] = []

    @click.command()
    @options_of(Settings, strategy_options())
    def command(**given: Any) -> None:
        seen.append(settings_of({name: value for name, value in given.items() if value is not None} | {"strategy": "greedy"}))

    result = CliRunner().invoke(command, ["--depth", "7", "--seed", "2"])
    assert result.exit_code == 0, result.output
    assert seen[0].strategy == Greedy(7) and seen[0].seed == 2 and name_of(seen[0].strategy) == "greedy"
    assert CliRunner().invoke(command, ["--depth", "0"]).exit_code == 2
    assert settings_of({"strategy": "greedy"}).strategy == Greedy(3)
    with pytest.raises(WrongOption, match="backtrack has no such option"):
        settings_of({"strategy": "backtrack", "depth": 4})


def test_an_unknown_strategy_is_refused() -> None:
    found = CliRunner().invoke(cli, ["optimize", "m.onnx", "--dry-run", "--strategy", "guess"])
    assert found.exit_code == 2 and "backtrack" in found.output


def test_an_e_graph_is_written_by_strategies_that_make_one() -> None:
    for name, strategy in STRATEGIES.items():
        given = {"strategy": name, "dump_egraph": Path("e.json")}
        if strategy.egraphs:
            assert settings_of(given).dump_egraph == Path("e.json")
            continue
        with pytest.raises(WrongOption, match="makes no e-graph") as wrong:
            settings_of(given)
        assert wrong.value.name == "dump_egraph"


def test_an_option_may_have_two_names() -> None:
    """`--search` is `--strategy`."""
    given: list[str] = []

    @click.command()
    @options_of(Settings)
    def command(**values: Any) -> None:
        given.append(values["strategy"])

    for flag_ in ("--search", "--strategy"):
        assert CliRunner().invoke(command, [flag_, "mcts"]).exit_code == 0
    assert given == ["mcts", "mcts"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--alpha", "nan"], "--alpha"),
        (["--tolerance", "nan"], "--tolerance"),
        (["--strategy", "mcts", "--near", "5"], "--near"),
        (["--bind", "n=4", "--bind", "n=5"], "n is bound twice"),
        (["--bind", "n=9223372036854775808"], "64 bits"),
        (["--report", "out.onnx"], "E0908"),
        (["--report", "model.onnx"], "E0908"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_any_work(
    wrong: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.onnx").write_bytes(b"it is not read")
    assert run(["optimize", "model.onnx", "-o", "out.onnx", *wrong]) != 0
    assert said in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_nothing_is_written_in_place_by_a_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["optimize", "model.onnx", "--in-place", "--dry-run"]) == 2
    assert "--dry-run or --in-place" in capsys.readouterr().err

"""Options stand once: the command line and `dslc.optimize` are made from the fields of one dataclass."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx.parser import parse_model

import dslc
from dslc.cli.main import cli, run
from dslc.cli.options import options_of
from dslc.search.candidates.candidate import Candidate
from dslc.search.options.option import count, flag, options
from dslc.search.options.settings import Settings, WrongOption, settings_of, strategy_options, switched_on
from dslc.search.options.strategies import STRATEGIES, name_of
from dslc.search.strategies.space import Space

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


def test_help_begins_with_what_a_newcomer_needs_and_the_documentation_has_its_groups() -> None:
    said = CliRunner().invoke(cli, ["optimize", "--help"], terminal_width=500).output.partition("\nOptions:\n")[2]
    groups = [part.partition(":\n") for part in ("Options:\n" + said).split("\n\n")]
    titles = [title.split()[0] for title, _, _ in groups]
    assert titles == ["Options", "Output", "Rules", "Timing", "Target", "Search", "Mutants", "Research"]
    first, output = (re.findall(r"^  .*?(--[a-z-]+)", rows, re.M) for _, _, rows in groups[:2])
    assert first == ["--output", "--dry-run", "--report", "--rules", "--on", "--bind", "--budget", "--apply"]
    assert {"--in-place", "--verbose", "--help", "--specialize"} <= {*output}
    page = (DOCS / "cli.md").read_text("utf-8").partition("### `dslc report")[0]
    tables = page.split("\n| option | default | |\n|---|---|---|\n")
    heads = [re.findall(r"^(\w+).*:$", text, re.M)[-1:] for text in tables[1:-1]]
    assert [title for head in heads for title in head] == titles[1:]
    for (title, _, rows), table in zip(groups, tables[1:], strict=True):
        written = re.sub(r"(?m)(?<=\S)  .*$", "", rows)
        own, told = ({*re.findall(r"--[a-z-]+", text)} for text in (written, table))
        assert own - {"--quiet", "--verbose", "--help"} <= told, title


def test_the_signature_in_python_has_the_same_options_and_defaults() -> None:
    parameters = inspect.signature(dslc.optimize).parameters
    fields = {one.name: (one, about) for one, about in options(Settings) if about.python}
    assert set(parameters) == {"model", "args", "of_strategy", *fields}
    for name, (one, about) in fields.items():
        if parameters[name].default is not None:
            assert settings_of({name: parameters[name].default}) == settings_of({}), name
        # as deep as the arguments that are written by hand
        assert f"\n    {name}: " in (inspect.getdoc(dslc.optimize) or ""), name
        assert one.default in (parameters[name].default, ({},)) or about.shown == parameters[name].default, name
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
        # what a command line cannot say, and Python can
        ("threads", 0), ("threads", "2"), ("steps", -1), ("seed", 1.5), ("alpha", 0.5), ("alpha", "1.2"), ("tolerance", -1),
        ("mutant_depth", 0), ("timing", "no"), ("derive", 1), ("budget", True), ("on", None), ("layouts", 1), ("rules", 3),
        ("only", [3]), ("disable", None), ("inputs", {}), ("cache", 3), ("strategy", "guess"), ("strategy", 3),
        ("bind", {"N": 2.5}), ("bind", {"N": "4"}), ("bind", {"N": []}), ("bind", {3: 4}), ("bind", {"N": True}),
        ("bind", {"N": 2**63}),
    ],
)  # fmt: skip
def test_a_wrong_value_is_wrong_use_in_both(name: str, value: Any) -> None:
    with pytest.raises(WrongOption) as wrong:
        settings_of({name: value})
    assert wrong.value.name == name
    with pytest.raises(dslc.DslcError, match="E0906"):
        dslc.optimize("no.onnx", **{name: value})


def test_numbers_of_numpy_are_numbers() -> None:
    of_numpy = {
        "threads": np.int32(2),
        "alpha": np.float32(1.5),
        "timing": np.bool_(False),
        "bind": {"N": np.arange(1, 3)},
    }
    assert settings_of(of_numpy) == settings_of({"threads": 2, "alpha": 1.5, "timing": False, "bind": {"N": [1, 2]}})


def test_python_has_the_strategies_and_their_options() -> None:
    model = parse_model('<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }')
    assert dslc.optimize(model, budget=0, strategy="mcts", simulations=3).report.kept_original is False
    with pytest.raises(dslc.DslcError, match="no such option"):
        dslc.optimize(model, budget=0, simulations=3)
    with pytest.raises(TypeError, match="'simulation'"):
        dslc.optimize(model, budget=0, simulation=3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: dslc.optimize(3),
        lambda: dslc.optimize([b"bytes"]),  # type: ignore[arg-type]
        lambda: dslc.optimize_file("m.onnx", 3),
        lambda: dslc.load(["std"]),  # type: ignore[arg-type]
        lambda: dslc.verify(3),  # type: ignore[arg-type]
        lambda: dslc.verify("std", names="double_neg", workers=-1),
        lambda: dslc.session(None),
        lambda: dslc.session("m.onnx", threads=-1),
        lambda: dslc.register(None, 3),
    ],
)
def test_what_is_no_model_no_path_and_no_number_is_a_diagnostic(call: Callable[[], Any]) -> None:
    with pytest.raises(dslc.DslcError, match="E0906"):
        call()


def test_python_does_not_write_over_its_input_either(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    file.write_bytes(b"it is not read")
    with pytest.raises(dslc.DslcError, match="E0908"):
        dslc.optimize_file(file, tmp_path / "." / "m.onnx")
    assert file.read_bytes() == b"it is not read"


@dataclass(frozen=True, slots=True)
class Greedy:
    """Finds nothing, as deep as one wants."""

    depth: int = count(3, "How deep it looks.")

    def explore(self, space: Space) -> Iterator[Candidate]:
        return iter(())


def test_a_strategy_is_a_class_and_a_line_and_brings_its_own_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STRATEGIES, "greedy", Greedy)  # type: ignore[arg-type]
    seen: list[Settings] = []

    @click.command()
    @options_of(Settings, strategy_options())
    def command(**given: Any) -> None:
        seen.append(
            settings_of({name: value for name, value in given.items() if value is not None} | {"strategy": "greedy"})
        )

    result = CliRunner().invoke(command, ["--depth", "7", "--seed", "2"])
    assert result.exit_code == 0, result.output
    assert seen[0].strategy == Greedy(7) and seen[0].seed == 2 and name_of(seen[0].strategy) == "greedy"
    assert CliRunner().invoke(command, ["--depth", "0"]).exit_code == 2
    assert settings_of({"strategy": "greedy"}).strategy == Greedy(3)
    with pytest.raises(WrongOption, match="backtrack has no such option"):
        settings_of({"strategy": "backtrack", "depth": 4})


@pytest.mark.parametrize(
    ("given", "tidy"), [([], None), (["--tidy"], True), (["--no-tidy"], False), (["--no-tidy", "--tidy"], True)]
)
def test_what_a_strategy_does_beside_its_search_is_turned_off_and_may_be_said(
    given: list[str], tidy: bool | None
) -> None:
    seen: list[Any] = []

    @click.command()
    @options_of(Settings, strategy_options(), switched_on())
    def command(**known: Any) -> None:
        seen.append(known["tidy"])

    assert CliRunner().invoke(command, given).exit_code == 0
    assert seen == [tidy]
    assert "--no-tidy " in CliRunner().invoke(cli, ["optimize", "--help"]).output


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
        (["--report", "r.pdf"], "neither a page"),
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


def test_the_report_as_json_is_all_of_the_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, report = str(tmp_path / "m.onnx"), tmp_path / "r.json"
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { t = Identity(x) y = Relu(t) }'
    onnx.save(parse_model(text), model)
    told = ["--report", str(report), "--output-format", "json"]
    assert run(["optimize", model, "--dry-run", "--budget", "0", "-v", *told]) == 0
    printed = capsys.readouterr().out
    assert printed == report.read_text("utf-8") and json.loads(printed)["after"]["operators"] == 1
    assert run(["bench", model, model, "--budget", "100ms", "--output-format", "json"]) == 0
    timed = json.loads(capsys.readouterr().out)
    assert [one["model"] for one in timed["models"]] == [model, model] and timed["models"][0]["typical_ms"] > 0
    assert timed["ratio"] > 0 and {"low", "high", "machine", "notes"} <= set(timed)


def test_nothing_is_written_in_place_by_a_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["optimize", "model.onnx", "--in-place", "--dry-run"]) == 2
    assert "--dry-run or --in-place" in capsys.readouterr().err

"""What README, tutorial and changelog promise to somebody who reads them first."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import blocks
from benchmarks.modules import MODULES
from dslc.cli.main import run as command_line
from tests.caches import apart

ROOT = Path(__file__).parents[2]
README, TUTORIAL = ROOT / "README.md", ROOT / "docs" / "tutorial.md"


def named(page: Path, file: str) -> str:
    """The text of a page's block that is written to a file."""
    return next(block.text for block in blocks.blocks(page) if block.file == file)


@pytest.mark.parametrize(("page", "most"), [("README.md", 120), ("CHANGELOG.md", 40)])
def test_first_pages_are_short(page: str, most: int) -> None:
    assert len((ROOT / page).read_text("utf-8").splitlines()) <= most


def test_what_is_measured_says_when_on_what_and_how() -> None:
    text = README.read_text("utf-8")
    shown = [block for block in blocks.blocks(README) if "x faster" in block.text]
    assert len(shown) == 2 and all("CPUs" in block.text for block in shown)
    assert text.count("November 2026") == len(shown)


@pytest.mark.parametrize(("page", "file"), [(README, "totals.rules"), (TUTORIAL, "mine.rules")])
def test_the_broken_rule_is_refuted_as_the_page_shows(
    page: Path, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DSLC_CACHE", str(apart(tmp_path / "cache")))
    right = named(page, file)
    wrong = re.sub(r"^ *example .*\n", "", right.replace("sum[n] B", "max[n] B"), flags=re.M)
    assert wrong != right
    (tmp_path / file).write_text(wrong, "utf-8")
    assert command_line(["verify", str(tmp_path / file)]) == 1
    said = "".join(capsys.readouterr())
    (shown,) = (block.text for block in blocks.blocks(page) if "error[E0501]" in block.text)
    assert [line for line in shown.splitlines() if line and not line.startswith("$") and line.strip() not in said] == []


def test_the_tutorials_commands_print_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Line by line; times, and what is measured, differ from run to run."""
    monkeypatch.setenv("DSLC_CACHE", str(apart(tmp_path / "cache")))
    monkeypatch.chdir(tmp_path)
    found = list(blocks.blocks(TUTORIAL))
    for block in found:
        if block.file:
            Path(block.file).write_text(block.text, "utf-8")
    model = next(block.text for block in found if "parse_model" in block.text)
    exec(model, {})
    shown = [block for block in found if block.language == "console" and not block.skipped and not block.full]
    for line in (line for block in shown for line in block.text.splitlines()):
        if line.startswith("$ "):
            assert command_line(line.split()[2:]) == 0
            said = varying("".join(capsys.readouterr()))
        else:
            assert line == "..." or varying(line) in said, (line, said)
    assert len(shown) == 3


def varying(text: str) -> str:
    """A text without its times and ratios."""
    return re.sub(r"\d[\d.e+]*(?= ->| ms|x faster| s\b)", "_", text)


def test_the_tutorials_rule_makes_its_model_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own commands, with more time where the machine is busy: the rule that it teaches is a step of the result."""
    monkeypatch.setenv("DSLC_CACHE", str(apart(tmp_path / "cache", kernels=True)))
    monkeypatch.chdir(tmp_path)
    (command,) = (
        line for block in blocks.blocks(TUTORIAL) for line in block.commands if line.startswith("dslc optimize")
    )
    monkeypatch.setattr(blocks, "_line", lambda line: "")
    assert not any(blocks.ran(TUTORIAL, tmp_path).values())
    capsys.readouterr()
    for budget in ("20s", "90s"):
        assert command_line(command.replace("20s", budget).split()[1:]) == 0
        report = json.loads((tmp_path / "report.json").read_text("utf-8"))
        if not report["kept_original"]:
            break
    assert [step["rule"] for step in report["steps"]] == ["mine.sum_first"], report["reason"]
    assert report["ratio"] > report["ratio_low"] > 2
    said = capsys.readouterr().out
    assert "mine.sum_first" in said and "by 1 rule, proved" in said


def test_modules_are_written() -> None:
    assert {name: len(module().graph.node) for name, module in MODULES.items()} == {
        "mish": 3,
        "box-iou": 30,
        "totals": 2,
    }

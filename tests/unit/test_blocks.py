"""Every code block of README and docs runs here, is run by `python -m benchmarks.full documentation`, or says why it is not."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import onnx
import pytest

from benchmarks import blocks, neighbours
from benchmarks.blocks import RUN
from dslc.cli.main import run as command_line
from tests.caches import apart


def test_every_rules_block_passes_check_without_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those with a name beside each other, as their page says, each of the others alone; in one run, which reads std once."""
    files = [file for page in blocks.PAGES for file in blocks.rule_files(page, tmp_path)]
    assert len(files) > 12
    code = command_line(["check", "--output-format", "concise", *map(str, files)])
    said = capsys.readouterr()
    assert (code, said.out) == (0, ""), said


RUNNING = [page for page in blocks.PAGES if any(block.language in RUN for block in blocks.blocks(page))]


SHELL_LINE = blocks._line
#: seconds that searches and measurements have in the place of what a page gives them
LITTLE = "0.5"


def _line(line: str) -> str:
    """A command line as the page's, but with little time for a search, and what writes a page's model in this process."""
    program = shlex.split(line)
    if program[:3] == ["python", "-m", "benchmarks.neighbours"]:
        name, *which = program[3:]
        onnx.save(neighbours.model(manhattan="manhattan" in which), name)
        return ""
    return SHELL_LINE(re.sub(r"(?<=--budget )(?:2s|8|10s)\b", LITTLE, line))


@pytest.mark.parametrize("page", RUNNING, ids=lambda page: page.stem)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSLC_CACHE", str(apart(tmp_path / "cache", kernels=True)))
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.setattr(blocks, "_line", _line)
    assert {where: problem for where, problem in blocks.ran(page, folder).items() if problem} == {}


def test_what_does_not_run_says_why() -> None:
    for page in blocks.PAGES:
        for block in blocks.blocks(page):
            assert all(len(reason) > 8 for _, reason in block.full), block
            assert block.language in RUN or not (block.full or block.setup or block.skipped), block
            for begin, _ in block.full:
                assert block.language in blocks.SHELL or not begin, f"{block}: a mark is for a Python block as a whole"
                assert not begin or any(line.startswith(begin) for line in block.commands), (
                    f"{block}: no line begins with {begin}"
                )


def test_marks_and_commands_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- setup: touch before -->\n<!-- full dslc optimize: takes a minute -->\n```bash\ntest -e before   # a comment\n"
        "dslc optimize no.onnx\n```\n\n<!-- not run: it is no program -->\n```python\n1 +\n```\n\n```console\n$ false\nsaid\n```\n"
        "<!-- file: a.txt -->\n```text\nhere\n```\n<!-- setup: import os -->\n```python\nassert os.path.exists('a.txt')\n```\n"
    )
    first, second, third, _, fifth = blocks.blocks(page)
    assert first.commands == ["test -e before", "dslc optimize no.onnx"] and first.long("dslc optimize no.onnx")
    assert second.skipped == "it is no program" and third.commands == ["false"]
    folder = tmp_path / "folder"
    folder.mkdir()
    found = blocks.ran(page, folder)
    assert found == {str(first): "", str(third): "false\nexit code 1: ", str(fifth): ""}
    assert "dslc optimize no.onnx\nexit code 2" in blocks.ran(page, folder, full=True)[str(first)]
    page.write_text("<!-- maybe run: ? -->\n```bash\ntrue\n```\n")
    with pytest.raises(ValueError, match="means nothing"):
        list(blocks.blocks(page))

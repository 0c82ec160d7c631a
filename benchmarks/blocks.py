"""The code blocks of README and docs, run: rules are checked, Python and shell are executed, page by page.

    python -m benchmarks.blocks [--full] [PAGE ...]

Each page has a folder of its own, in which its blocks run in their order. Comments directly above a block say how:

    <!-- file: NAME -->           the block is written to that file, where later blocks find it
    <!-- setup: LINE -->          a line before the block, in its own language, that readers need not see
    <!-- full BEGIN: REASON -->   lines that begin so (all lines, without BEGIN) take long: with --full only
    <!-- not run: REASON -->      why a block runs nowhere

The tests run what is cheap (`tests/unit/test_blocks.py`), `python -m benchmarks.full documentation` all of it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md")
SHELL, RUN = ("bash", "sh", "console"), ("bash", "sh", "console", "python", "rules")
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^ *```$", re.M | re.S)
_MARKS = re.compile(r"(?:^ *<!-- [^\n]* -->\n)+\Z", re.M)
_MARK = re.compile(r"<!-- (file|setup|full|not run)\b ?(.*?): (.*) -->")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page. `full`: of each mark what the lines begin with that it means, and the reason; `skipped`: a reason."""

    page: Path
    line: int
    language: str
    text: str
    file: str = ""
    setup: tuple[str, ...] = ()
    full: tuple[tuple[str, str], ...] = ()
    skipped: str = ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def long(self, line: str) -> bool:
        """Whether a line runs with --full only."""
        return any(line.startswith(begin) for begin, _ in self.full)

    @property
    def commands(self) -> list[str]:
        """The command lines of a shell block: of a console those behind `$`, without comments."""
        lines = self.text.splitlines()
        if self.language == "console":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        return [bare for line in lines if (bare := re.sub(r"\s+# .*|^#.*", "", line).strip())]


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page.

    Raises:
        ValueError: for a comment above a block that means nothing.
    """
    text = page.read_text("utf-8")
    for found in _FENCE.finditer(text):
        inside = "".join(line.removeprefix(found["indent"]) for line in found["text"].splitlines(True))
        above = _MARKS.search(text, 0, found.start())
        line = text.count("\n", 0, found.start()) + 1
        said: dict[str, list[tuple[str, str]]] = {"file": [], "setup": [], "full": [], "not run": []}
        for comment in (above[0] if above else "").splitlines():
            mark = _MARK.fullmatch(comment.strip())
            if mark is None:
                raise ValueError(f"{page.name}:{line}: {comment} means nothing to {Path(__file__).name}")
            said[mark[1]].append((mark[2], mark[3]))
        yield Block(
            page, line, found["language"], inside, "".join(value for _, value in said["file"]),
            tuple(value for _, value in said["setup"]), tuple(said["full"]), "; ".join(value for _, value in said["not run"]),
        )  # fmt: skip


# ---- running -------------------------------------------------------------------------------------------------------


def ran(page: Path, folder: Path, full: bool = False) -> dict[str, str]:
    """Runs the blocks of a page in a folder, and gives for each block that ran what went wrong; empty where nothing did.

    Args:
        full: also what takes long.
    """
    out: dict[str, str] = {}
    before, path = Path.cwd(), os.environ.get("PYTHONPATH")
    try:
        os.chdir(folder)
        # what a block starts is to find these benchmarks
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), path)))
        for block in blocks(page):
            if block.file:
                (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
                (folder / block.file).write_text(block.text, "utf-8")
            if block.skipped or block.language not in RUN[:-1]:
                continue
            if block.language == "python":
                if full or not block.full:
                    out[str(block)] = _python(block)
            else:
                out[str(block)] = _shell(block, full)
    finally:
        os.chdir(before)
        if path is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = path
    return out


def _python(block: Block) -> str:
    code = "\n".join((*block.setup, block.text))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip()


def _shell(block: Block, full: bool) -> str:
    for line in (*block.setup, *block.commands):
        if full or not block.long(line):
            problem = _line(line)
            if problem:
                return f"{line}\n{problem}"
    return ""


def _line(line: str) -> str:
    """What went wrong with a command line. One of `dslc` alone runs in this process, which is there already."""
    parts = line.split(" && ")
    if line.startswith("cd "):
        os.chdir(line[3:].strip())
        return ""
    if all(part.startswith("dslc ") and not set("|><$`;").intersection(part) for part in parts):
        return next((problem for part in parts if (problem := _dslc(shlex.split(part)[1:]))), "")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    command = ["bash", "-euo", "pipefail", "-c", line]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path})
    return "" if done.returncode == 0 else f"exit code {done.returncode}: {(done.stderr or done.stdout).strip()}"


def _dslc(arguments: list[str]) -> str:
    from dslc.cli.main import run

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = run(arguments)
    return "" if code == 0 else f"exit code {code}: {said.getvalue().strip()}"


def rule_files(page: Path, folder: Path) -> list[Path]:
    """Writes the `rules` blocks of a page, those with a name into one folder, and what else has a name beside them."""
    files = []
    for number, block in enumerate(blocks(page)):
        place = folder / (page.stem.lower() if block.file else f"{page.stem.lower()}{number}")
        if block.language != "rules" and not block.file:
            continue
        path = place / (block.file or "".join((place.name.replace("-", "_"), ".rules")))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, "utf-8")
        if block.language == "rules" and not block.skipped:
            files.append(path)
    return files


def main(arguments: Iterable[str] | None = None) -> int:
    """The command line; exit code 1 where a block fails."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.blocks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="by default all of them")
    parser.add_argument("--full", action="store_true", help="also what takes long")
    chosen = parser.parse_args(None if arguments is None else list(arguments))
    wrong = 0
    for page in [one.resolve() for one in chosen.pages] or PAGES:
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            found = ran(page, Path(folder), chosen.full)
        bad = {where: problem for where, problem in found.items() if problem}
        wrong += len(bad)
        if found:
            print(
                f"{page.relative_to(ROOT)}: {len(found)} blocks, {len(bad)} wrong, {time.monotonic() - began:.1f} s",
                flush=True,
            )
        for where, problem in bad.items():
            print(f"{where}: {problem}", file=sys.stderr)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

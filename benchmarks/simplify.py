"""Nodes that `dslc optimize --apply` leaves of real models, and seconds, beside onnxslim's where that is installed.

    python -m benchmarks.simplify [NAME ...] [--onnxslim PYTHON] [--again] [--growth SHARE]

Nodes are those of the written file's main graph, as onnxslim counts them: constants that are nodes included, nodes inside others not.
Seconds are those of a command from its start to its end, and user seconds of all of its processes; dslc's command also runs both models
and compares their outputs, which onnxslim's does not. PYTHON is that of an environment which has onnxslim: nothing of it is imported
here. Rows are kept as they are measured, and a table that was interrupted goes on where it ended.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import onnx

from benchmarks import machine, models
from benchmarks.rows import Row, Rows, markdown

NAMES = (
    "picodet", "nudenet", "tashkeel", "nakdimon", "pp-ocr-det", "pp-ocr-rec", "pp-ocr-cls", "mtcnn-rnet", "mtcnn-onet", "magika",
    "minilm", "silero-vad", "silero-vad-ifless", "yolox", "ddddocr", "basic-pitch", "dnsmos",
)  # fmt: skip
KEPT = Path(__file__).parent / "results" / "simplify.json"


def nodes_of(path: Path) -> int:
    """How many nodes the main graph of a file has."""
    return len(onnx.load(path, load_external_data=False).graph.node)


def timed(command: Sequence[str]) -> tuple[float, float, str]:
    """Wall seconds and user seconds of a command and its processes, and what it said where it failed."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    user = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    return seconds, user, "" if done.returncode == 0 else (done.stderr or done.stdout).strip()


def applied(path: Path, folder: Path, growth: float | None, bind: Sequence[str]) -> Row:
    """What `dslc optimize --apply` makes of a model."""
    out, report = folder / "applied.onnx", folder / "report.json"
    command = [
        sys.executable,
        "-m",
        "dslc",
        "optimize",
        "--apply=simplify",
        str(path),
        "-o",
        str(out),
        "--report",
        str(report),
        "-q",
    ]
    seconds, user, problem = timed(command + [*bind] + ([] if growth is None else ["--file-growth", f"{growth:g}"]))
    if problem:
        return {"problem": problem}
    told = json.loads(report.read_text("utf-8"))
    compared = sum(told["phases"].get(name, 0.0) for name in ("running the original", "comparing outputs"))
    rules = {step["rule"]: step["count"] for step in told["steps"]}
    return {"nodes": nodes_of(out), "seconds": seconds, "user": user, "compared": compared, "rules": rules,
            "error": told["max_rel_error"]}  # fmt: skip


def slimmed(python: str, path: Path, folder: Path) -> Row:
    """What onnxslim makes of it, run as its own command."""
    out = folder / "slim.onnx"
    seconds, user, problem = timed([python, "-m", "onnxslim", str(path), str(out)])
    return {"problem": problem} if problem else {"nodes": nodes_of(out), "seconds": seconds, "user": user}


def row_of(model: models.Model, python: str | None, growth: float | None) -> Row:
    path = models.fetch(model.name).resolve()
    bind = [f"--bind={name}={size}" for name, size in model.bind.items()]
    with tempfile.TemporaryDirectory() as folder:
        row: Row = {"file": nodes_of(path), "dslc": applied(path, Path(folder), growth, bind)}
        if python is not None:
            row["onnxslim"] = slimmed(python, path, Path(folder))
    return row


def cells(name: str, row: Row) -> list[str]:
    """A line of the table."""
    ours, theirs = row["dslc"], row.get("onnxslim", {})

    def shown(of: Row, key: str, digits: int = 1) -> str:
        return "-" if key not in of else f"{of[key]:.{digits}f}"

    fewer = "" if "nodes" not in theirs or "nodes" not in ours else "yes" if ours["nodes"] <= theirs["nodes"] else "NO"
    return [name, str(row["file"]), shown(ours, "nodes", 0), shown(theirs, "nodes", 0), fewer, shown(ours, "seconds"),
            shown(ours, "compared"), shown(theirs, "seconds"), shown(ours, "user"), shown(theirs, "user")]  # fmt: skip


def main() -> int:
    """The command line; exit code 1 where dslc failed, or left more nodes than onnxslim."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simplify", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="which models (default: all)")
    parser.add_argument("--onnxslim", metavar="PYTHON", help="an interpreter that has onnxslim")
    parser.add_argument("--growth", type=float, metavar="SHARE", help="as --file-growth of dslc optimize")
    parser.add_argument("--again", action="store_true", help="measure what is there already")
    parser.add_argument("--kept", type=Path, default=KEPT, help="where rows are kept")
    arguments = parser.parse_args()
    described = machine.describe()
    rows = Rows(arguments.kept, described, arguments.again)
    heading = [
        "model",
        "file",
        "dslc",
        "onnxslim",
        "no more",
        "s",
        "of which comparing",
        "onnxslim s",
        "user s",
        "onnxslim user s",
    ]
    lines, wrong = [heading], 0
    for model in map(models.find, arguments.names or NAMES):
        row = rows.get(model.name)
        if row is None or (arguments.onnxslim and "onnxslim" not in row):
            row = rows.put(model.name, row_of(model, arguments.onnxslim, arguments.growth))
        lines.append(cells(model.name, row))
        wrong += "problem" in row["dslc"] or "NO" in lines[-1]
        print(" ".join(lines[-1]), row["dslc"].get("problem", ""), flush=True)
    print(f"\n{described}\n\n{markdown(lines)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    sys.exit(main())

"""What takes too much for the tests: files with kernels on old and other runtimes, tensors of more than 2^31 elements, and all of the
documentation's code blocks.

    python -m benchmarks.full [NAME ...] [--folder DIR] [--again]

NAME is one of the rows of the table (by default all). Each runtime is installed from PyPI into an environment of its own below DIR
(default: dslc's cache), once. What was found is kept there: a run that was ended goes on where it was, `--again` begins anew. Exit
code 1 where a file does not run, or gives something else.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from benchmarks import blocks, neighbours
from benchmarks.kernel_models import CASES
from dslc.codegen.generate import generate, variants
from dslc.cost.machine import available_memory
from dslc.folders import cache_folder
from dslc.ir.graph import Constant, Graph, Input, Value, input_value, kernel_value, replace
from dslc.kernels import prepared
from dslc.onnx.exporter import export, function_of
from dslc.onnx.functions import inlined
from dslc.onnx.importer import import_model
from dslc.semantics.library import Rules, standard
from tests.codegen.native import build

RUNNER = Path(__file__).with_name("full_runner.py")
#: errors up to this are rounding
TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime as `full_runner` calls it, and what pip installs for it; `kernels`: also with the library of kernels."""

    kind: str
    packages: tuple[str, ...]
    kernels: bool = False


RUNTIMES = {
    "ONNX Runtime 1.17": Runtime("onnxruntime", ("onnxruntime==1.17.3", "numpy<2"), True),
    "ONNX Runtime 1.19": Runtime("onnxruntime", ("onnxruntime==1.19.2", "numpy<2"), True),
    "ONNX Runtime 1.22": Runtime("onnxruntime", ("onnxruntime==1.22.1", "numpy"), True),
    "ReferenceEvaluator 1.16": Runtime("reference", ("onnx==1.16.2", "numpy<2")),
    "OpenVINO": Runtime("openvino", ("openvino", "numpy")),
}
#: more elements than a signed 32-bit number counts
MANY = (1 << 31) + 3


# ---- files ---------------------------------------------------------------------------------------------------------


def models() -> Iterator[tuple[str, onnx.ModelProto, dict[str, Any]]]:
    """Small models with symbolic sizes, and inputs."""
    seen = set()
    for case in CASES:
        if case.write not in seen and case.bytes < 1 << 24:
            seen.add(case.write)
            yield case.name.replace(" ", "_").replace(",", ""), case.model(True)[0], dict(case.feeds())
    points = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    yield "manhattan", neighbours.model(manhattan=True), {"x": points}


def as_kernel(rules: Rules, model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with all of its nodes as one kernel, whose arguments are its inputs and weights."""
    imported = import_model(model, rules)
    graph = imported.graph
    nodes = [node for node in graph.nodes() if isinstance(node, Input | Constant)]
    begins = [Value(node) for node in nodes if isinstance(node, Input) or node.types[0].elements != 1]
    holes = {value: input_value(f"h{k}", value.type) for k, value in enumerate(begins)}
    group = Graph(tuple(holes.values()), replace(graph.outputs, dict(holes)))
    made: onnx.ModelProto = export(imported.context, Graph(graph.inputs, kernel_value(group, tuple(begins))), rules)
    return made


def written(folder: Path) -> dict[str, Path]:
    """Writes the files, with inputs and what ONNX Runtime makes of the originals; gives the libraries of their kernels."""
    folder.mkdir(parents=True, exist_ok=True)
    rules, libraries = standard(), {}
    for name, model, feeds in models():
        fast = as_kernel(rules, model)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        outputs = {f"out{k}": array for k, array in enumerate(session.run(None, feeds))}
        onnx.save(fast, folder / f"{name}.onnx")
        onnx.save(inlined(fast), folder / f"{name}.inline.onnx")
        np.savez(folder / f"{name}.npz", **feeds, **outputs)
        found = prepared(fast)
        if found.library is None or found.missing:
            print(f"{name}: no kernel, {[str(one) for one in found.missing]}", file=sys.stderr)
        else:
            libraries[name] = found.library
    return libraries


# ---- runtimes ------------------------------------------------------------------------------------------------------


def installed(runtime: Runtime, place: Path) -> Path:
    """The Python of an environment with a runtime, made where there is none."""
    python = place / "bin" / "python"
    done = place / "done"
    if not done.exists():
        venv.create(place, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *runtime.packages]
        subprocess.run(command, check=True)
        done.write_text(" ".join(runtime.packages))
    return python


def checked(runtime: Runtime, place: Path, files: Path, libraries: dict[str, Path]) -> dict[str, Any]:
    """Errors by name, without and with the libraries; problems as text."""
    try:
        python = installed(runtime, place)
    except (subprocess.CalledProcessError, OSError) as problem:
        return {"not installed": str(problem)}
    found = dict(_ran(python, runtime.kind, files, ""))
    if runtime.kernels:
        # one library has the kernels of one file
        for name, library in libraries.items():
            answers = dict(_ran(python, runtime.kind, files, str(library)))
            found[f"{name} with its library"] = answers.get(name, "it ended")
    return found


def _ran(python: Path, kind: str, files: Path, library: str) -> Iterator[tuple[str, Any]]:
    command = [str(python), str(RUNNER), kind, str(files), *([library] if library else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        answer = json.loads(line)
        yield answer["name"], answer.get("error", answer.get("problem"))
    if done.returncode:
        yield "the runtime", f"ended with {done.returncode}: {done.stderr.strip()[-200:]}"


# ---- many elements -------------------------------------------------------------------------------------------------


def many_elements() -> dict[str, Any]:
    """Kernels over more than 2^31 elements of one byte, at positions that 32 bits do not count."""
    if available_memory() < 5 * MANY:
        return {"int8": "not enough memory"}
    out: dict[str, Any] = {}
    text = '<ir_version: 8, opset_import: ["": 17]> g (int8[N] x) => (int8[N] y) { y = Abs(x) }'
    moved = '<ir_version: 8, opset_import: ["": 17]> g (int8[N, 3] x) => (int8[3, N] y) { t = Transpose<perm=[1, 0]>(x) y = Neg(t) }'
    out["int8[2^31 + 3]"] = _many(text, (MANY,), lambda x: np.abs(x))
    out["int8[2^31 / 3 + 2, 3] transposed"] = _many(moved, (MANY // 3 + 1, 3), lambda x: -x.T)
    return out


def _many(text: str, shape: tuple[int, ...], expected: Callable[[Any], Any]) -> float | str:
    """The largest error at the ends and in between, or what went wrong."""
    rules = standard()
    graph = import_model(onnx.parser.parse_model(text), rules).graph
    group = function_of(rules, graph, 17).group
    kernel = generate(rules, group, variants(rules, group)[0])
    block = np.tile(np.arange(-127, 124, dtype=np.int8), 1 << 14)
    count = int(np.prod(shape))
    x = np.tile(block, -(-count // block.size))[:count].reshape(shape)
    try:
        (found,) = build([kernel]).run(kernel.name, [x], threads=2)
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"
    wanted = expected(x)
    return (
        0.0
        if np.array_equal(found, wanted)
        else float(np.abs(found[..., -99:].astype(int) - wanted[..., -99:]).max() or 1)
    )


# ---- documentation -------------------------------------------------------------------------------------------------


def documentation() -> dict[str, Any]:
    """0 for every code block of README and docs that runs, else what went wrong; budgets are those that the blocks name."""
    out: dict[str, Any] = {}
    for page in blocks.PAGES:
        with tempfile.TemporaryDirectory() as folder:
            out |= {where: problem or 0.0 for where, problem in blocks.ran(page, Path(folder), full=True).items()}
    return out


# ---- the command line ----------------------------------------------------------------------------------------------


def main() -> int:
    """Prints the table; exit code 1 where something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.full", description=(__doc__ or "").splitlines()[0])
    rows = [*RUNTIMES, "many elements", "documentation"]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which rows (default: all of {', '.join(rows)})")
    parser.add_argument("--folder", type=Path, default=None, help="where environments, files and results are kept")
    parser.add_argument("--again", action="store_true", help="forget what was found")
    arguments = parser.parse_args()
    folder = (arguments.folder or cache_folder(None) / "full").resolve()
    results = folder / "results.json"
    known: dict[str, dict[str, Any]] = {}
    if results.exists() and not arguments.again:
        known = json.loads(results.read_text("utf-8"))
    wanted = arguments.names or rows
    if unknown := set(wanted) - set(rows):
        parser.error(f"there is no row {', '.join(sorted(unknown))}")
    libraries: dict[str, Path] | None = None
    print("| what | files | wrong | largest error | seconds |\n|---|---:|---:|---:|---:|", flush=True)
    wrong = 0
    for name in wanted:
        if name not in known:
            began = time.monotonic()
            if name in RUNTIMES:
                libraries = written(folder / "files") if libraries is None else libraries
                place = folder / name.replace(" ", "-").lower()
                found = checked(RUNTIMES[name], place, folder / "files", libraries)
            else:
                found = documentation() if name == "documentation" else many_elements()
            known[name] = {"found": found, "seconds": round(time.monotonic() - began, 1)}
            results.write_text(json.dumps(known, indent=1), "utf-8")
        found = known[name]["found"]
        errors = [error for error in found.values() if isinstance(error, float)]
        bad = {one: error for one, error in found.items() if not isinstance(error, float) or error > TOLERANCE}
        wrong += len(bad)
        print(
            f"| {name} | {len(found)} | {len(bad)} | {max(errors, default=0):.1e} | {known[name]['seconds']} |",
            flush=True,
        )
        for one, error in bad.items():
            print(f"{name}: {one}: {error}", file=sys.stderr)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

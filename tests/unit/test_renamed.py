"""No operator is known to the code by its name: with every operator renamed, everything comes out the same."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from renaming import PREFIX, renamed

from dslc.cli.main import run as command_line
from dslc.semantics.library import load_many, standard
from tests.caches import apart

SHOWN = ["conv", "gemm"]
HOME = Path(standard().modules[0].file.source.path).parent


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return renamed(load_many(["std", "targets"]), tmp_path_factory.mktemp("renamed"))


def dslc(*args: str, library: Path | None = None) -> str:
    """What a command prints; with the copy in a process of its own, as a process has one standard library."""
    if library is None:
        said = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
            patch.setenv("DSLC_PATH", "")
            patch.setenv("COLUMNS", "120")
            assert command_line(list(args)) == 0, said.getvalue()
        return said.getvalue()
    env = {**os.environ, "DSLC_PATH": str(library), "COLUMNS": "120"}
    done = subprocess.run([sys.executable, "-m", "dslc", *args], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", SHOWN)
def test_show_is_the_same(copy: Path, name: str) -> None:
    there = dslc("show", PREFIX + name, "--output-format", "json", library=copy)
    assert json.loads(there.replace(PREFIX, "")) == json.loads(dslc("show", name, "--output-format", "json"))


def files(folder: Path) -> list[str]:
    return [str(folder / name) for name in ("linalg.rules", "pool.rules", "product_rules.rules")]


def test_check_is_the_same(copy: Path) -> None:
    here = dslc("check", *files(HOME), "--output-format", "json")
    assert json.loads(dslc("check", *files(copy / "std"), "--output-format", "json", library=copy)) == json.loads(here)


def test_test_is_the_same(copy: Path) -> None:
    def counts(text: str) -> str:
        return next(line for line in text.splitlines() if "passed" in line).split(" in ")[0]

    # operators with examples and rules with conditions; the tests of some need what is in other files
    def some(folder: Path) -> list[str]:
        return [str(folder / name) for name in ("linalg.rules", "pointwise.rules", "pool_rules.rules")]

    there = counts(dslc("test", *some(copy / "std"), "--trials", "1", library=copy))
    assert there == counts(dslc("test", *some(HOME), "--trials", "1")) and int(there.split()[0]) > 70


def _network(path: Path) -> Path:
    """Two layers without anything between them, which become one, and a square that is written as a power."""
    random = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(random.random(shape, dtype=np.float32), name)

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("MatMul", ["h", "u"], ["y"]),
        helper.make_node("Pow", ["x", "two"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 256])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 4]),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, [64, 256]),
        ],
        [weight("w", 256, 256), weight("u", 256, 4), numpy_helper.from_array(np.float32(2), "two")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


def _written(model: Path, copy: Path, folder: Path) -> list[tuple[bytes, list[dict[str, object]]]]:
    written = []
    cache = apart(folder / "cache")
    for library, out in ((None, folder / "here.onnx"), (copy, folder / "there.onnx")):
        # nothing is known of the copy's rules, and proving them is not what this is about
        options = [
            "--allow",
            "tested,trusted,undecided",
            "--steps",
            "16",
            "--no-timing",
            "-q",
            "--budget",
            "600s",
            "--on",
            "ort_cpu",
        ]
        options += ["--cache", str(cache), "--report", f"{out}.json"]
        dslc("optimize", str(model), "-o", str(out), *options, library=library)
        report = json.loads(Path(f"{out}.json").read_text())
        assert report["steps"], report["reason"]
        # the copy has no lock, so nothing is known of its rules; what decides about a gain is measured again
        steps = [{name: step[name] for name in ("rule", "count", "validated")} for step in report["steps"]]
        written.append((out.read_bytes(), steps))
    return written


def test_optimize_writes_the_same_model(copy: Path, tmp_path: Path) -> None:
    model = _network(tmp_path / "m.onnx")
    # two graphs of nearly one cost are told apart by measuring, which a busy machine may do in two ways: not three times
    for attempt in range(3):
        here, there = _written(model, copy, tmp_path / str(attempt))
        if here == there:
            break
    assert here == there


def test_verify_proves_the_same(copy: Path) -> None:
    def statuses(folder: Path, library: Path | None) -> list[tuple[str, str]]:
        options = ["--rule", "reassociate_matmul", "--rule", "matmul_of_*", "--no-lock", "--output-format", "json"]
        found = json.loads(dslc("verify", str(folder / "product_rules.rules"), *options, library=library))["rules"]
        return [(rule["rule"].rpartition(".")[2], rule["status"]) for rule in found]

    here = statuses(HOME, None)
    assert len(here) >= 3
    assert statuses(copy / "std", copy) == here

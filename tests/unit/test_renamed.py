"""No operator is known to the code by its name: with every operator renamed, everything comes out the same."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
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


#: seconds of measurements; which of two programs is faster does not need the product's
SHORT = {"longest": 0.05, "again": 0.04, "shortest": 0.02}
#: a process of `dslc`: a list of arguments a line, answered by the exit code and what is printed
COMMANDS = """
import contextlib, io, json, sys
from dslc.cli.main import run
from dslc.cost import measure
from tests.workers import forked_workers
measure.LONGEST, measure.AGAIN, measure.SHORTEST = {numbers}
with forked_workers():
    for line in sys.stdin:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = run(json.loads(line))
        print(json.dumps([code, said.getvalue()]), flush=True)
"""


class Copy:
    """The copy of the libraries, and what commands print with it: all in one process of its own, as one has one standard library."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        env = {**os.environ, "DSLC_PATH": str(folder), "COLUMNS": "120"}
        command, here = (
            [sys.executable, "-c", COMMANDS.format(numbers=tuple(SHORT.values()))],
            Path(__file__).parents[2],
        )
        self._process = subprocess.Popen(
            command, env=env, cwd=here, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def dslc(self, *args: str) -> str:
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None and answers is not None
        print(json.dumps(args), file=requests, flush=True)
        code, said = json.loads(answers.readline())
        assert code == 0, said
        return said

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    made = Copy(renamed(load_many(["std", "targets"]), tmp_path_factory.mktemp("renamed")))
    yield made
    made.close()


def dslc(*args: str) -> str:
    """What a command prints with the libraries as they are."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
        patch.setenv("DSLC_PATH", "")
        patch.setenv("COLUMNS", "120")
        assert command_line(list(args)) == 0, said.getvalue()
    return said.getvalue()


@pytest.mark.parametrize("name", SHOWN)
def test_show_is_the_same(copy: Copy, name: str) -> None:
    there = copy.dslc("show", PREFIX + name, "--output-format", "json")
    assert json.loads(there.replace(PREFIX, "")) == json.loads(dslc("show", name, "--output-format", "json"))


def files(folder: Path) -> list[str]:
    return [str(folder / name) for name in ("linalg.rules", "pool.rules")]


def test_check_is_the_same(copy: Copy) -> None:
    here = dslc("check", *files(HOME), "--output-format", "json")
    assert json.loads(copy.dslc("check", *files(copy.folder / "std"), "--output-format", "json")) == json.loads(here)


def test_test_is_the_same(copy: Copy) -> None:
    def counts(text: str) -> str:
        return next(line for line in text.splitlines() if "passed" in line).split(" in ")[0]

    def both(name: str, *options: str) -> int:
        there = counts(copy.dslc("test", str(copy.folder / "std" / name), *options, "--trials", "1"))
        assert there == counts(dslc("test", str(HOME / name), *options, "--trials", "1"))
        return int(there.split()[0])

    # operators with examples, and rules with conditions; the tests of some need what is in other files
    assert both("linalg.rules") + both("pointwise.rules") > 50
    assert both("pool_rules.rules", "-k", "max_*", "-k", "global_*", "-k", "relu_*") >= 10


def _network(path: Path) -> Path:
    """Two layers without anything between them, which become one, and a maximum with zero that is taken twice."""
    random = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(random.random(shape, dtype=np.float32), name)

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("MatMul", ["h", "u"], ["y"]),
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Relu", ["r"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 256])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 64]),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, [64, 256]),
        ],
        [weight("w", 256, 256), weight("u", 256, 64)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


def _written(model: Path, copy: Copy, folder: Path) -> list[tuple[bytes, list[dict[str, object]]]]:
    written = []
    cache = apart(folder / "cache")
    for run, out in ((dslc, folder / "here.onnx"), (copy.dslc, folder / "there.onnx")):
        # nothing is known of the copy's rules, and proving them is not what this is about
        options = [
            "--allow",
            "tested,trusted,undecided",
            "--steps",
            "3",
            "--no-timing",
            "-q",
            "--budget",
            "600s",
            # two graphs of nearly one cost are told apart by measuring elsewhere, which a busy machine may do in two ways
            "--on",
            "cpu_sheet",
            "--device",
            "1.2e12:4e10",
        ]
        options += ["--cache", str(cache), "--report", f"{out}.json"]
        run("optimize", str(model), "-o", str(out), *options)
        report = json.loads(Path(f"{out}.json").read_text())
        assert len(report["steps"]) >= 2, report["reason"]
        # the copy has no lock, so nothing is known of its rules; what decides about a gain is measured again
        steps = [{name: step[name] for name in ("rule", "count", "validated")} for step in report["steps"]]
        written.append((out.read_bytes(), steps))
    return written


def test_optimize_writes_the_same_model(copy: Copy, tmp_path: Path) -> None:
    here, there = _written(_network(tmp_path / "m.onnx"), copy, tmp_path)
    assert here == there


def test_verify_proves_the_same(copy: Copy) -> None:
    def statuses(folder: Path, run: Callable[..., str]) -> list[tuple[str, str]]:
        options = ["--rule", "reassociate_matmul", "--rule", "matmul_of_*", "--no-lock", "--output-format", "json"]
        found = json.loads(run("verify", str(folder / "product_rules.rules"), *options))["rules"]
        return [(rule["rule"].rpartition(".")[2], rule["status"]) for rule in found]

    here = statuses(HOME, dslc)
    assert len(here) >= 3
    assert statuses(copy.folder / "std", copy.dslc) == here

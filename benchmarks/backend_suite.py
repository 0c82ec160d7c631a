"""ONNX's own backend suite: what ONNX Runtime alone passes, and what passes through dslc.

    python -m benchmarks.backend_suite [PATTERN]

Every case (node, simple, converted, light models) runs twice: as it is, and through import, optimize and export. The
two sets of cases that pass should be equal; the difference is listed. Exit code 1 where it is not empty.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import unittest
import warnings
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test import BackendTest

from dslc.onnx.backend import DslcBackend


class RuntimeRep(BackendRep):  # type: ignore[misc]
    """A session of ONNX Runtime; takes inputs by position."""

    def __init__(self, model: onnx.ModelProto) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        self.session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def run(self, inputs: Any, **_: Any) -> list[Any]:
        names = [value.name for value in self.session.get_inputs()]
        values = [np.asarray(value) if isinstance(value, np.generic) else value for value in inputs]
        return list(self.session.run(None, dict(zip(names, values, strict=False))))


class RuntimeBackend(Backend):  # type: ignore[misc]
    """ONNX Runtime alone."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> RuntimeRep:
        return RuntimeRep(model)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


def passing(backend: type[Backend], pattern: str) -> tuple[set[str], dict[str, str]]:
    """The names of the cases that pass, and for each other case the last line of what went wrong."""
    passed: set[str] = set()
    failed: dict[str, str] = {}

    class Result(unittest.TestResult):
        def addSuccess(self, test: unittest.TestCase) -> None:
            passed.add(test.id().rpartition(".")[2])

        def _failed(self, test: unittest.TestCase, error: Any) -> None:
            failed[test.id().rpartition(".")[2]] = f"{error[0].__name__}: {error[1]}".strip().splitlines()[0][:160]

        addFailure = addError = _failed

    suite = unittest.TestSuite()
    for cases in BackendTest(backend, __name__).test_cases.values():
        for name in unittest.defaultTestLoader.getTestCaseNames(cases):
            if name.endswith("_cpu") and re.search(pattern, name):
                suite.addTest(cases(name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        suite.run(Result())
    return passed, failed


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.backend_suite", description=__doc__.splitlines()[0])
    parser.add_argument("pattern", nargs="?", default="", help="only cases whose name it matches")
    pattern = parser.parse_args().pattern
    with tempfile.TemporaryDirectory() as models:
        os.environ["ONNX_MODELS"] = models
        alone, unable = passing(RuntimeBackend, pattern)
        through, failed = passing(DslcBackend, pattern)
    total = len(alone) + len(unable)
    print(f"{total} cases; ONNX Runtime alone passes {len(alone)}, through dslc {len(through)}")
    for name in sorted(alone - through):
        print(f"  lost   {name}: {failed.get(name, 'not run')}")
    for name in sorted(through - alone):
        print(f"  gained {name}: {unable.get(name, 'not run')}")
    return 0 if through == alone else 1


if __name__ == "__main__":
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    # Many cases are generated at an opset that is still open; the runtime can run them when it is told to.
    os.environ.setdefault("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")
    sys.exit(main())

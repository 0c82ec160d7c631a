"""dslc as a backend of ONNX's test suite: a model is read, optimized without measuring, written, and run in ONNX Runtime."""

from __future__ import annotations

import re
import unittest
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test import BackendTest

from dslc.onnx.exporter import export
from dslc.onnx.importer import import_model
from dslc.onnx.runtime import accepted, session
from dslc.semantics.library import Rules, standard


def through(model: ModelProto, rules: Rules | None = None) -> ModelProto:
    """A model read and written again; the model itself where ONNX Runtime refuses only what was written."""
    loaded = rules if rules is not None else standard()
    imported = import_model(model, loaded)
    written = export(imported.context, imported.graph, loaded)
    return written if accepted(written, model) else model


class RuntimeRep(BackendRep):
    """A session of ONNX Runtime; takes inputs by position."""

    def __init__(self, model: ModelProto) -> None:
        self.session = session(model)

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        names = [value.name for value in self.session.get_inputs()]
        feeds = {
            name: np.asarray(value) if isinstance(value, np.generic) else value
            for name, value in zip(names, inputs, strict=False)
        }
        return tuple(self.session.run(None, feeds))


class RuntimeBackend(Backend):
    """ONNX Runtime alone."""

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **_: Any) -> RuntimeRep:
        return RuntimeRep(model)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


class DslcBackend(RuntimeBackend):
    """ONNX Runtime behind dslc."""

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **_: Any) -> RuntimeRep:
        return RuntimeRep(through(model))


def run_suite(
    backend: type[Backend], kinds: Sequence[str] = (), pattern: str = "", every: int = 1
) -> tuple[set[str], dict[str, str]]:
    """Runs ONNX's backend suite.

    Args:
        kinds: `Node`, `Simple`, `PyTorchConverted`, `PyTorchOperator`, `Real`; all where empty.
        pattern: only cases whose name it matches.
        every: 4 takes one case of four.

    Returns:
        The names of the cases that pass, and for every other the first line of what went wrong.
    """
    passed: set[str] = set()
    failed: dict[str, str] = {}

    class Result(unittest.TestResult):
        def addSuccess(self, test: unittest.TestCase) -> None:
            passed.add(test.id().rpartition(".")[2])

        def addFailure(self, test: unittest.TestCase, err: Any) -> None:
            text = f"{err[0].__name__}: {err[1]}".strip()
            failed[test.id().rpartition(".")[2]] = text.splitlines()[0][:200]

        def addError(self, test: unittest.TestCase, err: Any) -> None:
            self.addFailure(test, err)

    suite = unittest.TestSuite()
    number = 0
    for name, cases in BackendTest(backend, __name__).test_cases.items():
        if kinds and not any(name == f"OnnxBackend{kind}ModelTest" for kind in kinds):
            continue
        for case in unittest.defaultTestLoader.getTestCaseNames(cases):
            if case.endswith("_cpu") and re.search(pattern, case):
                number += 1
                if number % every == 0:
                    suite.addTest(cases(case))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        suite.run(Result())
    return passed, failed

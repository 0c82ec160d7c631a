"""A part of ONNX's own backend suite: what ONNX Runtime alone passes, it passes behind dslc.

`benchmarks/backend_suite.py` runs it whole.
"""

from __future__ import annotations

import dataclasses

import pytest
from onnx import ModelProto

from benchmarks import backend
from dslc.onnx.exporter import export
from dslc.onnx.importer import import_model
from dslc.semantics.library import standard
from tests.onnx.suite import node_cases

KINDS = ("Node", "Simple", "PyTorchConverted", "PyTorchOperator")
EVERY = 12
# the suite computes its expected outputs when it is loaded, overflows included
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(scope="module")
def alone() -> set[str]:
    node_cases()
    passed, _ = backend.run_suite(backend.RuntimeBackend, KINDS, every=EVERY)
    assert len(passed) > 100
    return passed


class Kept(backend.RuntimeBackend):
    """Read and written; nothing is forgiven."""

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **_: object) -> backend.RuntimeRep:
        return backend.RuntimeRep(backend.through(model))


class Rewritten(backend.RuntimeBackend):
    """As `Kept`, and no node of the file is kept: every operator goes out through its own clause."""

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **_: object) -> backend.RuntimeRep:
        imported = import_model(model, standard())
        context = dataclasses.replace(imported.context, origins={})
        return backend.RuntimeRep(export(context, imported.graph, standard()))


@pytest.mark.parametrize("through", [Kept, Rewritten])
def test_what_passes_alone_passes_behind_dslc(alone: set[str], through: type[backend.RuntimeBackend]) -> None:
    passed, failed = backend.run_suite(through, KINDS, every=EVERY)
    assert {name: failed.get(name) for name in alone - passed} == {}


def test_the_light_models_give_the_expected_outputs() -> None:
    passed, failed = backend.run_suite(backend.DslcBackend, ("Real",), pattern="squeezenet|shufflenet")
    assert not failed and len(passed) == 2

"""Plans from strangers, launchers that are missing, compilers that are not there: said by one typed error, and nothing of it is run."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import onnx
import pytest

import dslc
from dslc.cli.main import run as cli
from dslc.codegen.cuda import nvrtc
from dslc.cuda import CudaFailure, Reason, Session
from dslc.cuda.code import texts
from dslc.cuda.devices import device_named
from dslc.cuda.fake import FakeDevice
from dslc.cuda.launch import Code
from dslc.cuda.launchers import _compiled
from dslc.cuda.plan import BadPlan, Plan, plan_of, text_of
from dslc.cuda.planning import planned
from dslc.errors import DslcError
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, input_value
from dslc.onnx.metadata import PLAN, metadata, set_metadata
from dslc.semantics.apply import apply
from dslc.semantics.library import standard
from tests.codegen.test_cuda_session import by_runtime, model, rows

#: what a field may have instead
STRANGE: list[Any] = [
    None, True, -1, 0, 1, 2**31, 2**48, 2**63, 2**70, 10**400, 0.5, -0.0, 1e308, "", "x" * 5000, "k_0", "../../x", "\x00", [], [[]], {},
    {"a": 1}, [0] * 300, ["f32"], "view", "int", "cublasLtMatmul", "__import__('os')",
]  # fmt: skip


@pytest.fixture(scope="module")
def stored() -> onnx.ModelProto:
    """A model with a plan."""
    return dslc.optimize(model(), on="cuda", device="a100", only=["std.double_neg"], bind={"N": 5}, budget=0).model


def changed(found: Any, draw: random.Random) -> Any:
    """A copy with one place of it made strange, missing, twice, or exchanged for another one."""
    if isinstance(found, dict | list) and found and draw.random() < 0.85:
        keys = list(found) if isinstance(found, dict) else list(range(len(found)))
        key, copy = draw.choice(keys), found.copy()
        kind = draw.random()
        if kind < 0.08:
            del copy[key]
        elif kind < 0.16:
            copy[key] = copy[draw.choice(keys)]
        elif kind < 0.2 and isinstance(copy, list):
            copy.append(copy[key])
        else:
            copy[key] = changed(found[key], draw)
        return copy
    return draw.choice(STRANGE)


def test_changed_plans_are_plans_or_are_refused(stored: onnx.ModelProto) -> None:
    """Whatever is read back can be written and looked at."""
    plain, draw = json.loads(metadata(stored)[PLAN]), random.Random(0)
    read = 0
    for _ in range(1500):
        try:
            found = plan_of(json.dumps(changed(plain, draw)))
        except BadPlan:
            continue
        assert isinstance(found, Plan)
        assert plan_of(text_of(found)) == found
        found.before()
        read += 1
    assert 0 < read < 750


def test_texts_that_are_cut_or_flipped_are_refused(stored: onnx.ModelProto) -> None:
    text, draw = metadata(stored)[PLAN], random.Random(1)
    for _ in range(200):
        at = draw.randrange(len(text))
        for wrong in (text[:at], text[:at] + chr(draw.randrange(1, 1000)) + text[at + 1 :], text[:at] + text[at:] * 2):
            try:
                plan_of(wrong)
            except BadPlan:
                continue
    for deep in ("[" * 100_000, '{"a":' * 100_000, "1" * 100_000, '"' * 9, "NaN", "[1e999]"):
        with pytest.raises(BadPlan):
            plan_of(deep)


def test_a_session_with_a_strangers_plan_gives_the_values_of_the_model(stored: onnx.ModelProto) -> None:
    """Or says that it is not used: it is never what runs."""
    plain, draw, x = json.loads(metadata(stored)[PLAN]), random.Random(2), rows(5)
    wanted = by_runtime(x)
    told = 0
    for _ in range(12):
        file = onnx.ModelProto()
        file.CopyFrom(stored)
        set_metadata(file, PLAN, json.dumps(changed(plain, draw)))
        session = Session(file, launcher=FakeDevice(standard(), order=0))
        np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-4)
        told += bool(session.notes)
        session.close()
    assert told > 6


# ---- what is missing -----------------------------------------------------------------------------------------------------------


def test_a_missing_compiler_lets_the_cpu_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVRTC is a library like others: who has none has no kernels, and may have the CPU instead."""
    monkeypatch.setattr(nvrtc, "_library", lambda: None)
    X = input_value("h0", TensorType(DType.F32, (4, 6)))
    program = Graph((X,), apply(standard(), "std.softmax", (X,), {"axis": 1}))
    with pytest.raises(CudaFailure) as caught:
        _compiled(Code("k", "kernel: softmax", program, texts(standard())(program)), (9, 0))
    assert (caught.value.reason, caught.value.kernel, caught.value.rule) == (Reason.BINDING, "k", "kernel: softmax")
    assert "dslc[cuda]" in str(caught.value)


def test_a_device_without_memory_for_the_weights_frees_what_it_took() -> None:
    device = FakeDevice(standard(), memory=40_000)
    X, W = input_value("x", TensorType(DType.F32, (4, 64))), input_value("w", TensorType(DType.F32, (64, 512)))
    value = apply(standard(), "std.matmul", (X, W), {})
    from dslc.cuda.runner import Runner

    with pytest.raises(CudaFailure) as caught:
        Runner(standard(), planned(standard(), Graph((X, W), value), device_named("a100")), device)
    assert caught.value.reason is Reason.MEMORY
    assert not device._blocks


# ---- options -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["", "b200", "h100 ", "cuda:0", "../h100"])
def test_a_device_without_a_data_sheet_is_refused(device: str) -> None:
    with pytest.raises(DslcError):
        dslc.optimize(model(), on="cuda", device=device, budget=0)  # type: ignore[arg-type]


def test_names_of_devices_and_targets_may_be_written_in_capitals() -> None:
    done = dslc.optimize(model(), on="CUDA", device="H100", bind={"N": 5}, budget=0)  # type: ignore[arg-type]
    assert plan_of(metadata(done.model)[PLAN]).device == "h100"
    with pytest.raises(DslcError):
        dslc.optimize(model(), on="gpu", budget=0)  # type: ignore[arg-type]


def test_kernels_of_a_plan_are_shown(stored: onnx.ModelProto, tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """`dslc build --on cuda` of what `dslc optimize --on cuda` wrote; a plan that is none is as if there were none."""
    onnx.save(stored, tmp_path / "fast.onnx")
    assert cli(["build", str(tmp_path / "fast.onnx"), "--on", "cuda", "--emit", str(tmp_path / "cuda")]) == 0
    said = capsys.readouterr().out
    (kernel,) = {name for name, _ in plan_of(metadata(stored)[PLAN]).kernels}
    assert f"{kernel}  c_" in said
    assert len(list((tmp_path / "cuda").iterdir())) == 1
    set_metadata(stored_copy := onnx.ModelProto.FromString(stored.SerializeToString()), PLAN, "{}")
    onnx.save(stored_copy, tmp_path / "none.onnx")
    assert cli(["build", str(tmp_path / "none.onnx"), "--on", "cuda"]) == 0
    assert "has no generated kernels" in capsys.readouterr().out

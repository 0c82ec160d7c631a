"""Plans from strangers, launchers that are missing, compilers that are not there: said by one typed error, and nothing of it is run."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest

import dslc
from benchmarks.fake_device import FakeDevice
from dslc.cli.main import run as cli
from dslc.codegen.cuda import compiled, nvrtc
from dslc.cuda import CudaFailure, Reason, Session
from dslc.cuda.code import texts
from dslc.cuda.devices import device_named
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
from tests.codegen.plan_checks import before
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
        before(found)
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


#: what a stranger may write into a plan: one place of it, or all
STRANGERS: dict[str, Callable[[Any], Any]] = {
    "code in the place of a definition": lambda plan: {
        **plan,
        "kernels": [[name, CODE] for name, _ in plan["kernels"]],
    },
    "another definition": lambda plan: {
        **plan,
        "kernels": [[name, text.replace("mul", "add")] for name, text in plan["kernels"]],
    },
    "a kernel more": lambda plan: {**plan, "kernels": [*plan["kernels"], ["k_0", CODE]]},
    "no kernels": lambda plan: {**plan, "kernels": []},
    "a kernel by the name of another": lambda plan: at(plan, "steps", 2, "kernel", "k_0"),
    "a function that there is not": lambda plan: at(plan, "steps", 0, "call", "system"),
    "another function": lambda plan: at(plan, "steps", 0, "call", "cudnnConvolutionForward"),
    "no arguments": lambda plan: at(plan, "steps", 0, "arguments", []),
    "an argument twice": lambda plan: at(plan, "steps", 0, "arguments", 2 * plan["steps"][0]["arguments"]),
    "an argument more": lambda plan: at(
        plan, "steps", 0, "arguments", [*plan["steps"][0]["arguments"], ["path", "str", "/etc"]]
    ),
    "a part for the CPU": lambda plan: at(plan, "steps", 2, "host", "../host0"),
    "steps the other way round": lambda plan: {**plan, "steps": plan["steps"][::-1]},
    "a step twice": lambda plan: {**plan, "steps": [*plan["steps"], plan["steps"][-1]]},
    "nothing to wait for": lambda plan: at(plan, "steps", 2, "waits", []),
    "it waits for itself": lambda plan: at(plan, "steps", 0, "waits", [0]),
    "many streams": lambda plan: {**plan, "streams": 1 << 40},
    "memory that no device has": lambda plan: {**plan, "shared": 1 << 47},
    "all in one place": lambda plan: {**plan, "buffers": [[*one[:3], 0, *one[4:]] for one in plan["buffers"]]},
    "a weight that is larger": lambda plan: {
        **plan,
        "buffers": [[one[0], one[1] << 30, *one[2:]] for one in plan["buffers"]],
    },
    "weights that inputs are": lambda plan: {**plan, "buffers": [["input", *one[1:]] for one in plan["buffers"]]},
    "it writes its input": lambda plan: at(plan, "steps", 2, "writes", plan["steps"][0]["arguments"][9][2:]),
    "the input is the output": lambda plan: {**plan, "outputs": [["y", plan["inputs"][0][1]]]},
    "it looks before its memory": lambda plan: at(plan, "steps", 2, "reads", [[1, "f32", [5, 8], [-8, 1], 0]] * 2),
    "it looks behind its memory": lambda plan: at(plan, "steps", 2, "reads", [[1, "f32", [5, 8], [8, 1], 1 << 40]] * 2),
    "other sizes": lambda plan: {**plan, "inputs": [["x", [0, "f32", [6, 12], [12, 1], 0]]]},
    "another name": lambda plan: {**plan, "inputs": [["../x", plan["inputs"][0][1]]]},
    "another device": lambda plan: {**plan, "device": "h100"},
    "no device": lambda plan: {**plan, "device": "../../h100"},
    "rules of ten thousand words": lambda plan: at(plan, "steps", 0, "rule", "rule " * 10_000),
    "two plans": lambda plan: [plan, plan],
}
CODE = 'extern "C" __global__ void stranger() { for (;;); }'


def at(plan: Any, part: str, number: int, field: str, value: Any) -> Any:
    """A plan with another value in one field of one of its parts."""
    return {**plan, part: [{**one, field: value} if k == number else one for k, one in enumerate(plan[part])]}


@dataclass(eq=False)
class Watched(FakeDevice):
    """A device that keeps the texts of kernels that it is to load, and how much memory it is asked for."""

    seen: list[str] = field(default_factory=list)
    asked: int = 0

    def load(self, code: Code) -> Any:
        self.seen.append(code.text.text)
        return super().load(code)

    def allocate(self, bytes: int) -> int:
        self.asked += bytes
        return super().allocate(bytes)


def test_what_a_stranger_writes_is_neither_compiled_nor_run(stored: onnx.ModelProto) -> None:
    """Kernels, memory and values are those of the file with dslc's own plan."""
    plain, x = json.loads(metadata(stored)[PLAN]), rows(5)

    def ran(text: str) -> tuple[Any, list[str], int, list[str]]:
        file = onnx.ModelProto.FromString(stored.SerializeToString())
        set_metadata(file, PLAN, text)
        device = Watched(standard())
        session = Session(file, launcher=device, texts=texts(standard()))
        return session.run(None, {"x": x})[0], device.seen, device.asked, session.notes

    values, seen, asked, notes = ran(json.dumps(plain))
    assert notes == [] and seen and "stranger" not in "".join(seen)
    for name, change in STRANGERS.items():
        wrong = json.dumps(change(plain))
        assert wrong != json.dumps(plain), name
        found = ran(wrong)
        np.testing.assert_array_equal(found[0], values, err_msg=name)
        assert found[1:3] == (seen, asked), name
        # sizes and devices may be others: that is another plan
        assert found[3] or name in {"other sizes", "another device", "another name"}, name


# ---- what is missing -----------------------------------------------------------------------------------------------------------


def test_a_missing_compiler_lets_the_cpu_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVRTC is a library like others: who has neither it nor nvcc has no kernels, and may have the CPU instead."""
    monkeypatch.setattr(nvrtc, "_library", lambda: None)
    monkeypatch.setattr(compiled.shutil, "which", lambda _: None)
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
        dslc.optimize(model(), on="cuda", device=device, budget=0)


def test_names_of_devices_and_targets_may_be_written_in_capitals() -> None:
    done = dslc.optimize(model(), on="CUDA", device="H100", bind={"N": 5}, budget=0)
    assert plan_of(metadata(done.model)[PLAN]).device == "h100"
    with pytest.raises(DslcError):
        dslc.optimize(model(), on="gpu", budget=0)


def test_kernels_of_a_plan_are_shown(
    stored: onnx.ModelProto, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
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

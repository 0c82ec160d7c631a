"""Runs files with kernels on whatever runtime is installed beside it; knows nothing of dslc, and asks for numpy alone.

    python full_runner.py RUNTIME FOLDER [LIBRARY]

RUNTIME is `onnxruntime`, `openvino` or `reference`. Each `NAME.onnx` (for OpenVINO `NAME.inline.onnx`) of the folder is run on the
inputs of `NAME.npz`, whose arrays `out0`, `out1`, ... are what it should give. One line of JSON for each: name, largest error, or
what went wrong.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def outputs_of(runtime: str, path: Path, feeds: dict[str, Any], library: str) -> list[Any]:
    """What a runtime makes of a file."""
    if runtime == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        if library:
            options.register_custom_ops_library(library)
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return list(session.run(None, feeds))
    if runtime == "openvino":
        import openvino  # type: ignore[import-not-found, unused-ignore]

        core = openvino.Core()
        compiled = core.compile_model(core.read_model(str(path)), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        found = compiled(feeds)
        return [found[output] for output in compiled.outputs]
    import onnx
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(onnx.load(str(path))).run(None, feeds))


def error_of(found: Any, wanted: Any) -> float:
    """The largest error, relative to the largest value."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        raise ValueError(f"{found.dtype} {found.shape} for {wanted.dtype} {wanted.shape}")
    if not wanted.size:
        return 0.0
    return float(np.max(np.abs(found.astype(np.float64) - wanted)) / max(1e-30, float(np.max(np.abs(wanted)))))


def main() -> None:
    """The command line."""
    runtime, folder, library = sys.argv[1], Path(sys.argv[2]), (sys.argv[3] if len(sys.argv) > 3 else "")
    for data in sorted(folder.glob("*.npz")):
        arrays = dict(np.load(data))
        wanted = [arrays.pop(f"out{k}") for k in range(sum(name.startswith("out") for name in arrays))]
        path = data.with_suffix(".inline.onnx" if runtime == "openvino" else ".onnx")
        try:
            found = outputs_of(runtime, path, arrays, library)
            line = {"name": data.stem, "error": max(error_of(a, b) for a, b in zip(found, wanted))}  # noqa: B905
        except Exception as problem:
            line = {"name": data.stem, "problem": f"{type(problem).__name__}: {problem}"[:300]}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

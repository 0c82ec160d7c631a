"""Running models in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

from dslc.errors import DslcError, error
from dslc.onnx.protos import byte_size, is_external


def session(model: ModelProto | str | bytes, *, threads: int = 0, optimize: bool = True, prepacked: bool = True) -> Any:
    """A session on the CPU that prints nothing.

    Args:
        model: a model, its bytes, or the path of a file (which may have external data beside it).
        threads: intra-op threads; 0 leaves the choice to ONNX Runtime.

    Raises:
        DslcError: E0811 where ONNX Runtime does not load the model.
    """
    import onnxruntime

    ort: Any = onnxruntime
    options = ort.SessionOptions()
    options.log_severity_level = 4
    if threads:
        options.intra_op_num_threads = threads
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if not prepacked:
        options.add_session_config_entry("session.disable_prepacking", "1")
    try:
        data = model.SerializeToString() if isinstance(model, ModelProto) else model
        return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as problem:  # ONNX Runtime raises many kinds, none of them documented
        raise error("E0811", f"ONNX Runtime does not load the model: {first_line(problem)}") from problem


def known_operators() -> frozenset[tuple[str, str]]:
    """Domain and name of every operator that ONNX Runtime has."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    return frozenset((one.domain, one.name) for one in get_all_operator_schema())


def first_line(problem: BaseException) -> str:
    """The first line of a message, or the kind of an error without one."""
    text = str(problem).strip()
    return text.splitlines()[0][:300] if text else type(problem).__name__


def run(model: ModelProto, feeds: Mapping[str, Any], outputs: Sequence[str], *, optimize: bool = True) -> list[Any]:
    """The outputs of a model; bfloat16 goes in and comes out by ml_dtypes.

    Raises:
        DslcError: E0811, E0811 where ONNX Runtime refuses.
    """
    import onnxruntime

    ort: Any = onnxruntime
    found = session(model, threads=1, optimize=optimize, prepacked=False)
    given = {}
    for name, each in feeds.items():
        array = np.ascontiguousarray(each)
        given[name] = (
            ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), TensorProto.BFLOAT16)
            if array.dtype == ml_dtypes.bfloat16
            else ort.OrtValue.ortvalue_from_numpy(array)
        )
    try:
        results = found.run_with_ort_values(list(outputs), given)
    except Exception as problem:
        raise error("E0811", f"ONNX Runtime does not run the model: {first_line(problem)}") from problem
    return [_array(value) for value in results]


def _array(value: Any) -> Any:
    if value.data_type() == "tensor(bfloat16)":
        tensor = TensorProto(data_type=TensorProto.BFLOAT16, dims=value.shape())
        tensor.raw_data = value._ortvalue.numpy().tobytes() if hasattr(value, "_ortvalue") else value.numpy().tobytes()
        return numpy_helper.to_array(tensor)
    return value.numpy()


LIGHT = 1 << 28  #: bytes of weights of a model that is loaded only to see whether it loads


def accepted(written: ModelProto, original: ModelProto) -> bool:
    """Return whether ONNX Runtime loads a model, or refuses the original of it just as well.

    Models with external data or more than 256 MiB of weights are taken for accepted: loading them is not free.
    """
    tensors = written.graph.initializer
    if any(map(is_external, tensors)) or sum(byte_size(tensor) or 0 for tensor in tensors) > LIGHT:
        return True
    try:
        session(written, threads=1)
    except DslcError:
        try:
            session(original, threads=1)
        except DslcError:
            return True
        return False
    return True

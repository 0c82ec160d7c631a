"""Sessions of ONNX Runtime in which the kernels of a model run."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dslc.errors import error

if TYPE_CHECKING:
    from onnx import ModelProto

    from dslc.kernels import Kernels


def session(
    model: str | os.PathLike[str] | bytes | ModelProto, *, threads: int | None = None, build: bool = True, **options: Any
) -> Any:
    """An `onnxruntime.InferenceSession` on the CPU, in which generated kernels run as far as they can be had.

    A library that was built before is found without compiling. Where there is none and none can be made, plain ONNX Runtime runs the
    same file, and a warning says so.

    Args:
        model: a file, or a model without external data.
        threads: of the runtime; by default as many as the file was timed with, else as many as ONNX Runtime takes (0).
        build: whether kernels are built where they were not.
        options: attributes of `onnxruntime.SessionOptions`.

    Raises:
        DslcError: E0811 where ONNX Runtime does not load the model.
        TypeError: an option that `SessionOptions` does not have.
    """
    import onnxruntime
    from onnx import ModelProto

    from dslc.kernels import said
    from dslc.onnx.runtime import first_line

    ort: Any = onnxruntime
    data: Any = model.SerializeToString() if isinstance(model, ModelProto) else model if isinstance(model, bytes) else os.fspath(model)
    wanted = said(data).threads if threads is None else threads

    def made() -> Any:
        out = ort.SessionOptions()
        out.log_severity_level = 4
        if wanted:
            out.intra_op_num_threads = wanted
        for name, value in options.items():
            if not hasattr(out, name):
                raise TypeError(f"onnxruntime.SessionOptions has no attribute {name!r}")
            setattr(out, name, value)
        return out

    given = made()
    found = register(given, data, build=build)
    try:
        try:
            return ort.InferenceSession(data, given, providers=["CPUExecutionProvider"])
        except Exception:
            if found.library is None:
                raise
            plain = ort.InferenceSession(data, made(), providers=["CPUExecutionProvider"])
            _warn(f"ONNX Runtime does not take the kernels in {found.library}, and runs without them")
            return plain
    except Exception as problem:  # ONNX Runtime raises many kinds, none of them documented
        raise error("E0811", f"ONNX Runtime does not load the model: {first_line(problem)}") from problem


def register(
    options: Any,
    model: str | os.PathLike[str] | bytes | ModelProto,
    *,
    library: str | os.PathLike[str] | None = None,
    build: bool = True,
) -> Kernels:
    """Registers the kernels of a model with `onnxruntime.SessionOptions` of your own; says which kernels these are.

    Args:
        library: one that `dslc build -o` wrote; by default the one in the cache, built where there is none and `build` is true.
    """
    from dslc.codegen.host.library import opened
    from dslc.kernels import NONE, Kernels, known, prepared
    from dslc.kernels import register as registered

    if library is not None:
        path = Path(library)
        whole = opened(path)
        if whole is None:
            _warn(f"{path} is no library of kernels for this machine; the model runs without it")
            return NONE
        found = Kernels(path.resolve(), whole.kernels)
    else:
        found = (prepared(model) if build else known(model)) or NONE
    if found.missing:
        first = found.missing[0]
        count = f"{len(found.missing)} of {len(found.missing) + len(found.names)} kernels"
        text = f"{count} of the model run as plain nodes: {first.why.value}" + (f" ({first.detail})" if first.detail else "")
        _warn(text)
    if not registered(options, found) and found.library is not None:
        _warn(f"ONNX Runtime does not take the kernels in {found.library}, and runs without them")
        return NONE
    return found


def _warn(text: str) -> None:
    """A warning about the line outside of dslc that asked for this."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("dslc."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)


__all__ = ["register", "session"]

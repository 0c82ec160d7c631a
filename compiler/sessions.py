"""Sessions of ONNX Runtime in which the kernels of a model run."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable
from functools import cache, partial, partialmethod
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from dslc.errors import error
from dslc.outside import in_line

#: what the runtime says of a run in which a kernel refused what it was given
REFUSED = re.compile(r"while running k_[0-9a-f]{12} node|generated kernel")

if TYPE_CHECKING:
    from onnx import ModelProto

    from dslc.kernels import Kernels


def session(
    model: str | os.PathLike[str] | bytes | ModelProto, *, threads: int | None = None, build: bool = True, isa: str | None = None,
    **options: Any,
) -> Any:  # fmt: skip
    """An `onnxruntime.InferenceSession` on the CPU, in which generated kernels run as far as they can be had.

    It takes all that the model takes, in whatever way it is run: where a kernel refuses its inputs, the run is done again without
    kernels.

    A library that was built before is found without compiling. Where there is none and none can be made, plain ONNX Runtime runs the
    same file, and a warning says so.

    Args:
        model: a file, or a model without external data.
        threads: of the runtime; by default as many as the file was timed with, else as many as ONNX Runtime takes (0).
        build: whether kernels are built where they were not.
        isa: the level of instructions that kernels are for; by default `DSLC_ISA`, else all that this machine can do.
        options: attributes of `onnxruntime.SessionOptions`.

    Raises:
        DslcError: E0811 where ONNX Runtime does not load the model, E0817 where this machine has not that level.
        TypeError: an option that `SessionOptions` does not have.
    """
    import onnxruntime
    from onnx import ModelProto

    from dslc.kernels import said
    from dslc.onnx.runtime import first_line

    ort: Any = onnxruntime
    data: Any = model.SerializeToString() if isinstance(model, ModelProto) else model
    data = data if isinstance(data, bytes) else os.fspath(data)
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
    found = register(given, data, build=build, isa=isa)
    try:
        try:
            if not found.library:
                return ort.InferenceSession(data, given, providers=["CPUExecutionProvider"])
            return _with_bodies()(data, given, made)
        except Exception:
            if not found.library:
                raise
            plain = ort.InferenceSession(data, made(), providers=["CPUExecutionProvider"])
            _warn(f"ONNX Runtime does not take the kernels in {found.library}, and runs without them")
            return plain
    except Exception as problem:  # ONNX Runtime raises many kinds, none of them documented
        raise error("E0811", f"ONNX Runtime does not load the model: {first_line(problem)}") from problem


@cache
def _with_bodies() -> Any:
    """The class of sessions in which the bodies of all kernels run where a kernel refuses what it is given."""
    import onnxruntime

    ort: Any = onnxruntime
    base: Any = ort.InferenceSession

    class KernelSession(base):  # type: ignore[misc]
        """A session with kernels, which runs again without them where one refuses its inputs (a mean over nothing, an index outside).

        That answer, or error, is the run's, whatever way it is run.
        """

        def __init__(self, model: Any, options: Any, plain_options: Callable[[], Any]) -> None:
            super().__init__(model, options, providers=["CPUExecutionProvider"])
            self._source, self._plain_options = model, plain_options
            self._plain: Any = None
            self._making = Lock()

        def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> Any:
            # the runtime below Python takes a binding of any session
            again = partial(_bound, iobinding, run_options)
            return self._or_bodies("run_with_iobinding", iobinding, run_options, again=again)

        def run_async(
            self, output_names: Any, input_feed: Any, callback: Any, user_data: Any, run_options: Any = None
        ) -> Any:
            def answered(results: Any, data: Any, problem: str) -> None:
                if problem and REFUSED.search(problem):
                    try:
                        self._bodies().run_async(output_names, input_feed, callback, data, run_options)
                        return
                    except Exception as other:
                        problem = str(other)
                callback(results, data, problem)

            return super().run_async(output_names, input_feed, answered, user_data, run_options)

        def _or_bodies(self, how: str, *given: Any, again: Callable[[Any], Any] | None = None, **named: Any) -> Any:
            try:
                return getattr(super(), how)(*given, **named)
            except Exception as problem:  # ONNX Runtime raises many kinds, none of them documented
                if not REFUSED.search(str(problem)):
                    raise
            return again(self._bodies()) if again is not None else getattr(self._bodies(), how)(*given, **named)

        run = partialmethod(_or_bodies, "run")
        run_with_ort_values = partialmethod(_or_bodies, "run_with_ort_values")
        run_with_ortvaluevector = partialmethod(_or_bodies, "run_with_ortvaluevector")

        def _bodies(self) -> Any:
            with self._making:
                if self._plain is None:
                    self._plain = base(self._source, self._plain_options(), providers=["CPUExecutionProvider"])
            return self._plain

    return KernelSession


def _bound(binding: Any, run_options: Any, session: Any) -> Any:
    """A run of a session with what was bound for another one."""
    return session._sess.run_with_iobinding(binding._iobinding, run_options)


def register(
    options: Any,
    model: str | os.PathLike[str] | bytes | ModelProto,
    *,
    library: str | os.PathLike[str] | None = None,
    build: bool = True,
    isa: str | None = None,
) -> Kernels:
    """Registers the kernels of a model with `onnxruntime.SessionOptions` of your own; says which kernels these are.

    Args:
        library: one that `dslc build -o` wrote; by default the one in the cache, built where there is none and `build` is true.
        isa: the level of instructions that kernels are for; by default `DSLC_ISA`, else all that this machine can do.

    Raises:
        DslcError: E0817 where this machine has not that level.
    """
    from dslc.codegen.host.library import opened
    from dslc.codegen.host.processor import processor, runnable
    from dslc.kernels import NONE, Kernels, known, prepared, said
    from dslc.kernels import register as registered

    if library is not None:
        path = Path(library)
        whole = opened(path, given=True)
        if not whole:
            _warn(f"{path} is no library of kernels for this machine; the model runs without it")
            return NONE
        found = Kernels(path.resolve(), whole.kernels)
    else:
        found = NONE
        if said(model).functions:
            level = runnable(processor(isa or ""))
            found = (prepared(model, processor=level) if build else known(model, processor=level)) or NONE
    if found.missing:
        count = f"{len(found.missing)} of {len(found.missing) + len(found.names)} kernels"
        _warn(f"{count} of the model run as plain nodes: {found.missing[0]}")
    if not registered(options, found, library is not None) and found.library:
        _warn(f"ONNX Runtime does not take the kernels in {found.library}, and runs without them")
        return NONE
    return found


def _warn(text: str) -> None:
    """A warning about the line outside of dslc that asked for this."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("dslc."):
        level, frame = level + 1, frame.f_back
    warnings.warn(in_line(text), stacklevel=level)

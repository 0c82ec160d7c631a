"""CUDA graphs by the driver's own functions: what is started on streams between `begin` and `end` is recorded, and launched as one.

For bindings that have no words for it: whoever can start a kernel on a stream can record it.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from typing import Any

from dslc.cuda.launch import CudaFailure, Reason

#: CU_STREAM_CAPTURE_MODE_RELAXED: other threads may do as they like meanwhile
_RELAXED = 2
_P, _INT, _LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_ulonglong
#: arguments of the driver's functions; each gives a status
FUNCTIONS = {
    "cuStreamBeginCapture_v2": [_P, _INT], "cuStreamEndCapture": [_P, ctypes.POINTER(_P)],
    "cuGraphInstantiateWithFlags": [ctypes.POINTER(_P), _P, _LONG], "cuGraphLaunch": [_P, _P], "cuGraphDestroy": [_P],
    "cuGraphExecDestroy": [_P], "cuGetErrorName": [_INT, ctypes.POINTER(ctypes.c_char_p)],
}  # fmt: skip


def driver() -> Any | None:
    """The driver's library; None where it is not there, or older than these functions."""
    try:
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        for name, arguments in FUNCTIONS.items():
            getattr(library, name).argtypes = arguments
    except (OSError, AttributeError):
        return None
    return library


class Recorder:
    """Records what is started on a stream, and on those that wait for it."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def begin(self, stream: int) -> None:
        """From now on; `stream` is its address."""
        self._did("cuStreamBeginCapture_v2", stream, _RELAXED)

    def end(self, stream: int) -> Recorded:
        """Return the captured graph.

        Raises:
            CudaFailure: something was started that may not be recorded.
        """
        graph, launched = _P(), _P()
        self._did("cuStreamEndCapture", stream, ctypes.byref(graph))
        try:
            self._did("cuGraphInstantiateWithFlags", ctypes.byref(launched), graph, 0)
        finally:
            self._library.cuGraphDestroy(graph)
        return Recorded(self, launched)

    def _did(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            words = ctypes.c_char_p()
            self._library.cuGetErrorName(status, ctypes.byref(words))
            raise CudaFailure(Reason.LAUNCH, f"{(words.value or b'an unknown status').decode()} of {name}")


class Recorded:
    """A captured graph; the driver frees it with this object."""

    def __init__(self, recorder: Recorder, launched: ctypes.c_void_p) -> None:
        self._recorder, self._launched = recorder, launched
        weakref.finalize(self, recorder._library.cuGraphExecDestroy, launched)

    def launch(self, stream: int) -> None:
        self._recorder._did("cuGraphLaunch", self._launched, stream)

"""Launchers on a device: PyCUDA's and NVIDIA's cuda.core, behind the interface of `launch`.

Both compile with NVRTC and start the same kernels; vendors' calls go through `vendors`. None of this runs where there is no device.
"""

from __future__ import annotations

import ctypes
import re
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from threading import get_ident
from typing import Any

import numpy as np

from dslc.cuda.launch import Code, CudaFailure, Invoked, Launcher, Reason, Tensor, first_line
from dslc.cuda.vendors import Vendors
from dslc.records import record

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


#: what statuses of a driver mean; another one is what was tried
_STATUSES = {
    "CUDA_ERROR_OUT_OF_MEMORY": Reason.MEMORY, "CUDA_ERROR_NO_DEVICE": Reason.NO_DEVICE, "CUDA_ERROR_INVALID_DEVICE": Reason.NO_DEVICE,
    "CUDA_ERROR_INSUFFICIENT_DRIVER": Reason.NO_DEVICE, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": Reason.NO_DEVICE,
    "CUDA_ERROR_SYSTEM_NOT_READY": Reason.NO_DEVICE, "CUDA_ERROR_DEVICE_UNAVAILABLE": Reason.NO_DEVICE,
    "CUDA_ERROR_NO_BINARY_FOR_GPU": Reason.LOAD, "CUDA_ERROR_INVALID_IMAGE": Reason.LOAD, "CUDA_ERROR_NOT_FOUND": Reason.LOAD,
}  # fmt: skip
#: what PyCUDA calls a lack of memory
_SHORT = "MemoryError"


def launcher() -> Launcher:
    """The first launcher that imports and finds a device, PyCUDA's before cuda.core's.

    Raises:
        CudaFailure: NO_LAUNCHER where neither is installed, NO_DEVICE where none finds a device.
    """
    makers: tuple[Callable[[], Launcher], ...] = (PyCuda, CudaCore)
    found = CudaFailure(Reason.NO_LAUNCHER, "pip install dslc[cuda] or dslc[pycuda]")
    for make in makers:
        try:
            return make()
        except CudaFailure as problem:
            found = problem if found.reason is Reason.NO_LAUNCHER is not problem.reason else found
    raise found


def reason_of(problem: BaseException, tried: Reason) -> Reason:
    """Map a driver's error to a reason: by the status that it names (`CUDA_ERROR_...`), else by the call that failed."""
    if type(problem).__name__ == _SHORT:
        return Reason.MEMORY
    status = re.search(r"CUDA_ERROR_\w+", str(problem))
    return _STATUSES.get(status[0], tried) if status else tried


def _compiled(code: Code, capability: tuple[int, int]) -> bytes:
    """The binary of a kernel for a device.

    Raises:
        CudaFailure: COMPILE where the text is refused; BINDING where NVRTC is missing, or knows no such device.
    """
    from dslc.codegen.cuda.compiled import compile
    from dslc.codegen.cuda.nvrtc import NotCompiled, NvrtcReason

    try:
        binary: bytes = compile(code.text.text, f"sm_{capability[0]}{capability[1]}").cubin
        return binary
    except NotCompiled as problem:
        reason = Reason.BINDING if problem.reason in {NvrtcReason.NO_COMPILER, NvrtcReason.DEVICE} else Reason.COMPILE
        raise CudaFailure(reason, first_line(problem), code.name, code.rule) from None


#: a function, grid, block, shared memory in bytes, addresses, and sizes
_Launch = tuple[Any, tuple[int, ...], tuple[int, ...], int, list[int], list[int]]


@record
class LoadedModule:
    """A kernel on a device, whatever launches it: a kernel's launches, with its tensors and its sizes as arguments."""

    code: Code
    functions: Mapping[str, Any]
    module: Any = None

    def launches(self, reads: Sequence[Tensor], writes: Sequence[Tensor], scratch: Sequence[int]) -> Iterator[_Launch]:
        """Launches in order."""
        from dslc.codegen.cuda.text import PointerPlace, at

        text = self.code.text
        sizes = text.bind([one.shape for one in reads])
        if sizes is None:
            raise CudaFailure(Reason.LAUNCH, "other sizes than it was made for", self.code.name, self.code.rule)
        ins, outs = ([one.pointer for one in tensors] for tensors in (reads, writes))
        places = {PointerPlace.INPUT: ins, PointerPlace.OUTPUT: outs, PointerPlace.SCRATCH: scratch}
        numbers = [sizes[one] for one in text.sizes]
        for launch in text.launches:
            grid = tuple(at(size, sizes) for size in launch.grid)
            if 0 not in grid:
                pointers = [places[one.place][one.number] for one in launch.pointers]
                yield self.functions[launch.symbol], grid, launch.block, at(launch.shared, sizes), pointers, numbers


class _OnDevice:
    """Base of launchers on a device: errors with a reason, and the device made current on every calling thread."""

    #: what fails may be seen only when something waits for it
    delayed = True
    interprets = False
    #: what the binding calls freeing a block, waiting for a stream, and a function of a module
    name = freeing = waiting = getting = ""
    #: compute capability
    capability: tuple[int, int] = (0, 0)

    def __init__(self) -> None:
        self._streams: list[Any] = []
        self._blocks: dict[int, Any] = {}
        self._threads = {get_ident()}
        self.vendors = Vendors()

    #: makes the device the one of this thread, makes a stream, copies, reads a binary, and launches
    _current: Callable[[], None]
    _new_stream: Callable[[], Any]
    _copied: Callable[[int, Any, bool], None]
    _read: Callable[[bytes], Any]
    _launch: Callable[..., None]

    def _did(self, act: Callable[[], Any], reason: Reason = Reason.LAUNCH) -> Any:
        try:
            if get_ident() not in self._threads:
                self._current()
                self._threads.add(get_ident())
            return act()
        except CudaFailure:
            raise
        except Exception as problem:  # bindings raise errors of their own, one class for all of a driver's
            raise CudaFailure(reason_of(problem, reason), first_line(problem)) from None

    def _stream(self, number: int) -> Any:
        while len(self._streams) <= number:
            self._streams.append(self._new_stream())
        return self._streams[number]

    def free(self, pointer: int) -> None:
        self.synchronize()
        getattr(self._blocks.pop(pointer), self.freeing)()

    def upload(self, pointer: int, data: bytes) -> None:
        # what still runs may read it
        self.synchronize()
        if data:
            self._did(lambda: self._copied(pointer, np.frombuffer(data, np.uint8), True))

    def download(self, pointer: int, bytes: int) -> bytes:
        self.synchronize()
        out = np.empty(bytes, np.uint8)
        if bytes:
            self._did(lambda: self._copied(pointer, out, False))
        return out.tobytes()

    def load(self, code: Code) -> Any:
        binary = _compiled(code, self.capability)
        try:
            module = self._did(lambda: self._read(binary), Reason.LOAD)
            function, symbols = getattr(module, self.getting), {launch.symbol for launch in code.text.launches}
            functions = {name: self._did(partial(function, name), Reason.LOAD) for name in symbols}
            return LoadedModule(code, functions, module)
        except CudaFailure as problem:
            raise problem.of(code.name, code.rule) from None

    def kernel(
        self, loaded: Any, reads: Sequence[Tensor], writes: Sequence[Tensor], scratch: Sequence[int], stream: int
    ) -> None:
        for launch in loaded.launches(reads, writes, scratch):
            self._did(partial(self._launch, self._stream(stream), *launch))

    def call(self, invoked: Invoked, stream: int) -> None:
        self._did(lambda: self.vendors.call(invoked, int(self._stream(stream).handle)))

    def synchronize(self) -> None:
        for stream in self._streams:
            self._did(getattr(stream, self.waiting))

    def close(self) -> None:
        for pointer in list(self._blocks):
            self.free(pointer)
        self.vendors.close()


class CudaCore(_OnDevice):
    """NVIDIA's cuda.core."""

    name, freeing, waiting, getting = "cuda.core", "close", "sync", "get_kernel"

    def __init__(self, number: int = 0) -> None:
        super().__init__()
        try:
            import cuda.core as core  # type: ignore[import-not-found, unused-ignore]
            from cuda.bindings import driver  # type: ignore[import-not-found, unused-ignore]
        except ImportError as problem:
            raise CudaFailure(Reason.NO_LAUNCHER, first_line(problem)) from None
        self._core: Any = core
        self._driver: Any = driver
        try:
            self._device = core.Device(number)
            self._device.set_current()
            major, minor = self._device.compute_capability
        except Exception as problem:  # the driver is missing, or finds nothing: many kinds, none of them documented
            raise CudaFailure(Reason.NO_DEVICE, first_line(problem)) from None
        self.capability = (int(major), int(minor))
        self._building: Any = None

    def _current(self) -> None:
        self._device.set_current()

    def _new_stream(self) -> Any:
        return self._device.create_stream()

    def _read(self, binary: bytes) -> Any:
        return self._core.ObjectCode.from_cubin(binary)

    def _copied(self, pointer: int, array: Any, into: bool) -> None:
        copy = self._driver.cuMemcpyHtoDAsync if into else self._driver.cuMemcpyDtoHAsync
        ends = (pointer, array.ctypes.data) if into else (array.ctypes.data, pointer)
        # a stream of cuda.core waits for no copy of another one
        self._checked(copy(*ends, array.nbytes, self._stream(0).handle))
        self._stream(0).sync()

    def _checked(self, found: Any) -> None:
        status = found[0] if isinstance(found, tuple) else found
        if int(status) != 0:
            name = str(getattr(status, "name", status))
            raise CudaFailure(_STATUSES.get(name, Reason.LAUNCH), name)

    def allocate(self, bytes: int) -> int:
        block = self._did(lambda: self._device.allocate(bytes, stream=self._stream(0)), Reason.MEMORY)
        self.synchronize()
        self._blocks[int(block.handle)] = block
        return int(block.handle)

    def _launch(self, stream: Any, function: Any, grid: Any, block: Any, shared: int, *arguments: Any) -> None:
        config = self._core.LaunchConfig(grid=grid, block=block, shmem_size=shared)
        pointers, sizes = arguments
        # it takes whole numbers as addresses, and numbers of numpy as what their type says
        self._core.launch(stream, config, function, *map(int, pointers), *map(np.int64, sizes))

    def record(self, stream: int) -> Any:
        return self._did(lambda: self._stream(stream).record())

    def wait(self, stream: int, event: Any) -> None:
        self._did(lambda: self._stream(stream).wait(event))

    def begin(self) -> None:
        """Captures what is started on the first stream, and on those that wait for it.

        Vendors' libraries have chosen their algorithms in an earlier run.
        """
        self._stream(0)
        builder = self._did(self._streams[0].create_graph_builder)
        self._did(builder.begin_building)
        self._building = builder

    def end(self) -> Any | None:
        builder, self._building = self._building, None
        if builder is None:
            return None
        return self._did(lambda: builder.end_building().complete())

    def replay(self, recorded: Any) -> None:
        self._did(lambda: recorded.launch(self._streams[0]))


class PyCuda(_OnDevice):
    """PyCUDA."""

    name, freeing, waiting, getting = "pycuda", "free", "synchronize", "get_function"

    def __init__(self, number: int = 0) -> None:
        super().__init__()
        try:
            import pycuda.driver as driver  # type: ignore[import-not-found, unused-ignore]
        except ImportError as problem:
            # without a driver the module is there and does not load
            missing = getattr(problem, "name", None) in {"pycuda", "pycuda.driver"}
            raise CudaFailure(Reason.NO_LAUNCHER if missing else Reason.NO_DEVICE, first_line(problem)) from None
        self._driver: Any = driver
        try:
            driver.init()
            device = driver.Device(number)
            self._context = device.retain_primary_context()
            self._context.push()
            major, minor = device.compute_capability()
        except Exception as problem:
            raise CudaFailure(Reason.NO_DEVICE, first_line(problem)) from None
        self.capability = (int(major), int(minor))
        self._recorder: Recorder | None = None

    def _current(self) -> None:
        self._context.push()

    def _new_stream(self) -> Any:
        return self._driver.Stream()

    def _read(self, binary: bytes) -> Any:
        return self._driver.module_from_buffer(binary)

    def _copied(self, pointer: int, array: Any, into: bool) -> None:
        # its streams wait for copies, as copies do for them
        if into:
            self._driver.memcpy_htod(pointer, array)
        else:
            self._driver.memcpy_dtoh(array, pointer)

    def allocate(self, bytes: int) -> int:
        block = self._did(lambda: self._driver.mem_alloc(bytes), Reason.MEMORY)
        self._blocks[int(block)] = block
        return int(block)

    def _launch(self, stream: Any, function: Any, grid: Any, block: Any, shared: int, *arguments: Any) -> None:
        pointers, sizes = arguments
        given = (*map(np.uint64, pointers), *map(np.int64, sizes))
        function(*given, grid=grid, block=block, shared=shared, stream=stream)

    def record(self, stream: int) -> Any:
        def recorded() -> Any:
            event = self._driver.Event()
            event.record(self._stream(stream))
            return event

        return self._did(recorded)

    def wait(self, stream: int, event: Any) -> None:
        self._did(lambda: self._stream(stream).wait_for_event(event))

    def begin(self) -> None:
        """As cuda.core's, by the driver's own functions: PyCUDA has none for graphs. Without them everything is run."""
        library = driver()
        if library is not None:
            recorder = Recorder(library)
            recorder.begin(int(self._stream(0).handle))
            self._recorder = recorder

    def end(self) -> Any | None:
        recorder, self._recorder = self._recorder, None
        return recorder.end(int(self._stream(0).handle)) if recorder else None

    def replay(self, recorded: Any) -> None:
        recorded.launch(int(self._stream(0).handle))

    def close(self) -> None:
        super().close()
        context, self._context = self._context, None
        if context is not None:
            # PyCUDA wants an empty stack when the process ends
            context.pop()

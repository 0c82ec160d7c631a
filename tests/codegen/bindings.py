"""The bindings that launchers call, without a device: they take a call as the real ones declare it, and do what it says.

What is started is computed by the device that records, on its own memory; what a graph records is computed when it is launched, and
only what may be recorded is.
"""

from __future__ import annotations

import ctypes
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.fake_device import FakeDevice
from dslc.codegen.cuda.text import PointerPlace
from dslc.cuda.launch import Code, Tensor
from dslc.cuda.launchers import FUNCTIONS
from dslc.semantics.library import standard
from tests.codegen.declared import DECLARED, PYCUDA

# ---- calls are bound, and do what they say -----------------------------------------------------------------------------------


class Illegal(Exception):
    """What a driver refuses: its words begin with the status."""


_RANGES = {
    "int": (-(2**31), 2**31), "intptr_t": (0, 2**63), "long long": (-(2**63), 2**63), "int64_t": (-(2**63), 2**63),
    "size_t": (0, 2**64), "uint64_t": (0, 2**64),
}  # fmt: skip
#: what no thread may do while its stream is recorded: it makes memory, waits, or asks for what is not there yet
_NOT_RECORDED = re.compile(
    r"allocate|sync|free|mem_alloc|cuMemcpy|memcpy_|create$|create_handle|heuristic|build_plans|close|from_cubin|module_from"
)


def _bound(overloads: list[list[str]], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    problems = []
    for parameters in overloads:
        known = [one.split(":") for one in parameters if one != "self"]
        kinds = {name.strip("*?+"): (kind[0].strip() if kind else "") for name, *kind in known}
        marks = {name.strip("*?+"): name for name, *_ in known}
        kind_of = inspect.Parameter
        signature = inspect.Signature([
            kind_of(
                name,
                kind_of.VAR_POSITIONAL if mark[0] == "+" else kind_of.KEYWORD_ONLY if mark[0] == "*" else kind_of.POSITIONAL_OR_KEYWORD,
                default=None if mark.endswith("?") else kind_of.empty,
            )
            for name, mark in marks.items()
        ])  # fmt: skip
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as problem:
            problems.append(str(problem))
            continue
        given.apply_defaults()
        for name, value in given.arguments.items():
            low, high = _RANGES.get(kinds[name], (0, 0))
            if high and (type(value) is not int or not low <= value < high):
                raise TypeError(f"{name} is {value!r}, and {kinds[name]} is wanted")
        return dict(given.arguments)
    raise TypeError("; ".join(problems))


def call(module: str, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A method that takes what the function of a binding declares."""

    def decorated(act: Callable[..., Any]) -> Callable[..., Any]:
        def called(self: Any, *args: Any, **kwargs: Any) -> Any:
            world: World = self.world
            overloads = [PYCUDA[name]] if module == "pycuda.driver" else DECLARED[module][name]
            given = _bound(overloads, args, kwargs)
            world.calls.append(name)
            if name in world.broken:
                # a recording that failed is over as well
                world.recording = None if name.endswith("end_building") else world.recording
                raise world.broken[name]
            if world.recording is not None and _NOT_RECORDED.search(name):
                raise Illegal(f"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: {name}")
            return act(self, **given)

        return called

    return decorated


@dataclass(eq=False)
class Event:
    """A place in a stream; `at` is what the device calls it, once it was reached."""

    stream: int
    recorded: bool
    at: Any = None


@dataclass
class World:
    """A machine with one device, which computes what it is asked."""

    device: FakeDevice = field(default_factory=lambda: FakeDevice(standard()))
    broken: dict[str, Exception] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    codes: dict[bytes, Code] = field(default_factory=dict)
    #: whether an engine computes a convolution with what follows it
    fused: bool = True
    started: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)
    streams: int = 0
    #: what is recorded, the streams that are, and those of them that nobody waited for
    recording: list[Callable[[], None]] | None = None
    joined: set[int] = field(default_factory=set)
    loose: set[int] = field(default_factory=set)
    #: addresses of the arguments of a kernel's launches so far
    _gathered: dict[tuple[PointerPlace, int], int] = field(default_factory=dict)

    @property
    def world(self) -> World:
        return self

    def do(self, stream: int, act: Callable[[], None]) -> None:
        """Starts something on a stream, or records it."""
        if self.recording is None:
            act()
            return
        if stream not in self.joined:
            raise Illegal("CUDA_ERROR_STREAM_CAPTURE_ISOLATION: a stream that is not recorded")
        self.recording.append(act)
        self.loose.add(stream)

    def compiled(self, code: Code, capability: tuple[int, int]) -> bytes:
        """A binary, for `_compiled`: a name that says which code it is."""
        assert capability == self.device.capability
        self.codes[code.name.encode()] = code
        return code.name.encode()

    def launch(
        self, function: SimpleNamespace, grid: Any, block: Any, shared: int, arguments: list[int], stream: int
    ) -> None:
        """One launch of a kernel. All launches of one are there before it is computed."""
        code: Code = function.code
        text = code.text
        number = [one.symbol for one in text.launches].index(function.symbol)
        launch = text.launches[number]
        assert len(arguments) == len(launch.pointers) + len(text.sizes)
        assert len(grid) == len(block) == 3
        assert 0 < grid[0] < 2**31 and max(grid[1:]) < 2**16
        assert block == launch.block and 0 < np.prod(block) <= 1024
        assert shared == launch.shared
        self.started.append((function.symbol, tuple(grid), tuple(block)))
        for pointer, address in zip(launch.pointers, arguments, strict=False):
            assert self._gathered.setdefault((pointer.place, pointer.number), address) == address
        if number < len(text.launches) - 1:
            return
        found, self._gathered = self._gathered, {}
        reads, writes = (
            [_plain(found[place, k], type) for k, type in enumerate(types) if (place, k) in found]
            for place, types in ((PointerPlace.INPUT, text.inputs), (PointerPlace.OUTPUT, text.outputs))
        )
        assert len(writes) == len(text.outputs)
        if len(reads) == len(text.inputs):
            self.do(stream, lambda: self.device.kernel(code, reads, writes, [], stream))

    def record(self, stream: int) -> Event:
        event = Event(stream, self.recording is not None)

        def act() -> None:
            event.at = self.device.record(stream)

        if self.recording is None:
            act()
        else:
            self.do(stream, act)
        return event

    def wait(self, stream: int, event: Event) -> None:
        def act() -> None:
            self.device.wait(stream, event.at)

        if self.recording is not None:
            if not event.recorded or event.stream not in self.joined:
                raise Illegal("CUDA_ERROR_STREAM_CAPTURE_ISOLATION: an event of before")
            self.joined.add(stream)
            self.do(stream, act)
            self.loose.discard(event.stream)
        else:
            act()


def _plain(pointer: int, type: Any) -> Tensor:
    shape = tuple(int(str(size)) for size in type.shape)
    strides = [1] * len(shape)
    for k in reversed(range(len(shape) - 1)):
        strides[k] = strides[k + 1] * shape[k + 1]
    return Tensor(pointer, type.dtype, shape, tuple(strides))


# ---- cuda.core -----------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Stream:
    world: World
    number: int

    @property
    def handle(self) -> int:
        return 0x5000 + self.number

    @call("cuda.core", "Stream.record")
    def record(self, event: Any, options: Any) -> Event:
        assert event is None and options is None
        return self.world.record(self.number)

    @call("cuda.core", "Stream.wait")
    def wait(self, event_or_stream: Event) -> None:
        assert isinstance(event_or_stream, Event)
        self.world.wait(self.number, event_or_stream)

    @call("cuda.core", "Stream.sync")
    def sync(self) -> None:
        self.world.device.synchronize()

    @call("cuda.core", "Stream.create_graph_builder")
    def create_graph_builder(self) -> Builder:
        return Builder(self.world, self.number)


@dataclass(eq=False)
class Builder:
    world: World
    stream: int

    @call("cuda.core", "graph.GraphBuilder.begin_building")
    def begin_building(self, mode: Any) -> Builder:
        assert mode is None
        self.world.recording, self.world.joined, self.world.loose = [], {self.stream}, set()
        return self

    @call("cuda.core", "graph.GraphBuilder.end_building")
    def end_building(self) -> Builder:
        self.recorded, self.world.recording = self.world.recording, None
        if self.world.loose - {self.stream}:
            raise Illegal("CUDA_ERROR_STREAM_CAPTURE_UNJOINED: streams that nobody waited for")
        return self

    @call("cuda.core", "graph.GraphBuilder.complete")
    def complete(self, options: Any) -> Replay:
        return Replay(self.world, self.recorded or [])


@dataclass(eq=False)
class Replay:
    world: World
    recorded: list[Callable[[], None]]

    @call("cuda.core", "graph.Graph.launch")
    def launch(self, stream: Stream) -> None:
        assert isinstance(stream, Stream)
        for act in self.recorded:
            act()


@dataclass(eq=False)
class Memory:
    world: World
    handle: int

    @call("cuda.core", "Buffer.close")
    def close(self, stream: Any) -> None:
        self.world.device.free(self.handle)


@dataclass(eq=False)
class Device:
    world: World

    @property
    def compute_capability(self) -> tuple[int, int]:
        return self.world.device.capability

    @call("cuda.core", "Device.set_current")
    def set_current(self, ctx: Any) -> None: ...

    @call("cuda.core", "Device.create_stream")
    def create_stream(self, obj: Any, options: Any) -> Stream:
        self.world.streams += 1
        return Stream(self.world, self.world.streams - 1)

    @call("cuda.core", "Device.allocate")
    def allocate(self, size: int, stream: Stream) -> Memory:
        assert isinstance(stream, Stream)
        try:
            return Memory(self.world, self.world.device.allocate(size))
        except Exception:
            raise Illegal(
                "CUDA_ERROR_OUT_OF_MEMORY: The API call failed because it was unable to allocate enough memory"
            ) from None


class Core:
    """`cuda.core`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ObjectCode = SimpleNamespace(from_cubin=self._from_cubin)

    def Device(self, device_id: int | None = None) -> Device:
        if "Device" in self.world.broken:
            raise self.world.broken["Device"]
        return Device(self.world)

    @call("cuda.core", "LaunchConfig")
    def LaunchConfig(self, **given: Any) -> SimpleNamespace:
        return SimpleNamespace(**given)

    @call("cuda.core", "ObjectCode.from_cubin")
    def _from_cubin(self, module: bytes, name: Any, symbol_mapping: Any) -> Module:
        return Module(self.world, self.world.codes[module])

    @call("cuda.core", "launch")
    def launch(self, stream: Stream, config: Any, kernel: Any, kernel_args: tuple[Any, ...]) -> None:
        assert isinstance(stream, Stream)
        # whole numbers are addresses; numbers of numpy are what their types say; ctypes' own pointers are refused
        assert all(type(one) in (int, np.int64) for one in kernel_args), kernel_args
        self.world.launch(
            kernel, config.grid, config.block, config.shmem_size, [int(one) for one in kernel_args], stream.number
        )


@dataclass(eq=False)
class Module:
    world: World
    code: Code

    @call("cuda.core", "ObjectCode.get_kernel")
    def get_kernel(self, name: str) -> SimpleNamespace:
        assert name in {launch.symbol for launch in self.code.text.launches}
        return SimpleNamespace(code=self.code, symbol=name)


class Status(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2


class Driver:
    """`cuda.bindings.driver`."""

    def __init__(self, world: World) -> None:
        self.world = world

    @call("cuda.bindings.driver", "cuMemcpyHtoDAsync")
    def cuMemcpyHtoDAsync(self, dstDevice: int, srcHost: int, ByteCount: int, hStream: int) -> tuple[Status]:
        self.world.device.upload(dstDevice, ctypes.string_at(srcHost, ByteCount))
        return (Status.CUDA_SUCCESS,)

    @call("cuda.bindings.driver", "cuMemcpyDtoHAsync")
    def cuMemcpyDtoHAsync(self, dstHost: int, srcDevice: int, ByteCount: int, hStream: int) -> tuple[Status]:
        ctypes.memmove(dstHost, self.world.device.download(srcDevice, ByteCount), ByteCount)
        return (Status.CUDA_SUCCESS,)


class Libcuda:
    """The driver's library, for what PyCUDA has no words: addresses of streams, and statuses instead of errors."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.graphs: dict[int, list[Callable[[], None]]] = {}

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if not name.startswith("cu"):
            return found

        def called(*arguments: Any) -> int:
            # what the function takes is what ctypes would make of it
            assert len(arguments) == len(FUNCTIONS[name])
            for given, kind in zip(arguments, FUNCTIONS[name], strict=True):
                kind.from_param(given)
            self.world.calls.append(name)
            if name in self.world.broken:
                self.world.recording = None
                return 901
            return int(found(*arguments))

        return called

    def cuStreamBeginCapture_v2(self, stream: int, mode: int) -> int:
        assert mode == 2
        self.world.recording, self.world.joined, self.world.loose = [], {stream - 0x5000}, set()
        return 0

    def cuStreamEndCapture(self, stream: int, graph: Any) -> int:
        recorded, self.world.recording = self.world.recording, None
        if recorded is None or self.world.loose - {stream - 0x5000}:
            return 904
        self.graphs[len(self.graphs) + 1] = recorded
        graph._obj.value = len(self.graphs)
        return 0

    def cuGraphInstantiateWithFlags(self, launched: Any, graph: Any, flags: int) -> int:
        launched._obj.value = graph.value
        return 0

    def cuGraphLaunch(self, launched: Any, stream: int) -> int:
        for act in self.graphs[launched.value]:
            act()
        return 0

    def cuGraphDestroy(self, graph: Any) -> int:
        return 0

    def cuGraphExecDestroy(self, launched: Any) -> int:
        return 0

    def cuGetErrorName(self, status: int, words: Any) -> int:
        words._obj.value = (
            b"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" if status == 901 else b"CUDA_ERROR_STREAM_CAPTURE_UNJOINED"
        )
        return 0


# ---- PyCUDA --------------------------------------------------------------------------------------------------------------------


class Pycuda:
    """`pycuda.driver`: streams that wait for copies, addresses that are numbers of numpy."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.depth = 0

    @call("pycuda.driver", "init")
    def init(self, flags: int) -> None: ...

    @call("pycuda.driver", "Device")
    def Device(self, ordinal: int) -> Pycuda:
        return self

    @call("pycuda.driver", "Device.retain_primary_context")
    def retain_primary_context(self) -> Pycuda:
        return self

    @call("pycuda.driver", "Device.compute_capability")
    def compute_capability(self) -> tuple[int, int]:
        return self.world.device.capability

    @call("pycuda.driver", "Context.push")
    def push(self) -> None:
        self.depth += 1

    @call("pycuda.driver", "Context.pop")
    def pop(self) -> None:
        self.depth -= 1

    @call("pycuda.driver", "Stream")
    def Stream(self, flags: int) -> PycudaStream:
        self.world.streams += 1
        return PycudaStream(self.world, self.world.streams - 1)

    @call("pycuda.driver", "Event")
    def Event(self, flags: int) -> PycudaEvent:
        return PycudaEvent(self.world)

    @call("pycuda.driver", "mem_alloc")
    def mem_alloc(self, bytes: int) -> Allocation:
        try:
            return Allocation(self.world, self.world.device.allocate(bytes))
        except Exception:
            raise type("MemoryError", (Exception,), {})("cuMemAlloc failed: out of memory") from None

    @call("pycuda.driver", "memcpy_htod")
    def memcpy_htod(self, dest: int, src: Any) -> None:
        self.world.device.upload(dest, src.tobytes())

    @call("pycuda.driver", "memcpy_dtoh")
    def memcpy_dtoh(self, dest: Any, src: int) -> None:
        dest[...] = np.frombuffer(self.world.device.download(src, dest.nbytes), np.uint8)

    @call("pycuda.driver", "module_from_buffer")
    def module_from_buffer(self, buffer: bytes, options: Any, message_handler: Any) -> PycudaModule:
        return PycudaModule(self.world, self.world.codes[buffer])


@dataclass(eq=False)
class Allocation:
    world: World
    pointer: int

    def __int__(self) -> int:
        return self.pointer

    @call("pycuda.driver", "DeviceAllocation.free")
    def free(self) -> None:
        self.world.device.free(self.pointer)


@dataclass(eq=False)
class PycudaStream:
    world: World
    number: int

    @property
    def handle(self) -> int:
        return 0x5000 + self.number

    @call("pycuda.driver", "Stream.synchronize")
    def synchronize(self) -> None:
        self.world.device.synchronize()

    @call("pycuda.driver", "Stream.wait_for_event")
    def wait_for_event(self, evt: PycudaEvent) -> None:
        assert evt.made is not None
        self.world.wait(self.number, evt.made)


@dataclass(eq=False)
class PycudaEvent:
    world: World
    made: Event | None = None

    @call("pycuda.driver", "Event.record")
    def record(self, stream: PycudaStream) -> PycudaEvent:
        self.made = self.world.record(stream.number)
        return self


@dataclass(eq=False)
class PycudaModule:
    world: World
    code: Code

    @call("pycuda.driver", "Module.get_function")
    def get_function(self, name: str) -> PycudaFunction:
        return PycudaFunction(self.world, self.code, name)


@dataclass(eq=False)
class PycudaFunction:
    world: World
    code: Code
    symbol: str

    @call("pycuda.driver", "Function")
    def __call__(self, args: tuple[Any, ...], **g: Any) -> None:
        # an argument is packed as what its type of numpy says
        assert all(type(one) in (np.uint64, np.int64) for one in args)
        function = SimpleNamespace(code=self.code, symbol=self.symbol)
        self.world.launch(function, g["grid"], g["block"], g["shared"], [int(one) for one in args], g["stream"].number)

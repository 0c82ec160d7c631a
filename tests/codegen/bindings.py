"""The bindings that launchers call, without a device: they take a call as the real ones declare it, and do what it says.

`bindings.json` has what the real packages declare (`python -m tests.codegen.bindings` prints it where they are installed): names,
order, types, defaults. A call that does not bind is a TypeError, as it would be there. What is started is computed by the device
that records, on its own memory; what a graph records is computed when it is launched, and only what may be recorded is.
"""

from __future__ import annotations

import ctypes
import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from dslc.codegen.cuda.text import Place
from dslc.cuda.fake import FakeDevice
from dslc.cuda.launch import Code, Invoked, Tensor
from dslc.ir.dtype import DType
from dslc.semantics.library import standard

SNAPSHOT = Path(__file__).with_name("bindings.json")
DECLARED: dict[str, Any] = json.loads(SNAPSHOT.read_text("utf-8")) if SNAPSHOT.exists() else {}

#: what is called, by module; PyCUDA's driver does not load without a device: its declarations are those of its sources (2026.1)
CALLED = {
    "cuda.core": (
        "Device.set_current", "Device.create_stream", "Device.allocate", "Buffer.close", "Stream.record", "Stream.wait", "Stream.sync",
        "Stream.create_graph_builder", "graph.GraphBuilder.begin_building", "graph.GraphBuilder.end_building",
        "graph.GraphBuilder.complete", "graph.Graph.launch", "ObjectCode.from_cubin", "ObjectCode.get_kernel", "launch",
    ),
    "cuda.bindings.driver": ("cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync"),
    "nvmath.bindings.cublas": ("create", "destroy", "set_stream", "gemm_strided_batched_ex"),
    "nvmath.bindings.cublasLt": (
        "create", "destroy", "matmul", "matmul_desc_create", "matmul_desc_set_attribute", "matrix_layout_create",
        "matrix_layout_set_attribute", "matmul_preference_create", "matmul_preference_set_attribute", "matmul_preference_destroy",
        "matmul_algo_get_heuristic",
    ),
    "cudnn": (
        "create_handle", "destroy_handle", "set_stream", "pygraph.__init__", "pygraph.tensor", "pygraph.conv_fprop", "pygraph.bias",
        "pygraph.add", "pygraph.relu", "pygraph.validate", "pygraph.build_operation_graph", "pygraph.create_execution_plans",
        "pygraph.deselect_workspace_greater_than", "pygraph.deselect_numeric_notes", "pygraph.check_support", "pygraph.build_plans",
        "pygraph.execute", "tensor.set_output", "tensor.set_dim", "tensor.set_stride", "tensor.set_data_type",
    ),
}  # fmt: skip
PYCUDA = {
    "init": ["flags?"], "Device": ["ordinal"], "Device.retain_primary_context": ["self"], "Device.compute_capability": ["self"],
    "Context.push": ["self"], "Context.pop": [], "Stream": ["flags?"], "Stream.synchronize": ["self"],
    "Stream.wait_for_event": ["self", "evt"], "Event": ["flags?"], "Event.record": ["self", "stream?"], "mem_alloc": ["bytes"],
    "DeviceAllocation.free": ["self"], "memcpy_htod": ["dest", "src"], "memcpy_dtoh": ["dest", "src"],
    "module_from_buffer": ["buffer", "options?", "message_handler?"], "Module.get_function": ["self", "name"],
    "Function": ["self", "+args", "*grid?", "*stream?", "*block?", "*shared?", "*texrefs?", "*time_kernel?"],
}  # fmt: skip
ENUMS = {
    "nvmath.bindings.cublas": ("Operation", "ComputeType", "GemmAlgo"),
    "nvmath.bindings.cublasLt": ("Epilogue", "MatmulDescAttribute", "MatrixLayoutAttribute", "MatmulPreferenceAttribute"),
    "cudnn": ("data_type", "heur_mode", "numerical_note"),
}


# ---- what the real packages declare ------------------------------------------------------------------------------------------


def declared(module: str) -> dict[str, list[list[str]]]:
    """The overloads of each function that is called: `name: type`, `?` behind what may be left out, `*` before what needs its name."""
    owner = importlib.import_module(module)
    plain = module.startswith("cuda.")
    return {name: list(_overloads("" if plain else name, _member(owner, name))) for name in CALLED[module]}


def _member(owner: Any, path: str) -> Any:
    for part in path.split("."):
        owner = getattr(owner, part)
    return owner


def _overloads(name: str, found: Any) -> Iterator[list[str]]:
    # some say it in their documentation only, with types; no name: not there
    last = name.rpartition(".")[2] or "-"
    lines = [line.strip() for line in str(found.__doc__ or "").splitlines()]
    heads = [m[1] for line in lines if (m := re.match(rf"(?:\d+\. )?{re.escape(last)}\((.*)\)(?: ->.*)?$", line))]
    heads = [head for head in heads if not head.startswith("*args")]
    typed = [head for head in heads if ":" in head or not head or re.match(r"\w+ \w+|long long", head)]
    if typed:
        yield from ([_parameter(part) for part in _parts(head)] for head in typed)
        return
    parameters = inspect.signature(found).parameters.values()
    marks = {inspect.Parameter.KEYWORD_ONLY: "*", inspect.Parameter.VAR_POSITIONAL: "+"}
    yield [marks.get(one.kind, "") + one.name + ("?" if one.default is not inspect.Parameter.empty else "") for one in parameters]


def _parts(head: str) -> Iterator[str]:
    depth, part = 0, ""
    for letter in f"{head},":
        depth += (letter in "[(<{") - (letter in "])>}")
        if letter == "," and depth == 0:
            if part.strip():
                yield part.strip()
            part = ""
        else:
            part += letter


def _parameter(text: str) -> str:
    name, colon, rest = text.partition(":")
    if colon:
        return name.strip() + ("?" if "=" in rest else "")
    kind, _, name = text.rpartition(" ")
    return f"{name}: {kind}"


def snapshot() -> dict[str, Any]:
    """All that the installed packages declare. Raises ImportError where one is missing."""
    found: dict[str, Any] = {module: declared(module) for module in CALLED}
    for module, names in ENUMS.items():
        owner = importlib.import_module(module)
        for name in names:
            found[f"{module}.{name}"] = {key: int(value) for key, value in getattr(owner, name).__members__.items()}
    core = importlib.import_module("cuda.core")
    found["cuda.core"]["LaunchConfig"] = [[f"*{name}?" for name in sorted(dir(core.LaunchConfig)) if not name.startswith("_")]]
    lt = importlib.import_module("nvmath.bindings.cublasLt")
    dtypes = {
        "MatmulDescAttribute": lt.get_matmul_desc_attribute_dtype, "MatrixLayoutAttribute": lt.get_matrix_layout_attribute_dtype,
        "MatmulPreferenceAttribute": lt.get_matmul_preference_attribute_dtype,
    }  # fmt: skip
    wanted = re.compile(r"TRANS[AB]|EPILOGUE|BIAS_POINTER|BATCH_COUNT|STRIDED_BATCH_OFFSET|MAX_WORKSPACE_BYTES|MIN_ALIGNMENT_\w+")
    for name, dtype in dtypes.items():
        members = getattr(lt, name).__members__.items()
        found[f"sizes of {name}"] = {key: np.dtype(dtype(int(v))).itemsize for key, v in members if wanted.fullmatch(key)}
    found["size of a heuristic's result"] = int(lt.matmul_heuristic_result_dtype.itemsize)
    return found


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


def _call(module: str, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
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
    _gathered: dict[tuple[Place, int], int] = field(default_factory=dict)

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

    def launch(self, function: SimpleNamespace, grid: Any, block: Any, shared: int, arguments: list[int], stream: int) -> None:
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
            for place, types in ((Place.INPUT, text.inputs), (Place.OUTPUT, text.outputs))
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

    @_call("cuda.core", "Stream.record")
    def record(self, event: Any, options: Any) -> Event:
        assert event is None and options is None
        return self.world.record(self.number)

    @_call("cuda.core", "Stream.wait")
    def wait(self, event_or_stream: Event) -> None:
        assert isinstance(event_or_stream, Event)
        self.world.wait(self.number, event_or_stream)

    @_call("cuda.core", "Stream.sync")
    def sync(self) -> None:
        self.world.device.synchronize()

    @_call("cuda.core", "Stream.create_graph_builder")
    def create_graph_builder(self) -> Builder:
        return Builder(self.world, self.number)


@dataclass(eq=False)
class Builder:
    world: World
    stream: int

    @_call("cuda.core", "graph.GraphBuilder.begin_building")
    def begin_building(self, mode: Any) -> Builder:
        assert mode is None
        self.world.recording, self.world.joined, self.world.loose = [], {self.stream}, set()
        return self

    @_call("cuda.core", "graph.GraphBuilder.end_building")
    def end_building(self) -> Builder:
        self.recorded, self.world.recording = self.world.recording, None
        if self.world.loose - {self.stream}:
            raise Illegal("CUDA_ERROR_STREAM_CAPTURE_UNJOINED: streams that nobody waited for")
        return self

    @_call("cuda.core", "graph.GraphBuilder.complete")
    def complete(self, options: Any) -> Replay:
        return Replay(self.world, self.recorded or [])


@dataclass(eq=False)
class Replay:
    world: World
    recorded: list[Callable[[], None]]

    @_call("cuda.core", "graph.Graph.launch")
    def launch(self, stream: Stream) -> None:
        assert isinstance(stream, Stream)
        for act in self.recorded:
            act()


@dataclass(eq=False)
class Memory:
    world: World
    handle: int

    @_call("cuda.core", "Buffer.close")
    def close(self, stream: Any) -> None:
        self.world.device.free(self.handle)


@dataclass(eq=False)
class Device:
    world: World

    @property
    def compute_capability(self) -> tuple[int, int]:
        return self.world.device.capability

    @_call("cuda.core", "Device.set_current")
    def set_current(self, ctx: Any) -> None: ...

    @_call("cuda.core", "Device.create_stream")
    def create_stream(self, obj: Any, options: Any) -> Stream:
        self.world.streams += 1
        return Stream(self.world, self.world.streams - 1)

    @_call("cuda.core", "Device.allocate")
    def allocate(self, size: int, stream: Stream) -> Memory:
        assert isinstance(stream, Stream)
        try:
            return Memory(self.world, self.world.device.allocate(size))
        except Exception:
            raise Illegal("CUDA_ERROR_OUT_OF_MEMORY: The API call failed because it was unable to allocate enough memory") from None


class Core:
    """`cuda.core`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ObjectCode = SimpleNamespace(from_cubin=self._from_cubin)

    def Device(self, device_id: int | None = None) -> Device:
        if "Device" in self.world.broken:
            raise self.world.broken["Device"]
        return Device(self.world)

    @_call("cuda.core", "LaunchConfig")
    def LaunchConfig(self, **given: Any) -> SimpleNamespace:
        return SimpleNamespace(**given)

    @_call("cuda.core", "ObjectCode.from_cubin")
    def _from_cubin(self, module: bytes, name: Any, symbol_mapping: Any) -> Module:
        return Module(self.world, self.world.codes[module])

    @_call("cuda.core", "launch")
    def launch(self, stream: Stream, config: Any, kernel: Any, kernel_args: tuple[Any, ...]) -> None:
        assert isinstance(stream, Stream)
        # whole numbers are addresses; numbers of numpy are what their types say; ctypes' own pointers are refused
        assert all(type(one) in (int, np.int64) for one in kernel_args), kernel_args
        self.world.launch(kernel, config.grid, config.block, config.shmem_size, [int(one) for one in kernel_args], stream.number)


@dataclass(eq=False)
class Module:
    world: World
    code: Code

    @_call("cuda.core", "ObjectCode.get_kernel")
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

    @_call("cuda.bindings.driver", "cuMemcpyHtoDAsync")
    def cuMemcpyHtoDAsync(self, dstDevice: int, srcHost: int, ByteCount: int, hStream: int) -> tuple[Status]:
        self.world.device.upload(dstDevice, ctypes.string_at(srcHost, ByteCount))
        return (Status.CUDA_SUCCESS,)

    @_call("cuda.bindings.driver", "cuMemcpyDtoHAsync")
    def cuMemcpyDtoHAsync(self, dstHost: int, srcDevice: int, ByteCount: int, hStream: int) -> tuple[Status]:
        ctypes.memmove(dstHost, self.world.device.download(srcDevice, ByteCount), ByteCount)
        return (Status.CUDA_SUCCESS,)


# ---- cuBLAS --------------------------------------------------------------------------------------------------------------------

_DTYPES = {0: DType.F32, 1: DType.F64, 2: DType.F16, 14: DType.BF16}


def _enum(name: str) -> Any:
    return IntEnum(name.rpartition(".")[2], DECLARED[name])


def _factor(address: int, compute: int) -> float:
    kind = ctypes.c_double if compute == DECLARED["nvmath.bindings.cublas.ComputeType"]["COMPUTE_64F"] else ctypes.c_float
    return float(kind.from_address(address).value)


def _flat(pointer: int, dtype: DType) -> Tensor:
    return Tensor(pointer, dtype, (), ())


class Blas:
    """`nvmath.bindings.cublas`: single precision stays single, and no factor of the old result."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.handles: dict[int, int] = {}
        self.Operation, self.ComputeType, self.GemmAlgo = (
            _enum(f"nvmath.bindings.cublas.{name}") for name in ENUMS["nvmath.bindings.cublas"]
        )

    @_call("nvmath.bindings.cublas", "create")
    def create(self) -> int:
        self.handles[0x700 + len(self.handles)] = -1
        return max(self.handles)

    @_call("nvmath.bindings.cublas", "destroy")
    def destroy(self, handle: int) -> None:
        del self.handles[handle]

    @_call("nvmath.bindings.cublas", "set_stream")
    def set_stream(self, handle: int, stream_id: int) -> None:
        self.handles[handle] = stream_id - 0x5000

    @_call("nvmath.bindings.cublas", "gemm_strided_batched_ex")
    def gemm_strided_batched_ex(self, **g: Any) -> None:
        a, b, c = (_DTYPES[g[f"{name}type"]] for name in "abc")
        wide = DType.F64 in (a, b, c)
        assert g["compute_type"] == self.ComputeType["COMPUTE_64F" if wide else "COMPUTE_32F"]
        assert _factor(g["beta"], g["compute_type"]) == 0
        arguments = {name: g[name] for name in ("m", "n", "k", "lda", "ldb", "ldc", "stride_a", "stride_b", "stride_c", "batch_count")}
        arguments |= {name: self.Operation(g[name]).name for name in ("transa", "transb")}
        arguments |= {"a": _flat(g["a"], a), "b": _flat(g["b"], b), "c": _flat(g["c"], c)}
        arguments["alpha"] = _factor(g["alpha"], g["compute_type"])
        invoked = Invoked("cublasGemmStridedBatchedEx", "", arguments)
        stream = self.handles[g["handle"]]
        assert stream >= 0
        self.world.do(stream, lambda: self.world.device.call(invoked, stream))


class BlasLt:
    """`nvmath.bindings.cublasLt`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.objects: dict[int, dict[str, Any]] = {}
        self.Epilogue, self.MatmulDescAttribute, self.MatrixLayoutAttribute, self.MatmulPreferenceAttribute = (
            _enum(f"nvmath.bindings.cublasLt.{name}") for name in ENUMS["nvmath.bindings.cublasLt"]
        )
        self.matmul_heuristic_result_dtype = np.dtype([("data", "u1", (DECLARED["size of a heuristic's result"],))])

    def _make(self, **given: Any) -> int:
        key = 0x900 + 16 * len(self.objects)
        self.objects[key] = given
        return key

    def _set(self, kind: str, of: int, attr: int, buf: int, size: int) -> None:
        name = getattr(self, kind)(attr).name
        assert size == DECLARED[f"sizes of {kind}"][name], name
        self.objects[of][name] = int.from_bytes(ctypes.string_at(buf, size), "little", signed=True)

    @_call("nvmath.bindings.cublasLt", "create")
    def create(self) -> int:
        return self._make()

    @_call("nvmath.bindings.cublasLt", "destroy")
    def destroy(self, light_handle: int) -> None: ...

    @_call("nvmath.bindings.cublasLt", "matmul_desc_create")
    def matmul_desc_create(self, compute_type: int, scale_type: int) -> int:
        return self._make(compute=compute_type, scale=scale_type)

    @_call("nvmath.bindings.cublasLt", "matmul_desc_set_attribute")
    def matmul_desc_set_attribute(self, matmul_desc: int, attr: int, buf: int, size_in_bytes: int) -> None:
        self._set("MatmulDescAttribute", matmul_desc, attr, buf, size_in_bytes)

    @_call("nvmath.bindings.cublasLt", "matrix_layout_create")
    def matrix_layout_create(self, type: int, rows: int, cols: int, ld: int) -> int:
        assert ld >= rows
        return self._make(dtype=_DTYPES[type], rows=rows, cols=cols, ld=ld)

    @_call("nvmath.bindings.cublasLt", "matrix_layout_set_attribute")
    def matrix_layout_set_attribute(self, mat_layout: int, attr: int, buf: int, size_in_bytes: int) -> None:
        self._set("MatrixLayoutAttribute", mat_layout, attr, buf, size_in_bytes)

    @_call("nvmath.bindings.cublasLt", "matmul_preference_create")
    def matmul_preference_create(self) -> int:
        return self._make()

    @_call("nvmath.bindings.cublasLt", "matmul_preference_set_attribute")
    def matmul_preference_set_attribute(self, pref: int, attr: int, buf: int, size_in_bytes: int) -> None:
        self._set("MatmulPreferenceAttribute", pref, attr, buf, size_in_bytes)

    @_call("nvmath.bindings.cublasLt", "matmul_preference_destroy")
    def matmul_preference_destroy(self, pref: int) -> None: ...

    @_call("nvmath.bindings.cublasLt", "matmul_algo_get_heuristic")
    def matmul_algo_get_heuristic(self, **g: Any) -> None:
        assert g["requested_algo_count"] == 1
        least = self.objects[g["preference"]]
        # an algorithm is for addresses of such an alignment, and for so much memory
        for k, name in enumerate("ABCD"):
            assert least[f"MIN_ALIGNMENT_{name}_BYTES"] in (1, 2, 4, 8, 16, 32, 64, 128, 256)
            ctypes.memmove(g["heuristic_results_array"] + 2 * k, np.uint16(least[f"MIN_ALIGNMENT_{name}_BYTES"]).tobytes(), 2)
        ctypes.memmove(g["heuristic_results_array"] + 8, np.int64(least["MAX_WORKSPACE_BYTES"]).tobytes(), 8)
        ctypes.memmove(g["return_algo_count"], np.int32(1).tobytes(), 4)

    @_call("nvmath.bindings.cublasLt", "matmul")
    def matmul(self, **g: Any) -> None:
        desc, a, b, d = (self.objects[g[name]] for name in ("compute_desc", "adesc", "bdesc", "ddesc"))
        assert g["c"] == g["d"] and g["cdesc"] == g["ddesc"]
        assert _factor(g["beta"], desc["compute"]) == 0
        for k, name in enumerate("abcd"):
            assert g[name] % int(np.frombuffer(ctypes.string_at(g["algo"] + 2 * k, 2), np.uint16)[0]) == 0
        assert g["workspace_size_in_bytes"] >= int(np.frombuffer(ctypes.string_at(g["algo"] + 8, 8), np.int64)[0])
        operation = DECLARED["nvmath.bindings.cublas.Operation"]
        names = {value: key for key, value in operation.items()}
        trans = {"transa": names[desc["TRANSA"]], "transb": names[desc["TRANSB"]]}
        k = a["cols"] if trans["transa"] == "N" else a["rows"]
        sides = ((a, trans["transa"], d["rows"], k), (b, trans["transb"], k, d["cols"]))
        for layout, turned, rows, columns in sides:
            assert (layout["rows"], layout["cols"]) == ((rows, columns) if turned == "N" else (columns, rows))
        epilogue = self.Epilogue(desc["EPILOGUE"]).name
        arguments: dict[str, Any] = {
            **trans, "m": d["rows"], "n": d["cols"], "k": k, "alpha": _factor(g["alpha"], desc["compute"]), "epilogue": epilogue,
            "batch_count": d["BATCH_COUNT"],
        }  # fmt: skip
        for name, layout in (("a", a), ("b", b), ("d", d)):
            assert layout["BATCH_COUNT"] == d["BATCH_COUNT"]
            arguments |= {name: _flat(g[name], layout["dtype"]), f"ld{name}": layout["ld"]}
            arguments[f"stride_{name}"] = layout["STRIDED_BATCH_OFFSET"]
        if epilogue.endswith("BIAS"):
            arguments["bias"] = _flat(desc["BIAS_POINTER"], d["dtype"])
        invoked = Invoked("cublasLtMatmul", "", arguments, (g["workspace"], g["workspace_size_in_bytes"]))
        stream = g["stream"] - 0x5000
        self.world.do(stream, lambda: self.world.device.call(invoked, stream))


# ---- cuDNN ---------------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Symbol:
    """A tensor of a graph."""

    world: World
    dim: list[int] = field(default_factory=list)
    stride: list[int] = field(default_factory=list)
    output: bool = False

    @_call("cudnn", "tensor.set_output")
    def set_output(self, arg0: bool) -> Symbol:
        self.output = arg0
        return self

    @_call("cudnn", "tensor.set_dim")
    def set_dim(self, arg0: list[int]) -> Symbol:
        self.dim = arg0
        return self

    @_call("cudnn", "tensor.set_stride")
    def set_stride(self, arg0: list[int]) -> Symbol:
        self.stride = arg0
        return self

    @_call("cudnn", "tensor.set_data_type")
    def set_data_type(self, data_type: Any) -> Symbol:
        return self


class Pygraph:
    """A graph of operations: a convolution, and what is computed of it."""

    def __init__(self, world: World, handles: dict[int, int], **given: Any) -> None:
        self.world, self.handles, self.given = world, handles, given
        self.names: dict[Symbol, str] = {}
        self.steps: list[str] = []
        self.convolution = False
        self.arguments: dict[str, Any] = {}
        self.most = 0

    @_call("cudnn", "pygraph.tensor")
    def tensor(self, **g: Any) -> Symbol:
        assert type(g["dim"]) is type(g["stride"]) is list and len(g["dim"]) == len(g["stride"])
        made = Symbol(self.world, g["dim"], g["stride"])
        self.names[made] = g["name"]
        return made

    @_call("cudnn", "pygraph.conv_fprop")
    def conv_fprop(self, **g: Any) -> Symbol:
        assert not g.get("padding")
        self.convolution = True
        self.arguments = {name: tuple(g[name]) for name in ("pre_padding", "post_padding", "stride", "dilation")}
        assert (self.names[g["image"]], self.names[g["weight"]]) == ("image", "weight")
        return Symbol(self.world)

    @_call("cudnn", "pygraph.bias")
    def bias(self, **g: Any) -> Symbol:
        # the bias has the axes of the result, of which only the channels are many
        assert g["bias"].dim[0] == 1 and set(g["bias"].dim[2:]) == {1}
        self.steps.append("bias")
        return Symbol(self.world)

    @_call("cudnn", "pygraph.add")
    def add(self, **g: Any) -> Symbol:
        self.steps.append("residual")
        return Symbol(self.world)

    @_call("cudnn", "pygraph.relu")
    def relu(self, **g: Any) -> Symbol:
        assert not any(g[name] for name in ("negative_slope", "lower_clip", "upper_clip"))
        self.steps.append("relu")
        return Symbol(self.world)

    @_call("cudnn", "pygraph.validate")
    def validate(self) -> None: ...

    @_call("cudnn", "pygraph.build_operation_graph")
    def build_operation_graph(self) -> None: ...

    @_call("cudnn", "pygraph.create_execution_plans")
    def create_execution_plans(self, arg0: Any) -> None: ...

    @_call("cudnn", "pygraph.deselect_workspace_greater_than")
    def deselect_workspace_greater_than(self, arg0: int) -> None:
        self.most = arg0

    @_call("cudnn", "pygraph.deselect_numeric_notes")
    def deselect_numeric_notes(self, arg0: Any) -> None:
        assert [one.name for one in arg0] == ["TENSOR_CORE", "DOWN_CONVERT_INPUTS"]

    @_call("cudnn", "pygraph.check_support")
    def check_support(self) -> None:
        if self.convolution and self.steps and not self.world.fused:
            raise Illegal("No engine supports it")

    @_call("cudnn", "pygraph.build_plans")
    def build_plans(self, policy: Any) -> None: ...

    @_call("cudnn", "pygraph.execute")
    def execute(self, **g: Any) -> None:
        io = _enum("cudnn.data_type")(self.given["io_data_type"]).name
        dtype = {"FLOAT": DType.F32, "DOUBLE": DType.F64, "HALF": DType.F16, "BFLOAT16": DType.BF16}[io]
        arguments = dict(self.arguments)
        for symbol, pointer in g["tensor_to_device_buffer"].items():
            # an engine may move 16 bytes at a time
            assert type(pointer) is int and pointer % 16 == 0
            name = self.names.get(symbol, "y")
            assert symbol.output == (symbol not in self.names)
            arguments[name] = Tensor(pointer, dtype, tuple(symbol.dim), tuple(symbol.stride))
        assert self.steps == [one for one in ("bias", "residual", "relu") if one in self.steps]
        assert {"bias", "residual"} & set(self.steps) == {"bias", "residual"} & set(arguments)
        if "bias" in arguments:
            bias = arguments["bias"]
            arguments["bias"] = Tensor(bias.pointer, bias.dtype, (bias.shape[1],), (bias.strides[1],))
        if self.steps:
            arguments["activation"] = "RELU" if "relu" in self.steps else "IDENTITY"
        invoked = Invoked("cudnnConvolutionForward", "", arguments, (g["workspace"], self.most))
        stream = self.handles[g["handle"]]
        if not self.convolution:
            # the result is changed where it is
            self.world.do(stream, lambda: self.world.device._start(lambda: self._changed(arguments), stream))
            return
        self.world.do(stream, lambda: self.world.device.call(invoked, stream))


    def _changed(self, arguments: dict[str, Any]) -> None:
        y = self.world.device._array(arguments["y"])
        if "bias" in arguments:
            y += self.world.device._array(arguments["bias"]).reshape(-1, *[1] * (y.ndim - 2))
        if "residual" in arguments:
            y += self.world.device._array(arguments["residual"])
        if "relu" in self.steps:
            np.maximum(y, 0, out=y)


class Cudnn:
    """`cudnn`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.handles: dict[int, int] = {}
        self.data_type, self.heur_mode, self.numerical_note = (_enum(f"cudnn.{name}") for name in ENUMS["cudnn"])

    @_call("cudnn", "create_handle")
    def create_handle(self) -> int:
        self.handles[0xB00 + len(self.handles)] = -1
        return max(self.handles)

    @_call("cudnn", "destroy_handle")
    def destroy_handle(self, arg0: int) -> None:
        del self.handles[arg0]

    @_call("cudnn", "set_stream")
    def set_stream(self, handle: int, stream: int) -> None:
        self.handles[handle] = stream - 0x5000

    @_call("cudnn", "pygraph.__init__")
    def pygraph(self, **given: Any) -> Pygraph:
        assert given["handle"] in self.handles
        return Pygraph(self.world, self.handles, **given)


# ---- PyCUDA --------------------------------------------------------------------------------------------------------------------


class Pycuda:
    """`pycuda.driver`: streams that wait for copies, addresses that are numbers of numpy."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.depth = 0

    @_call("pycuda.driver", "init")
    def init(self, flags: int) -> None: ...

    @_call("pycuda.driver", "Device")
    def Device(self, ordinal: int) -> Pycuda:
        return self

    @_call("pycuda.driver", "Device.retain_primary_context")
    def retain_primary_context(self) -> Pycuda:
        return self

    @_call("pycuda.driver", "Device.compute_capability")
    def compute_capability(self) -> tuple[int, int]:
        return self.world.device.capability

    @_call("pycuda.driver", "Context.push")
    def push(self) -> None:
        self.depth += 1

    @_call("pycuda.driver", "Context.pop")
    def pop(self) -> None:
        self.depth -= 1

    @_call("pycuda.driver", "Stream")
    def Stream(self, flags: int) -> PycudaStream:
        self.world.streams += 1
        return PycudaStream(self.world, self.world.streams - 1)

    @_call("pycuda.driver", "Event")
    def Event(self, flags: int) -> PycudaEvent:
        return PycudaEvent(self.world)

    @_call("pycuda.driver", "mem_alloc")
    def mem_alloc(self, bytes: int) -> Allocation:
        try:
            return Allocation(self.world, self.world.device.allocate(bytes))
        except Exception:
            raise type("MemoryError", (Exception,), {})("cuMemAlloc failed: out of memory") from None

    @_call("pycuda.driver", "memcpy_htod")
    def memcpy_htod(self, dest: int, src: Any) -> None:
        self.world.device.upload(dest, src.tobytes())

    @_call("pycuda.driver", "memcpy_dtoh")
    def memcpy_dtoh(self, dest: Any, src: int) -> None:
        dest[...] = np.frombuffer(self.world.device.download(src, dest.nbytes), np.uint8)

    @_call("pycuda.driver", "module_from_buffer")
    def module_from_buffer(self, buffer: bytes, options: Any, message_handler: Any) -> PycudaModule:
        return PycudaModule(self.world, self.world.codes[buffer])


@dataclass(eq=False)
class Allocation:
    world: World
    pointer: int

    def __int__(self) -> int:
        return self.pointer

    @_call("pycuda.driver", "DeviceAllocation.free")
    def free(self) -> None:
        self.world.device.free(self.pointer)


@dataclass(eq=False)
class PycudaStream:
    world: World
    number: int

    @property
    def handle(self) -> int:
        return 0x5000 + self.number

    @_call("pycuda.driver", "Stream.synchronize")
    def synchronize(self) -> None:
        self.world.device.synchronize()

    @_call("pycuda.driver", "Stream.wait_for_event")
    def wait_for_event(self, evt: PycudaEvent) -> None:
        assert evt.made is not None
        self.world.wait(self.number, evt.made)


@dataclass(eq=False)
class PycudaEvent:
    world: World
    made: Event | None = None

    @_call("pycuda.driver", "Event.record")
    def record(self, stream: PycudaStream) -> PycudaEvent:
        self.made = self.world.record(stream.number)
        return self


@dataclass(eq=False)
class PycudaModule:
    world: World
    code: Code

    @_call("pycuda.driver", "Module.get_function")
    def get_function(self, name: str) -> PycudaFunction:
        return PycudaFunction(self.world, self.code, name)


@dataclass(eq=False)
class PycudaFunction:
    world: World
    code: Code
    symbol: str

    @_call("pycuda.driver", "Function")
    def __call__(self, args: tuple[Any, ...], **g: Any) -> None:
        # an argument is packed as what its type of numpy says
        assert all(type(one) in (np.uint64, np.int64) for one in args)
        function = SimpleNamespace(code=self.code, symbol=self.symbol)
        self.world.launch(function, g["grid"], g["block"], g["shared"], [int(one) for one in args], g["stream"].number)


def modules(world: World, pycuda: bool = False) -> dict[str, Any]:
    """What `sys.modules` has of a machine with a device; PyCUDA, where it is wanted, else cuda.core."""
    names = ("cuda", "cuda.bindings", "nvmath", "nvmath.bindings", "pycuda")
    found: dict[str, Any] = {name: ModuleType(name) for name in names}
    found |= {
        "cuda.core": Core(world), "cuda.bindings.driver": Driver(world), "nvmath.bindings.cublas": Blas(world),
        "nvmath.bindings.cublasLt": BlasLt(world), "cudnn": Cudnn(world), "pycuda.driver": Pycuda(world),
    }  # fmt: skip
    for name, module in found.items():
        above, _, last = name.rpartition(".")
        if above in found:
            setattr(found[above], last, module)
    missing = ("cuda.core", "cuda") if pycuda else ("pycuda.driver", "pycuda")
    return {**found, **dict.fromkeys(missing)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(snapshot(), indent=1, sort_keys=True) + "\n")

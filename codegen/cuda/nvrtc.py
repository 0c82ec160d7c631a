"""NVIDIA's run-time compiler through its C interface: no driver, no toolkit and no device is needed."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import re
from collections.abc import Iterator
from enum import Enum
from functools import cache
from pathlib import Path

from dslc.codegen.host.compiler import first_error
from dslc.records import record

FLAGS = ("-std=c++17", "-w", "--ptxas-options=-v")
#: nvrtcResult of a text that is refused
_REFUSED = 6


class NvrtcReason(Enum):
    """Reason why there is no binary; decisions depend on it, never on the words of a message."""

    NO_COMPILER = "neither NVRTC nor nvcc was found"
    ERROR = "the compiler refused the text"
    DEVICE = "the compiler has no such device"
    FAILED = "the compiler failed"


class NotCompiled(Exception):
    """There is no binary."""

    def __init__(self, reason: NvrtcReason, detail: str = "") -> None:
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)
        self.reason, self.detail = reason, detail


@record
class Usage:
    """Resources of one thread or block of a kernel: registers, bytes spilled (stored and loaded), bytes of shared memory."""

    symbol: str
    registers: int
    spills: int
    shared: int


@record
class Binary:
    """A cubin for one kind of device, as `cuModuleLoadData` takes it."""

    arch: str
    cubin: bytes
    kernels: tuple[Usage, ...]


def compile(text: str, arch: str = "sm_80") -> Binary:
    """The binary of a text for an architecture, such as `sm_90`.

    Raises:
        NotCompiled: with the reason; the detail of ERROR is what the compiler says first.
    """
    library = _library()
    if library is None:
        raise NotCompiled(NvrtcReason.NO_COMPILER, "pip install dslc[cuda]")
    options = [option.encode() for option in (f"--gpu-architecture={arch}", *FLAGS)]
    program = ctypes.c_void_p()
    _check(library, library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None))
    try:
        code = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        log = _bytes(library, "ProgramLog", program).rstrip(b"\0").decode(errors="replace")
        if code == _REFUSED:
            raise NotCompiled(NvrtcReason.ERROR, first_error(log))
        if code != 0 and "architecture" in log:
            raise NotCompiled(NvrtcReason.DEVICE, arch)
        _check(library, code)
        return Binary(arch, _bytes(library, "CUBIN", program), tuple(usages(log)))
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def available() -> bool:
    """Return whether NVRTC is here."""
    return _library() is not None


@cache
def _library() -> ctypes.CDLL | None:
    for path in _paths():
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        return library
    return None


def _paths() -> Iterator[str]:
    """Candidate paths of NVRTC: NVIDIA's packages, then the system; newest first."""
    found = importlib.util.find_spec("nvidia")
    for folder in found.submodule_search_locations or () if found is not None else ():
        files = [
            path for path in Path(folder).glob("*/lib/libnvrtc.so.*") if re.fullmatch(r"libnvrtc\.so\.\d+", path.name)
        ]
        yield from map(str, sorted(files, key=lambda path: int(path.suffix[1:]), reverse=True))
        yield from map(str, sorted(Path(folder).glob("*/bin/**/nvrtc64_*[0-9].dll"), reverse=True))
    system = ctypes.util.find_library("nvrtc")
    if system is not None:
        yield system


def _bytes(library: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    room = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, f"nvrtcGet{what}")(program, room))
    return room.raw


def _check(library: ctypes.CDLL, code: int) -> None:
    if code != 0:
        raise NotCompiled(NvrtcReason.FAILED, library.nvrtcGetErrorString(code).decode())


_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_SPILLED = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def usages(log: str) -> Iterator[Usage]:
    """Resource usage of each kernel, from the assembler's log."""
    symbol, spills = "", 0
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            symbol, spills = entry[1], 0
        elif spilled := _SPILLED.search(line):
            spills = int(spilled[1]) + int(spilled[2])
        elif (used := _USED.search(line)) and symbol:
            shared = _SHARED.search(line)
            yield Usage(symbol, int(used[1]), spills, int(shared[1]) if shared else 0)
            symbol = ""

"""Generated kernels as one shared library: built, kept by content, checked before it is loaded, and run."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import re
import shutil
import stat
import struct
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from dslc.codegen.host.compiler import MEMORY, SECONDS, BuildReason, Compiler, NotBuilt, compiler, first_error, machine
from dslc.codegen.text import KernelText
from dslc.folders import cache_folder
from dslc.ir.constants import NUMPY
from dslc.ir.dtype import DType

#: version of ONNX Runtime's interface that libraries are written for, and of what is written around kernels
ABI, HOST = 17, 3
#: domain of the operators
DOMAIN = "dslc"
#: inputs and outputs together, dimensions of one, and unknown sizes of a kernel
TENSORS, RANK, SIZES = 64, 16, 64
#: what touches fewer bytes is not worth a second thread; parts that a stage is divided into, at most
PARALLEL_BYTES, PARTS = 1 << 16, 64
#: of the time, what all kernels together may take before half of them are left out; seconds that the compiler gets at least
TOGETHER, LEAST_SECONDS = 0.6, 1.0
_MAGIC = b"dslc-kernels-1\0\0"
_TAIL = struct.Struct("<Q32s16s")
#: numbers of element types in ONNX
_ELEMENTS = {
    DType.F32: 1, DType.U8: 2, DType.I8: 3, DType.U16: 4, DType.I16: 5, DType.I32: 6, DType.I64: 7, DType.BOOL: 9, DType.F16: 10,
    DType.F64: 11, DType.U32: 12, DType.U64: 13, DType.BF16: 16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Failure:
    """A kernel that is not in a library, and why."""

    op: str
    reason: BuildReason
    detail: str

    @property
    def hurried(self) -> bool:
        """Whether it may compile another time."""
        return self.reason in (BuildReason.TIMEOUT, BuildReason.MEMORY)


class NotRun(Exception):
    """Arrays that a kernel was not made for, or no such kernel."""


class Library:
    """A shared library of kernels. `kernels` are those in it, by the operator's name; `failed` those that were left out."""

    def __init__(self, path: Path, kernels: Mapping[str, KernelText], failed: tuple[Failure, ...] = (), fresh: bool = False) -> None:
        self.path, self.kernels, self.failed = path, dict(kernels), failed
        #: whether it was compiled just now
        self.fresh = fresh
        self._loaded: ctypes.CDLL | None = None

    def run(self, name: str, arrays: Sequence[Any], threads: int = 1) -> tuple[Any, ...]:
        """The outputs of a kernel, by its operator's name; arrays must have its element types, and are used where they lie.

        Raises NotRun where their types or sizes are not those that it was made for.
        """
        text = self.kernels.get(name)
        if text is None:
            raise NotRun(f"no kernel is named {name}")
        if len(arrays) != len(text.inputs):
            raise NotRun(f"{len(arrays)} arrays for {len(text.inputs)} inputs")
        for array, type in zip(arrays, text.inputs, strict=True):
            if array.dtype != NUMPY[type.dtype] or array.ndim != type.rank or not array.flags.c_contiguous:
                raise NotRun(f"an array of {array.dtype} with shape {list(array.shape)} for {type}")
        return self._run(text, arrays, threads)

    def _run(self, text: KernelText, arrays: Sequence[Any], threads: int) -> tuple[Any, ...]:
        import numpy as np

        part = self._function(text.name)
        dims = [(ctypes.c_int64 * max(1, array.ndim))(*array.shape) for array in arrays]
        listed = (ctypes.POINTER(ctypes.c_int64) * max(1, len(dims)))(*dims)
        sizes = (ctypes.c_int64 * max(1, len(text.sizes)))()
        if not part("sizes", ctypes.c_int)(listed, sizes):
            raise NotRun(f"shapes {[list(array.shape) for array in arrays]} do not fit {', '.join(map(str, text.inputs))}")
        outputs = []
        for k, type in enumerate(text.outputs):
            shape = (ctypes.c_int64 * max(1, type.rank))()
            part("shape", None)(sizes, k, shape)
            outputs.append(np.empty(tuple(shape)[: type.rank], NUMPY[type.dtype]))
        if all(array.size == 0 for array in outputs):
            return tuple(outputs)
        if 0 in list(sizes)[: len(text.sizes)]:
            raise NotRun("a size is 0, and there is something to compute")
        scratch = np.empty(max(0, part("scratch", ctypes.c_int64)(sizes)) + 64, np.uint8)
        memory = ctypes.c_void_p(-(-scratch.ctypes.data // 64) * 64)
        given = (ctypes.c_void_p * max(1, len(arrays)))(*[array.ctypes.data for array in arrays])
        made = (ctypes.c_void_p * len(outputs))(*[array.ctypes.data for array in outputs])
        for stage in range(part("stages", ctypes.c_int)()):
            tasks = part("tasks", ctypes.c_int64)(sizes, stage)
            run = part("run", None)

            def share(k: int, tasks: int = tasks, stage: int = stage, run: Any = run) -> None:
                bounds = ctypes.c_int64(tasks * k // threads), ctypes.c_int64(tasks * (k + 1) // threads)
                run(sizes, given, made, memory, stage, *bounds)

            if threads == 1:
                share(0)
                continue
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(share, range(threads)))
        return tuple(outputs)

    def _function(self, name: str) -> Any:
        if self._loaded is None:
            self._loaded = ctypes.CDLL(str(self.path))
        loaded = self._loaded

        def part(which: str, result: Any) -> Any:
            found = loaded[f"{name}_{which}"]
            found.restype = result
            return found

        return part


# ---- building ----------------------------------------------------------------------------------------------------


def build(
    texts: Sequence[KernelText] | Mapping[str, KernelText],
    folder: str | Path | None = None,
    *,
    seconds: float = SECONDS,
    memory: int = MEMORY,
) -> Library:
    """One library of all kernels, from the cache or compiled; a kernel that does not compile is left out.

    Args:
        texts: the kernels; by the names of their operators where these are not the kernels' own.
        folder: of dslc's caches.
        seconds, memory: what the compiler may take each time that it is called, in seconds and bytes.

    Raises:
        NotBuilt: no compiler, none of the kernels compiles, or nothing can be written.
    """
    named = dict(texts) if isinstance(texts, Mapping) else {text.name: text for text in texts}
    used = compiler()
    place = library_folder(folder)
    path = place / f"{_key(used, named)}.so"
    found = opened(path)
    if found is not None and not any(failure.hurried for failure in found.failed):
        return Library(path, {op: named[op] for op in found.kernels}, found.failed)
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        _sweep(place)
        with tempfile.TemporaryDirectory(prefix="building-", dir=place) as temporary:
            return _built(used, named, path, Path(temporary), seconds, memory)
    except OSError as problem:
        raise NotBuilt(BuildReason.FOLDER, f"{place}: {problem.strerror or problem}") from None


def _built(used: Compiler, named: Mapping[str, KernelText], path: Path, temporary: Path, seconds: float, memory: int) -> Library:
    made = temporary / "kernels.so"
    good, failed = _compiled(used, named, temporary, made, seconds, memory)
    _check(made, good)
    _seal(made, good, failed)
    os.replace(made, path)
    return Library(path, good, failed, fresh=True)


def _compiled(
    used: Compiler, named: Mapping[str, KernelText], temporary: Path, made: Path, seconds: float, memory: int
) -> tuple[dict[str, KernelText], tuple[Failure, ...]]:
    """The kernels that compile, together in one library, and the others. Where all take too long, half of them: the shorter texts,
    else the longer ones, and so on."""
    failed: dict[str, Failure] = {}
    tries, alone, end = [dict(named)], False, time.monotonic() + seconds
    for left in tries:
        while left and (left is tries[0] or time.monotonic() < end):
            code = temporary / "kernels.cpp"
            code.write_text(source(left), encoding="utf-8")
            remains = max(LEAST_SECONDS, end - time.monotonic())
            try:
                used.compile(code, made, remains if len(named) == 1 else TOGETHER * remains, memory)
                late = Failure("", BuildReason.TIMEOUT, "there was no time to compile it")
                return left, tuple(replace(failed.get(op, late), op=op) for op in named if op not in left)
            except NotBuilt as problem:
                if problem.reason is BuildReason.NO_COMPILER:
                    raise
                detail = first_error(problem.detail) if problem.reason is BuildReason.ERROR else problem.detail
                blamed = _blamed(problem.detail, left) if problem.reason is BuildReason.ERROR else {}
                if problem.reason is BuildReason.TIMEOUT and len(left) > 1 and time.monotonic() < end:
                    order = sorted(left, key=lambda op: len(named[op].text))
                    half = (len(order) + 1) // 2
                    tries += [{op: named[op] for op in part} for part in (order[:half], order[half:])]
                    break
                if not blamed and len(left) > 1 and not alone and problem.reason is not BuildReason.TIMEOUT:
                    # nobody is named: each on its own, in less time
                    alone = True
                    blamed = _failing(used, left, temporary, max(LEAST_SECONDS, seconds / 4), memory)
                if not blamed:
                    blamed = dict.fromkeys(left, Failure("", problem.reason, detail))
                for op, failure in blamed.items():
                    failed[op] = failure
                    del left[op]
    first = next(iter(failed.values()), Failure("", BuildReason.ERROR, "no kernels"))
    raise NotBuilt(first.reason, first.detail)


def _blamed(said: str, left: Mapping[str, KernelText]) -> dict[str, Failure]:
    """The kernels in whose text the compiler found errors: each begins a file of its own name."""
    first: dict[str, str] = {}
    for line in said.splitlines():
        found = re.match(r"(\w+):\d+(?::\d+)?: (?:fatal )?error", line.strip())
        if found:
            first.setdefault(found[1], line.strip()[:300])
    return {op: Failure("", BuildReason.ERROR, first[text.name]) for op, text in left.items() if text.name in first}


def _failing(used: Compiler, left: Mapping[str, KernelText], temporary: Path, seconds: float, memory: int) -> dict[str, Failure]:
    out: dict[str, Failure] = {}
    for op, text in left.items():
        code, made = temporary / "one.cpp", temporary / "one.so"
        code.write_text(source({op: text}), encoding="utf-8")
        try:
            used.compile(code, made, seconds, memory)
        except NotBuilt as problem:
            out[op] = Failure("", problem.reason, first_error(problem.detail))
    return out


def _check(made: Path, kernels: Mapping[str, KernelText]) -> None:
    """That a library which was just made can be loaded, and has every function that is asked of it."""
    import _ctypes

    try:
        loaded = ctypes.CDLL(str(made))
        try:
            for text in kernels.values():
                for part in ("sizes", "shape", "scratch", "stages", "kept", "tasks", "run"):
                    loaded[f"{text.name}_{part}"]
        finally:
            # the file gets another name, and this process many of them
            getattr(_ctypes, "dlclose", lambda handle: None)(loaded._handle)
    except (OSError, AttributeError) as problem:
        raise NotBuilt(BuildReason.UNLOADABLE, str(problem).replace(str(made), made.name)) from None


def source(named: Mapping[str, KernelText]) -> str:
    """The C++ of a library, by the names of its operators."""
    for text in named.values():
        ranks = [type.rank for type in (*text.inputs, *text.outputs)]
        if len(ranks) > TENSORS or max(ranks, default=0) > RANK or len(text.sizes) > SIZES:
            raise NotBuilt(BuildReason.ERROR, f"{text.name} has too many tensors, dimensions or sizes")
    kernels = [
        {
            "op": op, "text": text, "inputs": len(text.inputs), "outputs": len(text.outputs), "sizes": len(text.sizes),
            "input_types": _letters(_ELEMENTS[type.dtype] for type in text.inputs),
            "output_types": _letters(_ELEMENTS[type.dtype] for type in text.outputs),
            "input_ranks": _letters(type.rank for type in text.inputs),
            "output_ranks": _letters(type.rank for type in text.outputs),
        }
        for op, text in named.items()
    ]  # fmt: skip
    return str(
        _template().render(
            kernels=kernels, texts=_once(named), abi=ABI, domain=DOMAIN, max_rank=RANK, max_tensors=TENSORS, max_sizes=SIZES,
            parallel_bytes=PARALLEL_BYTES, parts=PARTS,
        )
    )  # fmt: skip


def _once(named: Mapping[str, KernelText]) -> list[KernelText]:
    """Every text once: one kernel may serve several operators."""
    return list({text.name: text for text in named.values()}.values())


def _letters(numbers: Any) -> str:
    return "".join(chr(ord("A") + number) for number in numbers)


@cache
def _template() -> Any:
    import jinja2

    loader = jinja2.FunctionLoader(lambda name: resources.files("dslc.templates").joinpath(name).read_text(encoding="utf-8"))
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    return environment.get_template("cpp/library.cpp.j2")


def _key(used: Compiler, named: Mapping[str, KernelText]) -> str:
    parts = [source(named), used.version, *used.command, *used.flags, machine(), str(ABI), str(HOST)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


# ---- files -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opened:
    """What a library's file says of itself: the operators in it, those that were left out, and whom it was built for."""

    path: Path
    kernels: tuple[str, ...]
    failed: tuple[Failure, ...]
    machine: str


def _seal(made: Path, kernels: Mapping[str, KernelText], failed: Sequence[Failure]) -> None:
    """Writes behind a library what is in it, and a checksum: loading half a file would end the process."""
    content = made.read_bytes()
    says = {
        "machine": machine(), "abi": ABI, "kernels": list(kernels),
        "failed": [[failure.op, failure.reason.name, failure.detail] for failure in failed],
    }  # fmt: skip
    notes = json.dumps(says).encode()
    digest = hashlib.sha256(content + notes).digest()
    with made.open("ab") as out:
        out.write(notes + _TAIL.pack(len(notes), digest, _MAGIC))
        out.flush()
        os.fsync(out.fileno())


def opened(path: Path, any_machine: bool = False) -> Opened | None:
    """What a library has, where its file is whole, belongs to this user and was built for this machine; None otherwise."""
    try:
        state = path.stat()
        if not stat.S_ISREG(state.st_mode) or (hasattr(os, "getuid") and state.st_uid not in (os.getuid(), 0)):
            return None
        content = path.read_bytes()
    except OSError:
        return None
    if len(content) < _TAIL.size:
        return None
    length, digest, magic = _TAIL.unpack(content[-_TAIL.size :])
    whole = content[: -_TAIL.size]
    if magic != _MAGIC or length > len(whole) or hashlib.sha256(whole).digest() != digest:
        return None
    try:
        says = json.loads(whole[len(whole) - length :])
        failed = tuple(Failure(op, BuildReason[reason], detail) for op, reason, detail in says["failed"])
        found = Opened(path, tuple(map(str, says["kernels"])), failed, str(says["machine"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if any_machine or (found.machine == machine() and says.get("abi") == ABI) else None


def library_folder(folder: str | Path | None = None) -> Path:
    """Where built libraries are."""
    return cache_folder(folder) / "kernels"


def kept(folder: str | Path | None = None) -> tuple[int, int]:
    """How many built libraries there are, and their bytes together."""
    sizes = []
    for path in library_folder(folder).glob("*.so"):
        with contextlib.suppress(OSError):
            sizes.append(path.stat().st_size)
    return len(sizes), sum(sizes)


def clear(folder: str | Path | None = None) -> int:
    """Deletes every built library, and gives their number; sessions that use one keep it."""
    count = 0
    for path in library_folder(folder).glob("*"):
        with contextlib.suppress(OSError):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
                count += path.suffix == ".so"
    return count


def _sweep(place: Path) -> None:
    """Deletes what builds left behind that were killed."""
    for left in place.glob("building-*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > 3600:
                shutil.rmtree(left, ignore_errors=True)


__all__ = ["Failure", "Library", "NotBuilt", "NotRun", "Opened", "build", "clear", "kept", "library_folder", "opened", "source"]

"""Generated kernels as one shared library: built, kept by content, checked before it is loaded, and run."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from importlib import resources
from itertools import count
from pathlib import Path
from typing import Any

from dslc.codegen.host.compiler import (
    COMPILER_MEMORY,
    COMPILER_SECONDS,
    SUFFIX,
    BuildReason,
    Compiler,
    NotBuilt,
    compiler,
    first_error,
    objects,
)
from dslc.codegen.host.processor import Processor, foreign, identities
from dslc.codegen.text import KernelText
from dslc.folders import cache_folder, stand_in
from dslc.ir.dtype import DType
from dslc.outside import in_code
from dslc.records import record
from dslc.store import Store, is_private, private, sealed, unsealed

#: version of ONNX Runtime's interface that libraries are written for, and of what is written around kernels
ABI, HOST = 17, 6
#: domain of the operators
DOMAIN = "dslc"
#: inputs and outputs together, dimensions of one, and unknown sizes of a kernel
TENSORS, RANK, SIZES = 64, 16, 64


PARALLEL_BYTES = 1 << 16  #: bytes; what touches fewer is not worth a second thread
IDLE_BYTES = 1 << 26  #: bytes of scratch memory that a node keeps beside what it needs
PARTS = 64  #: parts that a stage is divided into, at most
COMPILING = 0.6  #: share of the time that compiling may take at least, where most of it is left for linking
LEAST_SECONDS = 1.0  #: seconds that compiling and linking each get at least

#: the object of what is around kernels, which is the same for all libraries
_AROUND = "around"
#: what the texts of kernels need: standard headers of C++ would take a third of a kernel's time
_HEADERS = "#include <stddef.h>\n#include <stdint.h>\n"
#: the functions of a kernel
_FUNCTIONS = ("sizes", "shape", "scratch", "stages", "kept", "tasks", "run")
_LENGTH = struct.Struct("<Q")
_NUMBERS = count(1)
#: numbers of element types in ONNX
_ELEMENTS = {
    DType.F32: 1, DType.U8: 2, DType.I8: 3, DType.U16: 4, DType.I16: 5, DType.I32: 6, DType.I64: 7, DType.BOOL: 9, DType.F16: 10,
    DType.F64: 11, DType.U32: 12, DType.U64: 13, DType.BF16: 16,
}  # fmt: skip


@record
class Failure:
    """A kernel that is not in a library, and why."""

    op: str
    reason: BuildReason
    detail: str

    @property
    def hurried(self) -> bool:
        """True where it may compile another time."""
        return self.reason in (BuildReason.TIMEOUT, BuildReason.MEMORY)


@record
class Library:
    """A shared library of kernels. `kernels` are those in it, by the operator's name; `failed` those that were left out."""

    path: Path
    kernels: Mapping[str, KernelText]
    failed: tuple[Failure, ...] = ()
    #: whether it was compiled just now
    fresh: bool = False


# ---- building ----------------------------------------------------------------------------------------------------


def build(
    texts: Sequence[KernelText] | Mapping[str, KernelText],
    folder: str | Path | None = None,
    *,
    seconds: float = COMPILER_SECONDS,
    memory: int = COMPILER_MEMORY,
    processor: Processor | None = None,
) -> Library:
    """One library of all kernels, from the cache or compiled; a kernel that does not compile is left out.

    Args:
        texts: the kernels; by the names of their operators where these are not the kernels' own.
        folder: of dslc's caches.
        seconds, memory: what the compiler may take each time that it is called, in seconds and bytes.
        processor: that the library is for; by default the one that is wanted.

    Raises:
        NotBuilt: no compiler, none of the kernels compiles, or nothing can be written.
    """
    named = dict(texts) if isinstance(texts, Mapping) else {text.name: text for text in texts}
    used = compiler(processor)
    name = f"{_digest(used, source(named))}{SUFFIX}"
    for place in library_folders(folder):
        found = opened(place / name, any_machine=True)
        if found and not any(failure.hurried for failure in found.failed):
            return Library(place / name, {op: named[op] for op in found.kernels}, found.failed)
    for place in library_folders(folder):
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not is_private(place):
                raise PermissionError(None, "others may write to it")
            _sweep(place)
            with tempfile.TemporaryDirectory(prefix="building-", dir=place) as temporary:
                return _built(used, named, place / name, Path(temporary), seconds, memory)
        except OSError as problem:
            failed = NotBuilt(BuildReason.FOLDER, f"{place}: {problem.strerror or problem}")
        except NotBuilt as problem:
            if problem.reason is not BuildReason.FOLDER:
                raise
            failed = problem
    raise failed


def _built(
    used: Compiler, named: Mapping[str, KernelText], path: Path, temporary: Path, seconds: float, memory: int
) -> Library:
    made, whole = temporary / f"kernels{SUFFIX}", temporary / "whole"
    good, failed = _compiled(used, named, temporary, made, seconds, memory)
    _check(made, good, used.processor)
    _seal(made, whole, good, failed, used.processor)
    os.replace(whole, path)
    return Library(path, good, failed, fresh=True)


def _compiled(
    used: Compiler, named: Mapping[str, KernelText], temporary: Path, made: Path, seconds: float, memory: int
) -> tuple[dict[str, KernelText], tuple[Failure, ...]]:
    """The kernels that compile, together in one library, and the others."""
    end = time.monotonic() + seconds
    texts = {text.name: _alone(text) for text in named.values()}
    texts[_AROUND] = _source({}, [], True)
    # what takes little of the time is left for linking
    share = max(LEAST_SECONDS, seconds - LEAST_SECONDS, COMPILING * seconds)
    ready, problems = objects(used, texts, partial(_digest, used), temporary.parent, temporary, share, memory)
    good = {op: text for op, text in named.items() if text.name in ready}
    failed = tuple(_failure(op, problems[text.name]) for op, text in named.items() if text.name in problems)
    if not good:
        first = next(iter(failed), Failure("", BuildReason.ERROR, "no kernels"))
        raise NotBuilt(first.reason, first.detail)
    if _AROUND not in ready:
        raise problems[_AROUND]
    code = temporary / "kernels.cpp"
    code.write_text(_source(good, [], False), encoding="utf-8")
    seconds = max(LEAST_SECONDS, end - time.monotonic())
    linked = dict.fromkeys(str(ready[name]) for name in [*(text.name for text in good.values()), _AROUND])
    with used.start(code, made, *linked, seconds=seconds, memory=memory) as one:
        used.check(one, made)
    return good, failed


def object_kept(used: Compiler, text: KernelText, place: Path, temporary: Path) -> None:
    """Compiles a kernel to an object that is kept beside the libraries of a folder, where it is not there yet."""
    key = partial(_digest, used)
    objects(used, {text.name: _alone(text)}, key, place, temporary, COMPILER_SECONDS, COMPILER_MEMORY)


def _alone(text: KernelText) -> str:
    """The C++ of a kernel's object."""
    return f'{_HEADERS}#line 1 "{text.name}"\n{text.text}'


def _failure(op: str, problem: NotBuilt) -> Failure:
    if problem.reason is BuildReason.NO_COMPILER:
        raise problem
    return Failure(
        op, problem.reason, first_error(problem.detail) if problem.reason is BuildReason.ERROR else problem.detail
    )


def _check(made: Path, kernels: Mapping[str, KernelText], processor: Processor) -> None:
    """Check that a new library can be loaded and has every function asked of it."""
    import _ctypes

    functions = [f"{text.name}_{part}" for text in kernels.values() for part in _FUNCTIONS]
    if foreign(processor):
        content = made.read_bytes()
        missing = next((name for name in functions if name.encode() not in content), None)
        if missing is not None:
            raise NotBuilt(BuildReason.UNLOADABLE, f"{made.name}: no symbol {missing}")
        return
    try:
        loaded = ctypes.CDLL(str(made))
        try:
            for name in functions:
                loaded[name]
        finally:
            # the file gets another name, and this process many of them
            getattr(_ctypes, "dlclose", lambda handle: None)(loaded._handle)
    except (OSError, AttributeError) as problem:
        raise NotBuilt(BuildReason.UNLOADABLE, str(problem).replace(str(made), made.name)) from None


def source(named: Mapping[str, KernelText]) -> str:
    """The C++ of a library, by the names of its operators."""
    return _source(named, list({text.name: text for text in named.values()}.values()), True)


def _source(named: Mapping[str, KernelText], texts: Sequence[KernelText], host: bool) -> str:
    """The table of some operators, with the texts of kernels and with what all libraries have."""
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
            kernels=kernels, texts=texts, host=host, abi=ABI, domain=DOMAIN, max_rank=RANK, max_tensors=TENSORS,
            max_sizes=SIZES, parallel_bytes=PARALLEL_BYTES, parts=PARTS,
            idle_bytes=IDLE_BYTES,
        )
    )  # fmt: skip


def _letters(numbers: Any) -> str:
    return "".join(chr(ord("A") + number) for number in numbers)


@cache
def _template() -> Any:
    import jinja2

    loader = jinja2.FunctionLoader(
        lambda name: resources.files("dslc.templates").joinpath(name).read_text(encoding="utf-8")
    )
    environment = jinja2.Environment(
        loader=loader, undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    environment.filters["outside"] = in_code
    return environment.get_template("cpp/library.cpp.j2")


def _digest(used: Compiler, text: str) -> str:
    """Digest of a text, the compiler and the processor: they decide the binary."""
    parts = [text, used.version, *used.command, *used.flags, used.processor.identity, str(ABI), str(HOST)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


# ---- files -------------------------------------------------------------------------------------------------------


@record
class Opened:
    """Header of a library's file: its operators, those left out, and the processor it was built for."""

    path: Path
    kernels: tuple[str, ...]
    failed: tuple[Failure, ...]
    machine: str


def _seal(
    made: Path, target: Path, kernels: Mapping[str, KernelText], failed: Sequence[Failure], processor: Processor
) -> None:
    """Write a library with its table of contents and a seal: loading half a file would end the process.

    It is a new file: of one that was loaded macOS keeps a signature, and ends a process that loads it changed.
    """
    says = {
        "machine": processor.identity, "abi": ABI, "kernels": list(kernels),
        "failed": [[failure.op, failure.reason.name, failure.detail] for failure in failed],
    }  # fmt: skip
    notes = json.dumps(says).encode()
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600), "wb") as out:
        out.write(sealed(made.read_bytes() + notes + _LENGTH.pack(len(notes))))


def _content(path: Path, given: bool) -> tuple[int, bytes | None]:
    """The descriptor of a library's file that only this user may write to, and what stands before its seal. Raises OSError.

    A file that the user names, `given`, may lie anywhere, and those of the user's groups may write to it.
    """
    if not given and not is_private(path.parent):
        raise PermissionError(f"others may write to {path.parent}")
    file = private(path, 0o002 if given else 0o022)
    with open(file, "rb", closefd=False) as read:
        return file, unsealed(read.read())


@contextlib.contextmanager
def checked(path: Path, given: bool = False) -> Iterator[str]:
    """A name under which the very file is loaded that was checked, whoever puts another one in its place meanwhile.

    Raises:
        OSError: others may write to it, or it is no whole library.
    """
    file, whole = _content(path, given)
    try:
        if whole is None:
            raise PermissionError(f"{path} is no whole library")
        # a name that was loaded before is not looked up again: no two are alike, as slashes and dots count for nothing
        number = "".join("/." if digit == "1" else "/" for digit in f"{next(_NUMBERS):b}")
        name = f"/proc/self/fd{number}/{file}"
        yield name if os.path.exists(name) else str(path)
    finally:
        os.close(file)


def opened(path: Path, any_machine: bool = False, given: bool = False) -> Opened | None:
    """Read the header of a library; None where it does not fit this machine.

    The file must be whole, and writable by this user only (a file that is `given`: by the user's groups, too).
    """
    try:
        file, whole = _content(path, given)
        os.close(file)
    except OSError:
        return None
    if whole is None or len(whole) < _LENGTH.size:
        return None
    try:
        end = len(whole) - _LENGTH.size
        says = json.loads(whole[end - _LENGTH.unpack(whole[end:])[0] : end])
        failed = tuple(Failure(op, BuildReason[reason], detail) for op, reason, detail in says["failed"])
        found = Opened(path, tuple(map(str, says["kernels"])), failed, str(says["machine"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if any_machine or (found.machine in identities() and says.get("abi") == ABI) else None


def library_folder(folder: str | Path | None = None) -> Path:
    """Folder of built libraries."""
    return cache_folder(folder) / "kernels"


def library_folders(folder: str | Path | None = None) -> tuple[Path, ...]:
    """The folder of libraries and its stand-in, where the first cannot be written."""
    here = cache_folder(folder)
    return tuple(dict.fromkeys((here / "kernels", stand_in(here) / "kernels")))


def kept(folder: str | Path | None = None) -> tuple[int, int]:
    """Count built libraries and their bytes."""
    sizes = []
    for path in library_folder(folder).glob(f"*{SUFFIX}"):
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
                count += path.suffix == SUFFIX
    return count


def _sweep(place: Path) -> None:
    """Deletes what builds left behind that were killed, and the libraries that are too many."""
    Store(place).trim()
    for left in place.glob("building-*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > 3600:
                shutil.rmtree(left, ignore_errors=True)

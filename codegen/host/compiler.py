"""The system's C++ compiler: found, limited in time and memory, and its failures named."""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import shutil
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import Path

from dslc.codegen.host.processor import LEVELS, Processor, architecture_of, foreign
from dslc.codegen.host.processor import processor as wanted_processor
from dslc.processes.process import Command, Job, ProcessFailed, ProcessFailure
from dslc.records import record
from dslc.store import Store

#: names that are looked for where `CXX` says nothing
NAMES = ("c++", "g++", "clang++")
_MACOS = platform.system() == "Darwin"
FLAGS = ("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-dynamiclib" if _MACOS else "-shared", "-fPIC")
#: of a shared library's name
SUFFIX = ".dylib" if _MACOS else ".so"


COMPILER_SECONDS = 60.0  #: seconds that the compiler may take
COMPILER_MEMORY = 4 << 30  #: bytes that the compiler may take
WRITTEN = 1 << 28  #: bytes that it may write
ASKED = 5.0  #: seconds in which it says what it is
SAID = 1 << 20  #: bytes of what it says that are read


class BuildReason(Enum):
    """Reason why a library or a kernel was not built; decisions depend on it, never on the words of a message."""

    NO_COMPILER = "no C++ compiler was found"
    TIMEOUT = "the compiler did not end in time"
    MEMORY = "the compiler ran out of memory"
    CRASH = "the compiler crashed"
    ERROR = "the compiler refused the text"
    FOLDER = "the cache folder cannot be written"
    UNLOADABLE = "what the compiler made cannot be loaded"


class NotBuilt(Exception):
    """There is no library."""

    def __init__(self, reason: BuildReason, detail: str = "") -> None:
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)
        self.reason, self.detail = reason, detail


@record
class Compiler:
    """A C++ compiler as it is called for a processor; `version` is the first line of what it says about itself."""

    command: tuple[str, ...]
    version: str
    processor: Processor

    @property
    def flags(self) -> tuple[str, ...]:
        level = LEVELS.get(self.processor.level)
        # clang's `native` of Arm is a processor, not an architecture
        name = "-mcpu" if self.processor.native and self.processor.architecture == "aarch64" else "-march"
        return (*FLAGS, f"{name}={self.processor.isa}", *(level.flags if level else ()))

    def call(self, source: Path, target: Path, *more: str) -> tuple[str, ...]:
        """The command that compiles a file to a shared library, of what else is said; to an object with `-c`."""
        return (*self.command, *self.flags, "-o", str(target), str(source), *more)

    def start(
        self, source: Path, target: Path, *more: str, seconds: float = COMPILER_SECONDS, memory: int = COMPILER_MEMORY
    ) -> Job:
        """Begins to compile a file; raises NotBuilt. What comes of it `check` tells."""
        return started(self.call(source, target, *more), source.parent, seconds, memory)

    def check(self, running: Job, target: Path) -> None:
        """Raises NotBuilt where a file was not compiled; its detail is what the compiler says about an error."""
        code, said = answered(running)
        if code == 0 and target.is_file():
            return
        first = first_error(said)
        if any(words in said for words in _NO_ROOM):
            raise NotBuilt(BuildReason.FOLDER, first)
        # a compiler that ends by a signal says so of its own part, or ends by it itself
        if any(words in said for words in _NO_MEMORY):
            raise NotBuilt(BuildReason.MEMORY, first)
        if code < 0 or code > 128 or "internal compiler error" in said:
            raise NotBuilt(BuildReason.CRASH, first)
        raise NotBuilt(
            BuildReason.ERROR, said if said else f"exit code {code}" if code else "it ended well, and wrote nothing"
        )


_NO_ROOM = ("No space left on device", "Read-only file system", "Disk quota exceeded")
_NO_MEMORY = (
    "out of memory",
    "cannot allocate memory",
    "Cannot allocate memory",
    "virtual memory exhausted",
    "bad_alloc",
)


def first_error(said: str) -> str:
    """The first line that tells of an error, or the first line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    first = next((line for line in lines if "error" in line), lines[0] if lines else "")[:300]
    # it is shown in terminals
    return "".join(char if char.isprintable() else "?" for char in first)


def started(command: Sequence[str], folder: Path, seconds: float, memory: int) -> Job:
    """A command that runs, and takes no more time and memory than that. Raises NotBuilt where it cannot be started."""
    variables = (("LC_ALL", "C"), ("TMPDIR", str(folder)))
    try:
        return Job(Command(tuple(command), variables, folder, memory, WRITTEN), seconds)
    except ProcessFailed as problem:
        raise NotBuilt(BuildReason.NO_COMPILER, str(problem)) from None


def answered(running: Job) -> tuple[int, str]:
    """Exit code and output, once it has ended; raises NotBuilt where its time is over."""
    try:
        return running.answer(SAID)
    except ProcessFailed as problem:
        assert problem.failure is ProcessFailure.LATE
        raise NotBuilt(BuildReason.TIMEOUT, f"{running.seconds:.0f} s") from None


def limited(command: Sequence[str], folder: Path, seconds: float, memory: int) -> tuple[int, str]:
    """Exit code and output of a command that takes no more time and memory than that.

    Raises NotBuilt where its time is over, or it cannot be started.
    """
    with started(command, folder, seconds, memory) as running:
        return answered(running)


def compiler(processor: Processor | None = None) -> Compiler:
    """The compiler that `CXX` names, or the first of the usual ones, for a processor (by default the one that is wanted).

    For another architecture it is a cross compiler. Raises NotBuilt.
    """
    processor = processor or wanted_processor()
    wanted = os.environ.get("CXX", "").strip()
    names = [wanted] if wanted else list(usual(processor))
    for name in names:
        try:
            parts = shlex.split(name)
        except ValueError as problem:
            raise NotBuilt(BuildReason.NO_COMPILER, f"CXX is {wanted} ({problem})") from None
        path = shutil.which(parts[0]) if parts else None
        if path is None:
            continue
        with contextlib.suppress(OSError):
            state = Path(path).stat()
            command = (path, *parts[1:])
            if foreign(processor):
                command = _turned(command, processor.architecture)
            version = _version(path, state.st_mtime_ns, state.st_size)
            if isinstance(version, BuildReason):
                raise NotBuilt(version, f"{path} --version does not end in {ASKED:.0f} s")
            return Compiler(command, version, processor)
    missing = (
        f"CXX is {wanted}" if wanted else f"none of {', '.join(names)}" if len(names) > 1 else f"there is no {names[0]}"
    )
    raise NotBuilt(BuildReason.NO_COMPILER, missing)


def usual(processor: Processor) -> tuple[str, ...]:
    """Names of compilers for a processor, as systems call them."""
    return NAMES if _MACOS or not foreign(processor) else (f"{processor.architecture}-linux-gnu-g++",)


def _turned(command: tuple[str, ...], architecture: str) -> tuple[str, ...]:
    """A compiler as it is called for another architecture; raises NotBuilt where it knows only others."""
    if _MACOS:
        return (*command, "-arch", "arm64" if architecture == "aarch64" else architecture)
    machine = _machine(command)
    if architecture_of(machine.partition("-")[0]) != architecture:
        raise NotBuilt(BuildReason.NO_COMPILER, f"{shlex.join(command)} compiles for {machine}, not for {architecture}")
    return command


@cache
def _machine(command: tuple[str, ...]) -> str:
    """Target of a compiler: an architecture, a system, and more."""
    code, said = limited((*command, "-dumpmachine"), Path("/"), 10.0, COMPILER_MEMORY)
    return said.strip() if code == 0 and said.strip() else "what it does not say"


@cache
def _version(path: str, changed: int, size: int) -> str | BuildReason:
    """Version line of a compiler, or its error; asked once for each program under a path."""
    try:
        code, said = limited((path, "--version"), Path("/"), ASKED, COMPILER_MEMORY)
    except NotBuilt as problem:
        if problem.reason is BuildReason.TIMEOUT:
            return BuildReason.TIMEOUT
        raise
    if code != 0:
        raise NotBuilt(BuildReason.NO_COMPILER, f"{path} --version ends with {code}")
    return said.splitlines()[0].strip() if said else "unknown"


KEPT = 2000  #: object files that are kept; the oldest go first
LOOK = 0.004  #: seconds between looks at compilers that run


def objects(
    used: Compiler,
    texts: Mapping[str, str],
    key: Callable[[str], str],
    kept: Path,
    folder: Path,
    seconds: float,
    memory: int,
) -> tuple[dict[str, Path], dict[str, NotBuilt]]:
    """An object file of each C++ text that compiles, in a folder, and why there is none of the others; by their names.

    Args:
        key: of a text, the digest under which its object is kept.
        kept: the folder of caches in which those of earlier times are.
        seconds, memory: what all of them may take together, and each alone, in seconds and bytes.

    Raises:
        NotBuilt: there is no compiler.
        OSError: a folder cannot be written.
    """
    store, made = Store(kept / "objects", KEPT), dict[str, Path]()
    failed: dict[str, NotBuilt] = {}
    end = time.monotonic() + seconds
    # the shorter ones first: where there is no time for all, most kernels are there
    left = deque(sorted(texts, key=lambda name: len(texts[name])))
    running: dict[str, Job] = {}
    try:
        while left or running:
            while left and len(running) < _processors():
                name = left.popleft()
                target = folder / f"{name}.o"
                content = store.get(f"{key(texts[name])}.o")
                if content is not None:
                    target.write_bytes(content)
                    made[name] = target
                elif (remains := end - time.monotonic()) > 0 or not (made or failed or running):
                    code = folder / f"{name}.cpp"
                    code.write_text(texts[name], encoding="utf-8")
                    running[name] = used.start(code, target, "-c", seconds=remains, memory=memory)
                else:
                    failed[name] = NotBuilt(BuildReason.TIMEOUT, "there was no time to compile it")
            for name in [name for name, one in running.items() if one.ended]:
                with running.pop(name) as one:
                    try:
                        used.check(one, folder / f"{name}.o")
                    except NotBuilt as problem:
                        failed[name] = problem
                    else:
                        made[name] = folder / f"{name}.o"
                        store.put(f"{key(texts[name])}.o", made[name].read_bytes())
            if running:
                time.sleep(LOOK)
    finally:
        for one in running.values():
            one.end()
    return made, failed


def _processors() -> int:
    """Number of compilers that run at the same time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

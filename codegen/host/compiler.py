"""The system's C++ compiler: found, limited in time and memory, and its failures named."""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

from dslc.codegen.host.processor import LEVELS, Processor, architecture_of, foreign
from dslc.codegen.host.processor import processor as wanted_processor

#: names that are looked for where `CXX` says nothing
NAMES = ("c++", "g++", "clang++")
_MACOS = platform.system() == "Darwin"
FLAGS = ("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-dynamiclib" if _MACOS else "-shared", "-fPIC")
#: of a shared library's name
SUFFIX = ".dylib" if _MACOS else ".so"
#: seconds and bytes that the compiler may take, and bytes that it may write
SECONDS, MEMORY, WRITTEN = 60.0, 4 << 30, 1 << 28
#: seconds in which it says what it is
ASKED = 5.0
#: bytes of what it says that are read
SAID = 1 << 20


class BuildReason(Enum):
    """Why a library or a kernel was not built; what is decided depends on this, never on the words of a message."""

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


@dataclass(frozen=True, slots=True)
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
        return (*FLAGS, f"{name}={self.processor.isa}", *(level.flags if level is not None else ()))

    def call(self, source: Path, target: Path, *more: str) -> tuple[str, ...]:
        """The command that compiles a file to a shared library, of what else is said; to an object with `-c`."""
        return (*self.command, *self.flags, "-o", str(target), str(source), *more)

    def start(self, source: Path, target: Path, *more: str, seconds: float = SECONDS, memory: int = MEMORY) -> Limited:
        """Begins to compile a file; raises NotBuilt. What comes of it `check` tells."""
        return Limited(self.call(source, target, *more), source.parent, seconds, memory)

    def check(self, running: Limited, target: Path) -> None:
        """Raises NotBuilt where a file was not compiled; its detail is what the compiler says about an error."""
        code, said = running.answer()
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
        raise NotBuilt(BuildReason.ERROR, said if said else f"exit code {code}" if code else "it ended well, and wrote nothing")


_NO_ROOM = ("No space left on device", "Read-only file system", "Disk quota exceeded")
_NO_MEMORY = ("out of memory", "cannot allocate memory", "Cannot allocate memory", "virtual memory exhausted", "bad_alloc")


def first_error(said: str) -> str:
    """The first line that tells of an error, or the first line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    first = next((line for line in lines if "error" in line), lines[0] if lines else "")[:300]
    # it is shown in terminals
    return "".join(char if char.isprintable() else "?" for char in first)


#: ends a group of processes when who started it is gone, by whatever end: the other side of its input is then closed
_GUARD = 'read -r _; kill -s KILL -- "-$1"'


class Limited:
    """A command that runs, and takes no more time and memory than that; it and all that it started end then, and with this process.

    Use it as a context manager, which ends it. Raises NotBuilt where it cannot be started.
    """

    def __init__(self, command: Sequence[str], folder: Path, seconds: float, memory: int) -> None:
        shell = shutil.which("sh")
        # limits are set by a shell: between the fork and the start of a program no Python may run where there are threads
        # macOS has no limit of memory, and says so
        within = f'ulimit -v {memory >> 10} 2>/dev/null; ulimit -f {WRITTEN >> 9}; ulimit -c 0; exec "$@"'
        whole = [shell, "-c", within, "sh", *command] if shell else list(command)
        self._seconds, self._end = seconds, time.monotonic() + seconds
        # a file takes what is said, however much it is: it may grow no larger than what is written
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                whole, cwd=folder, stdin=subprocess.DEVNULL, stdout=self._said, stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, "LC_ALL": "C", "TMPDIR": str(folder)},
            )  # fmt: skip
        except OSError as problem:
            self._said.close()
            raise NotBuilt(BuildReason.NO_COMPILER, str(problem)) from None
        self._guard = self._guarded(shell) if shell else None

    def _guarded(self, shell: str) -> subprocess.Popen[bytes] | None:
        """Who ends it where nobody else can: what is halted would wait for ever for a process that was killed."""
        with contextlib.suppress(OSError):
            return subprocess.Popen(
                (shell, "-c", _GUARD, "sh", str(self._process.pid)), cwd="/", stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        return None

    def __enter__(self) -> Limited:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def ended(self) -> bool:
        """Whether it has ended, or its time is over."""
        return self._process.poll() is not None or time.monotonic() >= self._end

    def answer(self) -> tuple[int, str]:
        """Exit code and output, once it has ended; raises NotBuilt where its time is over."""
        try:
            code = self._process.wait(max(0.0, self._end - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise NotBuilt(BuildReason.TIMEOUT, f"{self._seconds:.0f} s") from None
        self._said.seek(0)
        return code, self._said.read(SAID).decode("utf-8", "replace")

    def halt(self) -> None:
        """Takes the processor from it until it may go on."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Gives the processor back."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends it at once; whoever waits for it finds it ended."""
        self._signal(signal.SIGKILL)

    def _signal(self, which: int) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, which)

    def end(self) -> None:
        """Ends it where it runs."""
        if self._guard is not None:
            # before the number of the group may be another's
            self._guard.kill()
            self._guard.communicate()
        if self._process.returncode is None:
            self.kill()
            self._process.wait()
        self._said.close()


def limited(command: Sequence[str], folder: Path, seconds: float, memory: int) -> tuple[int, str]:
    """Exit code and output of a command that takes no more time and memory than that.

    Raises NotBuilt where its time is over, or it cannot be started.
    """
    with Limited(command, folder, seconds, memory) as running:
        return running.answer()


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
    missing = f"CXX is {wanted}" if wanted else f"none of {', '.join(names)}" if len(names) > 1 else f"there is no {names[0]}"
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
    """What a compiler compiles for: an architecture, a system, and more."""
    code, said = limited((*command, "-dumpmachine"), Path("/"), 10.0, MEMORY)
    return said.strip() if code == 0 and said.strip() else "what it does not say"


@cache
def _version(path: str, changed: int, size: int) -> str | BuildReason:
    """What a compiler calls itself, or why it does not say; asked once for each program that was there under that path."""
    try:
        code, said = limited((path, "--version"), Path("/"), ASKED, MEMORY)
    except NotBuilt as problem:
        if problem.reason is BuildReason.TIMEOUT:
            return BuildReason.TIMEOUT
        raise
    if code != 0:
        raise NotBuilt(BuildReason.NO_COMPILER, f"{path} --version ends with {code}")
    return said.splitlines()[0].strip() if said else "unknown"

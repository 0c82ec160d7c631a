"""The system's C++ compiler: found, limited in time and memory, and its failures named."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

#: names that are looked for where `CXX` says nothing
NAMES = ("c++", "g++", "clang++")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
#: on processors whose compilers know it
WIDE = ("-mprefer-vector-width=512",)
#: seconds and bytes that the compiler may take, and bytes that it may write
SECONDS, MEMORY, WRITTEN = 60.0, 4 << 30, 1 << 28
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
    """A C++ compiler as it is called; `version` is the first line of what it says about itself."""

    command: tuple[str, ...]
    version: str

    @property
    def flags(self) -> tuple[str, ...]:
        return (*FLAGS, *(WIDE if platform.machine() in {"x86_64", "AMD64"} else ()))

    def call(self, source: Path, target: Path) -> tuple[str, ...]:
        """The command that compiles a file."""
        return (*self.command, *self.flags, "-o", str(target), str(source))

    def compile(self, source: Path, target: Path, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        """Compiles a file to a shared library; raises NotBuilt, whose detail is the compiler's first words about an error."""
        code, said = limited(self.call(source, target), source.parent, seconds, memory)
        if code == 0 and target.is_file():
            return
        first = first_error(said)
        # a compiler that ends by a signal says so of its own part, or ends by it itself
        if any(words in said for words in _NO_MEMORY):
            raise NotBuilt(BuildReason.MEMORY, first)
        if code < 0 or code > 128 or "internal compiler error" in said:
            raise NotBuilt(BuildReason.CRASH, first)
        raise NotBuilt(BuildReason.ERROR, said if said else f"exit code {code}" if code else "it ended well, and wrote nothing")


_NO_MEMORY = ("out of memory", "cannot allocate memory", "Cannot allocate memory", "virtual memory exhausted", "bad_alloc")


def first_error(said: str) -> str:
    """The first line that tells of an error, or the first line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    first = next((line for line in lines if "error" in line), lines[0] if lines else "")[:300]
    # it is shown in terminals
    return "".join(char if char.isprintable() else "?" for char in first)


def limited(command: Sequence[str], folder: Path, seconds: float, memory: int) -> tuple[int, str]:
    """Exit code and output of a command that takes no more time and memory than that; it and all that it started end then.

    Raises NotBuilt where its time is over, or it cannot be started.
    """
    shell = shutil.which("sh")
    # limits are set by a shell: between the fork and the start of a program no Python may run where there are threads
    within = f'ulimit -v {memory >> 10}; ulimit -f {WRITTEN >> 9}; ulimit -c 0; exec "$@"'
    whole = [shell, "-c", within, "sh", *command] if shell else list(command)
    # a file takes what is said, however much it is: it may grow no larger than what is written
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                whole, cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, "LC_ALL": "C", "TMPDIR": str(folder)},
            )  # fmt: skip
        except OSError as problem:
            raise NotBuilt(BuildReason.NO_COMPILER, str(problem)) from None
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise NotBuilt(BuildReason.TIMEOUT, f"{seconds:.0f} s") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        said.seek(0)
        return process.returncode, said.read(SAID).decode("utf-8", "replace")


def compiler() -> Compiler:
    """The compiler that `CXX` names, or the first of the usual ones; raises NotBuilt."""
    wanted = os.environ.get("CXX", "").strip()
    names = [wanted] if wanted else list(NAMES)
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
            return Compiler((path, *parts[1:]), _version(path, state.st_mtime_ns, state.st_size))
    raise NotBuilt(BuildReason.NO_COMPILER, f"CXX is {wanted}" if wanted else f"none of {', '.join(NAMES)}")


@cache
def _version(path: str, changed: int, size: int) -> str:
    """What a compiler calls itself; asked once for each program that was there under that path."""
    code, said = limited((path, "--version"), Path("/"), 10.0, MEMORY)
    if code != 0:
        raise NotBuilt(BuildReason.NO_COMPILER, f"{path} --version ends with {code}")
    return said.splitlines()[0].strip() if said else "unknown"


@cache
def machine() -> str:
    """A digest of what generated code depends on: the system, the processor's kind and what it can do."""
    parts = [platform.system(), platform.machine()]
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text("utf-8", "replace").split("\n\n")[0].splitlines():
            key, _, value = line.partition(":")
            if key.strip() in {"vendor_id", "cpu family", "model", "flags", "Features", "CPU part"}:
                parts.append(" ".join(sorted(value.split())))
    else:
        parts.append(platform.processor())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

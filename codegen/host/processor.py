"""Processors: what kernels are written for. The one at hand is found once, and levels of instructions stand for all others.

`DSLC_ISA`, and whoever says `with wanted(level)`, choose what `processor()` gives; everything below takes a `Processor` as an argument.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

from dslc.errors import error
from dslc.records import record

#: the processor at hand, with all that it can do
NATIVE = "native"
#: names a level where nothing else does
VARIABLE = "DSLC_ISA"


@record
class Processor:
    """Instructions that a kernel may use.

    name: as the system calls it, or the level. architecture: as `platform.machine` names it. level: the highest level of `LEVELS` that
    it has, "" where it has none. native: whether it is the one at hand with all that it can do, and not just a level. vector_bytes:
    of a register of vectors, whose number is `registers`. fma: multiplies and adds in one instruction. masks: loads and stores some
    lanes in one instruction. half: converts f16. gather: loads from several places in one instruction. caches: bytes of the data
    caches of a core, nearest first. threads: that it runs. identity: a digest of all that compilers look at.
    """

    name: str
    architecture: str
    level: str
    native: bool
    vector_bytes: int
    registers: int
    fma: bool
    masks: bool
    half: bool
    gather: bool
    caches: tuple[int, ...]
    threads: int
    identity: str

    @property
    def lanes(self) -> int:
        """Elements of f32 in a vector."""
        return self.vector_bytes // 4

    @property
    def sums(self) -> int:
        """Vectors of sums that a block of a product keeps in registers, beside a row of vectors and a factor."""
        return 24 if self.registers >= 32 else 12

    @property
    def isa(self) -> str:
        """Name for compilers and users: a level, or `native`."""
        return NATIVE if self.native else self.level

    def __str__(self) -> str:
        able = {"FMA": self.fma, "masked loads and stores": self.masks, "f16": self.half, "gather": self.gather}
        caches = " + ".join(_size(size) for size in self.caches) or "unknown"
        level = f" ({self.level})" if self.native and self.level else ""
        return (
            f"{self.isa}{level}, {self.registers} registers of {self.vector_bytes} bytes, "
            f"{', '.join(name for name, has in able.items() if has) or 'no FMA'}, caches {caches}"
        )


@record
class Level:
    """A level of instructions that compilers know by its name: `Processor`'s words, and what the system calls what it needs."""

    architecture: str
    vector_bytes: int
    registers: int
    fma: bool
    masks: bool
    half: bool
    gather: bool
    needs: frozenset[str]
    #: what compilers are told beside the level
    flags: tuple[str, ...] = ()


# the levels of the x86-64 psABI, and Armv8 with NEON, with the words of Linux for their features; of an architecture in ascending order
_V2 = frozenset("cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3".split())
_V3 = _V2 | frozenset("abm avx avx2 bmi1 bmi2 f16c fma movbe".split())
_V4 = _V3 | frozenset("avx512f avx512bw avx512cd avx512dq avx512vl".split())
LEVELS: Mapping[str, Level] = MappingProxyType({
    "x86-64-v2": Level("x86_64", 16, 16, False, False, False, False, _V2),
    "x86-64-v3": Level("x86_64", 32, 16, True, True, True, True, _V3, ("-mprefer-vector-width=256",)),
    "x86-64-v4": Level("x86_64", 64, 32, True, True, True, True, _V4, ("-mprefer-vector-width=512",)),
    # what kernels need of Armv8 is in its first version: they compute f16 as f32, which converts there already
    "armv8-a": Level("aarch64", 16, 32, True, False, True, False, frozenset({"fp", "asimd"})),
})  # fmt: skip
#: what a user may name
NAMES = (*LEVELS, NATIVE)
#: what other systems call an architecture
_ARCHITECTURES = {"AMD64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64"}
#: registers and bytes of vectors where no level is known
_REGISTERS, _BYTES = 16, 16

_chosen: ContextVar[str] = ContextVar("isa", default="")


def processor(isa: str = "") -> Processor:
    """The processor of a level or `native`; of what is wanted where none is named.

    Raises:
        DslcError: E0906 for a name that there is none of.
    """
    name = isa or wanted_name()
    return here() if name == NATIVE else of_level(name)


def wanted_name() -> str:
    """The level that is wanted, or `native`. Raises DslcError E0906 where `DSLC_ISA` names none."""
    name = _chosen.get() or os.environ.get(VARIABLE, "").strip() or NATIVE
    if name not in NAMES:
        raise error(
            "E0906", f"{VARIABLE} is {name!r}, which is no level of instructions", hint=f"one of {', '.join(NAMES)}"
        )
    return name


@contextmanager
def wanted(isa: str | None) -> Iterator[None]:
    """A level is wanted by all that is called inside, and by the processes that are started there; None changes nothing."""
    before = _chosen.set(isa) if isa else None
    try:
        yield
    finally:
        if before is not None:
            _chosen.reset(before)


def runnable(found: Processor) -> Processor:
    """The same, where kernels for it run here.

    Raises:
        DslcError: E0817 where they do not.
    """
    if found.native or runs(found.level):
        return found
    have = here().level or here().architecture
    raise error(
        "E0817", f"this machine cannot run kernels for {found.level}: its processor has {have}",
        hint=f"`dslc build --isa {found.level}` builds them for a machine that can; {NATIVE} is what this one can do",
    )  # fmt: skip


def runs(level: str) -> bool:
    """Return whether the processor at hand has a level."""
    known = LEVELS[level]
    return not foreign(known) and known.needs <= _features()


def foreign(of: Processor | Level) -> bool:
    """Return whether it has another architecture than the processor at hand, whose code cannot be loaded here."""
    return of.architecture != _architecture()


@cache
def of_level(name: str) -> Processor:
    """Any processor of a level; caches and threads are those at hand. Raises DslcError E0906."""
    level = LEVELS.get(name)
    if not level:
        raise error("E0906", f"{name!r} is no level of instructions", hint=f"one of {', '.join(NAMES)}")
    identity = _digest(platform.system(), level.architecture, name)
    return Processor(
        name, level.architecture, name, False, level.vector_bytes, level.registers, level.fma, level.masks, level.half, level.gather,
        caches(), os.cpu_count() or 1, identity,
    )  # fmt: skip


@cache
def here() -> Processor:
    """The processor at hand."""
    architecture, features = _architecture(), _features()
    base = Processor(
        _name(), architecture, "", True, _BYTES, _REGISTERS, False, False, False, False, caches(), os.cpu_count() or 1, _identity(),
    )  # fmt: skip
    for name, level in LEVELS.items():
        if level.architecture == architecture and level.needs <= features:
            base = replace(of_level(name), name=base.name, native=True, identity=base.identity)
    return replace(base, fma=base.fma or "fma" in features, half=base.half or "f16c" in features)


def identities() -> frozenset[str]:
    """The identities of all processors whose kernels run here."""
    return frozenset({here().identity, *(of_level(name).identity for name in LEVELS if runs(name))})


@cache
def caches() -> tuple[int, ...]:
    """Bytes of the data caches of a core, nearest first; none where the system does not say."""
    found: dict[int, int] = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind, level, text = ((folder / part).read_text("utf-8").strip() for part in ("type", "level", "size"))
            if kind != "Instruction":
                found[int(level)] = int(text.rstrip("KM")) << {"K": 10, "M": 20}.get(text[-1], 0)
        except (OSError, ValueError):
            continue
    if not found:
        said = {level: _sysctl(f"hw.{name}cachesize") for level, name in enumerate(("l1d", "l2", "l3"), 1)}
        found = {level: int(text) for level, text in said.items() if text.isdecimal() and int(text)}
    return tuple(size for _, size in sorted(found.items()))


# ---- what the system says ------------------------------------------------------------------------------------------


def _architecture() -> str:
    return architecture_of(platform.machine())


def architecture_of(name: str) -> str:
    """An architecture as `Processor` has it, of what systems and compilers call it."""
    return _ARCHITECTURES.get(name, name)


def _name() -> str:
    fields = _cpuinfo()
    return fields.get("model name") or _sysctl("machdep.cpu.brand_string") or platform.processor() or platform.machine()


@cache
def _cpuinfo() -> Mapping[str, str]:
    """The first processor's lines of Linux; empty on other systems."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return {}
    lines = [line.partition(":") for line in text.split("\n\n")[0].splitlines()]
    return {key.strip(): value.strip() for key, _, value in lines}


@cache
def _features() -> frozenset[str]:
    """Features of the processor, in the words of Linux."""
    fields = _cpuinfo()
    if fields:
        return frozenset((fields.get("flags") or fields.get("Features") or "").split())
    if _architecture() == "aarch64":
        # other systems do not run where these are missing
        return LEVELS["armv8-a"].needs
    # macOS calls them by Intel's names: AVX1.0, SSE4.1, LZCNT
    said = " ".join(_sysctl(f"machdep.cpu.{name}") for name in ("features", "leaf7_features", "extfeatures")).lower()
    other = {"avx1.0": "avx", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "lahf": "lahf_lm", "lzcnt": "abm"}
    return frozenset(other.get(word, word) for word in said.split())


def _sysctl(name: str) -> str:
    """A line of macOS' `sysctl`; empty on other systems."""
    if platform.system() != "Darwin":
        return ""
    try:
        return subprocess.run(
            ["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _identity() -> str:
    """A digest of what generated code depends on: the system, the processor's kind and what it can do."""
    fields = _cpuinfo()
    parts = [platform.system(), platform.machine()]
    keys = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU part")
    parts += [" ".join(sorted(fields[key].split())) for key in keys if key in fields]
    return _digest(*parts, *(() if fields else (_name(), *sorted(_features()))))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 and size % (1 << 20) == 0 else f"{size >> 10} KiB"

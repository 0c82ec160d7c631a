"""Machines, for which times hold: the processor, the number of threads and the runtime."""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib import metadata
from pathlib import Path

from dslc.codegen.host.processor import NATIVE, Processor, caches, processor, wanted_name
from dslc.records import record


@record
class Machine:
    """Properties that times depend on beside the program: part of every key of the cost cache, and printed in reports."""

    device: str
    threads: int
    runtime: str
    #: that kernels are written for: `native`, or a level of instructions
    isa: str = NATIVE

    def __str__(self) -> str:
        plural = "" if self.threads == 1 else "s"
        level = "" if self.isa == NATIVE else f", kernels for {self.isa}"
        return f"{self.device}, {self.threads} thread{plural}, {self.runtime}{level}"

    @property
    def processor(self) -> Processor:
        """Processor that kernels are written for."""
        return processor(self.isa)


def this_machine(threads: int | None = None) -> Machine:
    """This machine with that many threads of the runtime (default: one for each physical core that may be used)."""
    return Machine(device(), threads or default_threads(), runtime(), wanted_name())


def allowed_cpus() -> list[int]:
    """The processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def busy() -> str:
    """The load of the last minute, where it exceeds the processors allowed; empty where it does not or is not known."""
    try:
        load, count = os.getloadavg()[0], len(allowed_cpus())
    except (OSError, AttributeError):
        return ""
    return f"load {load:.1f} on {count} processor{'s' * (count > 1)}" if load > count else ""


@cache
def default_threads() -> int:
    """One thread for each physical core, as ONNX Runtime does, but never more than the processors allowed."""
    import psutil  # type: ignore[import-untyped]

    return max(1, min(psutil.cpu_count(logical=False) or 1, len(allowed_cpus())))


@cache
def device() -> str:
    """The processor's name and how many of them there are, e.g. `AMD EPYC 9755 (family 26, model 2), 2 CPUs`."""
    name, details = platform.processor() or platform.machine(), ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [line.partition(":") for line in cpuinfo.read_text("utf-8", "replace").split("\n\n")[0].splitlines()]
        fields = {key.strip(): value.strip() for key, _, value in lines}
        name = fields.get("model name", name)
        if "cpu family" in fields and "model" in fields:
            details = f" (family {fields['cpu family']}, model {fields['model']})"
    return f"{name}{details}, {len(allowed_cpus())} CPUs"


def farthest_cache() -> int:
    """Bytes of the largest cache of a processor, as the system tells; 32 MiB where it does not."""
    return max(caches(), default=1 << 25)


@cache
def runtime() -> str:
    """The runtime's name and version, without importing it."""
    for package in ("onnxruntime", "onnxruntime-gpu"):
        try:
            return f"onnxruntime {metadata.version(package)}"
        except metadata.PackageNotFoundError:
            continue
    return "onnxruntime (unknown version)"


def available_memory() -> int:
    """Bytes that can be taken now without swapping, a container's limit included."""
    import psutil

    free = int(psutil.virtual_memory().available)
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    try:
        return min(free, int(limit.read_text()) - int(used.read_text()))
    except (OSError, ValueError):
        return free

"""What a measurement was made on."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path


def describe(threads: int | None = None) -> str:
    """One line: processor, cores, memory, system and versions of what decides about speed."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("dslc", "onnxruntime", "onnx", "numpy"))
    used = f", {threads} of them used" if threads else ""
    return (
        f"{_processor()}, {os.cpu_count()} cores{used}, {memory:.0f} GiB, {platform.system()} {platform.release()}, "
        f"Python {sys.version.split()[0]}, {versions}"
    )


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        fields = {
            key.strip(): value.strip()
            for key, _, value in (line.partition(":") for line in cpuinfo.read_text().splitlines())
        }
        name, family, number = (fields.get(k, "") for k in ("model name", "cpu family", "model"))
        if name:
            # Virtual machines often hide the exact name; family and model still tell the generation.
            return f"{name} (family {family}, model {number})" if family else name
    return platform.processor() or platform.machine()

"""What a measurement was made on."""

from __future__ import annotations

import platform
import sys
from importlib import metadata

import psutil

from dslc.cost.machine import this_machine


def describe(threads: int | None = None) -> str:
    """One line: processor, threads, memory, system, and the versions of what decides about speed."""
    memory = psutil.virtual_memory().total / 2**30
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("onnx", "numpy", "dslc"))
    return (
        f"{this_machine(threads)}, {memory:.0f} GiB memory, {platform.system()} {platform.release()}, "
        f"Python {sys.version.split()[0]}, {versions}"
    )

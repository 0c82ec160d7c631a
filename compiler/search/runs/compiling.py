"""Compiling in a run: whether it writes kernels of its own, by what it was asked and what this machine has."""

from __future__ import annotations

from dslc.codegen.host.compiler import NotBuilt, compiler
from dslc.cost.targets import OwnKernels
from dslc.search.runs.settings import Settings


def wanted(settings: Settings) -> bool:
    """Whether kernels may be written."""
    return settings.target().kernels is OwnKernels.BUILT and settings.portable == "functions"


def with_kernels(settings: Settings) -> bool:
    """Whether kernels may be written, and can be built here."""
    return wanted(settings) and not no_compiler()


def no_compiler() -> str:
    """Why there are no kernels on this machine; empty where a compiler is found."""
    try:
        compiler()
    except NotBuilt as problem:
        return f"no kernels: {problem}"
    return ""

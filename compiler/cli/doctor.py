"""`dslc doctor`: what dslc runs on, and what may be done about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import click

PATIENCE = 10  #: seconds that a driver has to answer


class Advice(NamedTuple):
    """Something to do, and its benefit."""

    do: str
    why: str


@click.command("doctor")
@click.option("--cache", type=click.Path(path_type=Path), help="Folder of the caches to look at.")
@click.option("--clear-kernels", is_flag=True, help="Delete all built kernels; they are rebuilt when needed.")
def command(cache: Path | None, clear_kernels: bool) -> int:
    """Check the machine, the runtimes, the libraries and the caches, and give advice. The exit code is 1 if something is missing."""
    from rich.text import Text

    from dslc.terminal import print_table, wide_console

    if clear_kernels:
        from dslc.codegen.host.library import clear

        count = clear(cache)
        wide_console().print(f"deleted {count} librar{'y' if count == 1 else 'ies'} of kernels")
    found = facts(cache)
    print_table(("", ""), [(name, text if fine else Text(text, "red")) for name, text, fine in found], lines="none")
    for do, why in advice(cache):
        wide_console().print(Text.assemble(("advice", "bold"), f" {do}: {why}"))
    return 0 if all(fine for _, _, fine in found) else 1


def facts(cache: Path | None) -> list[tuple[str, str, bool]]:
    """Name, value and whether it is fine, of everything that a run depends on."""
    import sys
    from importlib import metadata

    from dslc.catalogue.rows import all_libraries
    from dslc.cost.cache import CostCache
    from dslc.cost.machine import allowed_cpus, available_memory, default_threads, device
    from dslc.version import __version__

    out = [("dslc", f"{__version__}, Python {sys.version.split()[0]}", True)]
    for package in ("onnx", "onnxruntime", "numpy", "islpy", "sympy", "lark", "ml_dtypes", "psutil"):
        try:
            out.append((package, metadata.version(package), True))
        except metadata.PackageNotFoundError:
            out.append((package, "is not installed", False))
    out.append(("processor", device(), True))
    out.extend(_instructions())
    out.append(("threads", f"{default_threads()} by default, {len(allowed_cpus())} processors allowed", True))
    out.append(("memory", f"{available_memory() / 2**30:.1f} GiB free", available_memory() > 1 << 29))
    out.append(_runtime())
    caught: list[str] = []
    with CostCache(cache, caught.append) as opened:
        costs, verdicts = opened.counts()
        size = opened.path.stat().st_size if opened.path.exists() else 0
    out.append(("cache", f"{opened.path}: {costs} costs, {verdicts} verdicts, {size / 2**20:.1f} MiB", not caught))
    out.extend(("cache", text, False) for text in caught)
    out.extend(_kernels(cache))
    by = f"; plans run by {', '.join(bindings())}" if bindings() else ""
    out.extend(("GPU", f"{one}{by}", True) for one in devices() or ["none"])
    for one in all_libraries():
        about = f"{one.version or '(no version)'}: {one.operators} operators, {one.rules} rules, {one.path}"
        out.append(("library", f"{one.name}: {one.problem}" if one.problem else f"{one.name} {about}", not one.problem))
    return out


def advice(cache: Path | None) -> Iterator[Advice]:
    """Advice about what is missing, old, small or busy here."""
    from dslc.codegen.host.compiler import NotBuilt, compiler
    from dslc.cost.machine import allowed_cpus, busy
    from dslc.folders import cache_folder, unwritable

    yield from _outdated()
    try:
        compiler()
    except NotBuilt:
        yield Advice("install a C++ compiler (Debian: apt install g++)", "without one there are no generated kernels")
    folder = cache_folder(cache)
    if problem := unwritable(folder):
        yield Advice(
            "set DSLC_CACHE to a folder that can be written",
            f"{folder}: {problem}; every run measures and proves anew",
        )
    if len(allowed_cpus()) == 1:
        yield Advice(
            "give it a second processor",
            "what else runs on the only one is in every time: verdicts need a longer --budget",
        )
    if load := busy():
        yield Advice("measure when less is running", f"{load}: timing cannot tell small gains from noise")
    if devices() and not bindings():
        yield Advice(
            "pip install 'dslc[cuda]'", "there is a CUDA device, and nothing that runs a plan on it (`--on cuda`)"
        )


def _outdated() -> Iterator[Advice]:
    """Packages that are older than dslc asks for."""
    from importlib import metadata

    from packaging.requirements import Requirement

    try:
        needs = metadata.requires("dslc") or []
    except metadata.PackageNotFoundError:
        return
    for need in map(Requirement, needs):
        if need.marker is not None and not need.marker.evaluate({"extra": ""}):
            continue
        try:
            have = metadata.version(need.name)
            fine, why = (
                need.specifier.contains(have, prereleases=True),
                f"{have} is installed, and dslc is not tried with it",
            )
        except metadata.PackageNotFoundError:
            fine, why = False, "it is not installed"
        if not fine:
            yield Advice(f"pip install '{need.name}{need.specifier}'", why)


def devices() -> list[str]:
    """The CUDA devices that the driver names; none without a driver."""
    import shutil
    import subprocess

    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        done = subprocess.run(
            [tool, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"],
            capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []


def bindings() -> list[str]:
    """The installed packages by which plans run on a device."""
    from importlib.util import find_spec

    found = []
    for name in ("cuda.core", "pycuda"):
        with suppress(ImportError, ValueError):
            found += [name] if find_spec(name) is not None else []
    return found


def _instructions() -> list[tuple[str, str, bool]]:
    """The processor's level of instructions, and that of kernels where it is another one."""
    from dslc.codegen.host.processor import VARIABLE, here, processor, runnable
    from dslc.errors import DslcError

    out = [("instructions", str(here()), True)]
    try:
        found = runnable(processor())
    except DslcError as problem:
        return [*out, ("kernels for", str(problem).splitlines()[0], False)]
    return out if found.native else [*out, ("kernels for", f"{found} ({VARIABLE})", True)]


def _kernels(cache: Path | None) -> list[tuple[str, str, bool]]:
    """The compiler, which models run without, and the libraries that were built with it."""
    from dslc.codegen.host.compiler import NotBuilt, compiler
    from dslc.codegen.host.library import kept, library_folder

    try:
        found = compiler()
        text = f"{found.command[0]}: {found.version}"
    except NotBuilt as problem:
        text = f"{problem}; models run without generated kernels"
    count, size = kept(cache)
    libraries = f"{library_folder(cache)}: {count} librar{'y' if count == 1 else 'ies'}, {size / 2**20:.1f} MiB"
    return [("C++ compiler", text, True), ("kernels", libraries, True)]


def _runtime() -> tuple[str, str, bool]:
    """A run of an empty model in a process of its own: its overhead."""
    from dslc.cost.process import Worker, WorkerFailed
    from dslc.onnx.microbenchmarks import empty_model

    try:
        with Worker(1) as worker:
            seconds = worker.measure(empty_model(), 0.2)["seconds"]
    except (WorkerFailed, OSError) as problem:
        return ("a run", str(problem), False)
    return ("a run", f"an empty model takes {seconds * 1e6:.1f} us", True)

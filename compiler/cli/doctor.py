"""`dslc doctor`: what dslc runs on."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("doctor")
@click.option("--cache", type=click.Path(path_type=Path), help="Folder of the caches.")
@click.option("--clear-kernels", is_flag=True, help="Delete the built libraries of kernels; sessions build them again.")
def command(cache: Path | None, clear_kernels: bool) -> int:
    """Report on the machine, the runtimes and the caches. Exit code 1 where something is missing."""
    from rich.table import Table

    from dslc.cli.tables import console

    if clear_kernels:
        from dslc.codegen.host.library import clear

        count = clear(cache)
        console().print(f"deleted {count} librar{'y' if count == 1 else 'ies'} of kernels")
    table = Table(show_header=False, box=None)
    ok = True
    for name, text, fine in facts(cache):
        ok = ok and fine
        table.add_row(name, text if fine else f"[red]{text}[/red]")
    console().print(table)
    return 0 if ok else 1


def facts(cache: Path | None) -> list[tuple[str, str, bool]]:
    """Name, value and whether it is fine, of everything that a run depends on."""
    import sys
    from importlib import metadata

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
    out.append(_library())
    return out


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
    """Whether a model runs in a process of its own, and what a run costs beside the work."""
    from dslc.cost.process import Worker, WorkerFailed
    from dslc.onnx.empty import empty_model

    try:
        with Worker(1) as worker:
            seconds = worker.measure(empty_model(), 0.2)["seconds"]
    except (WorkerFailed, OSError) as problem:
        return ("a run", str(problem), False)
    return ("a run", f"an empty model takes {seconds * 1e6:.1f} us", True)


def _library() -> tuple[str, str, bool]:
    from dslc.errors import DslcError
    from dslc.semantics.library import load

    try:
        rules = load("std")
    except DslcError as problem:
        return ("std", str(problem).splitlines()[0], False)
    return ("std", f"{len(rules.operators)} operators, {len(rules.substitutions)} substitutions", True)

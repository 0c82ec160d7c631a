"""`dslc build fast.onnx`: the kernels of an optimized model, for the machine at hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from onnx import ModelProto

    from dslc.kernels import Kernels


@click.command("build")
@click.argument("model", metavar="MODEL.onnx", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="LIB", help="Also write the library there.")
@click.option("--emit", type=click.Path(path_type=Path), metavar="DIR", help="Write the C++ and the command that compiles it.")
@click.option("--cache", type=click.Path(path_type=Path), help="Folder of the caches.")
def command(model: Path, output: Path | None, emit: Path | None, cache: Path | None) -> int:
    """Build the kernels of a model that `dslc optimize` wrote, so that `dslc.session` finds them.

    They are generated from the functions in the file, which every other runtime runs; no code comes from it. Exit code 1 where a
    kernel is missing: the model runs without it, by its function.
    """
    from dslc.errors import error
    from dslc.kernels import prepared, said
    from dslc.onnx.reading import read_for_inputs

    proto = read_for_inputs(model)
    for path in (output, emit):
        if path is not None and path.exists() and path.resolve() == model.resolve():
            raise error("E0908", f"{path} is the model itself", path=str(path))
    if not said(proto).functions:
        click.echo(f"{model} has no generated kernels")
        return 0
    if emit is not None:
        _emit(proto, emit)
    found = prepared(proto, cache)
    for name in found.names:
        click.echo(f"{name}  {'built' if found.fresh else 'was built before'}")
    for one in found.missing:
        click.echo(f"{one.name}  runs as plain nodes: {one.why.value}" + (f" ({one.detail})" if one.detail else ""))
    if found.library is None:
        raise error("E0815", f"no kernel of {model} could be built: {_first(found)}", path=str(model), hint="it runs all the same")
    click.echo(f"library: {found.library}")
    if output is not None:
        _write(output, found.library.read_bytes())
        click.echo(f"wrote {output}: dslc.register(options, model, library={str(output)!r})")
    return 1 if found.missing else 0


def _first(found: Kernels) -> str:
    one = found.missing[0]
    return one.detail or one.why.value


def _emit(proto: ModelProto, folder: Path) -> None:
    """The C++ of the library and the command that compiles it."""
    from dslc.codegen.host.compiler import Compiler, NotBuilt, compiler
    from dslc.codegen.host.library import source
    from dslc.kernels import texts_of

    texts, _ = texts_of(proto)
    if not texts:
        return
    try:
        used = compiler()
    except NotBuilt:
        used = Compiler(("c++",), "")
    _write(folder / "kernels.cpp", source(texts).encode())
    _write(folder / "build.sh", ("#!/bin/sh\n" + " ".join(used.call(Path("kernels.cpp"), Path("kernels.so"))) + "\n").encode())
    click.echo(f"wrote {folder / 'kernels.cpp'}")


def _write(path: Path, content: bytes) -> None:
    """Complete or not at all."""
    import os

    from dslc.errors import error

    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError as problem:
        temporary.unlink(missing_ok=True)
        raise error("E0903", f"cannot write {path}: {problem.strerror or problem}", path=str(path)) from None

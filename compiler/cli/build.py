"""`dslc build fast.onnx`: the kernels of an optimized model, for the machine at hand."""

from __future__ import annotations

from pathlib import Path

import click

from dslc.cli.options import PATH, option
from dslc.codegen.host.processor import NAMES
from dslc.semantics.targets import BUILT


@click.command("build")
@click.argument("model", metavar="MODEL.onnx", type=PATH)
@option("-o", "--output", type=PATH, metavar="LIB", help="Also write the library to this file.")
@option("--emit", type=PATH, metavar="DIR", help="Write the C++ source and the compiler command to this folder.")
@option(
    "--on", "target", type=click.Choice(BUILT), default="cpu",
    help="cuda: print what each kernel needs on the device, and build nothing; --emit writes the CUDA source.",
)  # fmt: skip
@option(
    "--device", metavar="NAME", help="With --on cuda: the device, for a model without a plan (`dslc list targets`)."
)
@option(
    "--isa", type=click.Choice(NAMES),
    help="Build for this instruction set, not for this machine's; one it lacks needs -o or --emit.",
)  # fmt: skip
@option("--cache", type=PATH, help="Folder of cached libraries.")
def command(
    model: Path,
    output: Path | None,
    emit: Path | None,
    target: str,
    device: str | None,
    isa: str | None,
    cache: Path | None,
) -> int:
    """Build the kernels of a model that `dslc optimize` wrote, so that `dslc.session` finds them.

    Kernels are generated from the functions in the file, which other runtimes run as they are; the file holds no code. The exit
    code is 1 if a kernel cannot be built; the model then runs its function instead.
    """
    from dslc.api.calls import built, none_built
    from dslc.errors import error
    from dslc.kernels import said
    from dslc.onnx.protos import read_model

    proto = read_model(model)[0]
    for path in (output, emit):
        if path and path.exists() and path.resolve() == model.resolve():
            raise error("E0908", f"{path} is the model itself", path=str(path))
    if target == "cuda":
        from dslc.cli import cuda

        if output:
            raise click.UsageError("-o is a library for --on cpu.")
        planned = cuda.planned_kernels(proto)
        if said(proto).functions or planned:
            return cuda.show(proto, emit, planned, device)
    if not said(proto).functions:
        click.echo(f"{model} has no generated kernels")
        return 0
    found = built(proto, output, emit, isa, cache)
    if emit:
        click.echo(f"wrote {emit / 'kernels.cpp'}")
    for name in found.names:
        click.echo(f"{name}  {'built' if found.fresh else 'was built before'}")
    for one in found.missing:
        click.echo(f"{one.name}  runs as plain nodes: {one}")
    if not found.library:
        raise none_built(found, str(model), isa)
    click.echo(f"library: {found.library}")
    if output:
        click.echo(f"wrote {output}: dslc.register(options, model, library={str(output)!r})")
    return 1 if found.missing else 0

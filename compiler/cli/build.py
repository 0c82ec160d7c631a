"""`dslc build fast.onnx`: the kernels of an optimized model, for the machine at hand."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dslc.codegen.host.processor import NAMES
from dslc.semantics.targets import BUILT
from dslc.store import write_file

if TYPE_CHECKING:
    from onnx import ModelProto

    from dslc.codegen.cuda.text import CudaText
    from dslc.codegen.host.processor import Processor
    from dslc.errors import DslcError
    from dslc.kernels import Kernels


@click.command("build")
@click.argument("model", metavar="MODEL.onnx", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="LIB", help="Also write the library there.")
@click.option(
    "--emit", type=click.Path(path_type=Path), metavar="DIR", help="Write the C++ and the command that compiles it."
)
@click.option(
    "--on",
    "target",
    type=click.Choice(BUILT),
    default="cpu",
    show_default=True,
    help="cuda: say what each kernel takes on a device; --emit writes its text. Nothing is built.",
)
@click.option(
    "--device", metavar="NAME", help="With --on cuda, the device of a model without a plan (`dslc list targets`)."
)
@click.option(
    "--isa",
    type=click.Choice(NAMES),
    help="For another level of instructions: with -o or --emit also for machines that can do more than this one.",
)
@click.option("--cache", type=click.Path(path_type=Path), help="Folder of the caches.")
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

    They are generated from the functions in the file, which every other runtime runs; no code comes from it. Exit code 1 where a
    kernel is missing: the model runs without it, by its function.
    """
    from dslc.errors import error
    from dslc.kernels import said
    from dslc.onnx.protos import read_model

    proto = read_model(model)[0]
    for path in (output, emit):
        if path is not None and path.exists() and path.resolve() == model.resolve():
            raise error("E0908", f"{path} is the model itself", path=str(path))
    if target == "cuda" and output is not None:
        raise click.UsageError("-o is a library for --on cpu.")
    planned = _planned(proto) if target == "cuda" else {}
    if not said(proto).functions and not planned:
        click.echo(f"{model} has no generated kernels")
        return 0
    if target == "cuda":
        return _cuda(proto, emit, planned, device)
    found = built(proto, output, emit, isa, cache)
    if emit is not None:
        click.echo(f"wrote {emit / 'kernels.cpp'}")
    for name in found.names:
        click.echo(f"{name}  {'built' if found.fresh else 'was built before'}")
    for one in found.missing:
        click.echo(f"{one.name}  runs as plain nodes: {one.why.value}" + (f" ({one.detail})" if one.detail else ""))
    if found.library is None:
        raise none_built(found, str(model), isa)
    click.echo(f"library: {found.library}")
    if output is not None:
        click.echo(f"wrote {output}: dslc.register(options, model, library={str(output)!r})")
    return 1 if found.missing else 0


def built(
    proto: ModelProto,
    output: Path | None = None,
    emit: Path | None = None,
    isa: str | None = None,
    cache: Path | None = None,
) -> Kernels:
    """Builds the kernels of a model, and writes their library and C++ where that is asked for.

    Raises:
        DslcError: E0817 where they are for this machine and it has not that level, E0903 for what cannot be written.
    """
    from dslc.codegen.host.processor import processor as level
    from dslc.codegen.host.processor import runnable
    from dslc.kernels import prepared

    processor = level(isa or "")
    if output is None and emit is None:
        runnable(processor)
    if emit is not None:
        _emit(proto, emit, processor)
    found = prepared(proto, cache, processor=processor)
    if output is not None and found.library is not None:
        write_file(output, found.library.read_bytes(), parents=True)
    return found


def none_built(found: Kernels, model: str, isa: str | None = None) -> DslcError:
    """What to raise where a model has kernels, and not one could be built."""
    from dslc.codegen.host.compiler import usual
    from dslc.codegen.host.processor import foreign
    from dslc.codegen.host.processor import processor as level
    from dslc.errors import error

    processor, hint = level(isa or ""), "it runs all the same"
    if foreign(processor):
        hint = f"kernels for {processor.architecture} take a cross compiler: {' or '.join(usual(processor))}, or what CXX names"
    return error("E0815", f"no kernel of {model} could be built: {_first(found)}", path=model, hint=hint)


def _first(found: Kernels) -> str:
    one = found.missing[0]
    return one.detail or one.why.value


def _emit(proto: ModelProto, folder: Path, processor: Processor) -> None:
    """The C++ of the library and the command that compiles it."""
    from dslc.codegen.host.compiler import SUFFIX, Compiler, NotBuilt, compiler, usual
    from dslc.codegen.host.library import source
    from dslc.kernels import texts_of

    texts, _ = texts_of(proto, processor=processor)
    if not texts:
        return
    try:
        used = compiler(processor)
    except NotBuilt:
        used = Compiler(usual(processor)[:1], "", processor)
    write_file(folder / "kernels.cpp", source(texts), parents=True)
    write_file(
        folder / "build.sh", f"#!/bin/sh\n{shlex.join(used.call(Path('kernels.cpp'), Path(f'kernels{SUFFIX}')))}\n"
    )


def _planned(proto: ModelProto) -> dict[str, CudaText]:
    """The kernels of the plan in a model's metadata, by their names there; none where it has none, or dslc plans it otherwise."""
    from dslc.cuda.costs import stored_kernels
    from dslc.cuda.planning import NotPlanned
    from dslc.semantics.library import standard

    try:
        return stored_kernels(standard(), proto, click.echo)
    except NotPlanned as problem:
        click.echo(f"there is no plan: {problem}")
        return {}


def _cuda(proto: ModelProto, folder: Path | None, planned: dict[str, CudaText], device: str | None) -> int:
    """The launches of every kernel, with what the assembler says of them where a compiler is installed, for the device of the model's
    plan, or else for the one that is named."""
    from dslc.codegen.cuda.choose import occupancy, seconds
    from dslc.codegen.cuda.compiled import available, compile
    from dslc.codegen.cuda.generate import generate, variants
    from dslc.codegen.cuda.nvrtc import NotCompiled
    from dslc.codegen.text import NotGenerated
    from dslc.cuda.code import hardware, hardware_of
    from dslc.cuda.costs import stored_device
    from dslc.cuda.devices import DEFAULT, device_named
    from dslc.kernels import groups_of
    from dslc.semantics.library import standard

    groups, missing = groups_of(proto)
    stored = stored_device(proto)
    if stored is not None and device is not None and device_named(device) is not stored:
        click.echo(f"the plan is one for {stored.name}: {device} is not looked at")
    on = stored or device_named(DEFAULT if device is None else device)
    arch = f"sm_{on.capability[0]}{on.capability[1]}"
    refused = False
    texts = dict(planned)
    for name, group in groups.items():
        try:
            texts[name] = generate(standard(), group, variants(standard(), group, hardware(on, group))[0])
        except NotGenerated as problem:
            click.echo(f"{name}  runs as plain nodes: {problem}")
            refused = True
    for name, text in texts.items():
        own = hardware_of(on, (*text.inputs, *text.outputs))
        click.echo(f"{name}  {text.name}  {seconds(text, own) * 1e6:.3g} us by the roofline of {on}, not measured")
        launches = {launch.symbol: launch for launch in text.launches}
        for launch in text.launches:
            click.echo(f"  {launch.symbol}  {launch.form}, {launch.grid[0]} blocks of {launch.block[0]} threads")
        try:
            for usage in compile(text.text, arch).kernels if available() else ():
                said = (
                    f"{usage.registers} registers, {usage.spills} bytes spilled, {usage.shared} bytes of shared memory"
                )
                said += f", occupancy {occupancy(launches[usage.symbol], own, usage):.0%}"
                click.echo(f"  {usage.symbol}  {arch}: {said}")
        except NotCompiled as problem:
            click.echo(f"  {arch}: {problem}")
            refused = True
        if folder is not None:
            write_file(folder / f"{text.name}.cu", text.text, parents=True)
            click.echo(f"  wrote {folder / f'{text.name}.cu'}")
    for one in missing:
        click.echo(f"{one.name}  runs as plain nodes: {one.why.value}" + (f" ({one.detail})" if one.detail else ""))
    if not available():
        click.echo("neither NVRTC (pip install dslc[cuda]) nor nvcc is installed: nothing was compiled")
    return 1 if missing or refused else 0

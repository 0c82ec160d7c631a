"""`dslc build --on cuda`: what each kernel takes on a device."""

from __future__ import annotations

from pathlib import Path

import click
from onnx import ModelProto

from dslc.codegen.cuda.choose import occupancy, seconds
from dslc.codegen.cuda.compiled import available, compile
from dslc.codegen.cuda.generate import generate, variants
from dslc.codegen.cuda.nvrtc import NotCompiled
from dslc.codegen.cuda.text import CudaText
from dslc.codegen.text import NotGenerated
from dslc.cuda.code import hardware, hardware_of
from dslc.cuda.costs import stored_device, stored_kernels
from dslc.cuda.devices import DEFAULT, device_named
from dslc.cuda.planning import NotPlanned
from dslc.kernels import groups_of
from dslc.semantics.library import standard
from dslc.store import write_file


def planned_kernels(proto: ModelProto) -> dict[str, CudaText]:
    """The kernels of the plan in a model's metadata, by their names there; none where it has none, or dslc plans it otherwise."""
    try:
        return stored_kernels(standard(), proto, click.echo)
    except NotPlanned as problem:
        click.echo(f"there is no plan: {problem}")
        return {}


def show(proto: ModelProto, folder: Path | None, planned: dict[str, CudaText], device: str | None) -> int:
    """Prints the launches of every kernel, with the assembler's numbers where a compiler is installed.

    They are for the device of the model's plan, or else for the one that is named.
    """
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
        if folder:
            write_file(folder / f"{text.name}.cu", text.text, parents=True)
            click.echo(f"  wrote {folder / f'{text.name}.cu'}")
    for one in missing:
        click.echo(f"{one.name}  runs as plain nodes: {one}")
    if not available():
        click.echo("neither NVRTC (pip install dslc[cuda]) nor nvcc is installed: nothing was compiled")
    return 1 if missing or refused else 0

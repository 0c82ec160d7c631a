"""Which groups there are generated kernels for, and their texts: the generator behind plans and sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dslc.cuda.devices import MEMORY, OWN, Device
from dslc.cuda.planning import Generable, Wants
from dslc.ir.dtype import DType
from dslc.ir.graph import Graph
from dslc.semantics.apply import rules_cache
from dslc.semantics.library import Rules

#: how much longer than by its bytes and operations a kernel may take, before there is something to look for
_NEAR = 1.5


def texts(rules: Rules, device: Device | None = None) -> Callable[[Graph], Any]:
    """The text of a group's kernel, by the variant that promises most on a device: it may use tensor cores, or share sums between
    blocks. Without a device it is the one that is taken where nothing is said, which takes less time to find. Raises NotGenerated."""
    from dslc.codegen.cuda.generate import generate, variants

    known: dict[Graph, Any] = rules_cache(rules, f"cuda texts for {device.name if device else 'any'}")

    def text(program: Graph) -> Any:
        if program not in known:
            best = variants(rules, program, hardware(device, program))[0] if device is not None else None
            known[program] = generate(rules, program, best)
        return known[program]

    return text


def hardware(device: Device, program: Graph | None = None) -> Any:
    """A device as those who write kernels see it, for what a program computes with: half precision is computed in single."""
    from dslc.codegen.cuda.choose import Hardware

    wide = program is not None and any(value.type.dtype is DType.F64 for value in (*program.inputs, *program.outputs))
    plain, units = device.plain[DType.F64 if wide else DType.F32], device.tensor[DType.F16]
    return Hardware(
        device.processors, MEMORY * device.bandwidth, device.reach, OWN * plain, OWN * units, device.launch, held=device.cache // 2
    )


def generable(rules: Rules, device: Device | None = None) -> Generable:
    """Whether there is a kernel for a group, the memory that it wants beside its tensors, and its seconds; by `texts`."""
    from dslc.codegen.cuda.choose import seconds
    from dslc.codegen.cuda.text import at
    from dslc.codegen.text import NotGenerated

    text = texts(rules, device)

    def wants(program: Graph) -> Wants | None:
        try:
            made = text(program)
        except NotGenerated:
            return None
        took = seconds(made, hardware(device, program)) if device is not None else None
        return Wants(tuple(at(size, {}) for size in made.scratch), took)

    return wants


def priced(rules: Rules, device: Device) -> Generable:
    """As `generable` for a device, where many groups are to be compared: other variants are looked for where the usual one is a
    product, or takes much longer than its bytes and operations do."""
    from dslc.codegen.cuda.choose import least, seconds
    from dslc.codegen.text import NotGenerated

    usual, best = texts(rules), generable(rules, device)

    def wants(program: Graph) -> Wants | None:
        own = hardware(device, program)
        try:
            made = usual(program)
        except NotGenerated:
            return None
        took = seconds(made, own)
        if took > _NEAR * least(made, own) or any(launch.form == "products" for launch in made.launches):
            return best(program)
        return Wants((), took)

    return wants


__all__ = ["generable", "hardware", "priced", "texts"]

"""Which groups there are generated kernels for, and their texts: the generator behind plans and sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dslc.cuda.devices import MEMORY, OWN, Device
from dslc.cuda.planning import Generable
from dslc.ir.dtype import DType
from dslc.ir.graph import Graph
from dslc.semantics.apply import rules_cache
from dslc.semantics.library import Rules


def texts(rules: Rules, device: Device | None = None) -> Callable[[Graph], Any]:
    """The text of a group's kernel, by the variant that promises most on a device: it may use tensor cores, or share sums between
    blocks. Without a device it is the one that is taken where nothing is said, which takes less time to find. Raises NotGenerated."""
    from dslc.codegen.cuda.generate import generate, variants

    known: dict[Graph, Any] = rules_cache(rules, f"cuda texts for {device.name if device else 'any'}")

    def text(program: Graph) -> Any:
        if program not in known:
            best = variants(rules, program, hardware(device))[0] if device is not None else None
            known[program] = generate(rules, program, best)
        return known[program]

    return text


def hardware(device: Device) -> Any:
    """A device as those who write kernels see it."""
    from dslc.codegen.cuda.choose import Hardware

    plain, units = device.plain[DType.F32], device.tensor[DType.F16]
    return Hardware(device.processors, MEMORY * device.bandwidth, device.reach, OWN * plain, OWN * units, device.launch)


def generable(rules: Rules, device: Device | None = None) -> Generable:
    """Whether there is a kernel for a group, and the memory that it wants beside its tensors; by the variants of `texts`."""
    from dslc.codegen.cuda.text import at
    from dslc.codegen.text import NotGenerated

    text = texts(rules, device)

    def scratch(program: Graph) -> tuple[int, ...] | None:
        try:
            return tuple(at(size, {}) for size in text(program).scratch)
        except NotGenerated:
            return None

    return scratch


__all__ = ["generable", "hardware", "texts"]

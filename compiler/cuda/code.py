"""Generated kernels of groups and their texts, for plans and sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from dslc.cuda.devices import MEMORY as DEVICES_MEMORY
from dslc.cuda.devices import OWN as DEVICES_OWN
from dslc.cuda.devices import Device
from dslc.cuda.planning import Generable, Wants
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph
from dslc.semantics.library import Rules, rules_cache

if TYPE_CHECKING:
    from dslc.codegen.cuda.choose import Hardware
    from dslc.cuda.written import CudaTemplates, TakenTemplate


#: how many times as long as by its bytes and operations a kernel may take, before there is something to look for
NEAR = 1.5


def texts(rules: Rules, device: Device | None = None, templates: CudaTemplates | None = None) -> Callable[[Graph], Any]:
    """The text of a group's kernel, by the variant that promises most on a device.

    It may use tensor cores, or share sums between blocks. Without a device it is the one that is taken where nothing is
    said, which takes less time to find. Raises NotGenerated.

    Args:
        templates: of libraries, which are variants as well.
    """
    find = taken(rules, device, templates)
    return lambda program: find(program).text


def taken(rules: Rules, device: Device | None, templates: CudaTemplates | None) -> Callable[[Graph], TakenTemplate]:
    """As `texts`, with seconds on the device, and the lowering whose template a text is of."""
    from dslc.codegen.cuda.choose import seconds
    from dslc.codegen.cuda.generate import generate, variants
    from dslc.codegen.text import NotGenerated
    from dslc.cuda.written import TakenTemplate

    place = device.name if device else "any"
    of = "" if templates is None else f" and templates of {', '.join(('dslc', *templates.trust))}"
    known: dict[Graph, TakenTemplate] = rules_cache(rules, f"cuda texts for {place}{of}")

    def find(program: Graph) -> TakenTemplate:
        if program not in known:
            known[program] = best(program)
        return known[program]

    def best(program: Graph) -> TakenTemplate:
        generated, problem = None, None
        own = hardware(device, program) if device is not None else None
        try:
            generated = generate(rules, program, None if own is None else variants(rules, program, own)[0])
        except NotGenerated as reason:
            problem = reason
        if own is None:
            found = None if generated is None else TakenTemplate(generated, 0.0)
        elif templates is None:
            found = None if generated is None else TakenTemplate(generated, seconds(generated, own))
        else:
            found = templates.best(program, generated, own)
        if found is None:
            assert problem is not None
            raise problem
        return found

    return find


def hardware(device: Device, program: Graph) -> Hardware:
    """A device's properties as code generation sees them, for a program's element types."""
    return hardware_of(device, [value.type for value in (*program.inputs, *program.outputs)])


def hardware_of(device: Device, types: Iterable[TensorType]) -> Hardware:
    """The same for tensors of some types: half precision is computed in single."""
    from dslc.codegen.cuda.choose import Hardware

    wide = any(type.dtype is DType.F64 for type in types)
    plain, units = device.plain[DType.F64 if wide else DType.F32], device.tensor[DType.F16]
    return Hardware(
        device.processors,
        DEVICES_MEMORY * device.bandwidth,
        device.reach,
        DEVICES_OWN * plain,
        DEVICES_OWN * units,
        device.launch,
        held=device.cache // 2,
    )


def generable(rules: Rules, device: Device | None = None, templates: CudaTemplates | None = None) -> Generable:
    """Return whether there is a kernel for a group, the memory that it wants beside its tensors, and its seconds; by `texts`."""
    from dslc.codegen.cuda.text import at
    from dslc.codegen.text import NotGenerated

    find = taken(rules, device, templates)

    def wants(program: Graph) -> Wants | None:
        try:
            made = find(program)
        except NotGenerated:
            return None
        took = made.seconds if device is not None else None
        return Wants(tuple(at(size, {}) for size in made.text.scratch), took, made.lowering)

    return wants


def priced(rules: Rules, device: Device, templates: CudaTemplates | None = None) -> Generable:
    """As `generable` for a device, where many groups are to be compared.

    Other variants are looked for where the usual one is a product, or takes much longer than its bytes and operations
    do.
    """
    from dslc.codegen.cuda.choose import least, seconds
    from dslc.codegen.text import NotGenerated

    usual, best = texts(rules), generable(rules, device, templates)

    def wants(program: Graph) -> Wants | None:
        own = hardware(device, program)
        if templates is not None and templates.fits(program):
            return best(program)
        try:
            made = usual(program)
        except NotGenerated:
            return None
        took = seconds(made, own)
        if took > NEAR * least(made, own) or any(launch.form == "products" for launch in made.launches):
            return best(program)
        return Wants((), took)

    return wants

"""Generated kernels of groups and their texts, for plans and sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import TimeoutExpired
from tempfile import TemporaryDirectory
from typing import Any

from dslc.analysis.counts import known_flops
from dslc.codegen.cuda.choose import Hardware, least, seconds
from dslc.codegen.cuda.compiled import available, compile
from dslc.codegen.cuda.custom import custom_cuda
from dslc.codegen.cuda.generate import generate, variants
from dslc.codegen.cuda.nvrtc import NotCompiled
from dslc.codegen.cuda.shim import Stopped, build
from dslc.codegen.cuda.text import CudaText, at
from dslc.codegen.custom import Filling
from dslc.codegen.host.compiler import NotBuilt
from dslc.codegen.text import NotGenerated
from dslc.cost.compare import Reference, compare
from dslc.cost.targets import LIBRARY
from dslc.cuda.devices import MEMORY_REACHED, OWN_REACHED, Device
from dslc.cuda.planning import Generable, Wants
from dslc.errors import DslcError
from dslc.fuse.kernel_checks import Drawn, drawn
from dslc.fuse.templates import TemplatesOn, Written
from dslc.ir.dtype import Dim, DType, TensorType
from dslc.ir.graph import Call, Graph, Node, Values, input_value, rebuild, with_args
from dslc.records import record
from dslc.semantics.apply import apply
from dslc.semantics.elaborate import expand
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules, load, rules_cache

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
    place = device.name if device else "any"
    of = "" if templates is None else f" and templates of {', '.join(('dslc', *templates.trust))}"
    known: dict[Graph, TakenTemplate] = rules_cache(rules, f"cuda texts for {place}{of}")

    def find(program: Graph) -> TakenTemplate:
        if program not in known:
            known[program] = best(program)
        return known[program]

    def best(program: Graph) -> TakenTemplate:
        if not device:
            return TakenTemplate(generate(rules, program), 0.0)
        own, problem = hardware(device, program), None
        try:
            text = generate(rules, program, variants(rules, program, own)[0])
            found: TakenTemplate | None = TakenTemplate(text, seconds(text, own))
        except NotGenerated as reason:
            found, problem = None, reason
        if templates is not None:
            found = templates.best(program, found, own)
        if not found:
            assert problem
            raise problem
        return found

    return find


def hardware(device: Device, program: Graph) -> Hardware:
    """A device's properties as code generation sees them, for a program's element types."""
    return hardware_of(device, [value.type for value in (*program.inputs, *program.outputs)])


def hardware_of(device: Device, types: Iterable[TensorType]) -> Hardware:
    """The same for tensors of some types: half precision is computed in single."""
    wide = any(type.dtype is DType.F64 for type in types)
    plain, units = device.plain[DType.F64 if wide else DType.F32], device.tensor[DType.F16]
    return Hardware(
        device.processors,
        MEMORY_REACHED * device.bandwidth,
        device.reach,
        OWN_REACHED * plain,
        OWN_REACHED * units,
        device.launch,
        held=device.cache // 2,
    )


def generable(rules: Rules, device: Device | None = None, templates: CudaTemplates | None = None) -> Generable:
    """Return whether there is a kernel for a group, the memory that it wants beside its tensors, and its seconds; by `texts`."""
    find = taken(rules, device, templates)

    def wants(program: Graph) -> Wants | None:
        try:
            made = find(program)
        except NotGenerated:
            return None
        took = made.seconds if device else None
        return Wants(tuple(at(size, {}) for size in made.text.scratch), took, made.lowering)

    return wants


def priced(rules: Rules, device: Device, templates: CudaTemplates | None = None) -> Generable:
    """As `generable` for a device, where many groups are to be compared.

    Other variants are looked for where the usual one is a product, or takes much longer than its bytes and operations
    do.
    """
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


ELEMENTS = 1 << 17  #: elements of a tensor up to which a kernel is run
SIZES: tuple[int, ...] = (300, 37)  #: what larger sizes become then
SECONDS = 20.0  #: seconds of one run

#: the version of ONNX's operators whose models draw inputs
OPSET = 17


@record
class TakenTemplate:
    """The text that a program's kernel has; `lowering`: whose template wrote it, empty where it is generated."""

    text: CudaText
    seconds: float
    lowering: str = ""


class CudaTemplates(TemplatesOn[CudaText]):
    """The templates on devices of dslc's library of targets, and of rules whose libraries are trusted.

    Those of a user's are run on the CPU before they are used, and compared with the interpreter. dslc's own are by its tests.
    """

    def __init__(self, rules: Rules, trust: Sequence[str] = ()) -> None:
        super().__init__("cuda", (rules, load(LIBRARY)), trust, self._kernel)
        self.rules, self.trust = rules, tuple(trust)
        #: what is said of the templates that take a program
        self.said: dict[Graph, tuple[str, ...]] = {}

    def _kernel(self, filling: Filling) -> CudaText:
        """Its price counts the operations of its program's equations, where the lowering says of no others."""
        assert filling.program
        known = "flops" in filling.cost
        flops = None if known else known_flops(tuple(expand(self.rules, filling.program.outputs)))
        return custom_cuda(filling, round(flops or 0))

    def best(self, program: Graph, least: TakenTemplate | None, hardware: Hardware) -> TakenTemplate | None:
        """Choose the kernel of a program: the template's cheapest by the roofline where it is right, else a generated one."""
        before, self.notes = self.notes, []
        try:
            for one in self.texts(program):
                took = seconds(one.text, hardware)
                if least and took >= least.seconds:
                    if not one.own:
                        self.slower(one.lowering, took, least.seconds)
                    continue
                problem = "" if one.own else self.problem(program, one)
                if problem:
                    self.left_out(one.lowering, problem)
                else:
                    least = TakenTemplate(one.text, took, one.lowering)
            return least
        finally:
            self.said[program], self.notes = tuple(self.notes), before

    def problem(self, program: Graph, one: Written[CudaText]) -> str:
        """Reason why a template's kernel is not used for a program; empty where none was found."""
        if available():
            try:
                compile(one.text.text, "sm_80")
            except NotCompiled as problem:
                return str(problem)
        trials: list[tuple[CudaText, Drawn]] = []
        for graph in self._trials(program, one.lowering):
            found = drawn(self.rules, graph, OPSET)
            text = next((made.text for made in self.texts(graph, one.lowering)), None)
            if found is not None and text is not None:
                trials.append((text, found))
        return wrong(trials)

    def _trials(self, program: Graph, lowering: str) -> Iterator[Graph]:
        """A program at sizes at which it can be run, and others that the lowering takes."""
        if _small(program):
            yield program
        else:
            yield from filter(None, (shrunk(self.rules, program, most) for most in SIZES))
        yield from self.instances(lowering, program.inputs[0].type.dtype if program.inputs else None)


def templates_of(rules: Rules, trust: Sequence[str] = ()) -> CudaTemplates:
    """The templates of some rules; read once."""
    known: dict[tuple[str, ...], CudaTemplates] = rules_cache(rules, "cuda templates")
    key = tuple(trust)
    if key not in known:
        known[key] = CudaTemplates(rules, key)
    return known[key]


def wrong(trials: Sequence[tuple[CudaText, Drawn]]) -> str:
    """Differences between kernels, run from their text on the CPU, and their programs; empty where none was found."""
    if not trials:
        return "it cannot be tried: there are no small sizes that it takes"
    texts = list({text.name: text for text, _ in trials}.values())
    with TemporaryDirectory(prefix="dslc-") as folder:
        try:
            shim = build(texts, Path(folder))
        except NotBuilt as problem:
            return f"it cannot be tried: {problem}"
        for text, (arrays, meant) in trials:
            for reverse in (False, True):
                try:
                    found = shim.run(text, arrays, reverse=reverse, seconds=SECONDS)
                except Stopped as problem:
                    return f"its kernel fails on {', '.join(map(str, text.inputs))}: {problem}"
                except TimeoutExpired:
                    return f"its kernel does not end in {SECONDS:.0f} s on {', '.join(map(str, text.inputs))}"
                names = tuple(f"y{k}" for k in range(len(found)))
                answer = compare(Reference(names, (tuple(meant),)), Reference(names, (found,)))
                if not answer.same:
                    return f"its kernel gives other numbers than its nodes on {', '.join(map(str, text.inputs))}: {answer.problem}"
    return ""


def shrunk(rules: Rules, program: Graph, most: int) -> Graph | None:
    """A program at smaller sizes, equal ones staying equal; None where its operators do not take them."""
    sizes: dict[Dim, int] = {}

    def smaller(size: Dim) -> Dim:
        return sizes.setdefault(size, most + len(sizes)) if isinstance(size, int) and size > most else size

    types = [
        TensorType(value.type.dtype, tuple(smaller(size) for size in value.type.shape)) for value in program.inputs
    ]
    new = {value: input_value(f"h{k}", type) for k, (value, type) in enumerate(zip(program.inputs, types, strict=True))}

    def each(node: Node, args: Values) -> Values:
        return apply(rules, node.op, args, dict(node.attrs)) if isinstance(node, Call) else with_args(node, args)

    with suppress(Mismatch, EvalError, DslcError, ValueError):
        found = Graph(tuple(new.values()), rebuild(program.outputs, each, new))
        return found if _small(found) else None
    return None


def _small(program: Graph) -> bool:
    values = (*program.inputs, *program.outputs)
    return all(value.type.is_static and value.type.elements <= ELEMENTS for value in values)

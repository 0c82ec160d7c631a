"""Kernels that libraries wrote for devices: the templates of lowerings on `cuda`, whether they are right, and which is used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import TimeoutExpired
from tempfile import TemporaryDirectory

from dslc.analysis.counts import known_flops
from dslc.codegen.cuda.choose import Hardware, seconds
from dslc.codegen.cuda.compiled import available, compile
from dslc.codegen.cuda.custom import custom_cuda
from dslc.codegen.cuda.nvrtc import NotCompiled
from dslc.codegen.cuda.shim import Stopped, build
from dslc.codegen.cuda.text import CudaText
from dslc.codegen.custom import Filling
from dslc.codegen.host.compiler import NotBuilt
from dslc.cost.compare import Reference, compare
from dslc.cost.targets import LIBRARY
from dslc.errors import DslcError
from dslc.fuse.kernel_checks import Drawn, drawn
from dslc.fuse.templates import TemplatesOn, Written
from dslc.ir.dtype import Dim, TensorType
from dslc.ir.graph import Call, Graph, Node, Value, input_value, rebuild, with_args
from dslc.semantics.apply import apply
from dslc.semantics.elaborate import expand
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules, load, rules_cache

ELEMENTS = 1 << 17  #: elements of a tensor up to which a kernel is run
SIZES: tuple[int, ...] = (300, 37)  #: what larger sizes become then
SECONDS = 20.0  #: seconds of one run

#: the version of ONNX's operators whose models draw inputs
OPSET = 17


@dataclass(frozen=True, slots=True)
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
        self._problems: dict[tuple[str, Graph], str] = {}

    def _kernel(self, filling: Filling) -> CudaText:
        """Its price counts the operations of its program's equations, where the lowering says of no others."""
        assert filling.program is not None
        known = "flops" in filling.cost
        flops = None if known else known_flops(tuple(expand(self.rules, filling.program.outputs)))
        return custom_cuda(filling, round(flops or 0))

    def best(self, program: Graph, other: CudaText | None, hardware: Hardware) -> TakenTemplate | None:
        """What a program's kernel is: the template's that takes least by the roofline, if it is right, or another one."""
        before, self.notes = self.notes, []
        try:
            return self._best(program, other, hardware)
        finally:
            self.said[program], self.notes = tuple(self.notes), before

    def _best(self, program: Graph, other: CudaText | None, hardware: Hardware) -> TakenTemplate | None:
        least = None if other is None else TakenTemplate(other, seconds(other, hardware))
        for one in self.texts(program):
            took = seconds(one.text, hardware)
            if least is not None and took >= least.seconds:
                if not one.own:
                    self.slower(one.lowering, took, least.seconds)
                continue
            problem = "" if one.own else self.problem(program, one)
            if problem:
                self.left_out(one.lowering, problem)
            else:
                least = TakenTemplate(one.text, took, one.lowering)
        return least

    def problem(self, program: Graph, one: Written[CudaText]) -> str:
        """Why a template's kernel is not used for a program; empty where nothing was found."""
        key = one.lowering, program
        if key not in self._problems:
            self._problems[key] = self._wrong(program, one)
        return self._problems[key]

    def _wrong(self, program: Graph, one: Written[CudaText]) -> str:
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
            for most in SIZES:
                found = shrunk(self.rules, program, most)
                if found is not None:
                    yield found
        yield from self.instances(lowering, program.inputs[0].type.dtype if program.inputs else None)


def templates_of(rules: Rules, trust: Sequence[str] = ()) -> CudaTemplates:
    """The templates of some rules; read once."""
    known: dict[tuple[str, ...], CudaTemplates] = rules_cache(rules, "cuda templates")
    key = tuple(trust)
    if key not in known:
        known[key] = CudaTemplates(rules, key)
    return known[key]


def wrong(trials: Sequence[tuple[CudaText, Drawn]]) -> str:
    """What kernels compute that their programs do not mean, by their text on the CPU; empty where nothing was found."""
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

    def each(node: Node, args: tuple[Value, ...]) -> tuple[Value, ...]:
        return apply(rules, node.op, args, dict(node.attrs)) if isinstance(node, Call) else with_args(node, args)

    with suppress(Mismatch, EvalError, DslcError, ValueError):
        found = Graph(tuple(new.values()), rebuild(program.outputs, each, new))
        return found if _small(found) else None
    return None


def _small(program: Graph) -> bool:
    values = (*program.inputs, *program.outputs)
    return all(value.type.is_static and value.type.elements <= ELEMENTS for value in values)

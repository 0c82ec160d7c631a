"""Times of programs and of their kernels by themselves: models of both, at the sizes at which is measured."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf, log2

import onnx

from dslc.codegen.host.library import DOMAIN, Library
from dslc.codegen.host.processor import Processor
from dslc.codegen.text import KernelText
from dslc.cost.machine import farthest_cache
from dslc.cost.measure import Measurer, Sample
from dslc.errors import DslcError
from dslc.fuse.profile import WorkSizes
from dslc.ir.dtype import TensorType
from dslc.ir.graph import Graph, Value
from dslc.ir.graph import replace as substituted
from dslc.ir.scalar import Sym
from dslc.onnx.context import bind_graph
from dslc.onnx.exporter import function_of, node_model
from dslc.onnx.functions import Function
from dslc.onnx.microbenchmarks import kernel_model
from dslc.records import record
from dslc.semantics.library import Rules

TINY = 1 << 16  #: bytes; what touches fewer is measured several times at once
COPIES = 8  #: how often it is measured at once then
#: bytes; kernels of larger weights, and their nodes, are measured as they are in the model: other weights come
#: between two uses, and what a kernel keeps of its own may be several times as large
WEIGHTS = 1 << 16

#: bytes a second of weights up to which reading them takes next to nothing of the time, wherever they lie
STREAMED = 4e8


@record
class KernelForm:
    """Another program over the same holes by which a kernel computes.

    It is proved to give the same where numbers are numbers; `name` says where it came from.
    """

    name: str
    program: Graph

    def over(self, group: Graph) -> Graph:
        """The same over the holes of a group, whose unknown sizes may have other names."""
        pairs = [
            (own, other) for one, each in zip(self.program.inputs, group.inputs, strict=True)
            for own, other in zip(one.type.shape, each.type.shape, strict=True)
        ]  # fmt: skip
        named = bind_graph(self.program, {own.name: other for own, other in pairs if isinstance(own, Sym)})
        return Graph(group.inputs, substituted(named.outputs, dict(zip(named.inputs, group.inputs, strict=True))))


@record
class Subject:
    """A program to be tried, which of its holes are weights where it is applied, and the form of its kernel where that is given."""

    program: Graph
    weights: tuple[bool, ...]
    form: KernelForm | None = None


@dataclass(slots=True)
class ProgramTimer:
    """Times programs on one target, and their kernels.

    Args:
        footprint: bytes of weights of the model.
    """

    rules: Rules
    measurer: Measurer
    sizes: WorkSizes
    opset: int
    footprint: float = 0.0
    _functions: dict[Graph, Function] = field(default_factory=dict)

    @property
    def processor(self) -> Processor:
        """The processor that kernels are written for."""
        return self.measurer.target.processor

    def function(self, program: Graph) -> Function:
        """The function of a program. Raises DslcError where ONNX has no words for it."""
        if program not in self._functions:
            self._functions[program] = function_of(self.rules, program, self.opset)
        return self._functions[program]

    def whole(self, program: Graph, weights: tuple[bool, ...], library: Library | None = None, turn: str = "") -> float:
        """Seconds of a program by itself, of which some nodes are kernels of a library; infinite where it does not run.

        Raises:
            TimeUp: there is no time to measure it.
        """
        subject = Subject(program, weights)
        # kernels of unknown sizes keep their names
        nodes = self._nodes_model(subject, bound=library is None)
        if nodes is None:
            return inf
        model, path = nodes, ""
        if library:
            # the same nodes with other kernels are another model
            proto = onnx.ModelProto.FromString(nodes)
            proto.producer_version = " ".join(sorted(map(self._code, library.kernels.values())))
            model, path = proto.SerializeToString(deterministic=True), str(library.path)
        words = f"program {hashlib.sha256(model).hexdigest()} weights {weights}"
        sample = Sample(words, lambda: model, 1, self._weights(subject), path, lambda: nodes)
        return self._seconds(sample, turn, self._copies(subject, lambda: self._seconds(sample, "", 1)))

    def _kernel(self, subject: Subject, text: KernelText, library: Library, turn: str, hopeless: float = inf) -> float:
        """Seconds of a kernel."""
        words = f"kernel {text.name} {self._code(text)} of {self._shown(subject)}"
        sample = Sample(
            words, lambda: self._kernel_model(subject, text), 1, self._weights(subject), str(library.path),
            lambda: self._nodes_model(subject), hopeless=hopeless,
        )  # fmt: skip
        return self._seconds(sample, turn, self._copies(subject, lambda: self._nodes(subject, "", 1)))

    def _nodes(self, subject: Subject, turn: str, copies: int = 0) -> float:
        """Seconds of the nodes of a program; all is drawn as it is for the kernel."""
        words = f"nodes of {self.function(subject.program).name} on {self._shown(subject)}"
        sample = Sample(words, lambda: self._nodes_model(subject), 1, self._weights(subject), layout=False)
        return self._seconds(sample, turn, copies or self._copies(subject, lambda: self._nodes(subject, "", 1)))

    def _shown(self, subject: Subject) -> str:
        return f"{', '.join(map(str, self._types(subject.program.inputs)))} weights {subject.weights}"

    def _code(self, text: KernelText) -> str:
        """A hash of the text and of what it is compiled for: another generator may write another one under the same name."""
        return hashlib.sha256(f"{self.processor.identity}\0{text.text}".encode()).hexdigest()[:16]

    def _kernel_model(self, subject: Subject, text: KernelText) -> bytes:
        inputs, outputs = self._types(subject.program.inputs), self._types(subject.program.outputs)
        return kernel_model(DOMAIN, text.name, inputs, outputs, self._code(text))

    def _named(self, program: Graph) -> dict[str, int]:
        """The sizes at which is measured, by name."""
        return {name: size for node in program.nodes() for name, size in self.sizes.named(node).items()}

    def _nodes_model(self, subject: Subject, bound: bool = True) -> bytes | None:
        """The nodes of a program as a model with inputs for its holes, at the sizes at which is measured.

        `bound`: whether the nodes are of these sizes, too, and not the inputs only.
        """
        program = subject.program
        try:
            found, _ = node_model(
                program.outputs, self.rules, self.opset, inputs=program.inputs,
                bind=self._named(program) if bound else None, scopes=True,
            )  # fmt: skip
        except DslcError:
            return None
        for info, type in () if bound else zip(found.graph.input, self._types(program.inputs), strict=True):
            for dimension, size in zip(info.type.tensor_type.shape.dim, type.shape, strict=True):
                dimension.dim_value = size
        data: bytes = found.SerializeToString(deterministic=True)
        return data

    def _seconds(self, sample: Sample, turn: str, copies: int) -> float:
        words = sample.text if copies == 1 else f"{copies} times\n{sample.text}"
        return self.measurer.measured(replace(sample, text=words, copies=copies), turn).seconds

    def _copies(self, subject: Subject, alone: Callable[[], float]) -> int:
        """Choose how many are measured at once, where one `alone` takes so many seconds."""
        holes, bytes = subject.program.inputs, self.sizes.bytes
        if sum(bytes(value.type) for value in (*holes, *subject.program.outputs)) <= TINY:
            return COPIES
        weights = sum(bytes(value.type) for value, weight in zip(holes, subject.weights, strict=True) if weight)
        if weights < WEIGHTS or weights < STREAMED * alone():
            return 1
        # powers of two, so that models of other sizes find it in the cache
        times = max(1.0, min(self.footprint, farthest_cache()) / weights)
        return int(min(COPIES, 1 << round(log2(times))))

    def _weights(self, subject: Subject) -> tuple[str, ...]:
        """Holes that become constants where they are measured."""
        return tuple(f"x{k}" for k, weight in enumerate(subject.weights) if weight)

    def _types(self, values: Sequence[Value]) -> list[TensorType]:
        """Types at the sizes at which kernels are measured."""
        return [
            TensorType(value.type.dtype, tuple(self.sizes.of(size) for size in value.type.shape)) for value in values
        ]

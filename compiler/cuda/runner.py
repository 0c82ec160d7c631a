"""A plan on a launcher: memory, weights, kernels once; then inputs up, steps, outputs down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from dslc.cuda.cpu_parts import runtime
from dslc.cuda.launch import Code, CudaFailure, Invoked, Launcher, Reason, Tensor, first_line
from dslc.cuda.plan import BufferPlace, CallStep, HostStep, KernelStep, Plan
from dslc.cuda.planning import Planned
from dslc.cuda.views import StridedView
from dslc.interpret.floats import Floats
from dslc.interpret.run import run as interpreted
from dslc.ir.constants import NUMPY
from dslc.ir.dtype import TensorType
from dslc.ir.graph import Constant, Graph, Value, input_value
from dslc.records import record
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules

#: arguments of a call that say what follows
FOLLOWS = ("bias", "residual", "activation")


@record
class Epilogue:
    """A call without what follows it, and what a kernel for that reads: the result first, which it changes where it is."""

    plain: Invoked
    reads: tuple[Tensor, ...]
    relu: bool

    def program(self, rules: Rules) -> Graph:
        """The kernel's expression `relu(y + bias + residual)`, with the parts that are there."""
        holes = tuple(input_value(f"x{k}", TensorType(one.dtype, one.shape)) for k, one in enumerate(self.reads))
        value = holes[0]
        for other in holes[1:]:
            value = apply(rules, "std.add", (value, other), {})[0]
        if self.relu:
            value = apply(rules, "std.relu", (value,), {})[0]
        return Graph(holes, (value,))


def epilogue_of(invoked: Invoked) -> Epilogue | None:
    """A call in two steps; None where nothing follows it."""
    given = invoked.arguments
    bias, residual, result = (given.get(name) for name in ("bias", "residual", "y"))
    relu = given.get("activation") == "RELU"
    if not isinstance(result, Tensor) or not (relu or isinstance(bias, Tensor) or isinstance(residual, Tensor)):
        return None
    # in the order in which elements lie in memory, whether channels come first or last
    order = sorted(range(len(result.shape)), key=lambda k: (-result.strides[k], k))
    reads = [_turned(result, order)]
    if isinstance(bias, Tensor):
        shape = tuple(result.shape[k] if k == 1 else 1 for k in order)
        reads.append(Tensor(bias.pointer, bias.dtype, shape, (1,) * len(shape)))
    if isinstance(residual, Tensor):
        reads.append(_turned(residual, order))
    left = {name: one for name, one in given.items() if name not in FOLLOWS}
    return Epilogue(replace(invoked, arguments=left), tuple(reads), relu)


def _turned(one: Tensor, order: Sequence[int]) -> Tensor:
    return Tensor(one.pointer, one.dtype, tuple(one.shape[k] for k in order), tuple(one.strides[k] for k in order))


#: older devices have no kernels and no plans
OLDEST = (8, 0)
#: makes the text of a kernel; None where a launcher needs none
Texts = Callable[[Graph], Any]
#: where weights lie on a device, by what they are and how they are laid out
Weights = dict[tuple[Value, tuple[int, ...], tuple[int, ...]], int]


class Runner:
    """One plan on one launcher, ready to run again and again.

    Args:
        weights: those that plans of the same model have on the device already, and from now on have there; whoever has them frees
            them. By default they are the runner's own.

    Raises:
        CudaFailure: with the kernel or function and the rules that it comes from.
    """

    def __init__(
        self, rules: Rules, planned: Planned, launcher: Launcher, texts: Texts | None = None, record: bool = True,
        weights: Weights | None = None,
    ) -> None:  # fmt: skip
        if launcher.capability < OLDEST:
            major, minor = launcher.capability
            raise CudaFailure(
                Reason.TOO_OLD, f"compute capability {major}.{minor}, and {OLDEST[0]}.{OLDEST[1]} is wanted"
            )
        self.plan: Plan = planned.plan
        self.launcher = launcher
        self._rules, self._texts = rules, texts
        self._own: list[int] = []
        #: calls that a library does not compute at once, by their steps, and the kernels for what follows them
        self._in_two: dict[int, tuple[Epilogue, Any]] = {}
        self._recorded: Any | None = None
        self._record, self._runs = record, 0
        try:
            shared = self._allocate(self.plan.shared)
            there = self._weights(rules, planned, {} if weights is None else weights, weights is None)
            self.pointers = [
                shared + buffer.offset if buffer.place is BufferPlace.SHARED
                else there[buffer.name] if buffer.place is BufferPlace.WEIGHT
                else self._allocate(buffer.bytes)
                for buffer in self.plan.buffers
            ]  # fmt: skip
            self._hosts = {name: runtime(model) for name, model in planned.hosts.items()}
            # what the CPU does in between is no part of a graph
            self._record = self._record and not self._hosts
            rules_of = {step.name: step.rule for step in self.plan.steps if isinstance(step, KernelStep)}
            self.loaded = {
                name: self._load(name, rules_of.get(name, ""), program) for name, program in planned.programs.items()
            }
        except BaseException:
            self.close()
            raise

    def _allocate(self, bytes: int) -> int:
        pointer = self.launcher.allocate(max(bytes, 1))
        self._own.append(pointer)
        return pointer

    def _weights(self, rules: Rules, planned: Planned, known: Weights, own: bool) -> dict[str, int]:
        """Addresses of weights; those that are not on the device yet are copied there."""
        keys = {name: (value, view.shape, view.strides) for name, (value, view) in planned.weights.items()}
        new = {name: key for name, key in keys.items() if key not in known}
        computed = list(dict.fromkeys(value for value, _, _ in new.values() if not isinstance(value.node, Constant)))
        arrays = dict(zip(computed, interpreted(rules, computed, {}, Floats()), strict=True)) if computed else {}
        for name, key in new.items():
            value, view = planned.weights[name]
            array = arrays[value] if value in arrays else value.node.data.load()  # type: ignore[attr-defined]
            pointer = self._allocate(value.type.bytes)
            self.launcher.upload(pointer, laid_out(array, view))
            # from now on whoever shares it frees it, also where what follows fails
            known[key] = pointer
            if not own:
                self._own.remove(pointer)
        return {name: known[key] for name, key in keys.items()}

    def _load(self, name: str, rule: str, program: Graph) -> Any:
        try:
            return self.launcher.load(Code(name, rule, program, self._texts(program) if self._texts else None))
        except CudaFailure as problem:
            raise problem.of(name, rule) from None

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name, of inputs by name.

        Raises:
            CudaFailure: a kernel or a call failed.
            ValueError: an input is missing, or of another type or shape.
        """
        for name, view in self.plan.inputs:
            if name not in feeds:
                raise ValueError(f"the input {name} is missing")
            array = np.asarray(feeds[name])
            if array.dtype != np.dtype(NUMPY[view.dtype]) or array.shape != view.shape:
                raise ValueError(
                    f"the input {name} is {array.dtype}{list(array.shape)}, and {view.dtype}{list(view.shape)} is wanted"
                )
            self.launcher.upload(self.pointers[view.buffer], laid_out(array, view))
        self._start()
        return {name: self._down(view) for name, view in self.plan.outputs}

    def _start(self) -> None:
        """All steps; from the second run on as one recorded graph, where the launcher can."""
        self._runs += 1
        # the libraries have chosen their algorithms and made their memory in the first run: nothing may be made while it is recorded
        if self._record and self._runs == 2 and self._graph():
            return
        if self._recorded is not None:
            self.launcher.replay(self._recorded)
        else:
            self._steps(self._runs == 1 and self.launcher.delayed)

    def _graph(self) -> bool:
        """Record all steps as a graph, where that can be; return whether everything was run instead."""
        others = range(1, self.plan.streams)
        try:
            self.launcher.begin()
            # the other streams are recorded as well from where they wait for the first one, which waits for them in the end
            for stream in others:
                self.launcher.wait(stream, self.launcher.record(0))
            self._steps()
            for stream in others:
                self.launcher.wait(0, self.launcher.record(stream))
            self._recorded = self.launcher.end()
        except CudaFailure:
            # a library that cannot be recorded is run as before, and what is wrong shows then
            with suppress(CudaFailure):
                self.launcher.end()
            return False
        return self._recorded is None

    def _steps(self, one_by_one: bool = False) -> None:
        """Starts every step. `one_by_one` waits for each, so that one that fails is known by its name."""
        waited = {one for step in self.plan.steps for one in step.waits}
        events: dict[int, Any] = {}
        for k, step in enumerate(self.plan.steps):
            try:
                for one in step.waits:
                    self.launcher.wait(step.stream, events[one])
                if isinstance(step, HostStep):
                    self._host(step)
                elif isinstance(step, CallStep):
                    self._call(k, step)
                else:
                    reads, writes = ([self._tensor(view) for view in views] for views in (step.reads, step.writes))
                    scratch = [self.pointers[one] for one in step.scratch]
                    self.launcher.kernel(self.loaded[step.name], reads, writes, scratch, step.stream)
                if k in waited:
                    events[k] = self.launcher.record(step.stream)
                if one_by_one:
                    self.launcher.synchronize()
            except CudaFailure as problem:
                raise problem.of(step.name, step.rule) from None

    def _call(self, k: int, step: CallStep) -> None:
        """A vendor's call; in two steps where the library has nothing that computes it at once, which the first run finds out."""
        if k not in self._in_two:
            invoked = self._invoked(step)
            try:
                self.launcher.call(invoked, step.stream)
                return
            except CudaFailure as problem:
                found = epilogue_of(invoked) if problem.reason is Reason.NO_ENGINE else None
                if not found:
                    raise
            self._in_two[k] = found, self._load(f"{step.name}_epilogue", step.rule, found.program(self._rules))
        epilogue, kernel = self._in_two[k]
        self.launcher.call(epilogue.plain, step.stream)
        self.launcher.kernel(kernel, epilogue.reads, epilogue.reads[:1], [], step.stream)

    def _host(self, step: HostStep) -> None:
        """Copies to the CPU, ONNX Runtime there, and copies back."""
        session = self._hosts[step.name]
        self.launcher.synchronize()
        feeds = {one.name: self._down(view) for one, view in zip(session.get_inputs(), step.reads, strict=True)}
        try:
            found = session.run(None, feeds)
        except Exception as problem:  # the runtime has a class for each of its errors
            raise CudaFailure(Reason.LAUNCH, first_line(problem)) from None
        for array, view in zip(found, step.writes, strict=True):
            if array.shape != view.shape:
                shapes = f"{list(array.shape)}, and {list(view.shape)} was planned"
                raise CudaFailure(Reason.PLAN, f"a size depends on values: {shapes}")
            self.launcher.upload(self.pointers[view.buffer], laid_out(array, view))

    def _invoked(self, step: CallStep) -> Invoked:
        arguments = {
            name: self._tensor(value) if isinstance(value, StridedView) else value for name, value in step.arguments
        }
        workspace = next(((self.pointers[one], self.plan.buffers[one].bytes) for one in step.scratch), (0, 0))
        return Invoked(step.name, step.rule, arguments, workspace)

    def _tensor(self, view: StridedView) -> Tensor:
        return Tensor(self.pointers[view.buffer] + view.offset * view.dtype.bytes, view.dtype, view.shape, view.strides)

    def _down(self, view: StridedView) -> Any:
        """The elements that a view looks at, as an array."""
        size, dtype = view.dtype.bytes, NUMPY[view.dtype]
        if 0 in view.shape:
            return np.zeros(view.shape, dtype)
        low, high = view.span
        data = self.launcher.download(self.pointers[view.buffer] + low * size, (high - low) * size)
        flat = np.frombuffer(data, dtype)[view.offset - low :]
        return np.lib.stride_tricks.as_strided(flat, view.shape, tuple(stride * size for stride in view.strides)).copy()

    def seconds(self, runs: int) -> float:
        """Mean seconds of a run with inputs on the device: nothing is copied but by steps."""
        self.launcher.synchronize()
        began = perf_counter()
        for _ in range(runs):
            self._start()
        self.launcher.synchronize()
        return (perf_counter() - began) / runs

    def close(self) -> None:
        """Frees all memory."""
        self._recorded = None
        while self._own:
            self.launcher.free(self._own.pop())


def laid_out(array: Any, view: StridedView) -> bytes:
    """The elements of an array in the order in which a view has them, from its first place on."""
    given = np.asarray(array).astype(NUMPY[view.dtype], copy=False)
    if view.plain:
        return np.ascontiguousarray(given).tobytes()
    order = sorted(range(len(view.shape)), key=lambda k: (-view.strides[k], k))
    return np.ascontiguousarray(given.transpose(order)).tobytes()


def sizes_of(types: Mapping[str, tuple[Any, ...]], feeds: Mapping[str, Any]) -> dict[str, int]:
    """Sizes by name, from the shapes of what is fed; `types` has the shapes that inputs were declared with."""
    found: dict[str, int] = {}
    for name, shape in types.items():
        for size, given in zip(shape, np.shape(feeds[name]), strict=False):
            if not isinstance(size, int):
                found.setdefault(str(size), int(given))
    return found

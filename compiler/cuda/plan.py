"""A plan: which call or kernel computes which part of a graph, where every tensor is while it lives, and what waits for what.

Plans are frozen, and text that says all of one travels in a model's metadata. Text is data: a plan that was read is compared with the
one that dslc makes of the same model, and never run because it was read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from math import inf, isfinite
from typing import Any

from dslc.cuda.arguments import Argument
from dslc.cuda.views import StridedView
from dslc.ir.dtype import DTYPES
from dslc.records import record

#: of the format; another one is not read
VERSION = 1


LONGEST = 1 << 24  #: characters of a text
MANY = 1 << 16  #: entries of a list
LARGEST = 1 << 48  #: number, in size


class BufferPlace(Enum):
    """Kind of a buffer: an input or a weight of the model, or a part of the memory that steps share."""

    INPUT = "input"
    WEIGHT = "weight"
    SHARED = "shared"


@record
class Buffer:
    """Bytes on the device.

    `name` is the input's, or a digest of the weight; of a shared one `offset` says where in the shared memory it is
    while it lives, from the step that first writes it to the last one that reads it (`first`, `last`).
    """

    place: BufferPlace
    bytes: int
    name: str = ""
    offset: int = 0
    first: int = -1
    last: int = -1


@record
class PlanStep:
    """A step on a stream, begun once the steps that it waits for are done.

    `rule` says what it came from, and what it computes; `scratch` are buffers that it may use meanwhile.
    """

    rule: str
    name: str
    reads: tuple[StridedView, ...]
    writes: tuple[StridedView, ...]
    scratch: tuple[int, ...]
    seconds: float
    stream: int = 0
    waits: tuple[int, ...] = ()


class KernelStep(PlanStep):
    """A generated kernel, by the name of what it computes; its tensors lie in row-major order."""

    __slots__ = ()


class HostStep(PlanStep):
    """A part that ONNX Runtime computes on the CPU: what it reads is copied there, what it gives is copied back."""

    __slots__ = ()


@record
class CallStep(PlanStep):
    """A vendor's function. `rule` is the lowering, and behind it the nodes that it computes."""

    arguments: tuple[tuple[str, Argument], ...] = ()
    #: names of the arguments that are written
    written: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, rule: str, function: str, arguments: tuple[tuple[str, Argument], ...], written: tuple[str, ...],
        scratch: tuple[int, ...], seconds: float, stream: int = 0, waits: tuple[int, ...] = (),
    ) -> CallStep:  # fmt: skip
        """Make a call of its arguments, which say what it reads and writes."""
        reads, writes = (
            tuple(value for name, value in arguments if isinstance(value, StridedView) and (name in written) is which)
            for which in (False, True)
        )
        return cls(rule, function, reads, writes, scratch, seconds, stream, waits, arguments, written)


@record
class Plan:
    """Steps in an order in which they may run. A step waits for those that it names, and for what comes before it on its stream."""

    device: str
    inputs: tuple[tuple[str, StridedView], ...]
    outputs: tuple[tuple[str, StridedView], ...]
    buffers: tuple[Buffer, ...]
    steps: tuple[PlanStep, ...]
    #: names of kernels, and what they compute as text of the language
    kernels: tuple[tuple[str, str], ...]
    #: bytes of the memory that steps share
    shared: int
    streams: int

    @property
    def seconds(self) -> float:
        """The sum of what the steps take, by the roofline of the device."""
        return sum(step.seconds for step in self.steps)

    def same(self, other: Plan) -> bool:
        """Return whether both do the same; what steps take by a roofline is no part of that."""
        return self._unpriced() == other._unpriced()

    def _unpriced(self) -> Plan:
        return replace(self, steps=tuple(replace(step, seconds=0.0) for step in self.steps))


# ---- as text --------------------------------------------------------------------------------------------------------


class Unfit(Enum):
    """Reason why a text is no plan."""

    TEXT = "it is no JSON of a plan, or too long"
    VERSION = "it is of another version"
    FIELD = "a field is missing, or has a value of another kind"
    RANGE = "a number, a place in memory or the number of a step is out of range"


class BadPlan(Exception):
    """A text that is no plan: why, and where."""

    def __init__(self, reason: Unfit, detail: str = "") -> None:
        super().__init__(f"{reason.value}{f' ({detail})' if detail else ''}")
        self.reason, self.detail = reason, detail


def text_of(plan: Plan) -> str:
    """Equal texts for equal plans, in one line."""
    return json.dumps(_plain(plan), separators=(",", ":"), sort_keys=True, allow_nan=False)


def plan_of(text: str) -> Plan:
    """Parse the text that `text_of` wrote.

    Raises:
        BadPlan: for any other text, and for plans that leave their buffers or wait for what comes later.
    """
    if len(text) > LONGEST:
        raise BadPlan(Unfit.TEXT)
    try:
        found = json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):
        raise BadPlan(Unfit.TEXT) from None
    plan = _plan(found)
    _checked(plan)
    return plan


def _refused(_: str) -> Any:
    raise ValueError


def _plain(plan: Plan) -> dict[str, Any]:
    return {
        "version": VERSION, "device": plan.device, "shared": plan.shared, "streams": plan.streams,
        "inputs": [[name, _view(view)] for name, view in plan.inputs],
        "outputs": [[name, _view(view)] for name, view in plan.outputs],
        "buffers": [[b.place.value, b.bytes, b.name, b.offset, b.first, b.last] for b in plan.buffers],
        "steps": [_step(step) for step in plan.steps],
        "kernels": [list(one) for one in plan.kernels],
    }  # fmt: skip


def _view(view: StridedView) -> list[Any]:
    return [view.buffer, str(view.dtype), list(view.shape), list(view.strides), view.offset]


def _step(step: PlanStep) -> dict[str, Any]:
    common = {"rule": step.rule, "stream": step.stream, "waits": list(step.waits), "seconds": step.seconds}
    if isinstance(step, CallStep):
        arguments = [
            [name, "view" if isinstance(value, StridedView) else type(value).__name__, _argument(value)]
            for name, value in step.arguments
        ]
        return {
            **common,
            "call": step.name,
            "arguments": arguments,
            "written": list(step.written),
            "workspace": step.scratch[0] if step.scratch else None,
        }
    views = {"reads": [_view(view) for view in step.reads], "writes": [_view(view) for view in step.writes]}
    if isinstance(step, HostStep):
        return {**common, **views, "host": step.name}
    return {**common, **views, "kernel": step.name, "scratch": list(step.scratch)}


def _argument(value: Argument) -> Any:
    return _view(value) if isinstance(value, StridedView) else list(value) if isinstance(value, tuple) else value


def _plan(found: Any) -> Plan:
    if not isinstance(found, dict):
        raise BadPlan(Unfit.FIELD, "plan")
    if found.get("version") != VERSION:
        raise BadPlan(Unfit.VERSION, str(found.get("version"))[:20])
    inputs, outputs = (
        tuple((_str(one, 0), _a_view(_get(one, 1, list))) for one in _list(found, key)) for key in ("inputs", "outputs")
    )
    return Plan(
        _str(found, "device"), inputs, outputs, tuple(map(_buffer, _list(found, "buffers"))),
        tuple(map(_one_step, _list(found, "steps"))),
        tuple((_str(one, 0), _str(one, 1)) for one in _list(found, "kernels")), _int(found, "shared"), _int(found, "streams"),
    )  # fmt: skip


def _get(of: Any, key: str | int, *kinds: type) -> Any:
    """A field of one of some types; whoever wrote the text may have written anything."""
    try:
        value = of[key]
    except (KeyError, IndexError, TypeError):
        raise BadPlan(Unfit.FIELD, str(key)) from None
    if type(value) not in kinds:
        raise BadPlan(Unfit.FIELD, str(key))
    return value


def _list(of: Any, key: str | int) -> list[Any]:
    value: list[Any] = _get(of, key, list)
    if len(value) > MANY:
        raise BadPlan(Unfit.FIELD, str(key))
    return value


def _str(of: Any, key: str | int) -> str:
    value: str = _get(of, key, str)
    return value


def _int(of: Any, key: str | int, least: int = 0) -> int:
    value: int = _get(of, key, int)
    if not least <= value <= LARGEST:
        raise BadPlan(Unfit.RANGE, str(key))
    return value


def _ints(of: Any, key: str | int, least: int = 0) -> tuple[int, ...]:
    value = _list(of, key)
    return tuple(_int(value, k, least) for k in range(len(value)))


def _a_view(value: Any) -> StridedView:
    dtype = DTYPES.get(_str(value, 1))
    if dtype is None:
        raise BadPlan(Unfit.FIELD, "element type")
    shape, strides = _ints(value, 2), _ints(value, 3, -LARGEST)
    if len(shape) != len(strides):
        raise BadPlan(Unfit.FIELD, "strides")
    return StridedView(_int(value, 0), dtype, shape, strides, _int(value, 4))


def _buffer(value: Any) -> Buffer:
    try:
        place = BufferPlace(_str(value, 0))
    except ValueError:
        raise BadPlan(Unfit.FIELD, "place") from None
    return Buffer(place, _int(value, 1), _str(value, 2), _int(value, 3), _int(value, 4, -1), _int(value, 5, -1))


def _one_step(value: Any) -> PlanStep:
    seconds = _get(value, "seconds", int, float)
    if not 0 <= seconds < 1e9:
        raise BadPlan(Unfit.FIELD, "seconds")
    rule, when = _str(value, "rule"), (float(seconds), _int(value, "stream"), _ints(value, "waits"))
    if "call" in value:
        arguments, names = tuple(map(_one_argument, _list(value, "arguments"))), _list(value, "written")
        written = tuple(_str(names, k) for k in range(len(names)))
        workspace = () if _get(value, "workspace", int, type(None)) is None else (_int(value, "workspace"),)
        return CallStep.of(rule, _str(value, "call"), arguments, written, workspace, *when)
    reads, writes = (tuple(map(_a_view, _list(value, key))) for key in ("reads", "writes"))
    if "host" in value:
        return HostStep(rule, _str(value, "host"), reads, writes, (), *when)
    return KernelStep(rule, _str(value, "kernel"), reads, writes, _ints(value, "scratch"), *when)


def _one_argument(value: Any) -> tuple[str, Argument]:
    name, kind = _str(value, 0), _str(value, 1)
    reads: dict[str, Callable[[], Argument]] = {
        "view": lambda: _a_view(_list(value, 2)), "tuple": lambda: _ints(value, 2, -LARGEST),
        "int": lambda: _int(value, 2, -LARGEST), "str": lambda: _str(value, 2), "float": lambda: float(_get(value, 2, float)),
    }  # fmt: skip
    given = reads[kind]() if kind in reads else inf
    if isinstance(given, float) and not isfinite(given):
        raise BadPlan(Unfit.FIELD, "argument")
    return name, given


def _checked(plan: Plan) -> None:
    """Raises BadPlan where a step leaves its buffers, or needs what is not there yet."""

    def of(view: StridedView) -> None:
        if view.buffer >= len(plan.buffers):
            raise BadPlan(Unfit.RANGE, "buffer")
        low, high = view.span
        if low < 0 or high * view.dtype.bytes > plan.buffers[view.buffer].bytes:
            raise BadPlan(Unfit.RANGE, "a view leaves its buffer")

    kernels = dict(plan.kernels)
    for _, view in (*plan.inputs, *plan.outputs):
        of(view)
    for buffer in plan.buffers:
        if buffer.place is BufferPlace.SHARED and buffer.offset + buffer.bytes > plan.shared:
            raise BadPlan(Unfit.RANGE, "a buffer leaves the shared memory")
    for k, step in enumerate(plan.steps):
        for view in (*step.reads, *step.writes):
            of(view)
        if any(one >= k for one in step.waits) or step.stream >= max(plan.streams, 1):
            raise BadPlan(Unfit.RANGE, "a step that waits for a later one")
        if any(one >= len(plan.buffers) or plan.buffers[one].place is not BufferPlace.SHARED for one in step.scratch):
            raise BadPlan(Unfit.RANGE, "scratch")
        if any(plan.buffers[view.buffer].place is not BufferPlace.SHARED for view in step.writes):
            raise BadPlan(Unfit.RANGE, "a step that writes what it may only read")
        if isinstance(step, KernelStep) and step.name not in kernels:
            raise BadPlan(Unfit.FIELD, "kernel")

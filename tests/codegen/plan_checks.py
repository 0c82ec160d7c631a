"""What is wrong with a plan, found without those who make plans: steps that may run at once, memory that two tensors have at once, and
what is read before it is written."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from dslc.cuda.memory import ALIGNED
from dslc.cuda.plan import BufferPlace, Plan, PlanStep
from dslc.cuda.views import StridedView


def faults(plan: Plan) -> list[str]:
    """In words; none where the plan is right."""
    return [*_loose(plan), *_races(plan), *_lost(plan)]


def before(plan: Plan) -> np.ndarray:
    """`[i, j]`: step i is done when step j begins, by streams and waiting alone."""
    count = len(plan.steps)
    done = np.zeros((count, count), bool)
    for j, step in enumerate(plan.steps):
        near = [i for i in range(j) if plan.steps[i].stream == step.stream]
        for i in {*near[-1:], *step.waits}:
            done[:, j] |= done[:, i]
            done[i, j] = True
    return done


def _bytes(plan: Plan, view: StridedView) -> np.ndarray:
    """The addresses of a view's first bytes of elements, in the memory that all tensors share."""
    places = np.array([view.offset])
    for size, stride in zip(view.shape, view.strides, strict=True):
        places = (places[:, None] + np.arange(size) * stride).reshape(-1)
    return np.unique(places) * view.dtype.bytes + plan.buffers[view.buffer].offset


def _shared(plan: Plan, views: tuple[StridedView, ...]) -> Iterator[StridedView]:
    return (view for view in views if plan.buffers[view.buffer].place is BufferPlace.SHARED)


def _touched(plan: Plan, step: PlanStep) -> Iterator[tuple[int, int, bool, StridedView | None]]:
    """Spans of shared memory that a step reads or writes (True), with the view where there is one."""
    for views, written in ((step.reads, False), (step.writes, True)):
        for view in _shared(plan, views):
            low, high = view.span
            at = plan.buffers[view.buffer].offset
            yield at + low * view.dtype.bytes, at + high * view.dtype.bytes, written, view
    for one in step.scratch:
        buffer = plan.buffers[one]
        yield buffer.offset, buffer.offset + buffer.bytes, True, None


def _loose(plan: Plan) -> Iterator[str]:
    """Spans that leave their buffers or the shared memory, and steps that wait for what comes later."""
    for k, step in enumerate(plan.steps):
        if any(not 0 <= one < k for one in step.waits):
            yield f"step {k} waits for what does not come before it"
        for low, high, _, _ in _touched(plan, step):
            if not 0 <= low <= high <= plan.shared:
                yield f"step {k} leaves the shared memory"
        for view in (*step.reads, *step.writes):
            low, high = view.span
            if low < 0 or high * view.dtype.bytes > plan.buffers[view.buffer].bytes:
                yield f"step {k} leaves buffer {view.buffer}"


def _races(plan: Plan) -> Iterator[str]:
    """Two steps that may run at once, and touch the same bytes, one of them as a writer; and a step that writes what it reads."""
    done = before(plan)
    spans = [list(_touched(plan, step)) for step in plan.steps]
    for i, j in combinations(range(len(plan.steps)), 2):
        if done[i, j]:
            continue
        for a in spans[i]:
            for b in spans[j]:
                if (a[2] or b[2]) and _meet(plan, a, b):
                    yield f"steps {i} and {j} may run at once and touch the same bytes"
    for k, own in enumerate(spans):
        for a, b in combinations(own, 2):
            if (a[2] or b[2]) and _meet(plan, a, b):
                yield f"step {k} writes what it reads or writes elsewhere"


def _meet(
    plan: Plan, a: tuple[int, int, bool, StridedView | None], b: tuple[int, int, bool, StridedView | None]
) -> bool:
    if max(a[0], b[0]) >= min(a[1], b[1]):
        return False
    if a[3] is None or b[3] is None or a[3].buffer != b[3].buffer:
        return True
    # pieces of one tensor may lie between each other
    return bool(np.isin(_bytes(plan, a[3]), _bytes(plan, b[3])).any())


def _lost(plan: Plan) -> Iterator[str]:
    """What is read, of the model's results too, that nobody wrote or that another tensor has taken the place of."""
    owner = np.full(plan.shared // ALIGNED + 1, -1, np.int32)
    written: dict[int, list[tuple[int, int]]] = {}

    def slots(number: int) -> slice:
        buffer = plan.buffers[number]
        return slice(buffer.offset // ALIGNED, -(-(buffer.offset + buffer.bytes) // ALIGNED))

    def there(view: StridedView) -> bool:
        """Whether all from the first to the last element was written, and is still there."""
        at, high = view.span
        for start, end in sorted(written.get(view.buffer, ())):
            at = max(at, end) if start <= at else at
        return at >= high and bool((owner[slots(view.buffer)] == view.buffer).all())

    for k, step in enumerate(plan.steps):
        for view in _shared(plan, step.reads):
            if not there(view):
                yield f"step {k} reads of buffer {view.buffer} what is not there"
        for one in step.scratch:
            owner[slots(one)] = -2
        for view in _shared(plan, step.writes):
            owner[slots(view.buffer)] = view.buffer
            written.setdefault(view.buffer, []).append(view.span)
    for name, view in plan.outputs:
        if plan.buffers[view.buffer].place is BufferPlace.SHARED and 0 not in view.shape and not there(view):
            yield f"the result {name} is not there in the end"

"""Steps before they have a stream, and plans that are made of them: streams, waiting, and places in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dslc.cuda.arguments import Argument, FoundCall
from dslc.cuda.memory import Life, placed, turns
from dslc.cuda.plan import Buffer, BufferPlace, CallStep, HostStep, KernelStep, Plan, Step
from dslc.cuda.views import StridedView
from dslc.ir.graph import Value
from dslc.semantics.vendor import function_named


@dataclass(slots=True)
class StepDraft:
    """A step before it has a stream: what it reads and writes are views of buffers."""

    rule: str
    seconds: float
    reads: tuple[StridedView, ...]
    writes: tuple[StridedView, ...]
    scratch: tuple[int, ...]
    call: FoundCall | None = None
    arguments: tuple[tuple[str, Argument], ...] = ()
    name: str = ""
    #: of a part on the CPU: what it computes, of what
    host: tuple[tuple[Value, ...], tuple[Value, ...]] | None = None


def assembled(
    device: str, drafts: Sequence[StepDraft], buffers: Sequence[Buffer], inputs: tuple[tuple[str, StridedView], ...],
    ends: tuple[tuple[str, StridedView], ...], kernels: tuple[tuple[str, str], ...],
) -> Plan:  # fmt: skip
    """The plan of some steps in an order in which they may run. `ends` are the outputs, which live to the end."""
    writers: dict[int, list[int]] = {}
    users: dict[int, list[int]] = {}
    needs: list[set[int]] = []
    for k, draft in enumerate(drafts):
        needs.append({one for view in draft.reads for one in writers.get(view.buffer, ())})
        for view in draft.writes:
            writers.setdefault(view.buffer, []).append(k)
        for buffer in (*(view.buffer for view in (*draft.reads, *draft.writes)), *draft.scratch):
            users.setdefault(buffer, []).append(k)
    order = turns(needs)
    kept = {view.buffer for _, view in ends}
    shared = [b for b, buffer in enumerate(buffers) if buffer.place is BufferPlace.SHARED and (b in users or b in kept)]
    lives = [Life(buffers[b].bytes, tuple(users.get(b, ())), b in kept) for b in shared]
    places, total = placed(lives, order)
    made = list(buffers)
    for b, life, at in zip(shared, lives, places, strict=True):
        last = len(drafts) if life.kept else max(life.steps, default=0)
        made[b] = Buffer(BufferPlace.SHARED, life.bytes, "", at, min(life.steps, default=0), last)
    steps: list[Step] = []
    for draft, turn in zip(drafts, order, strict=True):
        if draft.host is not None:
            steps.append(
                HostStep(draft.rule, draft.name, draft.reads, draft.writes, turn.stream, turn.waits, draft.seconds)
            )
            continue
        if draft.call is None:
            steps.append(
                KernelStep(
                    draft.rule,
                    draft.name,
                    draft.reads,
                    draft.writes,
                    draft.scratch,
                    turn.stream,
                    turn.waits,
                    draft.seconds,
                )
            )
            continue
        function = function_named(draft.call.function)
        written = (function.result,) if function is not None else ()
        workspace = draft.scratch[0] if draft.scratch else None
        steps.append(
            CallStep(
                draft.rule,
                draft.call.function,
                draft.arguments,
                written,
                workspace,
                turn.stream,
                turn.waits,
                draft.seconds,
            )
        )
    streams = 1 + max((turn.stream for turn in order), default=0)
    return Plan(device, inputs, ends, tuple(made), tuple(steps), kernels, total, streams)

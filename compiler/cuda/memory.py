"""Streams and memory of a plan: what may run at once does, and buffers that are not needed at the same time share memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from dslc.cuda.plan import Buffer, BufferPlace, Plan, PlanStep
from dslc.cuda.views import StridedView
from dslc.records import record

#: what begins in the shared memory begins at a multiple of so many bytes
ALIGNED = 256


STREAMS = 4  #: streams; more gain nothing


@record
class ScheduledStep:
    """A step's stream, the steps of other streams that it waits for, and the last step done when it begins."""

    stream: int
    waits: tuple[int, ...]
    before: frozenset[int]


def turns(needs: Sequence[Collection[int]]) -> tuple[ScheduledStep, ...]:
    """Streams for steps, each of which needs some before it: a step goes on where one that it needs was the last, else elsewhere."""
    found: list[ScheduledStep] = []
    last: list[int] = []
    for k, need in enumerate(needs):
        free = [s for s, step in enumerate(last) if step in need]
        if free:
            stream = max(free, key=lambda s: last[s])
        elif len(last) < STREAMS:
            stream = len(last)
            last.append(-1)
        else:
            stream = min(range(len(last)), key=lambda s: last[s])
        own = last[stream]
        known = frozenset() if own < 0 else found[own].before | {own}
        waits: list[int] = []
        for one in sorted(need, reverse=True):
            # what a step waited for that this one waits for needs no waiting
            if one not in known:
                waits.append(one)
                known |= found[one].before | {one}
        last[stream] = k
        found.append(ScheduledStep(stream, tuple(sorted(waits)), known))
    return tuple(found)


@record
class Life:
    """Bytes of a buffer and the steps that use it, writers first. `kept`: it lives to the end."""

    bytes: int
    steps: tuple[int, ...]
    kept: bool = False


def placed(lives: Sequence[Life], turns: Sequence[ScheduledStep]) -> tuple[tuple[int, ...], int]:
    """A place for each, the largest first into the first gap that fits, and the bytes of all.

    Two may share memory where every step of the one is done before any of the other begins, whatever the streams do.
    """
    places: dict[int, int] = {}
    top = 0
    for k in sorted(range(len(lives)), key=lambda k: (-lives[k].bytes, k)):
        size = _rounded(lives[k].bytes)
        near = sorted(
            (places[other], _rounded(lives[other].bytes)) for other in places if not _apart(lives[k], lives[other], turns)
        )  # fmt: skip
        at = 0
        for start, taken in near:
            if at + size <= start:
                break
            at = max(at, start + taken)
        places[k] = at
        top = max(top, at + size)
    return tuple(places[k] for k in range(len(lives))), top


def _rounded(bytes: int) -> int:
    return -(-max(bytes, 1) // ALIGNED) * ALIGNED


def _apart(one: Life, other: Life, turns: Sequence[ScheduledStep]) -> bool:
    def over(a: Life, b: Life) -> bool:
        return not a.kept and all(step in turns[first].before for first in b.steps for step in a.steps)

    return over(one, other) or over(other, one)


def assembled(
    device: str, drafts: Sequence[PlanStep], buffers: Sequence[Buffer], inputs: tuple[tuple[str, StridedView], ...],
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
    steps = tuple(
        replace(draft, stream=turn.stream, waits=turn.waits) for draft, turn in zip(drafts, order, strict=True)
    )
    streams = 1 + max((turn.stream for turn in order), default=0)
    return Plan(device, inputs, ends, tuple(made), steps, kernels, total, streams)

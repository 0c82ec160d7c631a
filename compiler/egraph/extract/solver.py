"""Choosing columns at the lowest cost by HiGHS: here, or in a process of its own that is ended where it overruns its time.

The solver looks at its clock now and then only: preparing a large program takes as long as it takes.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from math import isfinite

from dslc.deadline import Deadline
from dslc.egraph.extract.columns import IntegerProgram, Solved
from dslc.egraph.extract.cuts import solve
from dslc.processes.child import Child, module, ready
from dslc.processes.process import ProcessFailed

HERE = 4_000  #: columns; larger programs are solved in another process
QUICK = 1.0  #: seconds after which smaller programs are solved there, too: an interrupt waits until the solver is back
GRACE = 0.5  #: seconds that a process may be late
START = 0.5  #: seconds that starting a process takes

#: what is started
_COMMAND = module("dslc.egraph.extract.solving")


def solved(program: IntegerProgram, seconds: float) -> Solved | None:
    """The best in so many seconds; None where the solver had to be ended.

    What is not solved at once is solved twice, in two processes: as it is, since a solver finds symmetries of its own, and with cuts
    on its relaxation, which bound what the solver does not. The first to prove its program ends the other one.
    """
    if not isfinite(seconds):
        return solve(program, seconds, relaxed=False)
    first: Solved | None = None
    if len(program.costs) <= HERE:
        began = time.monotonic()
        first = solve(program, min(seconds, QUICK), relaxed=False)
        seconds -= time.monotonic() - began
        if first.optimal:
            return first
        program = replace(program, first=first.chosen)
    if seconds <= START + GRACE:
        return first
    found = [*([first] if first is not None else []), *_elsewhere(program, time.monotonic() + seconds - GRACE)]
    if not found:
        return None
    cost = {id(one): sum(program.costs[column] for column in one.chosen) for one in found}
    best, bound = min(found, key=lambda one: cost[id(one)]), max(one.bound for one in found)
    return Solved(best.chosen, min(bound, cost[id(best)]), any(one.optimal for one in found))


def _elsewhere(program: IntegerProgram, end: float) -> list[Solved]:
    """What processes of their own find until a moment; as soon as one has proved its program, the others are ended."""
    found: dict[Child, Solved] = {}
    late = Deadline(end + GRACE)
    with contextlib.ExitStack() as stack:
        children: list[Child] = []
        for relaxed in (False, True):
            with contextlib.suppress(ProcessFailed):
                children.append(stack.enter_context(Child(_COMMAND)))
                children[-1].send((program, end, relaxed), late)
        waiting = list(children)
        while waiting and not any(one.optimal for one in found.values()) and (news := ready(waiting, late)):
            for child in news:
                waiting.remove(child)
                with contextlib.suppress(ProcessFailed):
                    found[child] = child.receive(late)
    return [found[child] for child in children if child in found]

"""Programs that were derived of a call: which of them are proved in the time that there is, and what is known of the others."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from dslc.derivation.programs import PricedProgram, operations
from dslc.interpret.floats import Floats
from dslc.interpret.run import run_scopes
from dslc.ir.graph import Graph, Value
from dslc.prove.exact.answers import Equal
from dslc.prove.exact.compare import compare
from dslc.records import record
from dslc.semantics.elaborate import expand
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules

PROOF = 5.0  #: seconds of one proof, at most
LEAST = 1.0  #: seconds that the last one gets, whatever is left
DRAWS = 2  #: how often numbers are put into a program for whose proof no time is left
OPERATIONS = 2e8  #: operations of a program into which numbers are put
REACH = 3  #: whole numbers from -reach to reach are put in
SHOWN = 10  #: programs without a proof that are looked at, where all programs are wanted


@record
class Judged:
    """Programs by the outcome of their proofs.

    Attributes:
        proved: those that equal the call for all inputs, the cheapest first.
        waiting: those for whose proof there was no time, and which equal the call at random numbers, the cheapest first.
        undecided: how many were given up.
        untried: how many were neither proved nor given up.
    """

    proved: tuple[PricedProgram, ...]
    waiting: tuple[PricedProgram, ...]
    undecided: int
    untried: int


def judged(rules: Rules, programs: Iterable[PricedProgram], call: Graph, seconds: float, most: int | None) -> Judged:
    """Proves one program after the other, until there are as many as wanted or the time is over.

    Args:
        seconds: of this processor, whatever else it works for.
        most: how many are wanted; None for all.
    """
    every = list(programs)
    proved: list[PricedProgram] = []
    until = time.process_time() + seconds
    tried = 0
    for each in every:
        left = until - time.process_time()
        if len(proved) == most or left <= 0:
            break
        tried += 1
        if is_proved(rules, each, call, min(PROOF, max(LEAST, left))):
            proved.append(each)
    rest = every[tried:] if len(proved) != most else []
    # a page of them, however many there are
    wanted = max(0, (most or SHOWN) - len(proved))
    waiting = list(islice((each for each in rest if agrees(rules, each, call)), wanted))
    return Judged(_cheapest(proved), _cheapest(waiting), tried - len(proved), len(rest))


def is_proved(rules: Rules, program: PricedProgram, call: Graph, seconds: float) -> bool:
    """Return whether the exact prover shows that a program equals the call for all inputs."""
    left, right = expand(rules, call.outputs), expand(rules, (program.value,))
    return isinstance(compare(left, right, seconds=seconds), Equal)


def agrees(rules: Rules, program: PricedProgram, call: Graph) -> bool:
    """Return whether a program computes the same as the call of random whole numbers, wherever both are finite.

    Not where sizes are unknown, where tensors hold no numbers, or where that takes long.
    """
    inputs = call.inputs
    if not all(value.type.is_static and (value.type.dtype.is_float or value.type.dtype.is_integer) for value in inputs):
        return False
    try:
        values = [*expand(rules, call.outputs), *expand(rules, (program.value,))]
        if sum(map(operations, values)) > OPERATIONS:
            return False
        return all(_agree(values, inputs, seed) for seed in range(DRAWS))
    except (Mismatch, EvalError, ArithmeticError, IndexError):
        return False


def _agree(values: Sequence[Value], inputs: Sequence[Value], seed: int) -> bool:
    drawn = np.random.default_rng(seed)
    shapes = {value: tuple(int(size) for size in value.type.shape if isinstance(size, int)) for value in inputs}
    feeds = {value: drawn.integers(-REACH, REACH + 1, shape).astype(np.float64) for value, shape in shapes.items()}
    old, new = (np.asarray(each, dtype=np.float64) for each in run_scopes(list(values), feeds, Floats(rounded=False)))
    finite = np.isfinite(old) & np.isfinite(new)
    return bool(finite.any()) and bool(np.isclose(old, new, rtol=1e-9, atol=1e-9)[finite].all())


def _cheapest(programs: Iterable[PricedProgram]) -> tuple[PricedProgram, ...]:
    return tuple(sorted(programs, key=lambda each: (each.seconds, len(each.steps))))

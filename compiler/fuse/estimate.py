"""Seconds that a kernel takes, before there is one: what it moves and computes, at the speeds of this machine.

Speeds are measured once for a target, on the runtime's own addition and product, and kept with the costs of operators.
"""

from __future__ import annotations

from itertools import pairwise
from math import exp, inf, log

from dslc.codegen.host.processor import here
from dslc.cost.measure import Measurer, Sample
from dslc.fuse.profile import NodeWork, Profiles, Reach, Reading
from dslc.ir.graph import Kernel, Node, ScopeNode, Value, nodes_of
from dslc.onnx.microbenchmarks import addition_model, product_model
from dslc.records import record
from dslc.semantics.elaborate import expand

#: elements of the additions that are measured for the speed of each level of memory
ADDITIONS: tuple[int, ...] = (1 << 15, 1 << 20, 1 << 23)
ROWS = 256  #: rows and columns of the product that is measured for the speed of arithmetic
LAUNCH = 8e-7  #: seconds of a node that runs in parallel, beside its work
ROUND = 5e-7  #: seconds of each further round of its threads
NEAR = 3.0  #: how many times as fast a row is read again as it was read first: it comes from a nearer cache
STRIDED = 2.0  #: how many times as long reading takes where neighbours lie apart
#: share of the peak of products that is left where functions are computed, with vectors of 64 bytes: gates of an
#: LSTM take 1.5 times as long in half as wide vectors, products twice
FUNCTIONS_WIDE = 0.5
FUNCTIONS_NARROW = 0.67  #: the same with narrower vectors, which more ports of a processor take
WORTH_A_THREAD = 1.5e-6  #: seconds of work that are worth starting a thread


@record
class Speeds:
    """Speeds of a target: bytes a second by bytes that are touched (rising), additions a second, and threads."""

    bandwidth: tuple[tuple[float, float], ...]
    peak: float
    threads: int
    #: of the peak, where functions are computed
    functions: float = FUNCTIONS_WIDE

    def speed(self, touched: float) -> float:
        """Bytes a second of a kernel that touches so many bytes; between two measurements on a line of logarithms."""
        points = self.bandwidth
        if touched <= points[0][0]:
            return points[0][1]
        for (low, slow), (high, fast) in pairwise(points):
            if touched <= high:
                share = log(touched / low) / log(high / low)
                return exp(log(slow) + share * (log(fast) - log(slow)))
        return points[-1][1]


#: where nothing can be measured: an everyday processor
EVERYDAY = Speeds(((4e5, 4e10), (1.2e7, 3e10), (1e8, 1e10)), 5e10, 1)


def machine(measurer: Measurer) -> Speeds:
    """Measure the speeds of a target; it takes milliseconds the first time.

    Raises:
        TimeUp: there is no time to measure it.
    """
    threads = measurer.target.threads
    points = []
    for elements in ADDITIONS:
        sample = Sample(f"plain addition of {elements}", lambda elements=elements: addition_model(elements))  # type: ignore[misc]
        points.append((12.0 * elements, 12.0 * elements / measurer.measured(sample).seconds))
    sample = Sample(f"plain product of {ROWS}", lambda: product_model(ROWS))
    seconds = measurer.measured(sample).seconds
    if not (0 < seconds < inf and all(0 < speed < inf for _, speed in points)):
        return EVERYDAY
    # the runtime uses all that this machine can do, and kernels may be written for less
    wide = measurer.target.processor.vector_bytes
    share = min(1.0, wide / here().vector_bytes)
    return Speeds(
        tuple(points),
        share * 2.0 * ROWS**3 / seconds,
        threads,
        FUNCTIONS_WIDE if wide >= 64 else FUNCTIONS_NARROW,
    )


@record
class Estimate:
    """Estimated work of a kernel.

    Bytes moved, bytes read once more from nearby, additions, rounds, and rows that can be reduced at once.
    """

    bytes: float
    near: float
    operations: float
    rounds: int
    rows: float

    def seconds(self, machine: Speeds) -> float:
        """On a machine."""
        moved = self.bytes / machine.speed(self.bytes) + self.near / (NEAR * machine.speed(0.0))
        alone = max(moved, self.operations / (machine.functions * machine.peak))
        # speeds are those of all threads: fewer rows than threads leave some idle, and little work is done by one
        idle = machine.threads / max(1.0, min(float(machine.threads), self.rows))
        one = alone * machine.threads
        shared = alone * idle + (LAUNCH if one > WORTH_A_THREAD else 0.0)
        return ROUND + min(one, shared) + (self.rounds - 1) * ROUND


def estimate(kernel: Kernel, profiles: Profiles) -> Estimate:
    """Estimate the work of a kernel by its equations: of its scopes, and where each value is by the time it is read."""
    outputs, sizes = dict.fromkeys(expand(profiles.rules, kernel.group.outputs)), profiles.sizes
    nodes = nodes_of(outputs)
    works: dict[Node, NodeWork] = {
        node: profiles.work(node) for node in nodes if isinstance(node, ScopeNode) and not node.constant
    }
    moved = sum(float(sizes.bytes(value.type)) for value in outputs)
    near, operations, rounds, rows = 0.0, 0.0, 1, inf
    read: dict[Value, list[Reading]] = {}
    for node, work in works.items():
        operations += work.operations
        if work.reduces:
            rows = min(rows, work.points)
        for arg, reading in zip(node.args, work.reads, strict=True):
            size, below = float(arg.type.dtype.bytes), works.get(arg.node)
            if not below:
                # weights are holes: what is constant here is a number
                if not arg.constant:
                    read.setdefault(arg, []).append(reading)
            elif reading.reach is Reach.ROW:
                near += reading.distinct * size
            elif reading.reach is Reach.ANY and not _passed_on(below):
                # it lies in memory between two rounds
                moved += (1.0 if arg in outputs else 2.0) * reading.distinct * size
                rounds += 1
    for arg, found in read.items():
        size = float(arg.type.dtype.bytes)
        moved += size * max(one.distinct * (STRIDED if one.strided else 1.0) for one in found)
        # a row is read for its reduction, and once more for what uses that
        if len(found) > 1:
            near += size * sum(one.distinct for one in found if one.reach is Reach.ROW)
    return Estimate(moved, near, operations, rounds, rows)


def _passed_on(work: NodeWork) -> bool:
    """Return whether a value need not be stored: its elements are only passed on, or cheap to compute again."""
    return not work.reduces and work.operations <= 4.0 * max(work.points, 1.0)


def seconds_of(kernel: Kernel, profiles: Profiles, at: Speeds) -> float:
    """Estimated seconds of a kernel."""
    return estimate(kernel, profiles).seconds(at)

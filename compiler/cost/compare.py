"""Are the outputs of two models the same? Each model runs alone, in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from dslc.cost.process import ModelFile, PrestartedWorkers, Worker, WorkerFailed
from dslc.cost.timing import check_memory
from dslc.deadline import FOREVER, Deadline
from dslc.interpret import Floats, InterpretError, Redraw
from dslc.interpret import run as interpret
from dslc.ir.graph import Graph, Input
from dslc.records import record
from dslc.semantics.library import Rules

TOLERANCES: Mapping[Any, float] = {
    np.dtype(np.float64): 1e-8,
    np.dtype(np.float32): 1e-4,
    np.dtype(np.float16): 1e-2,
    np.dtype(ml_dtypes.bfloat16): 5e-2,
    np.dtype(np.complex64): 1e-4,
    np.dtype(np.complex128): 1e-8,
}

Feeds = Mapping[str, Any]


EXACT = 1e-4  #: the tolerance up to which that is done
USUAL = 1 / 16  #: part of the median of all that are not 0 from which on an element is no remainder of larger ones
FAR = 0.25  #: part of itself by which such an element may be off


@record
class Comparison:
    """The largest relative error over outputs and inputs, and what is wrong where they do not count as the same."""

    max_rel_error: float
    problem: str = ""

    @property
    def same(self) -> bool:
        return not self.problem


@record
class Reference:
    """Outputs of a model for each of several inputs."""

    names: tuple[str, ...]
    outputs: tuple[tuple[Any, ...], ...]

    def only(self, k: int) -> Reference:
        """Outputs for one of the inputs."""
        return Reference(self.names, self.outputs[k : k + 1])


def outputs_of(
    file: ModelFile,
    feeds: Sequence[Feeds],
    threads: int,
    until: Deadline = FOREVER,
    plain: bool = False,
    worker: Worker | None = None,
    spares: PrestartedWorkers | None = None,
) -> Reference:
    """Runs a model on each of the inputs, in a process of its own, which ends at a deadline, or in that of a worker.

    `plain` turns the runtime's own optimizations of graphs off.

    Raises:
        WorkerFailed: it fails, or takes longer.
        MemoryShort: memory is too small.
    """
    check_memory([file])
    if worker:
        return ran(worker, worker.load(file, plain), feeds)
    with Worker(threads, until, spares=spares) as own:
        return ran(own, own.load(file, plain), feeds)


def ran(worker: Worker, names: Sequence[str], feeds: Sequence[Feeds]) -> Reference:
    """Run the loaded model, whose outputs have these names, on each of the inputs; raises WorkerFailed."""
    outputs = [worker.ask({"do": "run", "feeds": dict(one)})["arrays"] for one in feeds]
    return Reference(tuple(names), tuple(map(tuple, outputs)))


def compare(
    reference: Reference,
    other: Reference,
    tolerance: float | None = None,
    computed: Mapping[str, Any] = MappingProxyType({}),
) -> Comparison:
    """Compares what two models gave for the same inputs.

    A tolerance of None means one by data type: an output's own, or where that is weaker the one that it was `computed` in.
    """
    worst = 0.0
    if reference.names != other.names:
        return Comparison(inf, f"its outputs are {', '.join(other.names)}")
    for ours, theirs in zip(reference.outputs, other.outputs, strict=True):
        for name, a, b in zip(reference.names, ours, theirs, strict=True):
            error, problem = difference(a, b)
            limit = tolerance if tolerance is not None else _tolerance(a, computed.get(name))
            worst = max(worst, error)
            if problem:
                return Comparison(worst, f"output {name}: {problem}")
            if error > limit:
                return Comparison(
                    worst, f"output {name} is off by {error:.2g} of its largest value (allowed: {limit:g})"
                )
            # a huge element hides the others
            if limit <= EXACT and (hidden := _hidden(a, b)):
                return Comparison(
                    worst, f"output {name}: {hidden} elements are off by more than {FAR:.0%} of themselves"
                )
    return Comparison(worst)


def _tolerance(value: Any, computed: Any) -> float:
    if isinstance(value, (list, tuple)):
        return max((_tolerance(each, computed) for each in value), default=0.0)
    own = TOLERANCES.get(value.dtype, 0.0) if isinstance(value, np.ndarray) else 0.0
    # what is no floating-point number has no rounding, whatever it was made of
    return max(own, TOLERANCES.get(computed, 0.0)) if own else 0.0


def finite(reference: Reference) -> bool:
    """Return whether a model gave numbers everywhere: neither NaN nor infinities."""
    arrays = [array for outputs in reference.outputs for array in outputs if isinstance(array, np.ndarray)]
    return all(bool(np.isfinite(array.astype(np.complex128)).all()) for array in arrays if array.dtype in TOLERANCES)


def silent(references: Sequence[Reference]) -> list[str]:
    """The outputs that were empty, or floating-point numbers of which none was finite and not 0: equal ones say next to nothing."""

    def says(array: Any) -> bool:
        if not isinstance(array, np.ndarray) or (array.size and array.dtype not in TOLERANCES):
            return True
        return bool((np.isfinite(array) & (array != 0)).any())

    names = references[0].names
    said = {
        name
        for one in references
        for outputs in one.outputs
        for name, array in zip(names, outputs, strict=True)
        if says(array)
    }
    return [name for name in names if name not in said]


def difference(a: Any, b: Any) -> tuple[float, str]:
    """max|a - b| / max|a|, and what makes the values different beyond any tolerance.

    Shapes, types, integers, booleans, strings, and the positions of NaN and of infinities must be equal. Where `a` is
    zero everywhere, the error is max|b|.
    """
    if isinstance(a, (list, tuple)):
        if not isinstance(b, (list, tuple)) or len(a) != len(b):
            return inf, "sequences of different lengths"
        pairs = [difference(x, y) for x, y in zip(a, b, strict=True)]
        return max((e for e, _ in pairs), default=0.0), next((text for _, text in pairs if text), "")
    if isinstance(a, dict):
        if not isinstance(b, dict) or a.keys() != b.keys():
            return inf, "maps with different keys"
        return difference([a[key] for key in a], [b[key] for key in a])
    if a is None or b is None:
        return (0.0, "") if a is b else (inf, "one is absent")
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        return inf, f"shape {list(b.shape)} instead of {list(a.shape)}"
    if a.dtype != b.dtype:
        return inf, f"type {b.dtype} instead of {a.dtype}"
    if a.dtype not in TOLERANCES:
        differing = int(np.count_nonzero(a != b))
        return (inf, f"{differing} of {a.size} elements differ") if differing else (0.0, "")
    return _float_difference(a, b)


def _hidden(a: Any, b: Any) -> int:
    """Count elements of the usual size that are far off relative to themselves, whatever the largest one is."""
    if not isinstance(a, np.ndarray) or a.dtype not in TOLERANCES:
        return 0
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.abs(a)
        far = (np.abs(a - b) > FAR * size) & np.isfinite(size) & (size > 0)
    if not far.any():
        return 0
    usual = USUAL * float(np.median(size[np.isfinite(size) & (size > 0)]))
    return int(np.count_nonzero(size[far] > usual))


def _float_difference(a: Any, b: Any) -> tuple[float, str]:
    wide: Any = np.complex128 if np.iscomplexobj(a) else np.float64
    if a.size > 1 << 22 and a.dtype == np.float32:
        wide = np.float32  # big outputs are compared without taking twice their memory
    x, y = a.astype(wide, copy=False), b.astype(wide, copy=False)
    finite = np.isfinite(x)
    if not finite.all() or not np.isfinite(y).all():
        if not np.array_equal(np.isnan(x), np.isnan(y)):
            return inf, "NaN at other positions"
        infinite = ~finite & ~np.isnan(x)
        if not np.array_equal(np.isfinite(y), finite) or not np.array_equal(x[infinite], y[infinite]):
            return inf, "infinities at other positions"
        x, y = x[finite], y[finite]
    if x.size == 0:
        return 0.0, ""
    largest = float(np.abs(x).max())
    error = float(np.abs(x - y).max())
    return (error / largest if largest > 0 else error), ""


#: runs a model on one set of inputs, with the runtime's own optimizations of graphs or (True) without; raises WorkerFailed
Run = Callable[[Feeds, bool], Reference]


PLACES = 4  #: units in the last place by which an input is moved


def steady(
    run: Run, feeds: Feeds, reference: Reference, computed: Mapping[str, Any], tolerance: float | None = None,
    meant: Callable[[Feeds], Reference | None] = lambda _: None,
) -> bool:  # fmt: skip
    """Return whether the original reproduces `reference` in other sessions and on nearby inputs, as its equations say.

    Args:
        run: runs the original.
        computed: see `compare`.
        meant: results by the original's equations; None where there are none.
    """
    for one, plain in ((feeds, True), (nudged(feeds), False)):
        try:
            ran = run(one, plain)
        except WorkerFailed:
            continue
        if not compare(reference, ran, tolerance, computed).same:
            return False
    said = meant(feeds)
    return said is None or compare(said, reference, tolerance, computed).same


def nudged(feeds: Feeds) -> dict[str, Any]:
    """The same inputs, floating-point numbers moved by a few units in their last place (0 by those of 1)."""
    generator = np.random.default_rng(0)

    def one(array: Any) -> Any:
        if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
            return array
        step = float(np.finfo(array.dtype).eps) * PLACES
        noise = generator.standard_normal(array.shape)
        with np.errstate(all="ignore"):
            return np.asarray(array * (1 + step * noise) + step * (array == 0) * noise).astype(array.dtype)

    return {name: one(array) for name, array in feeds.items()}


def meaning(rules: Rules, graph: Graph, names: tuple[str, ...]) -> Callable[[Feeds], Reference | None]:
    """Interpret a graph by its operators' equations; None where some have none, or sizes are open."""

    def of(feeds: Feeds) -> Reference | None:
        try:
            given = {value: feeds[value.node.name] for value in graph.inputs if isinstance(value.node, Input)}
            arrays = interpret(rules, graph.outputs, given, Floats())
        except (InterpretError, Redraw, KeyError, ValueError):
            return None
        return Reference(names, (tuple(arrays),))

    return of

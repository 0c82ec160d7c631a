"""Steadiness of inputs: whether one can tell a rewritten model from a wrong one.

It cannot where the runtime gives other outputs for the original without its own optimizations, where the last digits of the input
decide (a difference of equal numbers, divided by itself), and where the runtime does not compute what the operators say: integers
beyond 2^53 go through floating-point numbers in some of its kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dslc.cost.compare import Feeds, Reference, compare
from dslc.cost.process import WorkerFailed
from dslc.interpret import Floats, InterpretError, Redraw
from dslc.interpret import run as interpret
from dslc.ir.graph import Graph, Input
from dslc.semantics.library import Rules

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


def nudged(feeds: Feeds, seed: int = 0) -> dict[str, Any]:
    """The same inputs, floating-point numbers moved by a few units in their last place (0 by those of 1)."""
    generator = np.random.default_rng(seed)

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

"""Sizes of a graph's symbolic dimensions at the inputs that it is timed on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx import ModelProto

from dslc.cost.process import ModelFile, Worker, WorkerFailed
from dslc.deadline import FOREVER, Deadline
from dslc.ir.graph import Graph, Input, Value
from dslc.ir.scalar import Sym
from dslc.onnx.context import Context
from dslc.onnx.microbenchmarks import with_outputs
from dslc.onnx.protos import ELEM_TYPES


def sizes_of(
    graph: Graph,
    context: Context,
    model: ModelProto,
    folder: str | None,
    feeds: Mapping[str, Any],
    threads: int,
    until: Deadline = FOREVER,
) -> dict[str, int]:
    """Every symbol that stands for a size: from the inputs, or from a run of the original that shows intermediate values.

    What that run did not show `until` then is left out.
    """
    sizes: dict[str, int] = {}
    hidden: dict[str, tuple[Value, int]] = {}
    for node in graph.nodes():
        for value in node.values:
            if not value.known:
                continue
            for axis, size in enumerate(value.type.shape):
                if not isinstance(size, Sym):
                    continue
                if isinstance(node, Input):
                    if hasattr(feeds.get(node.name), "shape"):
                        sizes[size.name] = int(feeds[node.name].shape[axis])
                elif value in context.names:
                    hidden.setdefault(size.name, (value, axis))
    hidden = {name: place for name, place in hidden.items() if name not in sizes}
    if hidden:
        sizes.update(_seen(hidden, context, model, folder, feeds, threads, until))
    return sizes


def _seen(
    hidden: Mapping[str, tuple[Value, int]],
    context: Context,
    model: ModelProto,
    folder: str | None,
    feeds: Mapping[str, Any],
    threads: int,
    until: Deadline,
) -> dict[str, int]:
    names = {context.names[value]: ELEM_TYPES[value.type.dtype] for value, _ in hidden.values()}
    data = with_outputs(model, names)
    if data is None:
        return {}
    with Worker(threads, until) as worker:
        try:
            outputs = worker.load(ModelFile(data, folder))
            arrays = worker.ask({"do": "run", "feeds": dict(feeds)})["arrays"]
        except WorkerFailed:
            return {}
    shapes = {name: array.shape for name, array in zip(outputs, arrays, strict=True) if hasattr(array, "shape")}
    return {
        name: int(shapes[context.names[value]][axis])
        for name, (value, axis) in hidden.items()
        if len(shapes.get(context.names[value], ())) > axis
    }

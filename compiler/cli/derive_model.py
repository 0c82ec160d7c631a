"""Derived programs as ONNX models, whose generated operators are kernels, and what they take on this machine."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnx import ModelProto

    from dslc.ir.graph import Graph
    from dslc.semantics.library import Rules


OPSET = 21  #: of the models
RUNS = 15  #: timed runs of a program, after one that is not
SECONDS = 1.0  #: seconds after which no further run is begun


def model_of(rules: Rules, program: Graph, names: Sequence[str]) -> ModelProto:
    """A program as a model: every connected group of its scopes is a kernel, a function that each runtime runs too.

    Args:
        names: of the inputs; the result is `Y`, or `Y_` where an input has that name.

    Raises:
        DslcError: E0814 for what has no ONNX form.
    """
    from dslc.fuse.groups import Neighbours
    from dslc.fuse.kernels import Cyclic, folded
    from dslc.ir.graph import ScopeNode
    from dslc.onnx.exporter import node_model
    from dslc.search.candidates.export import as_kernels

    around = Neighbours(program)
    scopes = [node for node in around.nodes if isinstance(node, ScopeNode) and not node.constant]
    try:
        whole = folded(program, [around.group(part) for part in around.connected(scopes)])
    except Cyclic:
        # a group that needs what needs the group: each scope by itself
        whole = folded(program, [around.group([node]) for node in scopes])
    outputs = as_kernels(rules, whole.outputs, OPSET)
    model, own = node_model(outputs, rules, OPSET, inputs=program.inputs, scopes=True)
    result = "Y_" if "Y" in names else "Y"
    renamed = {**dict(zip(own, names, strict=True)), model.graph.output[0].name: result}
    for node in model.graph.node:
        for field in (node.input, node.output):
            field[:] = [renamed.get(name, f"v_{name}" if name in renamed.values() else name) for name in field]
    for value in (*model.graph.input, *model.graph.output):
        value.name = renamed[value.name]
    for tensor in model.graph.initializer:
        tensor.name = f"v_{tensor.name}" if tensor.name in renamed.values() else tensor.name
    return model


def milliseconds(model: ModelProto, program: Graph) -> float:
    """The median time of a model's runs on this machine, its kernels built, in milliseconds.

    Raises:
        DslcError: E0811 where ONNX Runtime does not load it.
    """
    import numpy as np

    from dslc.interpret.draws import elements
    from dslc.sessions import session

    drawn = np.random.default_rng(0)
    names = [value.name for value in model.graph.input]
    feeds = {
        name: elements(value.type, "positions", drawn, most=1)
        for name, value in zip(names, program.inputs, strict=True)
    }
    running = session(model)
    running.run(None, feeds)
    found: list[float] = []
    until = time.perf_counter() + SECONDS
    while len(found) < RUNS and (not found or time.perf_counter() < until):
        began = time.perf_counter()
        running.run(None, feeds)
        found.append(time.perf_counter() - began)
    return 1e3 * median(found)

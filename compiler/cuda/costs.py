"""Plans of graphs and of models, at sizes that are given."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dslc.cuda.devices import Device
from dslc.cuda.hosted import Hosted, at_feeds, hosted_of, opaque
from dslc.cuda.planning import Generable, NotPlanned, Places, Planned, WhyUnplanned, nowhere, planned
from dslc.errors import DslcError
from dslc.ir.graph import Graph
from dslc.ir.scalar import Scalar, Sym, num, substitute, walk
from dslc.ir.sizes import with_sizes
from dslc.onnx.context import Imported
from dslc.onnx.functions import inlined
from dslc.onnx.importer import import_model
from dslc.semantics.library import Rules

if TYPE_CHECKING:
    from onnx import ModelProto


def plan_at(
    rules: Rules, graph: Graph, device: Device, sizes: Mapping[str, int], generable: Generable, names: tuple[str, ...] = (),
    outputs: tuple[str, ...] = (), hosted: Hosted | None = None, written: Places = nowhere,
) -> Planned:  # fmt: skip
    """A plan for a graph at some sizes.

    Raises:
        NotPlanned: with the reason.
    """
    return planned(
        rules,
        at_sizes(graph, sizes),
        device,
        names=names,
        outputs=outputs,
        generable=generable,
        hosted=hosted,
        written=written,
    )


def plan_model(
    rules: Rules, source: str | os.PathLike[str] | ModelProto, imported: Imported, device: Device, sizes: Mapping[str, int],
    feeds: Mapping[str, Any], generable: Generable, written: Places = nowhere,
) -> Planned:  # fmt: skip
    """A plan for a whole model at the sizes of some inputs; what only ONNX Runtime can run, it runs on the CPU.

    Raises:
        NotPlanned: with the reason.
    """
    found = at_feeds(source, rules, _open(rules, imported), feeds)
    graph = found.graph
    names = tuple(str(getattr(value.node, "name", "")) for value in graph.inputs)
    outputs = tuple(one.name for one in imported.context.model.graph.output)
    for name, value in zip((*names, *outputs), (*graph.inputs, *graph.outputs), strict=True):
        if not value.known:
            raise NotPlanned(WhyUnplanned.TYPE, name)
    return plan_at(rules, graph, device, sizes, generable, names, outputs, hosted_of(rules, found), written)


def _open(rules: Rules, imported: Imported) -> Imported:
    """A model with the nodes of its functions in their place, where the language has no words for a function as a whole."""
    model = imported.context.model
    if not model.functions or not opaque(imported.graph):
        return imported
    try:
        return import_model(inlined(model), rules)
    except DslcError:  # it cannot be read without its folder
        return imported


def at_sizes(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """A graph with unknown sizes as numbers, as far as these are given by name."""

    def put(root: Scalar) -> Scalar:
        given: dict[Scalar, Scalar] = {
            one: num(sizes[one.name]) for one in walk(root) if isinstance(one, Sym) and one.name in sizes
        }
        return substitute(root, given) if given else root

    found = with_sizes((*graph.inputs, *graph.outputs), put)
    count = len(graph.inputs)
    return Graph(found[:count], found[count:])

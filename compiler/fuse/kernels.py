"""Groups as kernels: a node for a group of nodes, the same for equal groups wherever they are, and graphs with such nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter

from dslc.cost.samples import shown_attribute
from dslc.fuse.groups import NodeGroup, inside
from dslc.ir.constants import number_of
from dslc.ir.graph import (
    Call,
    Graph,
    Kernel,
    Node,
    ScopeNode,
    Value,
    Values,
    input_value,
    kernel_value,
    rebuild,
    unfolded,
    with_args,
)
from dslc.records import record


class Cyclic(Exception):
    """Two groups that need each other's results cannot both be one node."""


@record
class Fold:
    """A fact: `old` are values of a graph, `new` the same as the results of one kernel node."""

    old: Values
    new: Values

    @property
    def kernel(self) -> Kernel:
        node = self.new[0].node
        assert isinstance(node, Kernel)
        return node

    @property
    def proved(self) -> bool:
        """Return whether the kernel means the old program, node by node."""
        return unfolded(self.kernel) == self.old


def fold_of(group: NodeGroup) -> Fold:
    """A group as one kernel node.

    Holes and results are in an order that depends on what the group computes only, so that equal groups are one kernel.
    """
    own = set(group.nodes)
    keys = _keys(group, own)
    outputs = tuple(sorted(group.outputs, key=lambda value: (keys[value.node], value.index)))
    holes: dict[Value, Value] = {}
    inner: dict[Value, Value] = {}
    for node in _in_order(outputs, own):
        for arg in node.args:
            if arg in inner:
                continue
            if inside(arg):
                inner[arg] = arg
            else:
                inner[arg] = holes[arg] = input_value(f"h{len(holes)}", arg.type)
        inner.update(zip(node.values, with_args(node, tuple(inner[arg] for arg in node.args)), strict=True))
    program = Graph(tuple(holes.values()), tuple(inner[value] for value in outputs))
    return Fold(outputs, kernel_value(program, tuple(holes)))


def _in_order(outputs: Sequence[Value], own: set[Node]) -> list[Node]:
    """The nodes of a group below its results, arguments first, whatever is around it."""
    out: list[Node] = []
    seen: set[Node] = set()
    for output in outputs:
        stack: list[tuple[Node, int]] = [(output.node, 0)]
        while stack:
            node, at = stack.pop()
            if at == 0 and node in seen:
                continue
            seen.add(node)
            below = [arg.node for arg in node.args if arg.node in own]
            if at < len(below):
                stack.append((node, at + 1))
                if below[at] not in seen:
                    stack.append((below[at], 0))
            else:
                out.append(node)
    return out


def _keys(group: NodeGroup, own: set[Node]) -> dict[Node, str]:
    """Hash the computation of each node of a group, the same in every graph and every process."""
    keys: dict[Node, str] = {}
    for node in group.nodes:
        parts = [_word(node), *(str(type) for type in node.types)]
        for arg in node.args:
            if arg.node in own:
                parts.append(f"{keys[arg.node]}.{arg.index}")
            else:
                parts.append(f"{arg.type} {_constant(arg) if inside(arg) else ''}")
        keys[node] = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return keys


def _constant(value: Value) -> str:
    number = number_of(value)
    return _word(value.node) if number is None else str(number)


def _word(node: Node) -> str:
    if isinstance(node, Call):
        return f"{node.op}({', '.join(f'{name}={shown_attribute(value)}' for name, value in node.attrs)})"
    return str(node.scope) if isinstance(node, ScopeNode) else type(node).__name__


def folded(graph: Graph, groups: Sequence[NodeGroup]) -> Graph:
    """The graph with each group as one kernel node; groups share no node.

    Raises:
        Cyclic: groups depend on each other.
    """
    folds = {node: fold for group in groups for fold in [fold_of(group)] for node in group.nodes}
    below: dict[Node | Fold, list[Node | Fold]] = {}
    waiting: list[Node | Fold] = [folds.get(value.node, value.node) for value in graph.outputs]
    while waiting:
        at = waiting.pop()
        if at not in below:
            below[at] = [folds.get(arg.node, arg.node) for arg in _folded_at(at)[1].args]
            waiting += below[at]
    new: dict[Value, Value] = {}
    try:
        for at in TopologicalSorter(below).static_order():
            old, node = _folded_at(at)
            new.update(zip(old, with_args(node, tuple(new[arg] for arg in node.args)), strict=True))
    except CycleError:
        raise Cyclic from None
    return Graph(graph.inputs, tuple(new[value] for value in graph.outputs))


def _folded_at(at: Node | Fold) -> tuple[Values, Node]:
    """Values of a graph, and the node that computes them."""
    return (at.old, at.kernel) if isinstance(at, Fold) else (at.values, at)


def unfold(graph: Graph) -> Graph:
    """The graph without kernel nodes: what they mean in their place."""

    def step(node: Node, args: Values) -> Values:
        return unfolded(node, args) if isinstance(node, Kernel) else with_args(node, args)

    return Graph(graph.inputs, rebuild(graph.outputs, step))


def without_circles(
    graph: Graph, groups: Sequence[NodeGroup], kept: Sequence[NodeGroup] = ()
) -> tuple[Graph, list[NodeGroup]]:
    """The graph with kept groups, and further ones in their order but for those that would make a circle; and which these are."""
    own = [*kept, *groups]
    try:
        return folded(graph, own), own
    except Cyclic:
        own = list(kept)
    for group in groups:
        with suppress(Cyclic):
            folded(graph, [*own, group])
            own.append(group)
    return folded(graph, own), own


def kernels(graph: Graph) -> Mapping[Graph, list[Kernel]]:
    """The programs of a graph's kernels, with the nodes that apply them."""
    out: dict[Graph, list[Kernel]] = {}
    for node in graph.nodes():
        if isinstance(node, Kernel):
            out.setdefault(node.group, []).append(node)
    return out

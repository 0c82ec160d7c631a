"""How large a graph is, as far as that can be said without running it: what a rule that is always applied must lower."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from math import prod
from typing import Any

from dslc.analysis.counts import known_flops
from dslc.errors import DslcError
from dslc.ir.dtype import TensorType
from dslc.ir.graph import Call, Graph, Node, Value, with_args
from dslc.ir.holes import hole
from dslc.ir.scalar import Scalar, Sym, walk
from dslc.onnx.exporter import ComputedSizes
from dslc.prove.sizes import at_sizes
from dslc.semantics.elaborate import expand
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules

UNKNOWN = 12  #: what stands for an unknown size where operations and bytes are counted


class GraphSizes:
    """Operations, bytes and axes of nodes; of nodes that do the same counted once."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._known: dict[Any, tuple[float, int, int]] = {}

    def of(self, node: Node) -> tuple[float, int, int]:
        types = tuple([arg.type if arg.known else None for arg in node.args])
        key = (node.head if isinstance(node, Call) else node, types)
        if key not in self._known:
            self._known[key] = self._counted(node)
        return self._known[key]

    def _counted(self, node: Node) -> tuple[float, int, int]:
        known = [value for value in (*node.args, *node.values) if value.known]
        names = dict.fromkeys(_unknown(known), UNKNOWN)
        bytes = sum(_bytes(value.type, names) for value in known)
        axes = sum(value.type.rank for value in known)
        return self._operations(node, names) if isinstance(node, Call) else 0.0, bytes, axes

    def _operations(self, node: Call, names: Mapping[str, int]) -> float:
        if not all(arg.known for arg in node.args):
            return 0.0
        alone = with_args(node, tuple([hole(k, arg.type) for k, arg in enumerate(node.args)]))
        try:
            return known_flops(at_sizes(expand(self._rules, tuple(alone)), names)) or 0.0
        except (Mismatch, EvalError, DslcError):
            return 0.0


def _unknown(values: list[Value]) -> Iterator[str]:
    for value in values:
        for size in value.type.shape:
            if isinstance(size, Scalar):
                yield from (part.name for part in walk(size) if isinstance(part, Sym))


def _bytes(type: TensorType, names: Mapping[str, int]) -> int:
    return prod(size if isinstance(size, int) else UNKNOWN for size in type.shape) * type.dtype.bytes


class Users:
    """Who reads what in a graph: which nodes a replacement leaves without a reader."""

    def __init__(self, graph: Graph, sizes: GraphSizes, computed: ComputedSizes) -> None:
        self._sizes, self._computed = sizes, computed
        self.nodes = graph.nodes()
        self._inside = frozenset(self.nodes)
        self._outputs = graph.outputs

    @cached_property
    def _uses(self) -> Counter[Value]:
        uses = Counter(self._outputs)
        for node in self.nodes:
            uses.update(set(node.args))
        return uses

    def lowers(self, new: Mapping[Value, Value]) -> bool:
        """Whether replacements make the graph smaller: fewer nodes, or as many and fewer operations, or bytes, or axes."""
        gone, made = self._difference(new)
        fewer = len(gone) - len(made) + self._fewer_computed(gone, made)
        if fewer:
            return fewer > 0
        before, after = map(self._sum, (gone, made))
        return after < before

    @cached_property
    def _written(self) -> Counter[Node]:
        """Nodes that compute sizes, each with the number of nodes that need it."""
        return Counter(one for node in self.nodes for one in self._computed.of(node))

    def _fewer_computed(self, gone: set[Node], made: set[Node]) -> int:
        """Count the size nodes that a rewrite saves."""
        less, more = (Counter(one for node in nodes for one in self._computed.of(node)) for nodes in (gone, made))
        if not less and not more:
            return 0
        after = self._written - less + more
        return len(self._written.keys() - self._inside) - len(after.keys() - self._inside)

    def _sum(self, nodes: set[Node]) -> tuple[float, ...]:
        return tuple(map(sum, zip(*map(self._sizes.of, nodes), strict=True)))

    def _difference(self, new: Mapping[Value, Value]) -> tuple[set[Node], set[Node]]:
        """The nodes that are gone and those that are new, without what weights alone need."""
        made: set[Node] = set()
        left: dict[Value, int] = dict.fromkeys(new, 0)

        def read(value: Value, times: int) -> None:
            left[value] = left.get(value, self._uses[value]) + times

        stack = [(target, self._uses[old]) for old, target in new.items()]
        while stack:
            value, times = stack.pop()
            node = value.node
            if node in self._inside:
                read(value, times)
            elif not node.constant and node not in made:
                made.add(node)
                stack.extend((arg, 1) for arg in set(node.args))
        gone: set[Node] = set()
        ended = [old.node for old in new]
        while ended:
            node = ended.pop()
            if node in gone or node.constant or not node.args:
                continue
            if any(left.get(value, self._uses[value]) for value in node.values):
                continue
            gone.add(node)
            for arg in set(node.args):
                read(arg, -1)
                ended.append(arg.node)
        return gone, made

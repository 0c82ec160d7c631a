"""Programs over holes: a region of a graph by itself, whatever it is applied to.

A hole is a value without a producer: a number, a type, and whether it stands for a weight. It is an `Input` of a name that its
number gives, so a program over holes is an ordinary graph. Equal regions, up to their weights and to where their operands come from,
are one `Graph` object: what was found for one of them holds for all.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence

from dslc.ir.constants import number_of
from dslc.ir.dtype import TensorType
from dslc.ir.graph import Call, Graph, Input, Node, Value, Values, input_value, rebuild, replace, with_args

# programs are terms, so equal ones are one object, as nodes are
_PROGRAMS: weakref.WeakValueDictionary[tuple[Values, Values], Graph] = weakref.WeakValueDictionary()


def hole(number: int, type: TensorType | None, constant: bool = False) -> Value:
    """The hole of a number; `constant` where it stands for a weight, or for what depends on weights only."""
    return input_value(f"h{number}", type, constant)


def is_hole(value: Value, number: int | None = None) -> bool:
    """Return whether a value is a hole, or the one of a number."""
    node = value.node
    if not isinstance(node, Input) or node.name[:1] != "h" or not node.name[1:].isdecimal():
        return False
    return node.name == f"h{int(node.name[1:]) if number is None else number}"


def program(inputs: Iterable[Value], outputs: Iterable[Value]) -> Graph:
    """The program of some holes, one object for equal ones.

    Raises:
        ValueError: the inputs are not the holes 0, 1, ..., or something without a producer is none of them.
    """
    key = (tuple(inputs), tuple(outputs))
    found = _PROGRAMS.get(key)
    if not found:
        for number, value in enumerate(key[0]):
            if not is_hole(value, number):
                raise ValueError(f"input {number} of a program is not the hole of that number")
        found = Graph(*key)
        own = {value.node for value in key[0]}
        for node in found.nodes():
            if isinstance(node, Input) and node not in own:
                raise ValueError(f"`{node.name}` is no hole of the program")
        _PROGRAMS[key] = found
    return found


def abstracted(outputs: Iterable[Value], leaves: Iterable[Value]) -> tuple[Graph, Values]:
    """A region as a program over holes, and what they stand for: those of the leaves that it reads, in the order of reading.

    `relu(add(conv(X, W), B))` with leaves `B, W, X` → `relu(add(conv(h0, h1), h2))` and `X, W, B`. What is not below the leaves
    stays as it is, constants included.

    Raises:
        ValueError: an input that is none of the leaves is reached.
    """
    roots = tuple(outputs)
    ends = dict.fromkeys(leaves, 0)
    order = _read(roots, ends)
    holes = {leaf: hole(k, leaf.type_or_none, leaf.constant) for k, leaf in enumerate(order)}
    return program(holes.values(), rebuild(roots, _inside, holes)), order


def _inside(node: Node, args: Values) -> Values:
    if isinstance(node, Input):
        raise ValueError(f"`{node.name}` is reached, and is no leaf of the region")
    return with_args(node, args)


def _read(roots: Sequence[Value], ends: Mapping[Value, object]) -> Values:
    """The leaves in the order in which the region reads them, first argument first."""
    found: dict[Value, None] = {}
    seen: set[Value] = set()
    stack = list(reversed(roots))
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        if value in ends:
            found[value] = None
        else:
            stack.extend(reversed(value.node.args))
    return tuple(found)


def stays(value: Value) -> bool:
    """Return whether a value from outside is a part of every program that reads it: a number, or computed positions."""
    return number_of(value) is not None or (isinstance(value.node, Call) and not value.node.args)


def leaves_of(nodes: Iterable[Node], inside: Callable[[Value], bool] = stays) -> Values:
    """Values that nodes of a graph read from outside of them; constants of one number everywhere stay inside.

    `inside`: what stays inside instead.
    """
    own = dict.fromkeys(nodes)
    return tuple(dict.fromkeys(arg for node in own for arg in node.args if arg.node not in own and not inside(arg)))


def instantiated(graph: Graph, values: Sequence[Value]) -> Values:
    """The outputs of a program over what its holes stand for.

    Raises:
        ValueError: other values than holes, or values of other types.
    """
    if [value.type_or_none for value in values] != [each.type_or_none for each in graph.inputs]:
        raise ValueError("values of other types than the holes of the program")
    return replace(graph.outputs, dict(zip(graph.inputs, values, strict=True)))

"""In which operands an expression, an operator or a graph is linear: decided by what is read where.

A set S of inputs is a *linear class* when the outputs are homogeneous linear in all of S at once, everything else held fixed: a
product of two tensors has the classes {A} and {B}, a sum the class {A, B}.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from itertools import combinations

from dslc.ir.constants import number_of
from dslc.ir.graph import Constant, Input, Node, ScopeNode, Value, Values, nodes_of, rebuild
from dslc.ir.scalar import Apply, Num, Read, Reduce, Scalar

MOST_INPUTS = 10  #: inputs of which every set is tried

_INTEGERS = frozenset(
    f"convert:{name}" for name in ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]
)


class Degree(IntEnum):
    """The dependence of a value on the inputs in question. Zero is linear and constant at once."""

    ZERO = 0
    CONSTANT = 1
    LINEAR = 2
    OTHER = 3


def scalar_degree(root: Scalar, operands: Mapping[int, Degree], integers: bool = False) -> Degree:
    """The degree of a scope's body, given those of its operands.

    `integers`: what varies is of integers, whose sums wrap around and whose quotients are cut: neither goes through `/` or `convert`.
    """
    memo: dict[Scalar, Degree] = {}

    def go(node: Scalar) -> Degree:
        if node not in memo:
            memo[node] = step(node)
        return memo[node]

    def fixed(*nodes: Scalar) -> bool:
        return all(go(node) <= Degree.CONSTANT for node in nodes)

    def step(node: Scalar) -> Degree:
        match node:
            case Num():
                return Degree.ZERO if not isinstance(node.value, bool) and node.value == 0 else Degree.CONSTANT
            case Read():
                read = operands[node.operand] if fixed(*node.index) else Degree.OTHER
                return read if not node.other or read is Degree.OTHER else _sum([read, go(node.other)])
            case Reduce():
                body = go(node.body) if fixed(*node.extents) and (not node.where or fixed(node.where)) else Degree.OTHER
                return body if node.kind == "sum" or body <= Degree.CONSTANT else Degree.OTHER
            case Apply():
                return _apply(node, list(map(go, node.args)), integers)
        return Degree.CONSTANT if fixed(*node.children) else Degree.OTHER

    return go(root)


def _sum(parts: list[Degree]) -> Degree:
    kinds = {part for part in parts if part is not Degree.ZERO}
    return Degree.ZERO if not kinds else kinds.pop() if len(kinds) == 1 else Degree.OTHER


def _apply(node: Apply, parts: list[Degree], integers: bool) -> Degree:
    if node.name == "+":
        return _sum(parts)
    if node.name == "*":
        if Degree.ZERO in parts:
            return Degree.ZERO
        varying = [part for part in parts if part > Degree.CONSTANT]
        return Degree.CONSTANT if not varying else varying[0] if len(varying) == 1 else Degree.OTHER
    exact = not integers or parts[0] is not Degree.LINEAR
    if node.name == "/" and parts[1] <= Degree.CONSTANT and exact:
        return parts[0]
    if node.name == "select" and parts[0] <= Degree.CONSTANT:
        return _sum(parts[1:])
    if node.name.startswith("convert:") and node.name not in _INTEGERS and exact:
        return parts[0]
    return Degree.CONSTANT if all(part <= Degree.CONSTANT for part in parts) else Degree.OTHER


def degrees(outputs: Values, linear: frozenset[Value]) -> tuple[Degree, ...]:
    """The degree of each output in the inputs `linear`. The graph is expanded: no calls (`dslc.semantics.elaborate.expand`)."""
    return rebuild(outputs, _node_degrees, dict.fromkeys(linear, Degree.LINEAR))


def _node_degrees(node: Node, args: tuple[Degree, ...]) -> list[Degree]:
    if isinstance(node, Input):
        return [Degree.CONSTANT]
    if isinstance(node, Constant):
        return [Degree.ZERO if number_of(Value(node)) == 0 else Degree.CONSTANT]
    if isinstance(node, ScopeNode):
        varying = [arg.type.dtype for arg, degree in zip(node.args, args, strict=True) if degree is Degree.LINEAR]
        return [scalar_degree(node.scope.body, dict(enumerate(args)), any(not dtype.is_float for dtype in varying))]
    return [Degree.CONSTANT if all(arg <= Degree.CONSTANT for arg in args) else Degree.OTHER] * len(node.types)


def linear_classes(inputs: Values, outputs: Values) -> tuple[frozenset[Value], ...]:
    """All maximal linear classes of an expanded graph, small ones first. Every output must be linear (or zero) in the class."""
    reached = set(nodes_of(outputs))
    used = [value for value in inputs if value.node in reached]
    sizes = range(len(used), 0, -1) if len(used) <= MOST_INPUTS else (len(used), 1)
    found: list[frozenset[Value]] = []
    for size in sizes:
        for group in combinations(used, size):
            chosen = frozenset(group)
            if any(chosen < larger for larger in found):
                continue
            each = degrees(outputs, chosen)
            if all(d in {Degree.LINEAR, Degree.ZERO} for d in each) and Degree.LINEAR in each:
                found.append(chosen)
    return tuple(sorted(found, key=lambda group: (len(group), [inputs.index(v) for v in inputs if v in group])))


def is_linear(inputs: Values, outputs: Values) -> bool:
    """Return whether the outputs are linear in each input, by itself or jointly with others of them.

    A product is linear in each of its factors, a sum in its terms together. What else is read is held fixed. This is the meaning of
    `linear(f)` for a term.
    """
    classes = linear_classes(inputs, outputs)
    return all(any(value in group for group in classes) for value in inputs) and bool(inputs)

"""Values as flat rows, for messages between processes: nodes are one object each, so they are made anew where they arrive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dslc.ir.graph import (
    Call,
    Constant,
    Input,
    ScopeNode,
    Value,
    Values,
    constant_value,
    input_value,
    nodes_of,
    scope_value,
)
from dslc.ir.graph import call as call_of
from dslc.records import record


@record
class PackedValues:
    """Nodes, arguments first, each by what it is made of and the places of its arguments; and the places of the values."""

    rows: tuple[tuple[Any, ...], ...]
    values: tuple[tuple[int, int], ...]


def packed(values: Sequence[Value]) -> PackedValues:
    """Values of operators and scopes over inputs and small constants. Raises TypeError for other nodes."""
    nodes = nodes_of(values)
    at = {node: k for k, node in enumerate(nodes)}
    rows: list[tuple[Any, ...]] = []
    for node in nodes:
        args = tuple((at[arg.node], arg.index) for arg in node.args)
        if isinstance(node, Input):
            rows.append((input_value, node.name, node.types[0], node.constant))
        elif isinstance(node, Constant):
            rows.append((constant_value, node.data, node.types[0]))
        elif isinstance(node, Call):
            rows.append((call_of, args, node.op, node.attrs, node.types))
        elif isinstance(node, ScopeNode):
            rows.append((scope_value, args, node.scope))
        else:
            raise TypeError(f"{type(node).__name__} is not packed")
    return PackedValues(tuple(rows), tuple((at[value.node], value.index) for value in values))


def unpacked(found: PackedValues) -> Values:
    """The values again: the same objects where the same terms are there."""
    made: list[Values] = []
    for make, *what in found.rows:
        if make in (input_value, constant_value):
            made.append((make(*what),))
            continue
        args = tuple([made[node][index] for node, index in what[0]])
        made.append(call_of(what[1], args, *what[2:]) if make is call_of else (scope_value(what[1], args),))
    return tuple([made[node][index] for node, index in found.values])

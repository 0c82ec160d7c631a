"""Nodes and values in words, for explanations."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from dslc.ir.graph import Call, Constant, Input, Node, Opaque, ScopeNode, Value
from dslc.semantics.env import AttrSet, OperatorRef


def describe(node: Node) -> str:
    """A node in a few words."""
    if isinstance(node, Input):
        return f"the input `{node.name}`"
    if isinstance(node, Constant):
        return f"a weight {node.types[0]}"
    if isinstance(node, Call):
        return f"`{node.op}`"
    if isinstance(node, ScopeNode):
        return "an expression"
    return f"the opaque node `{node.label}`" if isinstance(node, Opaque) else "a node"


def show(value: Any) -> str:
    """A value as it would be written in a rule."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(show(part) for part in value) + "]"
    if isinstance(value, Fraction):
        return str(value.numerator) if value.denominator == 1 else str(float(value))
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, Value):
        return str(value.type) if value.known else "a tensor"
    if isinstance(value, AttrSet):
        return "{" + ", ".join(f"{name} = {show(v)}" for name, v in value.values.items()) + "}"
    if isinstance(value, OperatorRef):
        return value.name
    return str(value)


def show_call(node: Call) -> str:
    """`std.conv(f32[1, 3, 8, 8], f32[4, 3, 3, 3], stride=[1, 1]) -> f32[1, 4, 6, 6]`."""
    inside = [show(arg) for arg in node.args] + [f"{name}={show(value)}" for name, value in node.attrs]
    return f"{node.op}({', '.join(inside)}) -> {', '.join(str(t) for t in node.types)}"

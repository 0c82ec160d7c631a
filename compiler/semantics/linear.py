"""Linearity of an operator where it is used: the meaning of `linear(f)`."""

from __future__ import annotations

from dslc.analysis.linearity import is_linear
from dslc.errors import DslcError
from dslc.ir.graph import Call, Constant, input_value
from dslc.semantics.elaborate import expand_node
from dslc.semantics.env import Mismatch, Unbound
from dslc.semantics.library import Rules


def linear_at(rules: Rules, node: Call, count: int) -> bool:
    """Return whether an operator is linear in its first `count` tensors (`is_linear`), with the attributes and numbers of this use.

    Its other tensors are held fixed. False where its types do not fit.
    """
    args = tuple(
        arg if k >= count and isinstance(arg.node, Constant) else input_value(f"p{k}", arg.type)
        for k, arg in enumerate(node.args)
    )
    try:
        outputs = expand_node(rules, node, args)
    except (Mismatch, Unbound, DslcError):
        return False
    return len(outputs) == 1 and is_linear(args[:count], outputs)

"""Subprograms: the part below a sum that belongs to its expression (EinNet, Algorithm 1)."""

from __future__ import annotations

from math import prod

from dslc.fuse.groups import Neighbours
from dslc.ir.graph import Call, Node
from dslc.search.finders.expressions import is_moved, is_static, reductions
from dslc.semantics.library import Rules


def pointwise_below(rules: Rules, node: Call, around: Neighbours) -> tuple[Call, ...]:
    """What is computed element by element below a node, and for it alone."""
    own: dict[Call, None] = {node: None}
    stack: list[Node] = [node]
    while stack:
        for arg in stack.pop().args:
            below = arg.node
            alone = arg not in around.final and all(user in own for user in around.used.get(arg, ()))
            if not alone or not isinstance(below, Call) or below.constant or len(below.types) != 1:
                continue
            if reductions(rules, below) == 0:
                own[below] = None
                stack.append(below)
    return tuple(own)[1:]


def selecting(rules: Rules, node: Call, below: tuple[Call, ...]) -> tuple[Call, ...]:
    """Of what is computed below a node what moves elements, down to the last that repeats some, leaves some out, or pads: windows
    are in there. What is below these, changes of layout and sums with a bias, is another operator's, and only hides them."""
    moved: dict[Call, None] = {node: None}
    for one in below:
        if any(one.values[0] in user.args for user in moved) and is_moved(rules, one):
            moved[one] = None
    kept: set[Call] = set()
    for one in reversed(tuple(moved)[1:]):
        inner = [arg.node for arg in one.args]
        if any(each in kept for each in inner) or not _is_permuted(one):
            kept.add(one)
    return tuple(one for one in moved if one in kept)


def _is_permuted(node: Call) -> bool:
    """Whether a node that moves elements has as many as it is given, or nobody knows."""
    values = (*node.values, *(arg for arg in node.args if not arg.node.constant))
    return (
        not is_static(node)
        or len({prod(size for size in one.type.shape if isinstance(size, int)) for one in values}) == 1
    )

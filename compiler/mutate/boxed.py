"""A region as one expression, and boxes of what an expression computes."""

from __future__ import annotations

from dslc.ir.graph import Scope, ScopeNode, Value, scope_value
from dslc.ir.scalar import apply, num, read, traversal
from dslc.ir.scopes import inline
from dslc.prove.strided import Box
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules


def whole(rules: Rules, old: Value) -> Value:
    """A region as one expression, so that a guard computes what it asks for and nothing else."""
    (value,) = expand(rules, (old,))
    while isinstance(value.node, ScopeNode):
        below = [arg for arg in value.node.args if isinstance(arg.node, ScopeNode)]
        if not below:
            break
        value = inline(value, value.node.args.index(below[0]))
    return value


def part(region: Value, box: Box) -> Value:
    """A box of an expression's result by itself: `{[j] f(start + j * step)}`."""
    places = enumerate(zip(box.start, box.step, strict=True))
    index = tuple(apply("+", num(start), apply("*", traversal(k), num(step))) for k, (start, step) in places)
    made = scope_value(Scope(box.sizes, read(0, index), region.type.dtype), (region,))
    return inline(made, 0) if isinstance(region.node, ScopeNode) else made

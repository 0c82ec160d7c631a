"""One menu item applied to many arguments at once, over the field of 2^31 - 1 elements or over floats.

An operator's equations are scopes; a leading iterator over the batch is put before every scope and every read of something that
depends on an argument, and the result is evaluated as any scope is. Nothing here knows an operator by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from dslc.generate.terms.term import Item
from dslc.interpret.domain import Array, Domain
from dslc.interpret.evaluator import intermediates
from dslc.interpret.run import run_scopes
from dslc.ir.dtype import TensorType
from dslc.ir.graph import (
    Call,
    Constant,
    Node,
    Scope,
    ScopeNode,
    Value,
    Values,
    input_value,
    nodes_of,
    rebuild,
    replace,
    scope_value,
    with_args,
)
from dslc.ir.scalar import Read, Scalar, iterator, read
from dslc.ir.scopes import substitute
from dslc.records import record
from dslc.semantics.apply import apply
from dslc.semantics.elaborate import elaborate
from dslc.semantics.env import fail
from dslc.semantics.library import Rules

DEPTH = 64  #: how deep operators are spelled out in others


@record
class ItemProgram:
    """An item at given argument types: parameters, and its results as scopes and constants only."""

    params: Values
    results: Values

    def run(self, args: Sequence[Array], domain: Domain) -> list[Array]:
        """The results for arguments with a leading batch axis; an item without arguments gives results without one."""
        if not self.params:
            return run_scopes(self.results, {}, domain)
        batch = len(args[0])
        params = [
            input_value(f"batched {param}", TensorType(param.type.dtype, (batch, *param.type.shape)))
            for param in self.params
        ]
        known = {param: (new, True) for param, new in zip(self.params, params, strict=True)}
        wanted = rebuild(self.results, lambda node, pairs: _for_all(node, pairs, batch), known)
        arrays = run_scopes([value for value, _ in wanted], dict(zip(params, args, strict=True)), domain)
        return [
            array if moves else np.broadcast_to(array, (batch, *array.shape))
            for array, (_, moves) in zip(arrays, wanted, strict=True)
        ]


def program(
    rules: Rules, item: Item, types: tuple[TensorType, ...], attrs: Mapping[str, Any], stand_in: bool = True
) -> ItemProgram:
    """The meaning of an application. With `stand_in`, operators that another one stands in for are replaced by it.

    Raises:
        Mismatch, EvalError: as `apply`.
    """
    params = tuple(input_value(f"p{k}", type) for k, type in enumerate(types))
    return ItemProgram(params, _meaning(rules, apply(rules, item.op, params, attrs), stand_in, DEPTH))


def _meaning(rules: Rules, values: Values, stand_in: bool, depth: int) -> Values:
    """Calls replaced by what they mean, or what stands in for them, until none is left."""
    if depth == 0:
        raise fail("E0317", "an operator is expanded without end", None)

    def step(node: Node, args: Values) -> Values:
        if not isinstance(node, Call):
            return with_args(node, args)
        other = rules.traits_of(node.op).named.get("stand_in") if stand_in else None
        if other is not None:
            return _meaning(rules, apply(rules, other, args), stand_in, depth - 1)
        instance = elaborate(rules, node.op, tuple(arg.type for arg in args), node.attrs)
        inner = _meaning(rules, instance.outputs, stand_in, depth - 1)
        return replace(inner, dict(zip(instance.params, args, strict=True)))

    return rebuild(values, step)


def _for_all(node: Node, pairs: Sequence[tuple[Value, bool]], batch: int) -> list[tuple[Value, bool]]:
    """The results of a node for every position of the batch, and whether they differ from one to the other."""
    args, moves = tuple(value for value, _ in pairs), tuple(moves for _, moves in pairs)
    if isinstance(node, ScopeNode) and any(moves):
        return [(scope_value(_batched(node.scope, moves, batch), args), True)]
    return [(value, False) for value in with_args(node, args)]


def _batched(scope: Scope, moves: tuple[bool, ...], batch: int) -> Scope:
    """The scope for every position of the batch; `moves`: which operands have the leading axis."""
    groups = None if scope.groups is None else (1, *scope.groups)
    return Scope((batch, *scope.extents), _lifted(scope.body, len(scope.extents), moves), scope.dtype, groups)


@cache
def _lifted(body: Scalar, count: int, moves: tuple[bool, ...]) -> Scalar:
    def on_read(node: Read, index: tuple[Scalar, ...], other: Scalar | None, depth: int) -> Scalar:
        return read(node.operand, (iterator("i0"), *index) if moves[node.operand] else index, other)

    return substitute(body, {iterator(f"i{k}"): iterator(f"i{k + 1}") for k in range(count)}, 0, on_read)


def heaviest(results: Sequence[Value]) -> int:
    """The largest number of elements that one position of the batch needs: of any scope's result, or on the way to one."""
    most = 1
    for node in nodes_of(results):
        if not isinstance(node, Constant):
            most = max(most, *(value.type.elements for value in node.values))
        if isinstance(node, ScopeNode):
            sizes = {it: int(str(size)) for it, size in node.scope.ranges}
            most = max([most, *(count for _, count in intermediates(node.scope.body, sizes))])
    return most

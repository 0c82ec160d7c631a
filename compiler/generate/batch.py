"""One menu item applied to many arguments at once, over the field of 2^31 - 1 elements or over floats.

An operator's equations are scopes; a leading iterator over the batch is put before every scope and every read of something that
depends on an argument, and the result is evaluated as any scope is. Nothing here knows an operator by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dslc.generate.term import Item
from dslc.interpret.domain import Array, Domain
from dslc.interpret.run import run_scopes
from dslc.ir.dtype import TensorType
from dslc.ir.graph import (
    Call,
    Constant,
    Input,
    Scope,
    ScopeNode,
    Value,
    input_value,
    scope_value,
    topological,
    with_args,
)
from dslc.ir.scalar import Iter, Read, Scalar, iterator, read, rebuild, walk
from dslc.semantics.apply import apply
from dslc.semantics.elaborate import elaborate
from dslc.semantics.env import fail
from dslc.semantics.library import Rules

# operators are spelled out in others no deeper than this
_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Program:
    """An item at given argument types: parameters, and its results as scopes and constants only."""

    params: tuple[Value, ...]
    results: tuple[Value, ...]

    def run(self, args: Sequence[Array], domain: Domain) -> list[Array]:
        """The results for arguments with a leading batch axis; an item without arguments gives results without one."""
        if not self.params:
            return run_scopes(self.results, {}, domain)
        batch = len(args[0])
        params = [_batched_input(param, batch) for param in self.params]
        known: dict[Value, tuple[Value, bool]] = {
            param: (new, True) for param, new in zip(self.params, params, strict=True)
        }
        for node in topological(value.node for value in self.results):
            if isinstance(node, Input):
                continue
            pairs = [known[arg] for arg in node.args]
            if isinstance(node, ScopeNode) and any(moves for _, moves in pairs):
                scope = _batched(node.scope, tuple(moves for _, moves in pairs), batch)
                known[Value(node)] = (scope_value(scope, tuple(value for value, _ in pairs)), True)
            else:
                for old, new in zip(node.values, with_args(node, tuple(value for value, _ in pairs)), strict=True):
                    known[old] = (new, False)
        wanted = [known[value] for value in self.results]
        arrays = run_scopes([value for value, _ in wanted], dict(zip(params, args, strict=True)), domain)
        return [
            array if moves else np.broadcast_to(array, (batch, *array.shape))
            for array, (_, moves) in zip(arrays, wanted, strict=True)
        ]


def program(
    rules: Rules, item: Item, types: tuple[TensorType, ...], attrs: Mapping[str, Any], stand_in: bool = True
) -> Program:
    """The meaning of an application. With `stand_in`, operators that another one stands in for are replaced by it.

    Raises:
        Mismatch, EvalError: as `apply`.
    """
    params = tuple(input_value(f"p{k}", type) for k, type in enumerate(types))
    return Program(params, _meaning(rules, apply(rules, item.op, params, attrs), stand_in, _DEPTH))


def _meaning(rules: Rules, values: tuple[Value, ...], stand_in: bool, depth: int) -> tuple[Value, ...]:
    """Calls replaced by what they mean, or what stands in for them, until none is left."""
    if depth == 0:
        raise fail("E0317", "an operator is expanded without end", None)
    mapped: dict[Value, Value] = {}
    for node in topological(value.node for value in values):
        args = tuple(mapped[arg] for arg in node.args)
        if not isinstance(node, Call):
            mapped.update(zip(node.values, with_args(node, args), strict=True))
            continue
        other = rules.traits_of(node.op).named.get("stand_in") if stand_in else None
        if other is not None:
            results = _meaning(rules, apply(rules, other, args), stand_in, depth - 1)
        else:
            instance = elaborate(rules, node.op, tuple(arg.type for arg in args), node.attrs)
            inner = _meaning(rules, instance.outputs, stand_in, depth - 1)
            results = _over(inner, dict(zip(instance.params, args, strict=True)))
        mapped.update(zip(node.values, results, strict=True))
    return tuple(mapped[value] for value in values)


def _over(values: tuple[Value, ...], args: dict[Value, Value]) -> tuple[Value, ...]:
    for node in topological(value.node for value in values):
        if node.values[0] in args:
            continue
        args.update(zip(node.values, with_args(node, tuple(args[arg] for arg in node.args)), strict=True))
    return tuple(args[value] for value in values)


def _batched_input(param: Value, batch: int) -> Value:
    return input_value(f"batched {param}", TensorType(param.type.dtype, (batch, *param.type.shape)))


def _batched(scope: Scope, moves: tuple[bool, ...], batch: int) -> Scope:
    """The scope for every position of the batch; `moves`: which operands have the leading axis."""
    groups = None if scope.groups is None else (1, *scope.groups)
    return Scope((batch, *scope.extents), _lifted(scope.body, len(scope.extents), moves), scope.dtype, groups)


_LIFTED: dict[tuple[Scalar, int, tuple[bool, ...]], Scalar] = {}


def _lifted(body: Scalar, count: int, moves: tuple[bool, ...]) -> Scalar:
    key = (body, count, moves)
    found = _LIFTED.get(key)
    if found is None:
        names: dict[Scalar, Iter] = {iterator(f"i{k}"): iterator(f"i{k + 1}") for k in range(count)}
        cache: dict[Scalar, Scalar] = {}

        def leaf(node: Scalar) -> Scalar | None:
            if isinstance(node, Iter):
                return names.get(node)
            if isinstance(node, Read):
                index = tuple(rebuild(part, leaf, cache) for part in node.index)
                other = None if node.other is None else rebuild(node.other, leaf, cache)
                return read(node.operand, (iterator("i0"), *index) if moves[node.operand] else index, other)
            return None

        found = _LIFTED[key] = rebuild(body, leaf, cache)
    return found


def heaviest(results: Sequence[Value]) -> int:
    """How many elements one position of the batch needs at most: of any scope's result, or of a product that is summed."""
    most = 1
    for node in topological(value.node for value in results):
        if isinstance(node, Constant):
            continue
        for value in node.values:
            most = max(most, value.type.elements)
        if isinstance(node, ScopeNode):
            sizes = dict(zip(node.scope.iters, node.scope.extents, strict=True))
            most = max(most, _reads(node.scope.body, sizes))
    return most


def _reads(body: Scalar, sizes: dict[Any, Any]) -> int:
    from dslc.ir.scalar import Num, Reduce

    known: dict[Any, int] = {it: int(str(size)) for it, size in sizes.items()}
    most = 1
    for node in walk(body):
        if isinstance(node, Reduce):
            for it, extent in zip(node.iters, node.extents, strict=True):
                known[it] = int(extent.value) if isinstance(extent, Num) else 1
    for node in walk(body):
        if isinstance(node, Read):
            count = 1
            for it in node.free:
                count *= known.get(it, 1)
            most = max(most, count)
    return most

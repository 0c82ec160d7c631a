"""Independent branches combined: several calls of one operator as one call, of groups or of a batch (PET, Figure 10).

Operands that are one tensor stay one, or are repeated; others stand next to each other along a dimension, padded with zeros to one
size. The results are cut out of the one result. Which dimensions these are is tried, at small sizes modulo a prime.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from dslc.interpret.check_rule import draw
from dslc.interpret.domain import Redraw
from dslc.interpret.field import Field
from dslc.interpret.run import InterpretError, run
from dslc.ir.graph import Call, Graph, Scope, Value, scope_value
from dslc.ir.scalar import Scalar, apply, num, read, traversal
from dslc.mutate.cores import Core, CoreNumbers, choices
from dslc.mutate.problem import MutationProblem
from dslc.mutate.problem import shape_of as shape
from dslc.semantics.library import Rules


@dataclass(frozen=True, slots=True)
class Joined:
    """One call in the place of several, and the dimensions along which they stand next to each other.

    `axes`: of each operand, None where they are one tensor; `axis`: of the results.
    """

    core: Core
    axes: tuple[int | None, ...]
    axis: int

    def made(self, rules: Rules, region: Graph) -> tuple[Value, ...] | None:
        """The results of a region's calls, cut out of that of the one call; None where the operands do not fit."""
        calls = _calls(region)
        args = []
        for number, axis in enumerate(self.axes):
            values = [call.args[number] for call in calls]
            args.append(values[0] if axis is None else stacked(values, axis))
        result = self.core.on(rules, args)
        if result is None or not result.known or self.axis >= len(result.type.shape):
            return None
        sizes = shape(result)
        if sizes[self.axis] % len(calls):
            return None
        block = sizes[self.axis] // len(calls)
        out = []
        for k, value in enumerate(region.outputs):
            wanted = shape(value)
            first = [k * block if axis == self.axis else 0 for axis in range(len(sizes))]
            last = [block if axis == self.axis else size for axis, size in enumerate(sizes)]
            if len(wanted) != len(sizes) or any(a > b for a, b in zip(wanted, last, strict=True)):
                return None
            index = tuple(apply("+", traversal(axis), num(at)) for axis, at in enumerate(first))
            out.append(scope_value(Scope(wanted, read(0, index), value.type.dtype), (result,)))
        return tuple(out)


def stacked(values: Sequence[Value], axis: int) -> Value:
    """Tensors of one rank next to each other along a dimension, with zeros where one is smaller than the largest.

    Raises:
        ValueError: tensors of different ranks, or of fewer dimensions.
    """
    shapes = [shape(value) for value in values]
    if len({len(each) for each in shapes}) != 1 or axis >= len(shapes[0]):
        raise ValueError("tensors of different ranks, or of fewer dimensions")
    largest = [max(sizes) for sizes in zip(*shapes, strict=True)]
    part = traversal(axis)
    index = tuple(traversal(k + (k >= axis)) for k in range(len(largest)))
    order = list(dict.fromkeys(values))
    body: Scalar | None = None
    for k in reversed(range(len(values))):
        one = read(order.index(values[k]), index, None if list(shapes[k]) == largest else num(0.0))
        body = one if body is None else apply("select", apply("==", part, num(k)), one, body)
    assert body is not None
    extents = (*largest[:axis], len(values), *largest[axis:])
    groups = tuple(2 if k == axis else 1 for k in range(len(largest)))
    return scope_value(Scope(extents, body, values[0].type.dtype, groups), tuple(order))


def joined(rules: Rules, problem: MutationProblem, seed: int = 0) -> Iterator[Joined]:
    """Ways to compute a region of independent calls of one operator by one call that are right at small sizes, whatever they take.

    A region of other nodes, or of calls of several operators, has none.
    """
    calls = _calls(problem.small)
    if len(calls) < 2 or len({(call.op, len(call.args)) for call in calls}) != 1:
        return
    if any(arg.node in calls for call in calls for arg in call.args) or any(
        value.node not in calls for value in problem.small.outputs
    ):
        return
    rng = np.random.default_rng(seed)
    domain = Field(seed)
    try:
        feeds = {value: draw(value.type, domain, rng, 0, False) for value in problem.small.inputs}
        old = run(rules, problem.small.outputs, feeds, domain)
    except (InterpretError, Redraw):
        return
    options: list[list[int | None]] = []
    for number, first in enumerate(calls[0].args):
        own: list[int | None] = [None] if all(call.args[number] == first for call in calls) else []
        ranks = {len(call.args[number].type.shape) for call in calls}
        options.append([*own, *(range(ranks.pop()) if len(ranks) == 1 else ())])
    for core in choices(rules.operator(calls[0].op), CoreNumbers(problem)):
        for axes in product(*options):
            for axis in range(len(problem.small.outputs[0].type.shape)):
                one = Joined(core, axes, axis)
                made = one.made(rules, problem.small)
                if made is None:
                    continue
                try:
                    new = run(rules, made, feeds, domain)
                except (InterpretError, Redraw):
                    continue
                if all(np.array_equal(a, b) for a, b in zip(old, new, strict=True)):
                    yield one


def _calls(region: Graph) -> list[Call]:
    """The calls of a region in the order of its results; those that give none come last."""
    found = [value.node for value in region.outputs]
    every = [*found, *(node for node in region.nodes() if node not in found)]
    return [node for node in every if isinstance(node, Call)]

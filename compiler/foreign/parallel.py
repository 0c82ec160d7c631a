"""FlexFlow's operators that distribute a tensor: the value stays, so they are left out, and counted."""

from __future__ import annotations

from dataclasses import replace

from dslc.foreign.flexflow import PARALLEL
from dslc.foreign.rule import ForeignRule, Operator, Output, Tensor


def undistributed(rule: ForeignRule) -> tuple[ForeignRule, int]:
    """The rule on values alone, and how many operators were left out."""
    source, sources = _without(rule.source)
    target, targets = _without(rule.target)
    count = len(rule.source) + len(rule.target) - len(source) - len(target)
    if not count:
        return rule, 0
    outputs = tuple(Output(_mapped(o.source, sources), _mapped(o.target, targets)) for o in rule.outputs)
    return replace(rule, source=source, target=target, outputs=outputs), count


def _without(side: tuple[Operator, ...]) -> tuple[tuple[Operator, ...], dict[int, Tensor]]:
    kept: list[Operator] = []
    places: dict[int, Tensor] = {}
    for at, op in enumerate(side):
        inputs = tuple(_mapped(tensor, places) for tensor in op.inputs)
        if op.kind in PARALLEL and len(inputs) == 1:
            places[at] = inputs[0]
        else:
            places[at] = Tensor(len(kept))
            kept.append(replace(op, inputs=inputs))
    return tuple(kept), places


def _mapped(tensor: Tensor, places: dict[int, Tensor]) -> Tensor:
    if tensor.operator < 0:
        return tensor
    place = places[tensor.operator]
    return place if place.operator < 0 else Tensor(place.operator, tensor.output or place.output)

"""Rules whose two sides have no shapes in common: sizes at which the source is right and the target is not."""

from __future__ import annotations

from dataclasses import replace

from dslc.foreign.rule import ForeignRule, Output
from dslc.foreign.shapes import Clash, Dim, Number, Shape, Size, SizeProduct, Sum, Unifier, Windows, value_of
from dslc.foreign.typing import Mode, Typing, rank_of_products

NUMBERS: tuple[int, ...] = (2, 4, 6, 10, 14, 22, 26, 34, 38, 46)  #: what different sizes are, in turn
WINDOW = 3  #: what a window's size is: windows are odd


def misfit(rule: ForeignRule, names: dict[int, str]) -> str | None:
    """Where the target does not fit: shapes of inputs, what the source gives, and what is wrong with the target.

    None where the source fits no shapes either, or the target fits at the sizes that were tried.
    """
    source = replace(rule, target=rule.source, outputs=tuple(Output(each.source, each.source) for each in rule.outputs))
    target = replace(rule, source=rule.target, outputs=tuple(Output(each.target, each.target) for each in rule.outputs))
    rank = rank_of_products(rule)
    try:
        alone = Typing(source, Mode(), products=rank)
        shapes = _numbers(alone)
        known = Typing(source, Mode(), inputs=dict(shapes), products=rank)
        wanted = [_text(known.unifier, known.of(0, each.source)) for each in rule.outputs]
    except Clash:
        return None
    at = ", ".join(f"{names[k]}: {_text(alone.unifier, shape)}" for k, shape in shapes.items())
    start = f"with {at} the source gives {' and '.join(wanted)}"
    try:
        other = Typing(target, Mode(), inputs=dict(shapes), products=rank)
        found = [_text(other.unifier, other.of(1, each.target)) for each in rule.outputs]
    except Clash as problem:
        return f"{start}; the target does not fit there: {problem}"
    return f"{start}, the target {' and '.join(found)}" if found != wanted else None


def _numbers(typing: Typing) -> dict[int, Shape]:
    """Shapes of the inputs with a number for every size; an open end has no dimensions."""
    chosen: dict[Size, Number] = {}

    def number(dim: Dim) -> Dim:
        match typing.unifier.dim(dim):
            case Size() as size:
                few = NUMBERS[len(chosen) % len(NUMBERS)]
                return chosen.setdefault(size, Number(WINDOW if size.hint in ("R", "S") else few))
            case SizeProduct(first, second):
                return SizeProduct(number(first), number(second))
            case Sum(parts):
                return Sum(tuple(number(part) for part in parts))
            case Windows(size, kernel, stride, same):
                return Windows(number(size), number(kernel), stride, same)
            case other:
                return other

    out: dict[int, Shape] = {}
    for at, shape in typing.inputs.items():
        values = [value_of(number(dim)) for dim in typing.unifier.shape(shape).dims]
        if None in values:
            raise Clash("a size that has no number")
        out[at] = Shape(tuple(Number(value) for value in values if value is not None))
    return out


def _text(unifier: Unifier, shape: Shape) -> str:
    dims = [unifier.dim(dim) for dim in unifier.shape(shape).dims]
    values = [value_of(dim) for dim in dims]
    return "x".join("?" if value is None else str(value) for value in values) or "one number"

"""Images side by side as one image, with as much room between them as windows see: right everywhere (PET's Figure 1 without a seam).

    X'[c, (a, u), (b, v)] = X[4 * a + b, c, u, v] where u < H and v < W, else 0
    Y[n, f, h, w] = conv(X', K)[f, (n // 4, h), (n % 4, w)]

What is computed in tiles of some positions has fewer of them where images are smaller than a few tiles: four of 5x5 take 2x2 tiles of
4x4 each, a sheet of 23x23 takes 6x6 of them instead of 8x8.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from dslc.ir.graph import Call, Scope, Value, scope_value
from dslc.ir.scalar import Scalar, apply, num, read, traversal
from dslc.mutate.images import Slide, batch_of, slides_of_call
from dslc.mutate.problem import shape_of
from dslc.semantics.apply import apply as applied
from dslc.semantics.env import EvalError, Mismatch, Unbound
from dslc.semantics.library import Rules


def sheets(rules: Rules, old: Value) -> Iterator[Value]:
    """Programs of an operator over holes with its images on sheets, of all grids of the whole batch; none for what has no images."""
    core = old.node
    if not isinstance(core, Call) or any(isinstance(arg.node, Call) for arg in core.args):
        return
    try:
        found = slides_of_call(rules, core)
        batch = (
            None if found is None else batch_of(rules, core, found[0], core.attrs, [slide.axis for slide in found[1]])
        )
    except (Mismatch, EvalError, Unbound, ValueError):
        return
    if found is None or batch is None:
        return
    operand, along = found
    count = shape_of(core.args[operand])[batch[0]]
    for grid in _grids(count, len(along)):
        made = _on_sheet(rules, core, operand, along, batch, grid)
        if made is not None:
            yield made


def _grids(count: int, axes: int) -> list[tuple[int, ...]]:
    """Ways to put images on a grid, those first that are almost as high as wide."""
    if axes == 1:
        return [(count,)] if count > 1 else []
    found = [
        (high, count // high, *(1,) * (axes - 2)) for high in range(1, count + 1) if count > 1 and count % high == 0
    ]
    return sorted(found, key=lambda grid: (max(grid[:2]) / min(grid[:2]), grid))[:4]


def _on_sheet(
    rules: Rules, core: Call, operand: int, along: tuple[Slide, ...], batch: tuple[int, int], grid: tuple[int, ...]
) -> Value | None:
    images = core.args[operand]
    shape, wanted = shape_of(images), shape_of(core.values[0])
    step: dict[int, int] = {}
    sizes = list(shape)
    sizes[batch[0]] = 1
    index: list[Scalar] = [traversal(k) for k in range(len(shape))]
    at: list[Scalar] = [traversal(k) for k in range(len(wanted))]
    number: Scalar = num(0)
    left: Scalar = traversal(batch[1])
    held: Scalar = num(True)
    places: list[Scalar] = []
    for parts in reversed(grid):
        places.insert(0, apply("%", left, num(parts)))
        left = apply("//", left, num(parts))
    for slide, parts, place in zip(along, grid, places, strict=True):
        size, result = shape[slide.axis], wanted[slide.result]
        apart = max(size - slide.first, result + slide.first + slide.window)
        if apart < size:
            return None
        step[slide.axis] = apart
        sizes[slide.axis] = (parts - 1) * apart + size
        it = traversal(slide.axis)
        number = apply("+", apply("*", number, num(parts)), apply("//", it, num(apart)))
        index[slide.axis] = apply("%", it, num(apart))
        held = apply("and", held, apply("<", index[slide.axis], num(size)))
        at[slide.result] = apply("+", apply("*", place, num(apart)), traversal(slide.result))
    index[batch[0]] = number
    at[batch[1]] = num(0)
    body = apply("select", held, read(0, tuple(index)), num(0))
    sheet = scope_value(Scope(tuple(sizes), body, images.type.dtype), (images,))
    try:
        args = [sheet if k == operand else arg for k, arg in enumerate(core.args)]
        (made,) = applied(rules, core.op, args, dict(core.attrs))
    except (Mismatch, EvalError, Unbound, ValueError):
        return None
    given = shape_of(made)
    fits = all(
        given[slide.result] >= (parts - 1) * step[slide.axis] + wanted[slide.result]
        for slide, parts in zip(along, grid, strict=True)
    )
    if not fits or prod(given) < prod(wanted):
        return None
    return scope_value(Scope(wanted, read(0, tuple(at)), core.values[0].type.dtype), (made,))

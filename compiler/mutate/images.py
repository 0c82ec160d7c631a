"""Images of operators: the dimensions along which windows slide, and that which counts images, by what they compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dslc.analysis.iterators import coefficient_of
from dslc.ir.dtype import TensorType
from dslc.ir.graph import Attrs, Call, Scope, ScopeNode, Value, scope_value
from dslc.ir.holes import hole
from dslc.ir.scalar import Iter, Num, Read, Scalar, apply, num, read, scalars, substitute, traversal
from dslc.ir.scopes import inline
from dslc.mutate.problem import applied, extents_of, shape_of
from dslc.prove.strided import Box
from dslc.records import record
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules


def whole(rules: Rules, old: Value) -> Value:
    """A region as one expression, so that a guard computes what it asks for and nothing else."""
    (value,) = expand(rules, (old,))
    return inlined(value, lambda _: True)


def inlined(value: Value, wanted: Callable[[ScopeNode], bool]) -> Value:
    """A scope with those that it reads, and that these read, in it, as far as they are wanted."""
    while isinstance(value.node, ScopeNode):
        args = enumerate(value.node.args)
        place = next((k for k, arg in args if isinstance(arg.node, ScopeNode) and wanted(arg.node)), None)
        if place is None:
            break
        value = inline(value, place)
    return value


def part(region: Value, box: Box) -> Value:
    """A box of an expression's result by itself: `{[j] f(start + j * step)}`."""
    places = enumerate(zip(box.start, box.step, strict=True))
    index = tuple(apply("+", num(start), apply("*", traversal(k), num(step))) for k, (start, step) in places)
    made = scope_value(Scope(box.sizes, read(0, index), region.type.dtype), (region,))
    return inline(made, 0) if isinstance(region.node, ScopeNode) else made


@record
class Slide:
    """A dimension of an operand along which windows slide, that of the result, where the first begins, and its length - 1."""

    axis: int
    result: int
    first: int
    window: int


def everything(value: Value) -> Box:
    """The box of all positions of a value."""
    shape = shape_of(value)
    return Box((0,) * len(shape), shape, (1,) * len(shape))


def slides_of_call(rules: Rules, core: Call) -> tuple[int, tuple[Slide, ...]] | None:
    """The tensor of an operator that windows slide over, and their slides; None where that is none, or several."""
    holes = [hole(k, arg.type) for k, arg in enumerate(core.args)]
    made = applied(rules, core.op, holes, dict(core.attrs))
    value = None if made is None else whole(rules, made[0])
    if not value or not isinstance(value.node, ScopeNode):
        return None
    value = part(value, everything(value))
    operand, found = slides_of(value)
    return (holes.index(operand), found) if operand in holes and found else None


def slides_of(value: Value) -> tuple[Value | None, tuple[Slide, ...]]:
    """The one tensor that windows of an expression slide over, and how: by one position for each of the result."""
    node = value.node
    assert isinstance(node, ScopeNode)
    scope = node.scope
    extents = extents_of(scope)
    found: dict[int, dict[Slide, None]] = {}
    for at in scalars(Read, scope.body):
        for axis, index in enumerate(at.index):
            own = [it for it in scope.iters if it in index.free]
            if len(own) != 1 or index is own[0]:
                continue
            slopes = {it: coefficient_of(index, it) for it in index.free}
            zeros: dict[Iter, Scalar] = dict.fromkeys(index.free, num(0))
            first = substitute(index, zeros)
            if (
                slopes[own[0]] is None
                or not isinstance(first, Num)
                or any(slope is None or slope < 0 for slope in slopes.values())
            ):
                return None, ()
            window = sum((slopes[it] or 0) * (extents[it] - 1) for it in index.free if it is not own[0])
            slide = Slide(axis, scope.iters.index(own[0]), int(first.value), window)
            found.setdefault(at.operand, {})[slide] = None
    if len(found) != 1:
        return None, ()
    ((operand, slides),) = found.items()
    axes = [slide.axis for slide in slides]
    return (node.args[operand], tuple(slides)) if len({*axes}) == len(axes) else (None, ())


def batch_of(rules: Rules, core: Call, operand: int, attrs: Attrs, sliding: Sequence[int]) -> tuple[int, int] | None:
    """The dimension of an operand that counts images, and that of the result: one image more gives one result more."""
    shape = shape_of(core.args[operand])
    for axis in (k for k in range(len(shape)) if k not in sliding):
        found = []
        for size in (2, 3):
            sizes = (*shape[:axis], size, *shape[axis + 1 :])
            args = [
                hole(k, TensorType(arg.type.dtype, sizes) if k == operand else arg.type)
                for k, arg in enumerate(core.args)
            ]
            made = applied(rules, core.op, args, dict(attrs))
            if made is None:
                break
            found.append(shape_of(made[0]))
        else:
            grown = [k for k, pair in enumerate(zip(*found, strict=True)) if pair[0] != pair[1]]
            if len(grown) == 1 and [each[grown[0]] for each in found] == [2, 3]:
                return axis, grown[0]
    return None

"""Corrections in the mutant's own operator (PET, section 5.3): what is computed again stands beside what the mutant computes.

    Y = select(i in D, conv(strip, K)[...], back(conv(phases, K)))
    Z = conv([phases, strips], K);  Y = select(i in D, Z[strip of i], back(Z[phases]))

A box of what differs is the mutant's operator, with its attributes and its other tensors, on some of what the region reads. Those are
put into further images of the mutant's operand, several into one where they fit. What comes out is a mutant and pieces of it, which
are proved as any others are; nothing here is believed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice, product
from math import prod
from typing import TypeAlias

import numpy as np

from dslc.derivation.programs import calls_of
from dslc.derivation.targets import instances
from dslc.errors import DslcError
from dslc.ir.dtype import TensorType
from dslc.ir.graph import Call, Node, Scope, ScopeNode, Value, Values, rebuild, replace, scope_value, with_args
from dslc.ir.holes import hole
from dslc.ir.scalar import Scalar, apply, num, read, traversal
from dslc.mutate.images import Slide, batch_of, everything, inlined, part, slides_of, slides_of_call
from dslc.mutate.problem import expanded, shape_of
from dslc.prove.strided import Box
from dslc.records import record
from dslc.semantics.apply import apply as applied
from dslc.semantics.env import Mismatch, Unbound
from dslc.semantics.library import Rules

PIECES = 24  #: pieces that are put there, at most
STEPS = 8  #: numbers of attributes up to this may be what positions are apart
WAYS = 6  #: ways to compute one piece that are looked at
IMAGES = 1.0  #: images beside those of the mutant, as a share of them, at most
PLACES = 4096  #: places of an image at which a piece is tried, at most


#: a mutant whose operator computes pieces, too; the boxes, and for each a part of its result
FusedCorrection: TypeAlias = tuple[Value, tuple[Box, ...], Values]


@record
class _Piece:
    """A box, and what computes it: a call whose `operand` has its images, and the box as `value` of what the call gives.

    `begins`: positions of each dimension of the operand before which nothing is needed.
    """

    box: Box
    call: Call
    operand: Value
    value: Value
    begins: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(size - begin for size, begin in zip(shape_of(self.operand), self.begins, strict=True))


def fused(rules: Rules, old: Value, region: Value, mutant: Value, boxes: Sequence[Box]) -> FusedCorrection | None:
    """A mutant and its corrections by one operator; None where that is not found.

    Args:
        region: `old` as one expression.
        boxes: where the mutant differs.
    """
    mutant = _with_layouts(rules, mutant)
    calls = [node for node in calls_of(mutant) if not node.constant]
    if len(calls) != 1 or len(calls[0].types) != 1 or not boxes or not isinstance(region.node, ScopeNode):
        return None
    (core,) = calls
    try:
        slides = slides_of_call(rules, core)
        over = {slide.result for slide in slides_of(part(region, everything(region)))[1]}
        if slides is None or not over:
            return None
        operand, along = slides
        sizes = shape_of(core.values[0])
        # pieces are no longer than the mutant's images, as far as these lie along a dimension of the region
        images = len(sizes) == len(shape_of(old))
        longest = {slide.result: sizes[slide.result] for slide in along} if images else {}
        for step in _steps(old):
            pieces: list[_Piece] = []
            split = _taken_apart(boxes, over, step, longest)
            for box in split:
                piece = _piece(rules, region, core, operand, over, step, box)
                if not piece:
                    break
                pieces.append(piece)
            if split and len(pieces) == len(split):
                return _joined(rules, mutant, core, operand, along, pieces)
    except (Mismatch, Unbound, DslcError, ValueError, TypeError):
        return None
    return None


def _with_layouts(rules: Rules, mutant: Value) -> Value:
    """A mutant whose operators that only move elements are scopes."""

    def step(node: Node, args: Values) -> Sequence[Value]:
        if isinstance(node, Call) and not node.constant and len(node.types) == 1:
            holes = tuple(hole(k, arg.type) for k, arg in enumerate(args))
            (scope,) = expanded(rules, with_args(node, holes)) or (None,)
            if (
                scope
                and isinstance(scope.node, ScopeNode)
                and not any(isinstance(arg.node, ScopeNode) for arg in scope.node.args)
                and not scope.node.scope.body.binds
            ):
                return replace((scope,), dict(zip(holes, args, strict=True)))
        return with_args(node, args)

    return rebuild((mutant,), step)[0]


# ---- pieces ----------------------------------------------------------------------------------------------------


def _steps(old: Value) -> list[int]:
    """Distances of positions that an operator takes as neighbours: the region's attributes, the largest first."""
    steps = {1}
    for node in calls_of(old):
        for _, value in node.attrs:
            steps |= {n for n in (value if isinstance(value, tuple) else (value,)) if type(n) is int and 1 < n <= STEPS}
    return sorted(steps, reverse=True)


def _taken_apart(boxes: Sequence[Box], over: Collection[int], step: int, longest: Mapping[int, int]) -> list[Box]:
    """Cut boxes into ones that fit, of positions `step` apart along the dimensions that windows slide along.

    None where they are too many, or positions are apart in another way.
    """
    found: list[Box] = []
    for box in boxes:
        axes: list[list[tuple[int, int, int]]] = []
        for axis, (start, stop, by) in enumerate(zip(box.start, box.stop, box.step, strict=True)):
            places = range(start, stop, by)
            if axis not in over:
                axes.append([(start, stop, by)])
                continue
            if by > 1 and by != step and len(places) > 1:
                return []
            apart = step if by == 1 else 1
            most = longest.get(axis, len(places))
            rows = [places[first::apart] for first in range(min(apart, len(places)))]
            axes.append(
                [
                    (own[0], own[-1] + 1, max(step, 1))
                    for row in rows
                    for own in (row[k : k + most] for k in range(0, len(row), most))
                ]
            )
        for chosen in product(*axes):
            starts, stops, steps = zip(*chosen, strict=True)
            found.append(Box(starts, stops, steps))
        if len(found) > PIECES:
            return []
    return found


def _piece(
    rules: Rules, region: Value, core: Call, operand: int, over: Collection[int], step: int, box: Box
) -> _Piece | None:
    """Compute a box of a region by a mutant's operator; None where that is not found."""
    shape = shape_of(region)
    start, stop, skipped = list(box.start), list(box.stop), [0] * len(shape)
    for axis in over:
        if box.sizes[axis] > 1:
            continue
        # how far apart the elements of a window are shows where there are two of them
        if start[axis] >= step:
            start[axis], skipped[axis] = start[axis] - step, 1
        elif stop[axis] + step <= shape[axis]:
            stop[axis] += step
    wide = Box(tuple(start), tuple(stop), box.step)
    rest = Box(tuple(skipped), tuple(k + n for k, n in zip(skipped, box.sizes, strict=True)), (1,) * len(shape))
    for _, made in islice(instances(rules, part(region, wide), (core.op,)), WAYS):
        calls = calls_of(made)
        if len(calls) != 1 or calls[0].op != core.op or len(calls[0].args) != len(core.args):
            continue
        (call,) = calls
        others = [k for k in range(len(core.args)) if k != operand]
        slides = slides_of_call(rules, call)
        if any(call.args[k] != core.args[k] for k in others) or slides is None or slides[0] != operand:
            continue
        if any(slide.first for slide in slides[1]) or made.node is call or not isinstance(made.node, ScopeNode):
            continue
        begins = [0] * len(shape_of(call.args[operand]))
        for slide in slides[1]:
            begins[slide.axis] = skipped[slide.result] if len(skipped) > slide.result else 0
        return _Piece(box, call, call.args[operand], part(made, rest), tuple(begins))
    return None


# ---- one operator ----------------------------------------------------------------------------------------------


def _joined(
    rules: Rules, mutant: Value, core: Call, operand: int, along: Sequence[Slide], pieces: Sequence[_Piece]
) -> FusedCorrection | None:
    """A mutant with its pieces in further images."""
    attrs = pieces[0].call.attrs
    batch = batch_of(rules, core, operand, attrs, [slide.axis for slide in along])
    counts = {piece.sizes[batch[0]] for piece in pieces} if batch is not None else set()
    if batch is None or len(counts) != 1 or any(piece.call.attrs != attrs for piece in pieces):
        return None
    (count,) = counts
    images = _surrounded(core.args[operand], along, core)
    shape = shape_of(images)
    own = shape[batch[0]]
    placed = _placed(pieces, shape, [slide.axis for slide in along])
    more = max((image for image, _ in placed), default=-1) + 1
    if not placed or count * more > IMAGES * own:
        return None
    full = _with_images(images, batch[0], pieces, placed, own + count * more, count)
    args = [full if k == operand else arg for k, arg in enumerate(core.args)]
    (result,) = applied(rules, core.op, args, dict(attrs))
    wanted = list(shape_of(core.values[0]))
    wanted[batch[1]] = own + count * more
    if shape_of(result) != tuple(wanted):
        return None
    (changed,) = replace((mutant,), {core.values[0]: _cut(result, core.values[0].type, {})})
    values = []
    for piece, (image, place) in zip(pieces, placed, strict=True):
        moved = {batch[1]: own + count * image}
        moved |= {slide.result: place[slide.axis] - piece.begins[slide.axis] for slide in along}
        (value,) = replace((piece.value,), {piece.call.values[0]: _cut(result, piece.call.values[0].type, moved)})
        values.append(_looked_up(value))
    return _looked_up(changed), tuple(piece.box for piece in pieces), tuple(values)


def _surrounded(images: Value, along: Sequence[Slide], core: Call) -> Value:
    """Images with the zeros that windows see around them."""
    shape, sizes = shape_of(images), list(shape_of(images))
    result = shape_of(core.values[0])
    at: list[Scalar] = [traversal(k) for k in range(len(shape))]
    for slide in along:
        sizes[slide.axis] = result[slide.result] + slide.window
        at[slide.axis] = apply("+", at[slide.axis], num(slide.first))
    if tuple(sizes) == shape and not any(slide.first for slide in along):
        return images
    return _looked_up(scope_value(Scope(tuple(sizes), read(0, tuple(at), num(0)), images.type.dtype), (images,)))


def _placed(pieces: Sequence[_Piece], shape: Sequence[int], along: Sequence[int]) -> list[tuple[int, tuple[int, ...]]]:
    """An image and a place in it for the operand of each piece, the largest first; nothing where some piece is larger than images."""
    used: list[np.ndarray[tuple[int, ...], np.dtype[np.bool_]]] = []
    found: dict[int, tuple[int, tuple[int, ...]]] = {}
    for number in sorted(range(len(pieces)), key=lambda k: -prod(pieces[k].sizes)):
        sizes = [pieces[number].sizes[axis] for axis in along]
        room = [range(shape[axis] - size + 1) for axis, size in zip(along, sizes, strict=True)]
        others = [k for k in range(len(shape)) if k not in along]
        if any(not len(each) for each in room) or any(pieces[number].sizes[k] != shape[k] for k in others[1:]):
            return []
        for image in range(len(used) + 1):
            if image == len(used):
                used.append(np.zeros([shape[axis] for axis in along], bool))
            for place in islice(product(*room), PLACES):
                box = tuple(slice(at, at + size) for at, size in zip(place, sizes, strict=True))
                if not used[image][box].any():
                    used[image][box] = True
                    whole_place = [0] * len(shape)
                    for axis, at in zip(along, place, strict=True):
                        whole_place[axis] = at
                    found[number] = image, tuple(whole_place)
                    break
            if number in found:
                break
    return [found[k] for k in range(len(pieces))]


def _with_images(
    images: Value,
    batch: int,
    pieces: Sequence[_Piece],
    placed: Sequence[tuple[int, tuple[int, ...]]],
    total: int,
    count: int,
) -> Value:
    """Images, and behind them those of pieces: `{[n, c, h, w] select(n < own, images[n, c, h, w], ...)}`."""
    shape = shape_of(images)
    at = tuple(traversal(k) for k in range(len(shape)))
    args = [images]
    body: Scalar = num(0)
    for piece, (image, place) in zip(pieces, placed, strict=True):
        first = shape[batch] + count * image
        held = apply("and", apply("<=", num(first), at[batch]), apply("<", at[batch], num(first + count)))
        index: list[Scalar] = list(at)
        index[batch] = apply("-", at[batch], num(first))
        for axis, size in enumerate(piece.sizes):
            if axis == batch or size == shape[axis]:
                continue
            held = apply("and", held, apply("<=", num(place[axis]), at[axis]))
            held = apply("and", held, apply("<", at[axis], num(place[axis] + size)))
        for axis, begin in enumerate(piece.begins):
            if axis != batch:
                index[axis] = apply("+", at[axis], num(begin - place[axis]))
        body = apply("select", held, read(len(args), tuple(index)), body)
        args.append(piece.operand)
    body = apply("select", apply("<", at[batch], num(shape[batch])), read(0, at), body)
    sizes = (*shape[:batch], total, *shape[batch + 1 :])
    return _looked_up(scope_value(Scope(sizes, body, images.type.dtype), tuple(args)))


def _cut(result: Value, type: TensorType, moved: Mapping[int, int]) -> Value:
    """A part of a result, of a type, from some positions on."""
    at = tuple(apply("+", traversal(k), num(moved.get(k, 0))) for k in range(len(type.shape)))
    return scope_value(Scope(type.shape, read(0, at), type.dtype), (result,))


def _looked_up(value: Value) -> Value:
    """A scope with what it looks up, and what that looks up, in it."""
    return inlined(value, lambda node: not node.scope.body.binds)

"""The difference of two programs over the same inputs, at given sizes: found modulo p, proved by inclusion.

Both programs are computed modulo 2^31 - 1 on common random inputs; wherever two elements are not equal, they differ, and a position
that no draw shows differs with probability (degree / p)^draws at most (Schwartz, Zippel; PET, theorem 2). What is no polynomial stands
for an unknown function. The positions become few disjoint strided boxes, and the exact prover shows that outside of them the
programs are equal for all inputs: it asks for the set of positions at which their normal forms differ, and whether that lies inside.
PET's own way (boxes) is asked beside it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from math import prod

import numpy as np

from dslc.analysis.reads import inputs_of, reads_at_data
from dslc.interpret.domain import Redraw
from dslc.interpret.exact import Exact
from dslc.interpret.run import InterpretError, run_scopes
from dslc.ir.graph import Scope, Value, Values, nodes_of, scope_value
from dslc.ir.scalar import Scalar, apply, num, read, traversal
from dslc.prove.exact.answers import Equal
from dslc.prove.exact.compare import compare
from dslc.prove.exact.compare import difference as exact_difference
from dslc.prove.exact.regions import DifferenceRegion
from dslc.prove.exact.terms import Unsolved
from dslc.prove.field.degree import degrees
from dslc.prove.partial.draws import DRAWS, MANY, Draws, NotCompared, WhyUncompared
from dslc.prove.partial.split_points import NoBoxes, Points, failing, joined, split_points
from dslc.prove.strided import Box, Mask, TooManyPieces, mask_of, strided_boxes
from dslc.records import record
from dslc.semantics.elaborate import expand
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules

#: elements of all intermediate tensors together: beyond, the sizes are too large to be computed
MOST_ELEMENTS = 1 << 28


@record
class Difference:
    """The positions at which one output of two programs differs.

    `boxes`: disjoint; `share`: the part of the output's positions that they hold; `proved`: outside of them the programs are equal for
    all inputs, by the exact prover; `agree`: whether PET's way finds no other set, None where it does not apply; `seconds`: what all
    outputs took. `error_bound`: the probability that a position that differs is missing, where that is not proved and a bound is known.
    """

    boxes: tuple[Box, ...]
    share: float
    proved: bool
    agree: bool | None
    seconds: float
    shape: tuple[int, ...] = ()
    error_bound: float | None = None
    #: of PET's way: the part of the output that is in boxes that failed, and at how many positions it looked
    boxed: float | None = None
    looked: int = 0

    def _repr_html_(self) -> str:
        from dslc.reporting.pages import fragment
        from dslc.reporting.plots import plane, svg

        drawn = svg([plane(self.mask)]) if self.boxes and self.share < 1 else ""
        return fragment("difference_part.html.j2", found=self, boxes=[str(box) for box in self.boxes], drawing=drawn)

    @property
    def mask(self) -> Mask:
        """The positions as a boolean array of the output's shape."""
        return mask_of(self.boxes, self.shape)


def difference(
    rules: Rules, old: Sequence[Value], new: Sequence[Value], *,
    seed: int = 0, pieces: int = 1000, prove: bool = True, seconds: float = 10.0,
    evident: bool = False,
) -> tuple[Difference, ...]:  # fmt: skip
    """The positions at which each output of two programs differs.

    Both have static shapes, over common inputs, with equal types of outputs.

    Args:
        pieces: how many boxes one output's set may have.
        prove: whether the exact prover is asked, and PET's way; `seconds` is what the prover may take.
        evident: where laws of functions make less of a set than is proved, what real numbers show is taken, unproved.

    Raises:
        NotCompared: no set is found, or the two ways disagree; `why` says what it was.
    """
    began = time.perf_counter()
    left, right = expanded(rules, old, new)
    chooser = _Outside(left, right, seconds) if prove else None
    # the split points that both programs have together; None where theorem 1 does not apply
    cuts: Sequence[Points | None] = (None,) * len(left)
    if prove:
        with suppress(NoBoxes):
            cuts = [joined(*pair) for pair in zip(split_points(left), split_points(right), strict=True)]
    found: list[Difference] = []
    draws = Draws(left, right, seed)
    few = prove or sum(int(value.type.elements) for value in left) >= MANY
    for number, drawn in enumerate(draws.found(1 if few else DRAWS)):
        mask, boxes, proved = _smallest(drawn.candidates, chooser, number, pieces)
        if chooser is not None and not proved and drawn.unknown is None:
            # what few draws hide others show
            drawn, before = draws.more()[number], mask
            if not np.array_equal(drawn.found, before):
                mask, boxes, proved = _smallest((drawn.found,), chooser, number, pieces)
        if drawn.real is not None and evident and not (proved and np.array_equal(mask, drawn.real)):
            mask, boxes, proved = drawn.real, _boxes(drawn.real, pieces), False
        if not proved and reads_at_data((left[number], right[number])):
            raise NotCompared(WhyUncompared.DATA)
        # where laws of functions are needed, elements are equal for other reasons than theorem 1 knows
        agree, boxed, looked = _by_boxes(mask, cuts[number] if drawn.unknown is None and drawn.real is None else None)
        share = float(mask.sum()) / mask.size if mask.size else 0.0
        bound = 0.0 if proved else drawn.error_bound
        found.append(Difference(boxes, share, proved, agree, 0.0, mask.shape, bound, boxed, looked))
    taken = time.perf_counter() - began
    return tuple(replace(each, seconds=taken) for each in found)


def _smallest(
    masks: Sequence[Mask], chooser: _Outside | None, number: int, pieces: int
) -> tuple[Mask, tuple[Box, ...], bool]:
    """The first set of positions outside of which an output is shown to be equal, its boxes, and that it is; else the last set."""
    for mask in masks:
        boxes = _boxes(mask, pieces)
        if not chooser:
            return mask, boxes, False
        if chooser.equal(number, boxes):
            return mask, boxes, True
    return mask, boxes, False


def _boxes(mask: Mask, pieces: int) -> tuple[Box, ...]:
    try:
        return strided_boxes(mask, pieces)
    except TooManyPieces as problem:
        raise NotCompared(WhyUncompared.PIECES, f"more than {problem.limit}") from None


def _by_boxes(mask: Mask, points: Points | None) -> tuple[bool | None, float | None, int]:
    """Return whether PET's way agrees, the share that it finds, and the number of positions looked at; raises NotCompared."""
    if points is None:
        return None, None, 0
    failed, looked = failing(mask, points)
    if (mask & ~failed).any():
        position = tuple(int(k) for k in np.argwhere(mask & ~failed)[0])
        said = f"boxes accept {list(position)}, which differs: this is a bug of dslc, please report it"
        raise NotCompared(WhyUncompared.DISAGREE, said)
    return True, float(failed.sum()) / failed.size, looked


class _Outside:
    """Return whether two expanded programs are equal outside of some boxes for all inputs, by the exact prover.

    The set of positions at which their normal forms differ is compared with the boxes. Where it has no normal form, or is too large as
    functions occur, the programs are compared with 0 in the place of what is in the boxes, and affine ones on a basis.
    """

    def __init__(self, left: Sequence[Value], right: Sequence[Value], seconds: float) -> None:
        self._sides = list(zip(left, right, strict=True))
        self._seconds = seconds / 2
        self._region: DifferenceRegion | None = None
        with suppress(Unsolved):
            self._region = exact_difference(left, right, seconds=self._seconds)

    def equal(self, number: int, boxes: Sequence[Box]) -> bool:
        """Return whether one output is shown to be equal outside of boxes."""
        one, other = self._sides[number]
        region = self._region
        if one == other or sum(box.count for box in boxes) == prod(one.type.sizes):
            return True
        if region and region.defined[number] and region.lies_in(number, boxes):
            return True
        if region and region.exact:
            return False
        old, new = (restricted(side, boxes, inside=False) for side in (one, other))
        if isinstance(compare([old], [new], seconds=self._seconds), Equal):
            return True
        return equal_on_a_basis(one, other, boxes, self._seconds / 2)


def parametric(
    rules: Rules, old: Sequence[Value], new: Sequence[Value], seconds: float = 10.0
) -> DifferenceRegion | None:
    """The positions at which two programs differ at sizes that stay unknown; None where that has no normal form.

    Raises NotCompared for other types.
    """
    left, right = _expanded(rules, old, new)
    try:
        return exact_difference(left, right, seconds=seconds)
    except Unsolved:
        return None


def equal_everywhere(rules: Rules, old: Sequence[Value], new: Sequence[Value], seconds: float = 10.0) -> bool:
    """Return whether two programs are shown to be equal at all sizes. Raises NotCompared for other types."""
    left, right = _expanded(rules, old, new)
    return left == right or isinstance(compare(left, right, seconds=seconds), Equal)


def restricted(value: Value, boxes: Sequence[Box], inside: bool) -> Value:
    """A result with 0 at all positions but those `inside` some boxes, or but those outside."""
    place = [traversal(axis) for axis in range(len(value.type.shape))]
    own = read(0, tuple(place))
    element: Scalar = num(0) if inside else own
    for box in boxes:
        conditions: list[Scalar] = []
        for it, start, stop, step, size in zip(place, box.start, box.stop, box.step, value.type.sizes, strict=True):
            conditions += [apply("<=", num(start), it)] * (start > 0) + [apply("<", it, num(stop))] * (stop < size)
            conditions += [apply("==", apply("%", apply("-", it, num(start)), num(step)), num(0))] * (step > 1)
        held = own if inside else num(0)
        where = reduce(lambda one, other: apply("and", one, other), conditions) if conditions else None
        element = apply("select", where, held, element) if where else held
    return scope_value(Scope(value.type.shape, element, value.type.dtype), (value,))


def _expanded(rules: Rules, old: Sequence[Value], new: Sequence[Value]) -> tuple[Values, Values]:
    """Both programs without calls. Raises NotCompared where their types differ."""
    if [value.type for value in old] != [value.type for value in new]:
        shown = [", ".join(str(value.type) for value in side) for side in (old, new)]
        raise NotCompared(WhyUncompared.TYPES, f"{shown[0]} and {shown[1]}")
    try:
        both = expand(rules, (*old, *new))
    except Mismatch as problem:
        raise NotCompared(WhyUncompared.TYPES, problem.reason) from None
    return both[: len(old)], both[len(old) :]


def expanded(rules: Rules, old: Sequence[Value], new: Sequence[Value]) -> tuple[Values, Values]:
    """Both programs without calls, at sizes that are numbers. Raises NotCompared where they cannot be compared."""
    left, right = _expanded(rules, old, new)
    nodes = list(nodes_of((*left, *right)))
    if not all(value.type.is_static for node in nodes for value in node.values):
        raise NotCompared(WhyUncompared.SIZES)
    if sum(int(value.type.elements) for node in nodes for value in node.values) > MOST_ELEMENTS:
        raise NotCompared(WhyUncompared.LARGE, f"more than {MOST_ELEMENTS} elements")
    return left, right


ELEMENTS = 2048  #: elements of all inputs together: so many times both programs are computed


def equal_on_a_basis(left: Value, right: Value, boxes: Sequence[Box], seconds: float) -> bool:
    """Return whether two expanded programs of static shapes, affine in all elements, are equal outside of boxes."""
    if any(each is None or each.top > 1 or each.bottom for each in degrees((left, right))):
        return False
    inputs = inputs_of((left, right))
    sizes = [int(np.prod(value.type.sizes)) for value in inputs]
    if sum(sizes) > ELEMENTS:
        return False
    outside = ~mask_of(boxes, left.type.sizes)
    until = time.monotonic() + seconds
    for elements in np.vstack([np.zeros((1, sum(sizes)), np.int64), np.eye(sum(sizes), dtype=np.int64)]):
        parts = np.split(elements, np.cumsum(sizes)[:-1]) if sizes else []
        feeds = {value: part.reshape(value.type.sizes) for value, part in zip(inputs, parts, strict=True)}
        try:
            old, new = run_scopes((left, right), feeds, Exact())
        except (Redraw, InterpretError):
            return False
        if (old != new)[outside].any() or time.monotonic() > until:
            return False
    return True

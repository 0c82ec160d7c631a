"""Corrections: a mutant except where it is wrong, where the region is computed again. What comes out is equal everywhere.

`Y[i] = select(i in D, region[i], mutant[i])` is one scope, and so one kernel with a guard: what the mutant computes outside of products
is put into it. Where the positions of D are many, each box of them is an operator on the part of its inputs that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from math import prod

from dslc.derivation.programs import calls_of
from dslc.derivation.targets import instances, targets_of
from dslc.errors import DslcError
from dslc.ir.facts import Fact
from dslc.ir.graph import Scope, ScopeNode, Value, Values, replace, scope_value
from dslc.ir.holes import abstracted, program
from dslc.ir.scalar import Read, Scalar, apply, num, read, traversal
from dslc.ir.scopes import inline
from dslc.mutate.fused import fused
from dslc.mutate.images import part, whole
from dslc.mutate.problem import expanded, shape_of
from dslc.prove.exact import Equal, compare
from dslc.prove.partial.difference import Difference, difference, restricted
from dslc.prove.partial.draws import NotCompared
from dslc.prove.strided import Box, mask_of, strided_boxes
from dslc.records import record
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules, rules_cache

BOXES = 64  #: boxes that a guard may name
PROVING = 5.0  #: seconds of proving that a box of the region is the operator that computes it
SHARE = 0.25  #: share of a result that may be computed again, where no rule says more


@record
class Corrected:
    """A mutant with what corrects it: outside of `boxes` the mutant is equal to the region, inside of them the region is computed.

    `pieces`: for each box a program of that part of the region; none: the region's own expression is in the guard. `own`: a tensor of
    the whole result that is right inside of the boxes, taken instead.
    """

    old: Value
    mutant: Value
    boxes: tuple[Box, ...]
    pieces: Values = ()
    own: Value | None = None

    @property
    def share(self) -> float:
        return sum(box.count for box in self.boxes) / max(1, prod(shape_of(self.old)))

    @property
    def is_fused(self) -> bool:
        """Return whether the mutant's own operator computes the pieces."""
        return bool(self.pieces) and {*calls_of(*self.pieces)} <= {*calls_of(self.mutant)}

    def value(self, rules: Rules) -> Value:
        """`{[i] select(i in boxes, old[i], mutant[i])}`: the mutant where there are no boxes, the region where they are everything.

        With `pieces` each box is read from its own: `pieces[k][(i - start) // step]`; with `own` all of them are read from that.
        """
        boxes, pieces, shape = self.boxes, self.pieces, shape_of(self.old)
        if not boxes:
            return self.mutant
        at = tuple(traversal(k) for k in range(len(shape)))
        args = (self.mutant, *(pieces or (self.own or whole(rules, self.old),)))
        body: Scalar = read(0, at)
        if pieces:
            # what is not corrected asks as little as possible: the boxes that these make together come first
            for outer, numbers in _outer(boxes, shape):
                chosen: Scalar | None = None
                for k in numbers:
                    places = zip(at, boxes[k].start, boxes[k].step, strict=True)
                    index = tuple(apply("//", apply("-", it, num(start)), num(step)) for it, start, step in places)
                    piece: Scalar = read(k + 1, index)
                    chosen = apply("select", _inside(at, boxes[k], shape), piece, chosen) if chosen else piece
                assert chosen
                body = apply("select", _inside(at, outer, shape), chosen, body)
        else:
            guard: Scalar = num(False)
            for box in boxes:
                guard = apply("or", guard, _inside(at, box, shape))
            body = apply("select", guard, read(1, at), body)
        made = scope_value(Scope(shape, body, self.old.type.dtype), args)
        # what lays out the mutant's result, and the region's own expression, are parts of the one scope
        for arg in args:
            node, around = arg.node, made.node
            goes_in = isinstance(node, ScopeNode) and (
                not pieces or arg is self.mutant or isinstance(node.scope.body, Read)
            )
            if goes_in and isinstance(around, ScopeNode) and arg in around.args:
                made = inline(made, around.args.index(arg))
        return made

    def shows(self, rules: Rules, fact: Fact) -> bool:
        """Return whether a fact is this correction, and proved by inclusion: the difference lies inside of the boxes."""
        if replace(fact.old.outputs, {self.old: self.value(rules)}) != fact.new.outputs:
            return False
        return self.is_proved(rules)

    def is_proved(self, rules: Rules) -> bool:
        """Return whether the difference lies inside of the boxes, and what is taken there is equal to the region."""
        found = differing(rules, self.old, self.mutant)
        if not found or not found.proved or (found.mask & ~mask_of(self.boxes, found.shape)).any():
            return False
        if self.own:
            return _equal(rules, self.old, self.own, self.boxes)
        try:
            region = whole(rules, self.old)
            return all(
                _equal(rules, part(region, box), piece)
                for box, piece in zip(self.boxes, self.pieces, strict=bool(self.pieces))
            )
        except (Mismatch, EvalError):
            return False


def differing(rules: Rules, old: Value, mutant: Value, seconds: float = 10.0) -> Difference | None:
    """Compare a mutant with its region, once; None where the difference is not known."""
    cache = rules_cache(rules, "differences of mutants")
    key = (old, mutant)
    if key not in cache:
        try:
            (cache[key],) = difference(rules, (old,), (mutant,), pieces=BOXES, seconds=seconds)
        except NotCompared:
            cache[key] = None
    found: Difference | None = cache[key]
    return found


def _equal(rules: Rules, old: Value, new: Value, boxes: tuple[Box, ...] | None = None) -> bool:
    """Return whether two values are proved to be equal, inside of some boxes where these are given; decided once."""
    cache = rules_cache(rules, "parts of regions")
    key = (old, new, boxes)
    if key not in cache:
        cache[key] = old == new
        sides = expanded(rules, (old, new))
        if old != new and old.type == new.type and sides is not None:
            if boxes is not None:
                sides = tuple(restricted(value, boxes, inside=True) for value in sides)
            cache[key] = isinstance(compare(sides[:1], sides[1:], seconds=PROVING), Equal)
    return bool(cache[key])


def wrong_at(rules: Rules, old: Value, own: Value, boxes: Sequence[Box]) -> tuple[int, ...] | None:
    """A position inside of some boxes at which a correction of an author's own is not the region; None where none is known."""
    try:
        (found,) = difference(
            rules, *([restricted(value, boxes, inside=True)] for value in (old, own)), pieces=BOXES, prove=False
        )
    except NotCompared:
        return None
    return found.boxes[0].start if found.boxes else None


def _outer(boxes: Sequence[Box], shape: Sequence[int]) -> Iterator[tuple[Box, list[int]]]:
    """Few boxes that are the same positions, each with the numbers of those that it consists of."""
    outer = strided_boxes(mask_of(boxes, shape))
    parts = [[k for k, box in enumerate(boxes) if _within(box, each)] for each in outer]
    if sorted(k for own in parts for k in own) == list(range(len(boxes))):
        yield from zip(outer, parts, strict=True)
    else:
        yield from ((box, [k]) for k, box in enumerate(boxes))


def _within(box: Box, outer: Box) -> bool:
    """Return whether all positions of a box are in another one."""
    axes = zip(box.start, box.stop, box.step, outer.start, outer.stop, outer.step, strict=True)
    return all(
        start >= first and stop <= last and (start - first) % by == 0 and (step % by == 0 or stop - start == 1)
        for start, stop, step, first, last, by in axes
    )


def _inside(at: Sequence[Scalar], box: Box, shape: Sequence[int]) -> Scalar:
    """The condition that a position is in a box; bounds that always hold are left out."""
    held: Scalar = num(True)
    for it, start, stop, step, size in zip(at, box.start, box.stop, box.step, shape, strict=True):
        if stop - start == 1 < size:
            held = apply("and", held, apply("==", it, num(start)))
            continue
        if start >= step:
            # what is that far from it and before it is no position
            held = apply("and", held, apply("<=", num(start), it))
        if stop + step - 1 < size:
            held = apply("and", held, apply("<", it, num(stop)))
        if step > 1:
            held = apply("and", held, apply("==", apply("%", apply("-", it, num(start)), num(step)), num(0)))
    return held


def pieces_of(rules: Rules, old: Value, boxes: Sequence[Box]) -> Values | None:
    """For each box an operator on the part of the inputs that it reads; None where some box is no operator."""
    found = []
    try:
        region = whole(rules, old)
        # the region's own operators take its parts too
        own = [node.op for node in calls_of(old)]
        targets = targets_of(rules, own)
        for box in boxes:
            scope = part(region, box)
            made = [value for _, value in islice(instances(rules, scope, targets), 4)]
            if not made:
                return None
            found.append(made[-1])
    except (Mismatch, DslcError):
        return None
    return tuple(found)


def corrections(
    rules: Rules, old: Value, mutant: Value, limit: float = SHARE, own: Value | None = None
) -> list[Corrected]:
    """A mutant corrected in each way that there is, where no more than `limit` of it is wrong, and that is proved.

    `own`: a correction of the author's own, which is taken instead where it is proved to be right, and nothing where it is wrong. Where
    neither is known, the region is computed again.
    """
    found = differing(rules, old, mutant)
    if not found or not found.proved or found.share > limit:
        return []
    if not found.boxes:
        return [Corrected(old, mutant, ())]
    if own and _equal(rules, old, own, found.boxes):
        return [Corrected(old, mutant, found.boxes, own=own)]
    if own is not None and wrong_at(rules, old, own, found.boxes) is not None:
        return []
    made = [Corrected(old, mutant, found.boxes)]
    pieces = pieces_of(rules, old, found.boxes)
    if pieces is not None:
        made.append(Corrected(old, mutant, found.boxes, pieces))
    together = fused(rules, old, whole(rules, old), mutant, found.boxes)
    if together is not None:
        one = Corrected(old, *together)
        made += [one] if one.is_proved(rules) else []
    return made


def fact_of(
    rule: str,
    old: Value,
    one: Corrected,
    region: Value,
    made: Value,
    leaves: Sequence[Value],
    over: Callable[[Value], Value],
) -> Fact:
    """The fact that `made` stands for `old`: both contain the region, `over` puts values in the place of its holes.

    Raises:
        ValueError: something is reached that is none of the leaves.
    """
    other = (over(one.own),) if one.own else ()
    proof = (region, over(one.mutant), *(over(piece) for piece in one.pieces), *other)
    both, _ = abstracted((old, made, *proof), leaves)
    was, new, own, mutant, *rest = both.outputs
    pieces = tuple(rest[: len(one.pieces)])
    proved = Corrected(own, mutant, one.boxes, pieces, rest[-1] if other else None)
    return Fact(rule, program(both.inputs, (was,)), program(both.inputs, (new,)), proved, one.boxes)

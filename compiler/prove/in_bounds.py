"""Data used as a position: the right side of a rule reads inside of its tensors wherever the left side does.

A read at a position that is data (`X[I[j]]`) is assumed to be in bounds where a graph is as it is; a rule must not take it elsewhere.
So every such read of the right side is an obligation: its position has to be one that the left side reads too, in as large an axis,
or one that is bounded by what computes it. Positions are compared as expressions over the inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from dslc.ir.graph import ScopeNode, Value, nodes_of
from dslc.ir.scalar import Apply, Iter, Num, Read, Reduce, Scalar, Table, apply, iterator, num, replaced, scalars, walk
from dslc.prove.exact.inline import CannotInline, Inliner
from dslc.records import record
from dslc.semantics.lists import compare

WAYS = 32  #: ways in which the parts of one position are chosen
PARTS = 4  #: parts of a sum whose order is tried


@record
class ReadPosition:
    """A position in an axis of `size`, over the inputs; `sure`: it is read whatever the data are."""

    index: Scalar
    size: Scalar
    sure: bool
    text: str


def out_of_bounds(left: Sequence[Value], right: Sequence[Value]) -> str | None:
    """A read of the right side that is not shown to be in bounds wherever the left side is, as text; None where all are.

    Args:
        left, right: expanded: inputs, constants and scopes.
    """
    inliner = Inliner({}, lambda: None)
    try:
        wanted = list(_places(inliner, right, "R"))
        if not wanted:
            return None
        given = [place for place in _places(inliner, left, "L") if place.sure]
    except CannotInline as problem:
        return str(problem)
    proof = _Proof(inliner, given)
    return next((place.text for place in wanted if not proof.shows(place)), None)


def leaves_bounds(left: Sequence[Value], right: Sequence[Value], both_ways: bool) -> str | None:
    """As `out_of_bounds`, for a rule that is used in one direction or in both."""
    found = out_of_bounds(left, right)
    return out_of_bounds(right, left) if found is None and both_ways else found


# ---- the reads of a side ------------------------------------------------------------------------------------------


def _places(inliner: Inliner, outputs: Sequence[Value], side: str) -> Iterator[ReadPosition]:
    """The positions that are data, of all scopes of a side."""
    for number, node in enumerate(nodes_of(outputs)):
        if isinstance(node, ScopeNode):
            at: dict[Iter, Scalar] = {}
            for k, (it, extent) in enumerate(node.scope.ranges):
                at[it] = _named(inliner, f"{side}{number}.{k}", inliner.size(extent))
            yield from _Walk(inliner, node, f"{side}{number}").places(node.scope.body, at, True)


def _named(inliner: Inliner, name: str, extent: Scalar) -> Scalar:
    if extent is num(1):
        return num(0)
    at = iterator(f"{name}:{extent}")
    inliner.extents[at] = extent
    return at


@dataclass(slots=True)
class _Walk:
    """The body of one scope, with what its iterators stand for."""

    inliner: Inliner
    node: ScopeNode
    name: str
    reductions: int = 0

    def places(self, root: Scalar, at: Mapping[Iter, Scalar], sure: bool) -> Iterator[ReadPosition]:
        if isinstance(root, Reduce):
            inner = dict(at)
            for it, size in root.ranges:
                yield from self.places(size, inner, sure)
                extent = self.inliner.placed(size, inner, self.node.args)
                self.reductions += 1
                inner[it] = _named(self.inliner, f"{self.name}.r{self.reductions}", extent)
            # any and all may stop early
            sure = sure and root.where is None and root.kind not in {"any", "all"}
            for part in (root.body, *((root.where,) if root.where else ())):
                yield from self.places(part, inner, sure)
            return
        if root.op == "select":
            yield from self.places(root.args[0], at, sure)
            for part in root.args[1:]:
                yield from self.places(part, at, False)
            return
        if root.op in {"and", "or"}:
            sure = False
        if isinstance(root, Read) and not root.other:
            operand = self.node.args[root.operand]
            for part, dim in zip(root.index, operand.type.shape, strict=True):
                index = self.inliner.placed(part, at, self.node.args)
                if index.reads:
                    yield ReadPosition(index, self.inliner.size(dim), sure, f"{part} in an axis of size {dim}")
        for part in root.children:
            yield from self.places(part, at, sure)


# ---- what shows that one is in bounds ------------------------------------------------------------------------------


@record
class _Proof:
    inliner: Inliner
    given: Sequence[ReadPosition]

    def shows(self, wanted: ReadPosition) -> bool:
        ways = _chosen(wanted.index)
        return ways is not None and all(
            self._within(index, wanted.size) or any(self._follows(index, wanted.size, one) for one in self.given)
            for index in ways
        )

    def _within(self, index: Scalar, size: Scalar) -> bool:
        """Return whether an expression lies in an axis whatever the data are."""
        return self._least(index) and self._most(index, size)

    def _least(self, index: Scalar) -> bool:
        """Return whether an expression is at least 0."""
        match index:
            case Num():
                return not isinstance(index.value, bool) and index.value >= 0
            case Iter():
                return True
            case Apply(name="max"):
                return any(map(self._least, index.args))
            case Apply(name="min" | "+" | "*"):
                return all(map(self._least, index.args))
            case Apply(name="select"):
                return all(map(self._least, index.args[1:]))
            case Apply():
                # the remainder has the sign of the divisor
                return index.name == "%" and _at_most(num(1), index.args[1])
        return _at_most(num(1), index)

    def _most(self, index: Scalar, size: Scalar) -> bool:
        """Return whether an expression is below a size."""
        match index:
            case Iter():
                return _at_most(self.inliner.extents.get(index), size)
            case Apply(name="min"):
                return any(self._most(part, size) for part in index.args)
            case Apply(name="max"):
                return all(self._most(part, size) for part in index.args)
            case Apply(name="select"):
                return all(self._most(part, size) for part in index.args[1:])
            case Apply(name="%") if _at_most(num(1), index.args[1]):
                return _at_most(index.args[1], size)
        return not index.reads and _at_most(apply("+", index, num(1)), size)

    def _follows(self, index: Scalar, size: Scalar, given: ReadPosition) -> bool:
        """Return whether a position is one of those given, in an axis that is at least as large."""
        return _at_most(given.size, size) and any(
            all(self._inside(given.index, at, value) for at, value in bound.items())
            for bound in _unified(given.index, index, {})
        )

    def _inside(self, pattern: Scalar, at: Iter, value: Scalar) -> bool:
        extent = self.inliner.extents[at]
        if value is at or (not value.reads and self._within(value, extent)):
            return True
        # what is read there is read on the right side too, which stays in that axis by its own obligation
        return any(
            part is at and _at_most(self.inliner.size(size), extent)
            for found in _surely_read(pattern)
            for part, size in zip(found.index, self.inliner.inputs[found.operand].type.shape, strict=True)
        )


def _at_most(a: Scalar | None, b: Scalar) -> bool:
    return a is not None and (a is b or compare("<=", a, b) in {True, num(True)})


def _surely_read(root: Scalar) -> Iterator[Read]:
    """The reads in an expression that no condition may leave out."""
    if isinstance(root, Read) and not root.other:
        yield root
    parts = root.children
    if root.op == "select":
        parts = root.args[:1]
    elif (root.op in {"and", "or"}) or isinstance(root, Reduce):
        parts = ()
    for part in parts:
        yield from _surely_read(part)


def _chosen(index: Scalar) -> list[Scalar] | None:
    """A position with one of both cases chosen wherever no data decide between them; None where they are too many."""
    out: list[Scalar] = []
    todo = [index]
    while todo:
        if len(out) + len(todo) > WAYS:
            return None
        one = todo.pop()
        choice = next((p for p in scalars(Apply, one) if p.name == "select" and not p.args[0].reads), None)
        if not choice:
            out.append(one)
        else:
            todo += [replaced(one, choice, part) for part in choice.args[1:]]
    return out


def _unified(pattern: Scalar, target: Scalar, bound: Mapping[Iter, Scalar]) -> Iterator[Mapping[Iter, Scalar]]:
    """The values that the left side's iterators need for the pattern to be the target."""
    if isinstance(pattern, Iter) and pattern.name.startswith("L"):
        if bound.get(pattern, target) is target:
            yield {**bound, pattern: target}
        return
    if not any(isinstance(part, Iter) and part.name.startswith("L") for part in walk(pattern)):
        if pattern is target:
            yield bound
        return
    if type(pattern) is not type(target):
        return
    if pattern.op:
        if pattern.op != target.op or len(pattern.args) != len(target.args):
            return
        orders = (
            permutations(target.args)
            if pattern.op in {"+", "*"} and len(target.args) <= PARTS
            else iter((target.args,))
        )
        for order in orders:
            yield from _all_unified(pattern.args, order, bound)
    elif isinstance(pattern, Read) and isinstance(target, Read):
        if pattern.operand == target.operand and not pattern.other and not target.other:
            yield from _all_unified(pattern.index, target.index, bound)
    elif isinstance(pattern, Reduce) and isinstance(target, Reduce):
        same = pattern.kind == target.kind and pattern.iters == target.iters and pattern.extents == target.extents
        if same and not pattern.where and not target.where:
            yield from _unified(pattern.body, target.body, bound)
    elif isinstance(pattern, Table) and isinstance(target, Table) and pattern.values == target.values:
        yield from _all_unified(pattern.index, target.index, bound)


def _all_unified(
    patterns: Sequence[Scalar], targets: Sequence[Scalar], bound: Mapping[Iter, Scalar]
) -> Iterator[Mapping[Iter, Scalar]]:
    if len(patterns) != len(targets):
        return
    if not patterns:
        yield bound
        return
    for found in _unified(patterns[0], targets[0], bound):
        yield from _all_unified(patterns[1:], targets[1:], found)

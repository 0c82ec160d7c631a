"""The problem of a mutation: a region of linear operators over holes, and the same at small sizes, where programs are tried.

A dimension that every operator only passes on, or sums over, can be smaller without a program becoming right or wrong by it. Windows
slide over the others: these keep their sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from dslc.analysis.counts import known_flops
from dslc.analysis.iterators import coefficient_of
from dslc.analysis.linearity import linear_classes
from dslc.analysis.narrowing import unit_positions
from dslc.derivation.programs import calls_of
from dslc.errors import DslcError
from dslc.ir.constants import number_of
from dslc.ir.dtype import TensorType
from dslc.ir.graph import Call, Graph, Node, Scope, ScopeNode, Value, Values, with_args
from dslc.ir.holes import hole, program
from dslc.ir.scalar import Iter, Num, Read, Reduce, Scalar, num, scalars, walk
from dslc.ir.scopes import substitute
from dslc.mutate.layouts import Shape
from dslc.records import record
from dslc.semantics.apply import apply
from dslc.semantics.elaborate import expand
from dslc.semantics.env import Mismatch, Unbound
from dslc.semantics.library import Rules

#: what an even dimension becomes that no window slides over: the first of these that nothing else has become
EVEN: tuple[int, ...] = (4, 6, 8, 10)
ODD: tuple[int, ...] = (3, 5, 7, 9)  #: the same for an odd one
#: the same for an even one, where windows slide over so much that the small instance has too many operations
EVEN_OF_LARGE: tuple[int, ...] = (2, 4, 6, 8)
LARGE = 4e6  #: operations of a small instance that are too many
FEW = 4  #: an attribute that counts more than this is made fewer


@record
class MutationProblem:
    """A region, as it is and at small sizes."""

    region: Graph
    small: Graph

    @property
    def inputs(self) -> tuple[Shape, ...]:
        return tuple(shape_of(value) for value in self.region.inputs)

    @property
    def small_inputs(self) -> tuple[Shape, ...]:
        return tuple(shape_of(value) for value in self.small.inputs)

    @property
    def calls(self) -> tuple[Call, ...]:
        """The operators at small sizes."""
        return calls_of(*self.small.outputs)


def numbers_renamed(small: Graph, region: Graph) -> dict[int, int]:
    """Numbers of the attributes of a region at small sizes with what they are at its own."""
    pairs = [[dict(node.attrs) for node in calls_of(*each.outputs)] for each in (small, region)]
    return {
        value: new[name] for old, new in zip(*pairs, strict=True) for name, value in old.items()
        if type(value) is int and value != new[name]
    }  # fmt: skip


def expanded(rules: Rules, values: Sequence[Value]) -> Values | None:
    """The expressions of values; None where they have none."""
    try:
        return expand(rules, tuple(values))
    except (Mismatch, Unbound, DslcError, ValueError):
        return None


def applied(rules: Rules, op: str, args: Sequence[Value], attrs: Mapping[str, Any]) -> Values | None:
    """The results of an operator on tensors; None where they do not fit."""
    try:
        return apply(rules, op, list(args), dict(attrs))
    except (Mismatch, Unbound, DslcError, ValueError):
        return None


def shape_of(value: Value) -> Shape:
    """The sizes of a value of static shape."""
    return value.type.sizes


def is_linear_region(rules: Rules, region: Graph) -> bool:
    """Return whether each call of a region is linear in what varies, alone or jointly, and in weights that it multiplies."""
    return all(is_linear_call(rules, node) for node in calls_of(*region.outputs))


def is_linear_call(rules: Rules, node: Call) -> bool:
    """Return whether a call of floats is linear in each of its tensors that are no constants, alone or jointly."""
    args = tuple(
        hole(k, arg.type) if not arg.constant or number_of(arg) is None else arg for k, arg in enumerate(node.args)
    )
    varying = tuple(arg for old, arg in zip(node.args, args, strict=True) if arg is not old)
    if not varying or not all(arg.type.dtype.is_float for arg in varying):
        return False
    outputs = expanded(rules, with_args(node, args))
    if outputs is None:
        return False
    classes = linear_classes(varying, outputs)
    return all(any(value in group for group in classes) for value in varying)


def problem_of(rules: Rules, region: Graph) -> MutationProblem:
    """A region with its small instance; the region itself where nothing can be smaller."""
    small = _counted(rules, region) or region
    found = small
    for even in (EVEN, EVEN_OF_LARGE):
        shapes = _shrunk(rules, small, even)
        if shapes is None:
            break
        # an attribute that is a size (as many groups as channels) is that size at small sizes as well
        renamed = renamed_sizes(map(shape_of, small.inputs), shapes)
        made = _over(rules, small, shapes, {}) or _over(rules, small, shapes, renamed)
        if not made:
            break
        found = made
        if (known_flops(expand(rules, found.outputs)) or 0.0) <= LARGE:
            break
    return MutationProblem(region, found)


def renamed_sizes(values: Iterable[Shape], shapes: Iterable[Shape]) -> dict[int, int]:
    """Return sizes of shapes that are others in the place of theirs, with these."""
    return {a: b for pair in zip(values, shapes, strict=True) for a, b in zip(*pair, strict=True) if a != b}


def _counted(rules: Rules, region: Graph) -> Graph | None:
    """A region of one operator with fewer of what an attribute counts (groups), as large as they are.

    None where there is no such attribute.
    """
    calls = calls_of(*region.outputs)
    counts = {value for _, value in calls[0].attrs if type(value) is int and value > FEW} if len(calls) == 1 else set()
    (made,) = (expanded(rules, region.outputs) if counts else None) or (None,)
    if not made or not isinstance(made.node, ScopeNode) or any(arg not in region.inputs for arg in made.node.args):
        return None
    extents = extents_of(made.node.scope)
    for count in sorted(counts):
        few = 2 if count % 2 == 0 else 3
        shapes = [list(shape_of(value)) for value in region.inputs]
        for part in walk(made.node.scope.body):
            if isinstance(part, Read):
                sizes = shapes[region.inputs.index(made.node.args[part.operand])]
                for axis, at in enumerate(part.index):
                    # what has one position takes no part
                    own = digits(substitute(at, {it: num(0) for it in at.free if extents.get(it) == 1}), extents)
                    if own and extents.get(own[-1]) == count and sizes[axis] % count == 0:
                        sizes[axis] = sizes[axis] // count * few
        found = _over(rules, region, [tuple(shape) for shape in shapes], {count: few})
        if found:
            return found
    return None


def extents_of(scope: Scope) -> dict[Scalar, int]:
    """The sizes of a scope's iterators, of its sums too, where these are numbers."""
    extents: dict[Scalar, int] = {it: int(str(size)) for it, size in scope.ranges}
    for part in walk(scope.body):
        if isinstance(part, Reduce):
            extents.update((it, int(size.value)) for it, size in part.ranges if isinstance(size, Num))
    return extents


def _over(rules: Rules, region: Graph, shapes: Sequence[Shape], renamed: Mapping[int, int]) -> Graph | None:
    """The region's operators on tensors of other shapes, numbers among their attributes renamed; None where they do not fit."""
    pairs = enumerate(zip(region.inputs, shapes, strict=True))
    holes = tuple(hole(k, TensorType(each.type.dtype, shape), each.constant) for k, (each, shape) in pairs)
    done: dict[Value, Value] = dict(zip(region.inputs, holes, strict=True))
    for node in calls_of(*region.outputs):
        attrs = {name: renamed.get(value, value) if type(value) is int else value for name, value in node.attrs}
        made = applied(rules, node.op, [done.get(arg, arg) for arg in node.args], attrs)
        if made is None:
            return None
        done.update(zip(node.values, made, strict=True))
    return program(holes, tuple(done[value] for value in region.outputs))


def digits(index: Scalar, extents: Mapping[Scalar, int]) -> list[Scalar]:
    """The iterators of an index that are the digits of a number, the inner ones first; none where a window slides."""
    slopes = {it: coefficient_of(index, it) for it in index.free}
    ordered = sorted(slopes, key=lambda it: (slopes[it] or 0, -extents.get(it, 0)))
    span = 1
    for it in ordered:
        if slopes[it] != span:
            return []
        span *= extents.get(it, 0)
    constant = substitute(index, {it: num(0) for it in index.free})
    return [it for it in ordered if extents.get(it) != 1] if constant is num(0) else []


#: an axis of a value
_Axis = tuple[Value, int]


@dataclass(slots=True)
class _Sizes:
    """Dimensions of values that have one size, and which of them windows slide over."""

    parent: dict[_Axis, _Axis] = field(default_factory=dict)
    fixed: set[_Axis] = field(default_factory=set)

    def root(self, at: _Axis) -> _Axis:
        while at in self.parent:
            at = self.parent[at]
        return at

    def one(self, a: _Axis, b: _Axis) -> None:
        x, y = self.root(a), self.root(b)
        if x != y:
            self.parent[x] = y
            if x in self.fixed:
                self.fixed.add(y)

    def fix(self, at: _Axis) -> None:
        self.fixed.add(self.root(at))


def _shrunk(rules: Rules, region: Graph, even: Sequence[int]) -> tuple[Shape, ...] | None:
    """Small shapes of the inputs; None where they are as they were."""
    sizes = _Sizes()
    if not all(_passes(rules, node, sizes) for node in calls_of(*region.outputs)):
        return None
    chosen: dict[_Axis, int] = {}
    shapes = []
    for value in region.inputs:
        shape = []
        for axis, size in enumerate(shape_of(value)):
            root = sizes.root((value, axis))
            if root not in sizes.fixed and root not in chosen:
                # where all of these are something else already, the least of them twice
                fewer = [n for n in (ODD if size % 2 else even) if n < size]
                chosen[root] = next((n for n in fewer if n not in chosen.values()), fewer[0] if fewer else size)
            shape.append(size if root in sizes.fixed else chosen[root])
        shapes.append(tuple(shape))
    return tuple(shapes) if shapes != [shape_of(value) for value in region.inputs] else None


def _passes(rules: Rules, node: Call, sizes: _Sizes) -> bool:
    """Notes which dimensions of a call are one, and which are read in other ways than position by position. False: of another kind."""
    every = expanded(rules, with_args(node, tuple(hole(k, arg.type) for k, arg in enumerate(node.args))))
    return every is not None and all(
        _result_passes(node, result, made, sizes) for result, made in zip(node.values, every, strict=True)
    )


def _result_passes(node: Call, result: Value, made: Value, sizes: _Sizes) -> bool:
    """The same of one of its results."""
    if not isinstance(made.node, ScopeNode):
        return False
    holes = {hole(k, arg.type): k for k, arg in enumerate(node.args)}
    # tables that need no tensor (how many positions of a window there are) stand beside those
    if not all(arg in holes or (isinstance(arg.node, ScopeNode) and not arg.node.args) for arg in made.node.args):
        return False
    scope = made.node.scope
    names = [node.args[holes[arg]] if arg in holes else None for arg in made.node.args]
    body = substitute(scope.body, unit_positions(scope))
    where: dict[Scalar, list[_Axis]] = {}
    loose: set[Scalar] = set()
    for part in walk(body):
        if isinstance(part, Read):
            name = names[part.operand]
            for axis, at in enumerate(part.index):
                if name and isinstance(at, Iter):
                    where.setdefault(at, []).append((name, axis))
                else:
                    loose |= set(at.free)
                    if name and not (isinstance(at, Num) and shape_of(name)[axis] == 1):
                        sizes.fix((name, axis))
        elif isinstance(part, Reduce):
            loose.update(*(each.free for each in (*part.extents, part.where) if each))
    # one name may be bound by several reductions: what is loose anywhere is fixed everywhere
    start = 0
    for axis, count in enumerate(scope.counts):
        own = [scope.iters[k] for k in range(start, start + count) if scope.extents[k] != 1]
        start += count
        if len(own) == 1 and own[0] in where:
            where[own[0]].append((result, axis))
        else:
            sizes.fix((result, axis))
    for it, places in where.items():
        for place in places[1:]:
            sizes.one(places[0], place)
        if it in loose:
            sizes.fix(places[0])
    # sizes that the body speaks of otherwise (a mean divides by them) stay
    numbers = {int(part.value) for part in scalars(Num, body) if isinstance(part.value, int)}
    divided = any(getattr(part, "name", "") in {"/", "//", "%"} for part in walk(body))
    for value in (*node.args, result):
        for axis, size in enumerate(shape_of(value)):
            if size <= 4 or (divided and size in numbers):
                sizes.fix((value, axis))
    return True


REGIONS = 8  #: regions that end in one operator


def regions(
    nodes: Sequence[Node],
    used: Mapping[Value, Sequence[Node]],
    final: set[Value],
    most: int,
    linear: Callable[[Call], bool],
) -> Iterator[tuple[Call, tuple[Call, ...]]]:
    """Yield operators of one result with some of those below them that nothing else needs, the fewest first.

    Operators are linear, `most` together at most; a split may be one of them (PET, section 6.1).

    Args:
        nodes: of a graph, arguments first; `used` has the nodes that read a value, `final` what the graph gives.
        linear: True where a call may be part of a region.
    """
    fits = cache(linear)

    for root in nodes:
        if not isinstance(root, Call) or len(root.types) != 1 or not fits(root):
            continue
        found: list[tuple[Call, ...]] = []
        seen: set[frozenset[Call]] = set()
        front: list[tuple[Call, ...]] = [(root,)]
        while front and len(found) < REGIONS:
            region = front.pop(0)
            for below in dict.fromkeys(arg.node for node in region for arg in node.args):
                if (
                    below in region
                    or not isinstance(below, Call)
                    or len(region) == most
                    or not fits(below)
                    or any(value in final or not {*used.get(value, ())} <= {*region} for value in below.values)
                ):
                    continue
                larger = (*region, below)
                if frozenset(larger) not in seen:
                    seen.add(frozenset(larger))
                    found.append(larger)
                    front.append(larger)
        for region in found[:REGIONS]:
            yield root, region[1:]

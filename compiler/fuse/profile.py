"""Profile of a node in a kernel, read off its equations: how it reads its arguments, how often, and how much it computes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from math import prod

from dslc.analysis.numeric import DataDependent, Interval, interval
from dslc.codegen.arithmetic import plus, times
from dslc.codegen.factoring import strided
from dslc.cost.kinds import view
from dslc.errors import DslcError
from dslc.ir.constants import number_of
from dslc.ir.dtype import Dim, TensorType
from dslc.ir.graph import (
    Call,
    Constant,
    Input,
    Node,
    Scope,
    ScopeNode,
    input_value,
    nodes_of,
    with_args,
)
from dslc.ir.scalar import Apply, Iter, Num, Number, Read, Reduce, Scalar, Sym, as_scalar, num, scalars, walk
from dslc.onnx.context import bind_values
from dslc.records import record
from dslc.semantics.elaborate import expanded
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules

#: what a scalar function costs in additions, where vectors compute it; others are additions
WEIGHTS = {
    "/": 4.0, "sqrt": 4.0, "//": 8.0, "%": 8.0, "exp": 12.0, "log": 16.0, "tanh": 20.0, "erf": 20.0, "sin": 24.0, "cos": 24.0,
    "^": 30.0, "tan": 40.0, "asin": 40.0, "acos": 40.0, "atan": 40.0, "sinh": 30.0, "cosh": 30.0, "asinh": 40.0, "acosh": 40.0,
    "atanh": 40.0,
}  # fmt: skip

Numbers = tuple[Number | None, ...]


POWERS = 8  #: powers up to which products are cheaper than the function
FEW_CHANNELS = 128.0  #: uses of a window's element up to which it has few channels

#: the size of a symbolic dimension without a given one, as in the cost model
UNNAMED = 1


class Reach(IntEnum):
    """Positions of an argument that an element of a result reads: the farther, the more of it must be there before."""

    #: at its own position, or at one that several positions share
    OWN = 0
    #: along whole axes through its own position
    ROW = 1
    #: anywhere: moved, permuted, by data
    ANY = 2


@record
class Reading:
    """Reads of one operand by one scope.

    `distinct`: different elements, at most; `strided`: whether neighbours of the result look at
    elements that are no neighbours.
    """

    reach: Reach
    distinct: float
    strided: bool


@record
class NodeWork:
    """Work of one scope.

    `points` elements of the result, operations (additions; others by `WEIGHTS`), readings by operand, how often a sum of products of
    elements at different positions uses each of them, and other reductions theirs.
    """

    points: float
    operations: float
    reads: tuple[Reading, ...]
    reuse: float
    window: float
    #: whether it only passes elements on
    moves: bool
    #: whether it reduces elements of operands
    reduces: bool
    #: whether a sum of products is one that fills no runtime's blocks: every so many positions of a window only, or few channels
    loose: bool = False


@record
class Profile:
    """A node: the reach of each argument, its operations, and the most reuse and the largest window of its scopes (see `NodeWork`)."""

    reach: tuple[Reach, ...]
    operations: float
    reuse: float
    window: float
    #: whether the result is the argument's elements in their order: memory is passed on
    view: bool
    #: see `Work`
    loose: bool = False


class WorkSizes:
    """Sizes at which work is counted: numbers for the symbolic dimensions of a graph."""

    def __init__(self, named: Mapping[str, int] | None = None) -> None:
        self._named = dict(named or {})

    def of(self, size: Dim) -> int:
        """The number of a size; 1 where it depends on data."""
        if isinstance(size, int):
            return size
        try:
            low, high = interval(size, self.intervals(size))
        except DataDependent:
            return 1
        return max(1, (low + high) // 2)

    def intervals(self, *roots: Scalar) -> dict[Scalar, Interval]:
        found: dict[Scalar, Interval] = {}
        for root in roots:
            for node in walk(root):
                if isinstance(node, Sym):
                    size = self._named.get(node.name, UNNAMED)
                    found[node] = (size, size)
        return found

    def named(self, node: Node) -> dict[str, int]:
        """The numbers of all symbolic dimensions of a node's types."""
        types = [type for type in (*(arg.type for arg in node.args), *node.types) if type]
        sizes = [size for type in types for size in type.shape if isinstance(size, Scalar)]
        return {each.name: self.of(each) for size in sizes for each in scalars(Sym, size)}

    def elements(self, type: TensorType) -> int:
        return prod(self.of(size) for size in type.shape)

    def bytes(self, type: TensorType) -> int:
        return self.elements(type) * type.dtype.bytes


class _Counting:
    """One scope: its iterators' ranges, and what was found in its body so far."""

    def __init__(self, scope: Scope, operands: tuple[TensorType, ...], sizes: WorkSizes, numbers: Numbers) -> None:
        self.scope, self.operands, self.sizes, self.numbers = scope, operands, sizes, numbers
        self.range: dict[Scalar, Interval] = sizes.intervals(scope.body, *map(as_scalar, scope.extents))
        self.extent: dict[Iter, float] = {}
        for it, size in scope.ranges:
            count = sizes.of(size)
            self.extent[it] = float(count)
            self.range[it] = (0, max(count - 1, 0))
        self.points = prod(self.extent.values())
        self.places = places(scope)
        self.found: list[list[Reading]] = [[] for _ in operands]
        self.reuse, self.window, self.reduces, self.loose = 1.0, 1.0, False, False
        self.seen: set[Scalar] = set()

    def work(self) -> NodeWork:
        body = self.scope.body
        operations = self.count(body, self.points, frozenset())
        moves = not body.binds and operations == 0
        reads = tuple(map(self._joined, self.found, self.operands))
        return NodeWork(self.points, operations, reads, self.reuse, self.window, moves, self.reduces, self.loose)

    def count(self, node: Scalar, times: float, bound: frozenset[Iter]) -> float:
        """Operations of an expression that is evaluated so many times; what occurs twice is computed once."""
        if node in self.seen or isinstance(node, Num) or node.integral:
            return 0.0
        self.seen.add(node)
        if isinstance(node, Read):
            self._read(node, bound)
            return sum(self.count(part, times, bound) for part in node.children)
        if isinstance(node, Reduce):
            return self._reduce(node, bound)
        if all(arg.integral for arg in node.args):
            return 0.0
        below_all = sum(self.count(arg, times, bound) for arg in node.args)
        placed = node.op == "select" and not node.args[0].reads
        if placed or node.op in {"and", "or", "not"} or node.op.startswith("convert:"):
            return below_all
        own = len(node.args) - 1.0 if node.op in {"+", "*"} else self._weight(node)
        return below_all + own * times

    def _weight(self, node: Scalar) -> float:
        """One function; a small whole power is a few products, and half of one a root."""
        power = self._number(node.args[1]) if node.op == "^" else None
        if power is None or abs(power) > POWERS or 2 * power != int(2 * power):
            return WEIGHTS.get(node.op, 1.0)
        products = max(abs(int(power)) - 1.0, 0.0)
        return products + WEIGHTS["sqrt"] * (power != int(power)) + WEIGHTS["/"] * (power < 0)

    def _number(self, node: Scalar) -> float | None:
        """The number that an expression is, where that is known."""
        if node.op.startswith("convert:"):
            return self._number(node.args[0])
        found = node.value if isinstance(node, Num) else None
        if isinstance(node, Read) and node.operand < len(self.numbers):
            found = self.numbers[node.operand]
        return None if found is None else float(found)

    def _reduce(self, node: Reduce, bound: frozenset[Iter]) -> float:
        # as a kernel does it: what a remainder leaves out is not looked at
        whole, node = node, strided(node)
        self.loose = self.loose or node is not whole
        for it, extent in node.ranges:
            try:
                low, high = interval(extent, self.range)
            except DataDependent:
                low = high = UNNAMED
            self.extent[it] = max((max(low, 0) + max(high, 0)) / 2, 1.0)
            self.range[it] = (0, max(high - 1, 0))
        # what does not depend on an iterator around is computed once for all of its positions
        count = prod(self.extent.get(it, 1.0) for it in node.free.union(node.iters))
        inner = bound | frozenset(node.iters)
        parts = [node.body, node.where] if node.where else [node.body]
        if any(part.reads for part in parts):
            self.reduces = True
            self._used_again(node)
        below = sum(self.count(part, count, inner) for part in parts)
        return below if node.kind == "sum" and isinstance(node.body, Num) else below + count

    def _used_again(self, node: Reduce) -> None:
        """Count the uses of the element that a reduction uses most rarely.

        Of a product where its factors are at different positions.
        """
        reads = list(scalars(Read, node))
        factors = {
            frozenset(part.free)
            for product in scalars(Apply, node.body)
            if product.name == "*"
            for part in product.args
            if part.reads and part.free
        }
        every = node.free.union(node.iters)
        distinct = max(self._distinct(part) for part in reads)
        again = prod(self.extent.get(it, 1.0) for it in every) / max(distinct, 1.0)
        if len(factors) > 1:
            self.reuse = max(self.reuse, again)
            mixed = any(
                len(index.free) > 1 and not index.free.isdisjoint(node.iters) for part in reads for index in part.index
            )
            self.loose = self.loose or (mixed and again <= FEW_CHANNELS)
        else:
            self.window = max(self.window, again)

    def _distinct(self, node: Read) -> float:
        """Elements of the operand that are read, at most."""
        asked = prod(self.extent.get(it, 1.0) for it in node.free)
        return min(asked, float(self.sizes.elements(self.operands[node.operand])))

    def _read(self, node: Read, bound: frozenset[Iter]) -> None:
        shape = self.operands[node.operand].shape
        reach = Reach.ANY if node.other else Reach.OWN
        at = -1
        for index, size in zip(node.index, shape, strict=True):
            if isinstance(index, Num) and index.value == 0 and size == 1:
                continue
            if index in bound:
                reach = max(reach, Reach.ROW)
            elif index in self.places and self.places.index(index) > at:
                at = self.places.index(index)
            else:
                reach = Reach.ANY
        last = next((i for i, s in zip(reversed(node.index), reversed(shape), strict=True) if s != 1), None)
        inner = {it for it in self.scope.iters[-1:] if self.extent[it] > 1}
        beside = last is not None and not (inner & last.free) and bool(inner & node.free)
        self.found[node.operand].append(Reading(reach, self._distinct(node), beside))

    def _joined(self, found: list[Reading], type: TensorType) -> Reading:
        if not found:
            return Reading(Reach.OWN, 0.0, False)
        distinct = min(sum(one.distinct for one in set(found)), float(self.sizes.elements(type)))
        return Reading(max(one.reach for one in found), distinct, all(one.strided for one in found))


def places(scope: Scope) -> tuple[Scalar, ...]:
    """The position of each dimension of the result by the iterators: `g * C + c` for a merged one."""
    out: list[Scalar] = []
    for dimension in scope.dimensions:
        place: Scalar = num(0)
        for k in dimension:
            place = plus(times(place, scope.extents[k]), scope.iters[k])
        out.append(place)
    return tuple(out)


class Profiles:
    """Profiles of the nodes of graphs, each kind of application looked at once. `sizes` are those of symbolic dimensions."""

    def __init__(self, rules: Rules, sizes: Mapping[str, int] | None = None) -> None:
        self.rules = rules
        self.sizes = WorkSizes(sizes)
        self._known: dict[object, Profile | None] = {}
        self._nodes: dict[Node, Profile | None] = {}
        self._works: dict[tuple[Scope, tuple[TensorType, ...], Numbers], NodeWork] = {}

    def of(self, node: Node) -> Profile | None:
        """None for what no kernel computes: what dslc does not know, or has no meaning at these types."""
        if node not in self._nodes:
            self._nodes[node] = self._of(node)
        return self._nodes[node]

    def _of(self, node: Node) -> Profile | None:
        if not isinstance(node, Call | ScopeNode) or None in node.types or not all(arg.known for arg in node.args):
            return None
        what: object = (node.op, node.tag) if isinstance(node, Call) else node.scope
        key = (type(node), what, tuple(arg.type for arg in node.args), tuple(arg.constant for arg in node.args))
        if key not in self._known:
            self._known[key] = self._profile(node)
        return self._known[key]

    def work(self, node: ScopeNode) -> NodeWork:
        """Count the work of a scope over its operands."""
        numbers = tuple(number_of(arg) for arg in node.args)
        key = (node.scope, tuple(arg.type for arg in node.args), numbers)
        if key not in self._works:
            self._works[key] = _Counting(node.scope, key[1], self.sizes, numbers).work()
        return self._works[key]

    def _profile(self, node: Call | ScopeNode) -> Profile | None:
        if isinstance(node, ScopeNode):
            params, outputs = node.args, node.values
        else:
            try:
                instance = expanded(self.rules, node.op, tuple(arg.type for arg in node.args), node.attrs)
            except (Mismatch, EvalError, DslcError, ValueError):
                return None
            params, outputs = instance.params, instance.outputs
        operations, reuse, window, moves, loose = 0.0, 1.0, 1.0, True, False
        ends = {param.node for param in params}
        scopes = [below for below in nodes_of(outputs) if below not in ends]
        if not all(isinstance(below, ScopeNode | Constant | Input) for below in scopes):
            return None
        # backwards: how far the results look into each value, by every way
        reach = dict.fromkeys(outputs, Reach.OWN)
        for below in reversed(scopes):
            if not isinstance(below, ScopeNode):
                continue
            work = self.work(below)
            operations += work.operations
            reuse, window = max(reuse, work.reuse), max(window, work.window)
            moves, loose = moves and work.moves, loose or work.loose
            own = reach.get(below.values[0], Reach.OWN)
            for arg, reading in zip(below.args, work.reads, strict=True):
                reach[arg] = max(reach.get(arg, Reach.OWN), reading.reach, own)
        own_reach = tuple(reach.get(param, Reach.OWN) for param in params)
        return Profile(own_reach, operations, reuse, window, moves and self._view(node), loose)

    def _view(self, node: Call | ScopeNode) -> bool:
        if not isinstance(node, Call) or len(node.types) != 1:
            return False
        varying = [arg for arg in node.args if not arg.constant]
        if len(varying) != 1 or self.sizes.elements(varying[0].type) != self.sizes.elements(node.values[0].type):
            return False
        cut = tuple(arg if arg.constant else input_value(f"x{k}", arg.type) for k, arg in enumerate(node.args))
        (static,) = bind_values(with_args(node, cut), self.sizes.named(node))
        found = static.node
        return isinstance(found, Call) and view(self.rules, found, tuple(arg.constant for arg in found.args))

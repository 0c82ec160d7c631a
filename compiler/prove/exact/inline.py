"""Programs as single expressions: every read of a scope is replaced by that scope's body, until only inputs are read.

Iterators get names of their own: they are named after their axis or depth and their extent, so that equal
subexpressions stay one object, and an index that is put into a deeper body is never captured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from fractions import Fraction
from typing import Any

from dslc.ir.constants import ArrayData, FillRef, clamped
from dslc.ir.dtype import DType
from dslc.ir.element import element_type
from dslc.ir.fold import least
from dslc.ir.graph import Constant, Input, ScopeNode, Value, Values
from dslc.ir.scalar import (
    Apply,
    Iter,
    Num,
    Read,
    Reduce,
    Scalar,
    Sym,
    Table,
    apply,
    as_scalar,
    iterator,
    num,
    raw_apply,
    read,
    rebuild,
    reduce,
    table,
)
from dslc.ir.scopes import inside, positions
from dslc.prove.exact.element_types import is_whole
from dslc.records import record

TABLE = 64  #: elements of a constant that is written out
NODES = 60_000  #: expressions of one program; with more it is no rule any more
PARTS = 4_096  #: factors of one product, or parts of one sum, at most

# an int64 below this number is the same as an integer without a type
_SMALL = 1 << 31


class CannotInline(Exception):
    """A program that is no expression over inputs, with the reason."""


@record
class _Body:
    """The meanings of the iterators and operands of a scope's body; `depth` counts the reductions around it."""

    at: Mapping[Iter, Scalar]
    args: Values
    depth: int
    types: tuple[DType, ...] = ()
    memo: dict[Scalar, Scalar] = field(default_factory=dict)


class Inliner:
    """Shared by both sides, so that inputs have one number. `extents` gives the range of every iterator."""

    def __init__(
        self,
        known: Mapping[Scalar, Scalar],
        check: Callable[[], None],
        shorter: Callable[[Scalar, dict[Iter, Scalar]], Scalar] = lambda index, extents: index,
    ) -> None:
        """`shorter`: an index without needless quotients, which grow from one scope to the next."""
        #: the tensors that the expressions read, by operand number
        self.inputs: list[Value] = []
        self.extents: dict[Iter, Scalar] = {}
        self._known = known
        self._check = check
        self._shorter = shorter
        self._outside = _Body({}, (), 0)
        self._numbers: dict[Value, int] = {}
        self._memo: dict[tuple[Value, tuple[Scalar, ...], int], Scalar] = {}

    def position(self, value: Value) -> tuple[Scalar, ...]:
        """A position of an output: an iterator for every axis, 0 where it has size 1."""
        position: list[Scalar] = []
        for axis, size in enumerate(value.type.shape):
            extent = self.size(size)
            if extent is num(1):
                position.append(num(0))
            else:
                at = iterator(f"o{axis}:{extent}")
                self.extents[at] = extent
                position.append(at)
        return tuple(position)

    def output(self, value: Value, position: tuple[Scalar, ...]) -> Scalar:
        """The element of an output at a position, as an expression over inputs."""
        return self._value(value, position, 0)

    def placed(self, root: Scalar, at: Mapping[Iter, Scalar], args: Values) -> Scalar:
        """A part of a scope's body, where its iterators and operands stand for these."""
        return self._scalar(root, at, args, 0)

    def size(self, size: int | Scalar) -> Scalar:
        return self._put(as_scalar(size), self._outside)

    def _value(self, value: Value, index: tuple[Scalar, ...], depth: int) -> Scalar:
        index = tuple(self._shorter(part, self.extents) for part in index)
        key = (value, index, depth)
        found = self._memo.get(key)
        if not found:
            if len(self._memo) > NODES:
                raise CannotInline("the programs are too large")
            self._check()
            found = self._memo[key] = self._fresh(value, index, depth)
        return found

    def _fresh(self, value: Value, index: tuple[Scalar, ...], depth: int) -> Scalar:
        node = value.node
        dtype = value.type.dtype
        if isinstance(node, ScopeNode):
            body = self._scalar(node.scope.body, positions(node.scope, index, self.size), node.args, depth)
            return self._of_type(body, element_type(node.scope.body, _types(node.args)), dtype)
        if isinstance(node, Constant):
            data = node.data
            if isinstance(data, FillRef):
                return self._of_type(num(clamped(data.value, dtype)), None, dtype)
            if isinstance(data, ArrayData) and 0 < data.array.size <= TABLE and dtype is not DType.BF16:
                found = table(nested(data.array.tolist()), index) if index else num(data.array.item())
                return self._of_type(found, None, dtype)
        elif not isinstance(node, Input):
            raise CannotInline(f"the node {getattr(node, 'label', getattr(node, 'op', '?'))} has no expression")
        number = self._numbers.setdefault(value, len(self.inputs))
        if number == len(self.inputs):
            self.inputs.append(value)
        return read(number, index)

    def _of_type(self, body: Scalar, source: DType | None, target: DType) -> Scalar:
        """A body as the tensor has it, whose type is lost where it is read: converted, unless it is a number of the type as it is."""
        if source is target or (source is None and target.is_float):
            return body
        if source is None and isinstance(body, Num):
            # a truth value, or an int64 far from the ends, is the same with and without its type
            same = (
                target is DType.BOOL
                if isinstance(body.value, bool)
                else target is DType.I64 and isinstance(body.value, int) and abs(body.value) < _SMALL
            )
            return body if same else raw_apply(f"convert:{target}", body)
        if source is None and target is DType.I64 and is_whole(body):
            return body
        return raw_apply(f"convert:{target}", body)

    def _scalar(self, root: Scalar, at: Mapping[Iter, Scalar], args: Values, depth: int) -> Scalar:
        return self._put(root, _Body(at, args, depth, _types(args)))

    def _put(self, node: Scalar, body: _Body) -> Scalar:
        found = body.memo.get(node)
        if not found:
            found = body.memo[node] = self._put_fresh(node, body)
        return found

    def _put_fresh(self, node: Scalar, body: _Body) -> Scalar:
        if isinstance(node, Apply):
            args = [self._put(arg, body) for arg in node.args]
            # a product of products is one product: squares of squares double it each time
            if sum(len(arg.args) for arg in args if arg.op == node.name) > PARTS:
                raise CannotInline("the programs are too large")
            new = self._quotient(node, args, body) or apply(node.name, *args)
            return self._known.get(new, new)
        if isinstance(node, Iter):
            return body.at[node]
        if isinstance(node, Sym):
            return self._known.get(node, node)
        if isinstance(node, Table):
            return table(node.values, tuple([self._put(part, body) for part in node.index]))
        if isinstance(node, Read):
            index = tuple([_position(self._put(part, body)) for part in node.index])
            operand = body.args[node.operand]
            value = self._value(operand, index, body.depth)
            if not node.other:
                return value
            return apply("select", inside(index, operand.type.shape, self.size), value, self._put(node.other, body))
        if isinstance(node, Reduce):
            return self._reduce(node, body.at, body.args, body.depth)
        return node

    def _quotient(self, node: Apply, args: list[Scalar], body: _Body) -> Scalar | None:
        """A division of integers, which is cut towards zero, by a name of its own; one by what may be 0 as it is; else None."""
        if node.name == "/" and args[0] is args[1] and not (least(args[1]) or 0) > 0:
            return raw_apply("/", *args)
        fraction = node.name == "*" and isinstance(args[0], Num) and isinstance(args[0].value, Fraction)
        if not (node.name == "/" or fraction) or not any(dtype.is_integer for dtype in body.types) or not node.reads:
            return None
        dtype = element_type(node, body.types)
        if dtype is None or not dtype.is_integer:
            return None
        if node.name == "/":
            return raw_apply(f"quotient:{dtype}", *args)
        number, inner = node.args[0], node.args[1]
        assert isinstance(number, Num) and isinstance(number.value, Fraction)
        computed = inner.op in {"+", "*"}
        if len(args) > 2 or computed or number.value.numerator != 1:
            raise CannotInline("a fraction times a computed integer")
        # how the smart constructors write a division by a number
        return raw_apply(f"quotient:{dtype}", args[1], num(number.value.denominator))

    def _reduce(self, node: Reduce, at: Mapping[Iter, Scalar], args: Values, depth: int) -> Scalar:
        inner = dict(at)
        iters: list[Iter] = []
        extents: list[Scalar] = []
        for it, size in node.ranges:
            extent = self._scalar(size, inner, args, depth)
            if extent is num(1):
                inner[it] = num(0)
                continue
            name = iterator(f"b{depth + len(iters)}:{extent}")
            self.extents[name] = extent
            inner[it] = name
            iters.append(name)
            extents.append(extent)
        below = depth + len(iters)
        where = self._scalar(node.where, inner, args, below) if node.where else None
        return reduce(node.kind, tuple(iters), tuple(extents), self._scalar(node.body, inner, args, below), where)


def _position(index: Scalar) -> Scalar:
    """An index of numbers alone, which are integers there."""
    if index.reads or index.integral:
        return index
    return rebuild(index, lambda part: part.args[0] if part.op == "convert:int64" else None)


def _types(args: Values) -> tuple[DType, ...]:
    return tuple([arg.type.dtype for arg in args])


def nested(item: Any) -> Any:
    """Lists as tuples."""
    return tuple(nested(part) for part in item) if isinstance(item, list) else item

"""Classes of element types to which a proof over the reals carries over.

Two polynomials with integer coefficients that agree at all real numbers have the same coefficients, so they agree in every
commutative ring: integers modulo 2^bits are one. What takes maxima, minima and comparisons alone takes integers to integers, and
what holds for all reals holds for those; where `inf` occurs, the type's ends stand for it, which maxima and minima alone respect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import Flag
from functools import reduce
from math import isinf, isnan
from operator import and_

from dslc.ir.constants import number_of
from dslc.ir.dtype import TypeClass
from dslc.ir.graph import Constant, Input, Node, ScopeNode, Value, nodes_of
from dslc.ir.scalar import Iter, Num, Number, Read, Reduce, Scalar, Sym, Table, flat, walk
from dslc.prove.instances.instances import SymbolicInstance

# integers that every type has, that every signed type has, and those of booleans
_COMMON, _SIGNED, _BOOL = range(128), range(-128, 128), range(2)
_COMPARISONS = frozenset("== != < <= > >= and or not".split())
_SUMS, _EXTREMES = frozenset({"sum", "prod"}), frozenset({"max", "min"})
_KEEPING = frozenset("max min sign floor ceil round trunc".split())
# on integers of known sizes these give integers
_WHOLE = _KEEPING | {"+", "*", "//", "%", "abs"}


class _Made(Flag):
    """Operations by which a value is made from the tensors whose element type is a variable."""

    NEITHER = 0
    RING = 1
    #: by maxima, minima and comparisons
    ORDER = 2
    BOTH = 3


def carried(instances: Iterable[SymbolicInstance], numbers: Collection[str] = ()) -> frozenset[TypeClass]:
    """The classes for which instances that are equal over the reals are equal too.

    `numbers`: unknown numbers that are elements of tensors of the variable type.
    """
    pairs = ((a, b) for each in instances for a, b in zip(each.left, each.right, strict=True) if a != b)
    return frozenset(TypeClass).intersection(*(_Pair(frozenset(numbers)).classes(pair) for pair in pairs))


class _Pair:
    """Two values, and the operations by which they are made."""

    def __init__(self, elements: frozenset[str]) -> None:
        self._elements = elements
        #: operations of each node; None where no element of a tensor of the variable types goes into it
        self._known: dict[Node, _Made | None] = {}
        self._numbers: set[int] = set()
        self._infinite = self._arithmetic = self._compared = False
        self._memo: dict[tuple[ScopeNode, Scalar], _Made] = {}

    def classes(self, pair: Sequence[Value]) -> set[TypeClass]:
        for node in nodes_of(pair):
            self._known[node] = self._node(node)
        made = _all(self._known[value.node] for value in pair)
        out: set[TypeClass] = set()
        if _Made.RING in made:
            out |= {TypeClass.SIGNED, TypeClass.UNSIGNED}
            # nothing is computed with elements at all
            if not self._arithmetic and self._numbers <= set(_BOOL):
                out.add(TypeClass.BOOL)
        if _Made.ORDER in made and not (self._infinite and self._compared) and not self._arithmetic:
            pairs = ((TypeClass.SIGNED, _SIGNED), (TypeClass.UNSIGNED, _COMMON), (TypeClass.BOOL, _BOOL))
            out |= {one for one, numbers in pairs if self._numbers <= set(numbers)}
        return out

    def _node(self, node: Node) -> _Made | None:
        if isinstance(node, Input | Constant):
            if not Value(node).type.dtype.is_float:
                return None
            number = number_of(Value(node)) if isinstance(node, Constant) else True
            return _Made.NEITHER if number is None else self._number(number)
        if not isinstance(node, ScopeNode) or self._any_depends(node.scope.extents, node):
            return _Made.NEITHER
        if not node.scope.dtype.is_float and not self._any_depends((node.scope.body,), node):
            return None
        return self._scalar(node.scope.body, node)

    def _number(self, value: Number) -> _Made:
        if isinstance(value, bool):
            return _Made.BOTH
        if isinstance(value, float) and isinf(value):
            self._infinite = True
            return _Made.ORDER
        if isnan(value) or value != int(value):
            return _Made.NEITHER
        self._numbers.add(int(value))
        return _Made.BOTH

    def _any_depends(self, roots: Iterable[Scalar | int | None], node: ScopeNode) -> bool:
        """Return whether elements of tensors of the variable types go into some of several expressions."""
        parts = (part for root in roots if isinstance(root, Scalar) for part in walk(root))
        return any(isinstance(part, Read) and self._known[node.args[part.operand].node] is not None for part in parts)

    def _scalar(self, body: Scalar, node: ScopeNode) -> _Made:
        if (node, body) not in self._memo:
            self._memo[node, body] = self._computed(body, node)
        return self._memo[node, body]

    def _computed(self, body: Scalar, node: ScopeNode) -> _Made:
        if not self._any_depends((body,), node):
            return self._plain(body)
        made = _Made.NEITHER
        if isinstance(body, Read) and not self._any_depends(body.index, node):
            made = _all((self._known[node.args[body.operand].node],))
            made &= self._scalar(body.other, node) if body.other else _Made.BOTH
        elif isinstance(body, Reduce) and not self._any_depends((*body.extents, body.where), node):
            self._arithmetic |= body.kind in _SUMS
            self._infinite |= body.kind in _EXTREMES  # of no elements
            self._compared |= body.kind not in _SUMS | _EXTREMES
            made = self._scalar(body.body, node) & (_Made.RING if body.kind in _SUMS else _Made.ORDER)
        else:
            name, parts = body.op, [self._scalar(arg, node) for arg in body.args]
            if name == "select" and not self._any_depends(body.args[:1], node):
                return parts[1] & parts[2]
            if name in {"+", "*", "^"}:
                self._arithmetic = True
                power = body.args[1]
                whole = isinstance(power, Num) and isinstance(power.value, int) and power.value >= 0
                made = _all(parts) & (_Made.RING if name != "^" or whole else _Made.NEITHER)
            elif name in _COMPARISONS | _KEEPING | {"select"}:
                self._compared |= name not in _EXTREMES
                made = _all(parts) & _Made.ORDER
        return made

    def _plain(self, body: Scalar) -> _Made:
        """An expression of numbers, sizes, positions and tensors of other types."""
        if isinstance(body, Num):
            return self._number(body.value)
        if isinstance(body, Sym) and body.name in self._elements:
            return _Made.BOTH
        if not _whole(body):
            return _Made.NEITHER
        # how large it may be is not known
        return _Made.BOTH if isinstance(body, Read) or not _numeric(body) else _Made.RING


def _all(made: Iterable[_Made | None]) -> _Made:
    """Operations that are all of several kinds, where there are some."""
    return reduce(and_, (each for each in made if each is not None), _Made.BOTH)


def _whole(body: Scalar) -> bool:
    """Return whether an expression without variable types is a truth value or an integer."""
    if isinstance(body, Num):
        return isinstance(body.value, int)
    if isinstance(body, Iter | Sym | Read):
        return True
    if isinstance(body, Table):
        return all(isinstance(item, int) for item in flat(body.values))
    if isinstance(body, Reduce):
        return body.kind in {"sum", "prod", "any", "all"} and _whole(body.body)
    return body.op in _COMPARISONS or (body.op in _WHOLE | {"select"} and all(map(_whole, body.args)))


def _numeric(body: Scalar) -> bool:
    if isinstance(body, Reduce):
        return body.kind not in {"any", "all"}
    return body.op not in _COMPARISONS and (body.op != "select" or _numeric(body.args[1]))

"""Classes of element types to which a proof over the reals carries over.

Two polynomials with integer coefficients that agree at all real numbers have the same coefficients, so they agree in every
commutative ring: integers modulo 2^bits are one. What takes maxima, minima and comparisons alone takes integers to integers, and
what holds for all reals holds for those; where `inf` occurs, the type's ends stand for it, which maxima and minima alone respect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import Flag
from math import isinf, isnan

from dslc.ir.constants import number_of
from dslc.ir.dtype import TypeClass
from dslc.ir.graph import Constant, Input, Node, ScopeNode, Value, topological
from dslc.ir.scalar import Apply, Iter, Num, Number, Read, Reduce, Scalar, Sym, Table, flat, walk
from dslc.prove.instances.instances import SymbolicInstance

# integers that every type has, that every signed type has, and those of booleans
_COMMON, _SIGNED, _BOOL = range(128), range(-128, 128), range(2)
_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">=", "and", "or", "not"})
_KEEPING = frozenset({"max", "min", "sign", "floor", "ceil", "round", "trunc"})
# on integers of known sizes these give integers
_WHOLE = frozenset({"+", "*", "//", "%", "max", "min", "abs", "sign", "floor", "ceil", "round", "trunc"})


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
    out = set(TypeClass)
    for instance in instances:
        made = _Programs(frozenset(numbers))
        for left, right in zip(instance.left, instance.right, strict=True):
            if left == right:
                continue
            out &= made.classes((left, right))
            if not out:
                return frozenset()
    return frozenset(out)


class _Programs:
    """The values of one instance."""

    def __init__(self, elements: frozenset[str]) -> None:
        self._elements = elements
        #: how each node is made; None where no element of a tensor of the variable types goes into it
        self._known: dict[Node, _Made | None] = {}
        self._numbers: set[int] = set()
        self._infinite = self._arithmetic = self._compared = False

    def classes(self, pair: Sequence[Value]) -> set[TypeClass]:
        self._known, self._numbers = {}, set()
        self._infinite = self._arithmetic = self._compared = False
        for node in topological(value.node for value in pair):
            self._known[node] = self._node(node)
        made = _Made.BOTH
        for value in pair:
            made &= self._of(self._known[value.node])
        out: set[TypeClass] = set()
        if _Made.RING in made:
            out |= {TypeClass.SIGNED, TypeClass.UNSIGNED}
            # nothing is computed with elements at all
            if not self._arithmetic and self._numbers <= set(_BOOL):
                out.add(TypeClass.BOOL)
        ordered = _Made.ORDER in made and not (self._infinite and self._compared)
        if ordered and not self._arithmetic:
            pairs = ((TypeClass.SIGNED, _SIGNED), (TypeClass.UNSIGNED, _COMMON), (TypeClass.BOOL, _BOOL))
            out |= {one for one, numbers in pairs if self._numbers <= set(numbers)}
        return out

    @staticmethod
    def _of(made: _Made | None) -> _Made:
        return _Made.BOTH if made is None else made

    def _node(self, node: Node) -> _Made | None:
        if isinstance(node, Input):
            return _Made.BOTH if Value(node).type.dtype.is_float else None
        if isinstance(node, Constant):
            if not Value(node).type.dtype.is_float:
                return None
            number = number_of(Value(node))
            return _Made.NEITHER if number is None else self._number(number)
        if isinstance(node, ScopeNode):
            if any(isinstance(extent, Scalar) and self._depends(extent, node) for extent in node.scope.extents):
                return _Made.NEITHER
            if not node.scope.dtype.is_float and not self._depends(node.scope.body, node):
                return None
            return self._scalar(node.scope.body, node, {})
        return _Made.NEITHER

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

    def _depends(self, body: Scalar, node: ScopeNode) -> bool:
        """Return whether elements of tensors of the variable types go into an expression."""
        return any(
            isinstance(part, Read) and self._known[node.args[part.operand].node] is not None for part in walk(body)
        )

    def _scalar(self, body: Scalar, node: ScopeNode, memo: dict[Scalar, _Made]) -> _Made:
        found = memo.get(body)
        if found is None:
            found = memo[body] = self._computed(body, node, memo)
        return found

    def _computed(self, body: Scalar, node: ScopeNode, memo: dict[Scalar, _Made]) -> _Made:
        if not self._depends(body, node):
            return self._plain(body)
        if isinstance(body, Read):
            if any(self._depends(index, node) for index in body.index):
                return _Made.NEITHER
            made = self._of(self._known[node.args[body.operand].node])
            return made if body.other is None else made & self._scalar(body.other, node, memo)
        if isinstance(body, Reduce):
            if any(self._depends(extent, node) for extent in body.extents):
                return _Made.NEITHER
            if body.where is not None and self._depends(body.where, node):
                return _Made.NEITHER
            inner = self._scalar(body.body, node, memo)
            return inner & self._reduction(body.kind)
        if not isinstance(body, Apply):
            return _Made.NEITHER
        parts = [self._scalar(arg, node, memo) for arg in body.args]
        made = _Made.BOTH
        for part in parts:
            made &= part
        if body.name in {"+", "*"}:
            self._arithmetic = True
            return made & _Made.RING
        if body.name == "^":
            exponent = body.args[1]
            self._arithmetic = True
            whole = isinstance(exponent, Num) and isinstance(exponent.value, int) and exponent.value >= 0
            return made & _Made.RING if whole else _Made.NEITHER
        if body.name == "select":
            if self._depends(body.args[0], node):
                self._compared = True
                return made & _Made.ORDER
            return self._scalar(body.args[1], node, memo) & self._scalar(body.args[2], node, memo)
        if body.name in _COMPARISONS:
            self._compared = True
            return made & _Made.ORDER
        if body.name in _KEEPING:
            self._compared = self._compared or body.name not in {"max", "min"}
            return made & _Made.ORDER
        return _Made.NEITHER

    def _reduction(self, kind: str) -> _Made:
        if kind in {"sum", "prod"}:
            self._arithmetic = True
            return _Made.RING
        if kind in {"max", "min"}:
            self._infinite = True  # of no elements
            return _Made.ORDER
        self._compared = True
        return _Made.ORDER

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
    if isinstance(body, Apply):
        if body.name in _COMPARISONS:
            return True
        return (body.name in _WHOLE or body.name == "select") and all(_whole(arg) for arg in body.args)
    return False


def _numeric(body: Scalar) -> bool:
    if isinstance(body, Apply):
        return body.name not in _COMPARISONS and (body.name != "select" or _numeric(body.args[1]))
    return not (isinstance(body, Reduce) and body.kind in {"any", "all"})

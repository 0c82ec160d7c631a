"""The types of the elements of a rule's tensors: numbers of one type, truth values, or positions."""

from __future__ import annotations

from dslc.foreign.counterparts import ELEMENTS, OF_ANY_ELEMENTS
from dslc.foreign.rule import ForeignRule, Operator, RuleTensor
from dslc.foreign.shapes import Clash

_NAMES = {"T": "numbers", "bool": "truth values", "int64": "positions"}
_Place = tuple[int, RuleTensor]


def element_types(rule: ForeignRule) -> dict[int, str]:
    """`T`, `bool` or `int64` for each free input.

    Raises:
        Clash: a tensor would have to hold two of them.
    """
    found = _Elements()
    for side, operators in enumerate((rule.source, rule.target)):
        for at, op in enumerate(operators):
            found.operator(side, at, op)
    for output in rule.outputs:
        found.equal(_place(0, output.source), _place(1, output.target))
    return {number: found.type_of(_place(0, RuleTensor(number))) for number in rule.inputs()}


def _place(side: int, tensor: RuleTensor) -> _Place:
    """Inputs are the same on both sides."""
    return (0 if tensor.operator < 0 else side, tensor)


class _Elements:
    def __init__(self) -> None:
        self._same: dict[_Place, _Place] = {}
        self._types: dict[_Place, str] = {}

    def _root(self, place: _Place) -> _Place:
        while place in self._same:
            place = self._same[place]
        return place

    def operator(self, side: int, at: int, op: Operator) -> None:
        result = (side, RuleTensor(at))
        if op.kind in OF_ANY_ELEMENTS:
            for tensor in op.inputs:
                self.equal(result, _place(side, tensor))
            for output in range(1, 16 if op.kind == "split" else 1):
                self.equal(result, (side, RuleTensor(at, output)))
            return
        wanted, given = ELEMENTS.get(op.kind, (("T",) * len(op.inputs), "T"))
        self._is(result, given)
        if op.kind == "topk":
            self._is((side, RuleTensor(at, 1)), "int64")
        for tensor, kind in zip(op.inputs, wanted, strict=False):
            self._is(_place(side, tensor), kind)

    def equal(self, a: _Place, b: _Place) -> None:
        first, second = self._root(a), self._root(b)
        if first == second:
            return
        kind = self._types.get(first)
        self._same[first] = second
        if kind is not None:
            self._is(second, kind)

    def _is(self, place: _Place, kind: str) -> None:
        known = self._types.setdefault(self._root(place), kind)
        if known != kind:
            raise Clash(f"a tensor holds both {_NAMES[known]} and {_NAMES[kind]}")

    def type_of(self, place: _Place) -> str:
        return self._types.get(self._root(place), "T")

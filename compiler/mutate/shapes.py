"""Results of operators on tensors of any sizes, worked out once at unknown sizes, and looked up afterwards.

An operator is applied to tensors of unknown sizes; what that asks is answered as it is at the sizes at hand, and written down. The next
sizes that answer the same have a result of the same form: numbers are put in, and no type is inferred.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from dslc.analysis.numeric import DataDependent, Undefined, value
from dslc.errors import DslcError
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Value, Values
from dslc.ir.holes import hole
from dslc.ir.scalar import Scalar, apply, as_scalar, dimension, num, rebuild
from dslc.ir.sizes import with_sizes
from dslc.mutate.cores import Core, instance
from dslc.mutate.layouts import Shape
from dslc.mutate.problem import shape_of
from dslc.records import record
from dslc.semantics.apply import apply as apply_operator
from dslc.semantics.elaborate import expand
from dslc.semantics.env import EvalError, Mismatch, Unbound
from dslc.semantics.library import Rules

CASES = 24  #: ways to answer that are kept for an operator with its attributes on tensors of some ranks


@record
class _Case:
    """The answers of one case, and the result of an operator then, in scopes; None where the tensors do not fit."""

    answers: tuple[tuple[Scalar, bool], ...]
    result: Value | None


@dataclass(slots=True)
class _Guided:
    """Answers as they are at some sizes, written down. Implements `dslc.semantics.assuming.Assuming`."""

    at: Mapping[Scalar, int]
    answers: dict[Scalar, bool] = field(default_factory=dict)

    def require(self, condition: Scalar) -> bool:
        return self.decide(condition)

    def decide(self, condition: Scalar) -> bool:
        found = self.answers[condition] = bool(value(condition, self.at))
        return found

    def one_of(self, conditions: Sequence[Scalar]) -> int:
        for k, condition in enumerate(conditions):
            if self.decide(condition):
                return k
        raise Mismatch("sizes that do not go together")

    def quotient(self, size: Scalar, divisor: Scalar) -> Scalar:
        if not self.decide(apply("==", apply("%", size, divisor), as_scalar(0))):
            raise Mismatch("a size that is no multiple")
        return apply("//", size, divisor)

    def dtype_of(self, number: Scalar) -> DType:
        return DType.I64


@dataclass(slots=True)
class Shapes:
    """Results of operators on tensors of one element type."""

    rules: Rules
    dtype: DType
    _cases: dict[tuple[Core, tuple[int, ...]], list[_Case]] = field(init=False, default_factory=dict)
    #: how often an operator was applied
    asked: int = field(init=False, default=0)

    def of(self, core: Core, shapes: tuple[Shape, ...]) -> Shape | None:
        """The shape of an operator's result on tensors of some shapes, None where they do not fit."""
        at = _sizes(shapes)
        try:
            case = self._found(core, shapes, at)
            if case:
                return (
                    None
                    if case.result is None
                    else tuple([int(value(as_scalar(size), at)) for size in case.result.type.shape])
                )
        except (DataDependent, Undefined):
            pass
        made = instance(self.rules, core, self.holes(shapes))
        return shape_of(made) if made else None

    def scope(self, core: Core, shapes: tuple[Shape, ...]) -> Value | None:
        """The expression of an operator over `holes(shapes)`; None where tensors of these shapes do not fit."""
        at = _sizes(shapes)
        try:
            case = self._found(core, shapes, at)
            if case:
                if case.result is None:
                    return None
                memo: dict[Scalar, Scalar] = {}
                (found,) = with_sizes((case.result,), lambda item: rebuild(item, lambda node: _number(node, at), memo))
                return found
        except (DataDependent, Undefined):
            pass
        made = instance(self.rules, core, self.holes(shapes))
        return expand(self.rules, (made,))[0] if made else None

    def holes(self, shapes: Sequence[Shape]) -> Values:
        """Tensors of some shapes that stand for any."""
        return tuple(hole(k, TensorType(self.dtype, shape)) for k, shape in enumerate(shapes))

    def _found(self, core: Core, shapes: tuple[Shape, ...], at: Mapping[Scalar, int]) -> _Case | None:
        """The case of some sizes; None where none is made, as they are asked of one by one."""
        ranks = tuple(map(len, shapes))
        cases = self._cases.setdefault((core, ranks), [])
        for number, case in enumerate(cases):
            if all(value(condition, at) == answer for condition, answer in case.answers):
                if number:
                    # what came last comes again
                    cases.insert(0, cases.pop(number))
                return case
        self.asked += 1
        if len(cases) >= CASES:
            return None
        try:
            found = self._case(core, ranks, at)
        except (DataDependent, EvalError, Unbound, DslcError, TypeError, ValueError, ArithmeticError, IndexError):
            return None
        cases.insert(0, found)
        return found

    def _case(self, core: Core, ranks: Sequence[int], at: Mapping[Scalar, int]) -> _Case:
        guided = _Guided(at)
        known = replace(self.rules, assuming=guided)
        # what is worked out under these answers is no one else's
        known.__dict__["_caches"] = {}
        holes = [
            hole(k, TensorType(self.dtype, tuple(_size(k, axis) for axis in range(rank))))
            for k, rank in enumerate(ranks)
        ]
        try:
            (made,) = apply_operator(known, core.op, holes, dict(core.attrs))
            good = made.known and made.type.dtype.is_float
            result = expand(known, (made,))[0] if good else None
        except Mismatch:
            return _Case(tuple(guided.answers.items()), None)
        return _Case(tuple(guided.answers.items()), result)


def _sizes(shapes: Sequence[Shape]) -> dict[Scalar, int]:
    return {_size(k, axis): size for k, shape in enumerate(shapes) for axis, size in enumerate(shape)}


def _number(node: Scalar, at: Mapping[Scalar, int]) -> Scalar | None:
    return num(at[node]) if node in at else None


@cache
def _size(tensor: int, axis: int) -> Scalar:
    return dimension(f"{tensor}_{axis}")

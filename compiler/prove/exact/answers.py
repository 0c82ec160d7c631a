"""Answers of a comparison of two programs, and what they presume."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import lru_cache

from dslc.ir.dtype import DType
from dslc.ir.element import element_type
from dslc.ir.graph import Scope, ScopeNode, Value, nodes_of
from dslc.ir.scalar import Reduce, Scalar, walk
from dslc.records import record

NOT_NAN = "what is compared is not NaN"  #: a presumption of proofs besides that floats are real numbers


@record
class Equal:
    """The programs are equal for all sizes that satisfy the conditions; `presumed` is no part of its identity."""

    presumed: tuple[str, ...] = field(default=(), compare=False)


@record
class Differs:
    """At these sizes, output number `output` differs at `position`, in the coefficient of `monomial`."""

    sizes: Mapping[str, int]
    output: int
    position: tuple[int, ...]
    monomial: str


@record
class Undecided:
    """`places`: it is a matter of places in merged dimensions, which numbers for some sizes may decide."""

    reason: str
    places: bool = False


Answer = Equal | Differs | Undecided


_ORDER = frozenset({"<", "<=", ">", ">=", "==", "!=", "max", "min", "abs", "sign"})


def presumed(outputs: Iterable[Value]) -> tuple[str, ...]:
    """The presumptions of a proof about programs: `outputs` are expanded."""
    for node in nodes_of(outputs):
        if isinstance(node, ScopeNode) and _compares_floats(node.scope, tuple(arg.type.dtype for arg in node.args)):
            return (NOT_NAN,)
    return ()


@lru_cache(maxsize=1 << 12)
def _compares_floats(scope: Scope, operands: tuple[DType, ...]) -> bool:
    """Return whether elements of floating-point tensors are compared, or the larger or smaller one of some is taken."""
    types = (element_type(each, operands) for part in walk(scope.body) for each in _compared(part) if each.reads)
    return any(found is not None and found.is_float for found in types)


def _compared(node: Scalar) -> tuple[Scalar, ...]:
    if isinstance(node, Reduce):
        return (node.body,) if node.kind in {"max", "min"} else ()
    return node.args if node.op in _ORDER else ()

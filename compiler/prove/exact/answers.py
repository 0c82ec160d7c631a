"""Answers of a comparison of two programs, and what they presume."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from dslc.ir.dtype import DType
from dslc.ir.element import element_type
from dslc.ir.graph import Scope, ScopeNode, Value, topological
from dslc.ir.scalar import Apply, Reduce, Scalar, walk


class Presumed(Enum):
    """A presumption of a proof besides that floats are real numbers; the value is how it is said."""

    NOT_NAN = "what is compared is not NaN"


@dataclass(frozen=True, slots=True)
class Equal:
    """The programs are equal for all sizes that satisfy the conditions; `presumed` is no part of its identity."""

    presumed: frozenset[Presumed] = field(default=frozenset(), compare=False)


@dataclass(frozen=True, slots=True)
class Differs:
    """At these sizes, output number `output` differs at `position`, in the coefficient of `monomial`."""

    sizes: Mapping[str, int]
    output: int
    position: tuple[int, ...]
    monomial: str


@dataclass(frozen=True, slots=True)
class Undecided:
    """`places`: it is a matter of places in merged dimensions, which numbers for some sizes may decide."""

    reason: str
    places: bool = False


Answer = Equal | Differs | Undecided


_ORDER = frozenset({"<", "<=", ">", ">=", "==", "!=", "max", "min", "abs", "sign"})


def presumed(outputs: Iterable[Value]) -> frozenset[Presumed]:
    """The presumptions of a proof about programs: `outputs` are expanded."""
    for node in topological(value.node for value in outputs):
        if isinstance(node, ScopeNode) and _compares_floats(node.scope, tuple(arg.type.dtype for arg in node.args)):
            return frozenset({Presumed.NOT_NAN})
    return frozenset()


@lru_cache(maxsize=1 << 12)
def _compares_floats(scope: Scope, operands: tuple[DType, ...]) -> bool:
    """Return whether elements of floating-point tensors are compared, or the larger or smaller one of some is taken."""
    return any(_is_float(each, operands) for part in walk(scope.body) for each in _compared(part) if each.reads)


def _compared(node: Scalar) -> tuple[Scalar, ...]:
    if isinstance(node, Reduce):
        return (node.body,) if node.kind in {"max", "min"} else ()
    return node.args if isinstance(node, Apply) and node.name in _ORDER else ()


def _is_float(node: Scalar, operands: tuple[DType, ...]) -> bool:
    found = element_type(node, operands)
    return found is not None and found.is_float

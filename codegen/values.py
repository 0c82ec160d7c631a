"""Values of the emitter: constants of the generated code, tensors, and the places at which parts are computed."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from dslc.codegen.functions import computed, literal_text
from dslc.codegen.nest import Block
from dslc.codegen.poly import Poly, Quotient, const, of_size
from dslc.ir.dtype import DType, TensorType
from dslc.ir.element import element_type
from dslc.ir.graph import Scope, Value
from dslc.ir.scalar import Apply, Iter, Num, Number, Reduce, Scalar, Table, flat
from dslc.records import record

if TYPE_CHECKING:
    from dslc.codegen.group import Part


@record
class Val:
    """A value of the generated code; `dtype` is what it is computed with (f16 and bf16 are f32 then)."""

    text: str
    dtype: DType
    lanes: bool
    level: int
    #: what it is where that is a number, written in the code
    number: bool | int | float | None = None

    @property
    def literal(self) -> bool:
        return self.number is not None


def literal(value: Number, dtype: DType) -> Val:
    """A number of an element type."""
    dtype = computed(dtype)
    number: bool | int | float = float(value) if dtype.is_float else bool(value) if dtype is DType.BOOL else 0
    if dtype.is_integer:
        number = int(value) if not isinstance(value, float) or (value == value and abs(value) != inf) else 0
    return Val(literal_text(value, dtype), dtype, False, 0, number)


@dataclass(slots=True)
class TensorPlace:
    """Address of elements: a pointer and a stride per position of the index. `rows`: it has only the inner positions of a part."""

    pointer: str
    dtype: DType
    strides: tuple[Poly, ...]
    elements: Poly
    shape: tuple[Poly, ...]
    #: how many elements lie side by side for one position: the lanes of a row's buffer
    spread: int = 1
    #: for a row's buffer, whose strides and sizes are those of the iterators of the part
    scope: Scope | None = None
    #: the loop in which it is written
    level: int = 0


@dataclass(eq=False, slots=True)
class Env:
    """A part at a place: what its iterators are, and where its operands."""

    part: Part
    iters: dict[Iter, Poly]
    #: values of other parts at this place, by the part's value: computed already, in registers
    known: dict[Value, Val]
    tensors: dict[Value, TensorPlace]
    types: dict[Scalar, Any] = field(default_factory=dict)

    def inside(self, iters: dict[Iter, Poly]) -> Env:
        """The same with iterators of a reduction."""
        return Env(self.part, {**self.iters, **iters}, self.known, self.tensors, self.types)

    def type_of(self, node: Scalar) -> DType | None:
        return element_type(node, self.part.dtypes, self.types)


class UndecidedCondition(Exception):
    """A condition on positions that is constant inside pieces of a loop: the code branches there and is written again."""

    def __init__(self, condition: Poly) -> None:
        super().__init__()
        self.condition = condition


class Frozen(Exception):
    """A quotient of the lanes' variable that is constant inside pieces of a loop."""

    def __init__(self, quotient: Quotient) -> None:
        super().__init__()
        self.quotient = quotient


@dataclass(slots=True)
class LoopLevel:
    """One loop that is open, its statements and what is known in it."""

    block: Block
    memo: dict[Any, Val] = field(default_factory=dict)
    #: reads may not move out of it: it is inside a condition
    fence: bool = False


def is_whole(node: Scalar) -> bool:
    """Return whether a bare expression is made of integers."""
    if isinstance(node, Num):
        return isinstance(node.value, int)
    if isinstance(node, Apply):
        cut = node.integral or node.name in {"floor", "ceil", "round", "trunc", "//"}
        return cut or (node.name != "/" and all(is_whole(arg) for arg in node.args))
    if isinstance(node, Table):
        return all(isinstance(item, int) for item in flat(node.values))
    return node.integral or isinstance(node, Reduce)


def strides_of(type: TensorType) -> tuple[tuple[Poly, ...], Poly, tuple[Poly, ...]]:
    """Strides, number of elements and sizes of a tensor in row-major order."""
    sizes = tuple(of_size(size) for size in type.shape)
    strides: list[Poly] = []
    total = const(1)
    for size in reversed(sizes):
        strides.insert(0, total)
        total = total * size
    return tuple(strides), total, sizes

"""What a search for mutants has at hand: tensors at small sizes, and the operators that made some of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dslc.interpret.domain import Array
from dslc.ir.graph import Value
from dslc.mutate.cores import Core
from dslc.mutate.layouts import Shape
from dslc.mutate.mutant import Argument, MutantStep


@dataclass(frozen=True, slots=True)
class Fitted:
    """An operator on tensors of some shapes: what it computes, the shape of that, and its operations."""

    core: Core
    holes: tuple[Value, ...]
    scope: Value
    shape: Shape
    operations: float


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A tensor that an operator may take: its number in a mutant, what it holds, and whether only weights are needed for it."""

    number: int
    array: Array
    constant: bool

    @property
    def shape(self) -> Shape:
        return tuple(int(size) for size in self.array.shape)


@dataclass(frozen=True, slots=True, eq=False)
class TensorPool:
    """What is still to be taken, each tensor once, and the operators that made some of it."""

    operands: tuple[Operand, ...]
    before: tuple[MutantStep, ...] = ()
    operations: float = 0.0

    @property
    def steps(self) -> int:
        return sum(step.steps for step in self.before)

    def of(self, number: int) -> Operand:
        return next(each for each in self.operands if each.number == number)

    def shape(self, arg: Argument) -> Shape:
        """The shape of an argument."""
        if arg.layout is not None:
            return arg.layout.shape
        return tuple(size if isinstance(size, int) else self.of(size[0]).shape[size[1]] for size in arg.shape)

    def are_constant(self, args: Sequence[Argument]) -> bool:
        return all(arg.layout is None or self.of(arg.input).constant for arg in args)

"""Mutants: operators, each on tensors in other layouts, and a layout of their result; and how they are made at any sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import inf

from dslc.interpret.domain import Array
from dslc.ir.constants import fill
from dslc.ir.dtype import TensorType
from dslc.ir.graph import Graph, Value, Values
from dslc.mutate.cores import Core
from dslc.mutate.layouts import Layout, Shape, inverse, laid, resized
from dslc.mutate.problem import numbers_renamed, renamed_sizes, shape_of
from dslc.records import record
from dslc.semantics.library import Rules

LIFTED = 12  #: sizes of a real instance that are tried for what was found at a small one


@record
class MutantOptions:
    """Limits of a search for mutants."""

    #: operators and changes of layout of a mutant, one each
    depth: int = 4
    #: the best that are kept, and of each step of a chain the cheapest that are gone on from
    best: int = 32
    #: the largest share of the result that may differ
    share: float = 0.75
    #: operations of a mutant, as a multiple of the region's
    operations: float = 4.0
    seconds: float = inf
    #: seconds are those of this process, whatever else the machine does
    processor: bool = False
    #: programs that are computed at most
    tries: float = inf
    seed: int = 0


OPTIONS = MutantOptions()


@record
class Argument:
    """An operand of a mutant's operator: a tensor in another layout, or a constant of one number.

    `input`: one of the region's n inputs, n and more for the results of the operators before; -1 for a constant. Its `shape` has
    sizes, or `(input, axis)` for that of a tensor.
    """

    input: int
    layout: Layout | None = None
    shape: tuple[int | tuple[int, int], ...] = ()
    number: float = 1.0

    @property
    def steps(self) -> int:
        return 0 if not self.layout or self.layout.identity else 1


@record
class MutantStep:
    """An operator of a mutant before its last one; `shape` is that of its result at small sizes."""

    core: Core
    arguments: tuple[Argument, ...]
    shape: Shape

    @property
    def steps(self) -> int:
        return 1 + sum(arg.steps for arg in self.arguments)


@record
class Mutant:
    """A program of a region's shapes: `back(core(*arguments))`; the share of the result in which it differs at small sizes.

    `before` are the operators whose results the last one takes, in their order. `back` is read backwards: a layout of the region's
    result that gives that of the operator; with `ties` it is one of the operator's. `shape` is that of the operator's result at small
    sizes.
    """

    arguments: tuple[Argument, ...]
    core: Core
    back: Layout
    ties: bool
    share: float
    operations: float
    before: tuple[MutantStep, ...] = ()
    shape: Shape = ()

    @property
    def steps(self) -> int:
        own = sum(arg.steps for arg in self.arguments) + 1 + (not self.back.identity)
        return own + sum(step.steps for step in self.before)


@record
class MutantsFound:
    """Mutants, the cheapest first; what was tried and computed, and whether that was everything within the depth.

    `after`: the seconds after which each was found.
    """

    mutants: tuple[Mutant, ...]
    tried: int
    computed: int
    seconds: float
    complete: bool
    after: tuple[float, ...] = ()


def made(rules: Rules, mutant: Mutant, small: Graph, region: Graph) -> Iterator[Value]:
    """A mutant at the sizes of a region, over its holes: once where sizes are those at which it was found, else for some parts."""
    (target,) = region.outputs
    (before,) = small.outputs
    shapes = [shape_of(value) for value in small.inputs]
    pools: list[Values] = [region.inputs]
    counted = numbers_renamed(small, region)
    for step in mutant.before:
        pools = [
            (*pool, value)
            for pool in pools
            for value in _results(rules, step.core, step.arguments, shapes, pool, counted)
        ][:LIFTED]
        shapes.append(step.shape)
    seen: set[Value] = set()
    every = (value for pool in pools for value in _results(rules, mutant.core, mutant.arguments, shapes, pool, counted))
    for result in every:
        shape, wanted = shape_of(result), shape_of(target)
        if mutant.ties:
            ways = resized(mutant.back, mutant.shape or mutant.back.taken, shape, wanted)
            found = [laid(result, each) for each in ways if each.shape == wanted]
        else:
            ways = resized(mutant.back, shape_of(before), wanted, shape)
            found = [laid(result, inverse(each), wanted) for each in ways if each.shape == shape]
        for value in found:
            if value not in seen and value.type == target.type:
                seen.add(value)
                yield value
                if len(seen) >= LIFTED:
                    return


def _results(
    rules: Rules,
    core: Core,
    arguments: Sequence[Argument],
    shapes: Sequence[Shape],
    pool: Sequence[Value],
    counted: dict[int, int],
) -> Iterator[Value]:
    """An operator on tensors of other sizes than those of the shapes at which it was found."""
    options: list[list[Value]] = []
    now = [shape_of(value) for value in pool]
    renamed = renamed_sizes(shapes, now) | counted
    for arg in arguments:
        if not arg.layout:
            sizes = tuple(size if isinstance(size, int) else now[size[0]][size[1]] for size in arg.shape)
            options.append([fill(fraction(arg.number), TensorType(pool[0].type.dtype, sizes))])
            continue
        ways = resized(arg.layout, shapes[arg.input], now[arg.input], renamed=renamed)
        options.append([laid(pool[arg.input], layout) for layout in ways])
    # the attributes as they are, and with sizes of the real tensors for those of the small ones
    attrs = tuple((name, renamed.get(value, value) if type(value) is int else value) for name, value in core.attrs)
    for args in product(*options):
        for chosen in dict.fromkeys((core, Core(core.op, attrs, core.count))):
            result = chosen.on(rules, args)
            if result and result.known and result.type.is_static:
                yield result


def fraction(number: float) -> Fraction:
    """The fraction that a constant's number stands for."""
    return Fraction(number).limit_denominator(1 << 16)


@record
class Fitted:
    """An operator on tensors of some shapes: what it computes, the shape of that, and its operations."""

    core: Core
    holes: Values
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
    """The tensors that are still to be taken, each once, and the operators that made some of them."""

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
        if arg.layout:
            return arg.layout.shape
        return tuple(size if isinstance(size, int) else self.of(size[0]).shape[size[1]] for size in arg.shape)

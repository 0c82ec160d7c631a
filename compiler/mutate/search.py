"""The search for mutants: an operator between changes of layout, of the shapes of a region, that is equal to it almost everywhere.

Programs are enumerated at small sizes and computed modulo a prime, on the same inputs as the region. What becomes of the operator's
result is not guessed: only layouts that give the region's shape are looked at, and of these none where too few of the region's elements
occur in the operator's result at all. What is found at small sizes is made at the real ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product
from math import inf, prod

import numpy as np

from dslc.analysis.counts import known_flops
from dslc.interpret.check_rule import draw
from dslc.interpret.domain import Array, Redraw
from dslc.interpret.field import Field
from dslc.interpret.run import InterpretError, run_scopes
from dslc.ir.constants import fill
from dslc.ir.dtype import TensorType
from dslc.ir.graph import Value
from dslc.ir.holes import hole
from dslc.ir.normal import Normalizer
from dslc.mutate.cores import Core, Numbers, Place, arity, choices, instance, is_linear, operators, together
from dslc.mutate.layouts import Layout, Shape, gathered, identity, laid, layouts, resized
from dslc.mutate.problem import Problem, shape_of
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules


@dataclass(frozen=True, slots=True)
class Options:
    """How far mutants are looked for."""

    #: operators and changes of layout of a mutant
    depth: int = 4
    #: how often what was found is mutated again
    rounds: int = 4
    #: the best that are kept
    best: int = 16
    #: the largest share of the result that may differ
    share: float = 0.75
    #: operations of a mutant, as a multiple of the region's
    operations: float = 4.0
    seconds: float = inf
    seed: int = 0


OPTIONS = Options()
#: sizes of a real instance that are tried for what was found at a small one
LIFTED = 12
#: choices of attributes of an operator that fitted nothing so far
FEW = 3


@dataclass(frozen=True, slots=True)
class Argument:
    """What an operator of a mutant takes: an input of the region in another layout, or a constant of one number.

    `input` is -1 for a constant; its `shape` has sizes, or `(input, axis)` for that of an input.
    """

    input: int
    layout: Layout | None = None
    shape: tuple[int | tuple[int, int], ...] = ()
    number: float = 1.0

    @property
    def steps(self) -> int:
        return 0 if self.layout is None or self.layout.identity else 1


@dataclass(frozen=True, slots=True)
class Mutant:
    """A program of a region's shapes: `back(core(*arguments))`; the share of the result in which it differs at small sizes.

    `back` is read backwards: a layout of the region's result that gives that of the operator; with `ties` it is one of the operator's.
    """

    arguments: tuple[Argument, ...]
    core: Core
    back: Layout
    ties: bool
    share: float
    operations: float

    @property
    def steps(self) -> int:
        return sum(arg.steps for arg in self.arguments) + 1 + (not self.back.identity)

    def __str__(self) -> str:
        own = ", ".join("constant" if arg.layout is None else f"h{arg.input}[{arg.layout}]" if arg.steps else f"h{arg.input}" for arg in self.arguments)
        return f"{self.core} of {own}, back {self.back}: {self.share:.1%} differ"


@dataclass(frozen=True, slots=True)
class Found:
    """Mutants, the cheapest first; what was tried and computed, and whether that was everything within the depth."""

    mutants: tuple[Mutant, ...]
    tried: int
    computed: int
    seconds: float
    complete: bool


def inverse(layout: Layout) -> Layout:
    """The way back."""
    return Layout(layout.sizes, layout.result, layout.source)


def search(rules: Rules, problem: Problem, options: Options = OPTIONS) -> Found:
    """Mutants of a region of one result."""
    return _Search(rules, problem, options).run()


@dataclass(slots=True)
class _Search:
    rules: Rules
    problem: Problem
    options: Options
    numbers: Numbers = field(init=False)
    shapes: tuple[Shape, ...] = field(init=False)
    wanted: Shape = field(init=False)
    #: what the region computes, on inputs that are flat
    result: Array = field(init=False)
    inputs: list[Array] = field(init=False, default_factory=list)
    #: ways back by the shape of the operator's result
    backs: dict[Shape, list[tuple[Layout, Array]]] = field(init=False, default_factory=dict)
    ties: dict[Shape, list[tuple[Layout, Array]]] = field(init=False, default_factory=dict)
    operations: float = field(init=False)
    domain: Field = field(init=False)
    began: float = field(init=False)
    tried: int = 0
    computed: int = 0
    found: list[Mutant] = field(init=False, default_factory=list)
    _laid: dict[tuple[int, Layout], Array] = field(init=False, default_factory=dict)
    #: of operators that fitted: which sizes divide each other
    _linear: dict[str, bool] = field(init=False, default_factory=dict)
    _together: dict[tuple[str, tuple[int, ...], tuple[int, ...]], tuple[tuple[Place, Place], ...]] = field(init=False, default_factory=dict)
    _terms: set[Value] = field(init=False, default_factory=set)
    _cores: dict[tuple[str, tuple[int, ...], tuple[Shape, ...]], list[Core]] = field(init=False, default_factory=dict)
    _normal: Normalizer = field(init=False, default_factory=Normalizer)

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self.numbers = Numbers(self.problem)
        self.shapes = self.problem.small_inputs
        (out,) = self.problem.small.outputs
        self.wanted = shape_of(out)
        self.domain = Field(self.options.seed)

    # ---- the run -----------------------------------------------------------------------------------------------

    def run(self) -> Found:
        if not self._computed():
            return Found((), 0, 0, time.monotonic() - self.began, True)
        for layout in layouts(self.wanted, self._factors(self.wanted)):
            lost = {d for dim in layout.source for d in dim if layout.sizes[d] > 1} - {d for dim in layout.result for d in dim}
            if not lost and not any(layout.shifts):
                back = inverse(layout)
                self.backs.setdefault(layout.shape, []).append((layout, gathered(back, layout.shape, self.wanted)))
        complete = True
        for _, core, args in self._programs():
            if time.monotonic() - self.began > self.options.seconds:
                complete = False
                break
            self.tried += 1
            self._try(core, args)
        best = sorted(self.found, key=lambda each: (each.operations * (1 + each.share), each.share, each.steps))
        return Found(tuple(best[: self.options.best]), self.tried, self.computed, time.monotonic() - self.began, complete)

    def _computed(self) -> bool:
        rng = np.random.default_rng(self.options.seed)
        values = self.problem.small.inputs
        try:
            scopes = expand(self.rules, self.problem.small.outputs)
            self.inputs = [draw(value.type, self.domain, rng, 0, False) for value in values]
            (self.result,) = run_scopes(scopes, dict(zip(values, self.inputs, strict=True)), self.domain)
        except (InterpretError, Redraw):
            return False
        self.operations = max(1.0, known_flops(scopes) or 1.0)
        return True

    def _factors(self, shape: Shape) -> list[list[int]]:
        own = set(self.numbers.factors)
        return [sorted({f for f in range(2, n + 1) if n % f == 0} | {f for f in own if f < n}) for n in shape]

    # ---- programs ----------------------------------------------------------------------------------------------

    def _programs(self) -> Iterator[tuple[int, Core, tuple[Argument, ...]]]:
        """Operators on the inputs in other layouts, those with the fewest layouts first."""
        ways = [[(0, identity(shape))] for shape in self.shapes]
        for k, shape in enumerate(self.shapes):
            others = [layout for layout in layouts(shape, self._factors(shape)) if not layout.identity]
            ways[k] += [(1, layout) for layout in sorted(others, key=lambda each, shape=shape: self._far(each, shape))]
        count = len(self.shapes)
        ops = [(op, list(choices(op, self.numbers))) for op in operators(self.rules) if arity(op) in {count, count + 1}]
        for steps in range(min(self.options.depth - 1, count) + 1):
            for changed in _subsets(count, steps):
                for chosen in product(*[ways[k][1:] if k in changed else ways[k][:1] for k in range(count)]):
                    if steps > 1 and not _alike([layout for step, layout in chosen if step]):
                        continue
                    own = [Argument(k, layout) for k, (_, layout) in enumerate(chosen)]
                    for op, cores in ops:
                        yield from ((steps, core, args) for args in self._arguments(arity(op), own) for core in self._fitting(op.name, cores, args, tuple(arg.input for arg in args)))

    def _far(self, layout: Layout, shape: Shape) -> tuple[int, float]:
        """Those first that keep the rank and as many elements."""
        return abs(len(layout.shape) - len(shape)), abs(prod(layout.shape) / prod(shape) - 1)

    def _arguments(self, count: int, own: Sequence[Argument]) -> Iterator[tuple[Argument, ...]]:
        if count == len(own):
            yield from permutations(own)
            return
        for order in permutations(own):
            for constant in self._constants(own):
                for place in range(count):
                    yield (*order[:place], constant, *order[place:])

    def _constants(self, own: Sequence[Argument]) -> Iterator[Argument]:
        """Windows of one number over channels: `[1 or C, 1 or C, *window]`."""
        first = own[0]
        if first.layout is None or len(first.layout.shape) < 3 or not first.layout.identity:
            return
        channel: tuple[int | tuple[int, int], ...] = (1, (first.input, 1))
        for window in self.numbers.windows:
            if len(window) == len(first.layout.shape) - 2:
                for sizes in product(channel, channel):
                    yield Argument(-1, None, (*sizes, *window), 1 / prod(window))

    def _fitting(self, op: str, cores: Sequence[Core], args: tuple[Argument, ...], order: tuple[int, ...]) -> list[Core]:
        """The operator with each choice of attributes that takes tensors of these shapes, and gives one that a way leads back from."""
        shapes = tuple(self._shape(arg) for arg in args)
        if not self._linear.get(op, True):
            return []
        key = (op, order, shapes)
        found = self._cores.get(key)
        if found is None:
            found = self._cores[key] = []
            ranks = tuple(len(shape) for shape in shapes)
            known = self._together.get((op, order, ranks))
            if known is not None and not all(_fit(shapes, *pair) for pair in known):
                return found
            holes = self._holes(shapes)
            # what fitted nowhere so far is asked with a few attributes only
            for core in cores if known is not None else cores[:FEW]:
                shape = instance(self.rules, core, holes)
                if shape is None:
                    continue
                if (op, order, ranks) not in self._together:
                    self._together[op, order, ranks] = together(self.rules, core, holes)
                    if op not in self._linear:
                        self._linear[op] = is_linear(self.rules, core, holes)
                if not self._linear[op]:
                    break
                if shape in self.backs or prod(shape) > prod(self.wanted):
                    found.append(core)
        return found

    def _holes(self, shapes: Sequence[Shape]) -> tuple[Value, ...]:
        dtype = self.problem.region.inputs[0].type.dtype
        return tuple(hole(k, TensorType(dtype, shape)) for k, shape in enumerate(shapes))

    def _shape(self, arg: Argument) -> Shape:
        if arg.layout is not None:
            return arg.layout.shape
        return tuple(size if isinstance(size, int) else self.shapes[size[0]][size[1]] for size in arg.shape)

    # ---- one program -------------------------------------------------------------------------------------------

    def _try(self, core: Core, args: tuple[Argument, ...]) -> None:
        holes = self._holes([self._shape(arg) for arg in args])
        made = core.on(self.rules, holes)
        if made is None:
            return
        (scope,) = expand(self.rules, (made,))
        operations = known_flops((scope,)) or inf
        if operations > self.options.operations * self.operations:
            return
        feeds = {value: self._array(arg, value.type) for value, arg in zip(holes, args, strict=True)}
        try:
            (result,) = run_scopes((scope,), feeds, self.domain)
        except (InterpretError, Redraw):
            return
        self.computed += 1
        shape = shape_of(made)
        limit = self.options.share
        if 1 - float(np.isin(self.result, result).mean()) > limit:
            return
        flat = np.append(result.reshape(-1), 0)
        best: Mutant | None = None
        for ties, ways in ((False, self.backs.get(shape, [])), (True, self._tied(shape))):
            for layout, index in ways:
                share = float((flat[index] != self.result).mean())
                if share <= limit and (best is None or share < best.share):
                    best = Mutant(args, core, layout, ties, share, operations)
        if best is not None and best.steps <= self.options.depth and is_linear(self.rules, core, holes) and self._is_new(best):
            self.found.append(best)

    def _tied(self, shape: Shape) -> list[tuple[Layout, Array]]:
        if prod(shape) <= prod(self.wanted):
            return []
        if shape not in self.ties:
            self.ties[shape] = [
                (layout, gathered(layout, shape)) for layout in layouts(shape, self._factors(shape), True)
                if layout.shape == self.wanted and not any(layout.shifts)
            ]  # fmt: skip
        return self.ties[shape]

    def _array(self, arg: Argument, type: TensorType) -> Array:
        if arg.layout is None:
            return np.broadcast_to(np.asarray(self.domain.number(_fraction(arg.number))), shape_of_type(type))
        if arg.layout.identity:
            return self.inputs[arg.input]
        key = (arg.input, arg.layout)
        if key not in self._laid:
            if len(self._laid) > 4096:
                self._laid.clear()
            own = self.inputs[arg.input]
            self._laid[key] = np.append(own.reshape(-1), 0)[gathered(arg.layout, own.shape)]
        return self._laid[key]

    def _is_new(self, mutant: Mutant) -> bool:
        """Whether it is neither the region itself nor, in its normal form, one that was found."""
        value = next(iter(made(self.rules, mutant, self.problem.small, self.problem.small)), None)
        if value is None or value in self.problem.small.outputs:
            return False
        form = self._normal.value(value)
        if form in self._terms:
            return False
        self._terms.add(form)
        return True


def shape_of_type(type: TensorType) -> Shape:
    return tuple(int(str(size)) for size in type.shape)


def _fraction(number: float) -> object:
    from fractions import Fraction

    return Fraction(number).limit_denominator(1 << 16)


def _subsets(count: int, size: int) -> list[set[int]]:
    from itertools import combinations

    return [set(each) for each in combinations(range(count), size)]


def _fit(shapes: Sequence[Shape], one: Place, other: Place) -> bool:
    a, b = (shapes[k][axis] if axis < len(shapes[k]) else 1 for k, axis in (one, other))
    return a % b == 0 or b % a == 0


def _alike(every: Sequence[Layout]) -> bool:
    """Whether layouts of several tensors cut off parts of the same sizes: one alone is no use where operands meet."""
    cuts = [sorted(size for size in layout.sizes[len(layout.source) :] if size > 1) for layout in every]
    return all(cut == cuts[0] for cut in cuts)


def made(rules: Rules, mutant: Mutant, small: object, region: object) -> Iterator[Value]:
    """A mutant at the sizes of a region, over its holes: once where sizes are those at which it was found, else for some parts."""
    from dslc.ir.graph import Graph

    assert isinstance(small, Graph) and isinstance(region, Graph)
    (target,) = region.outputs
    (before,) = small.outputs
    old, new = [shape_of(value) for value in small.inputs], [shape_of(value) for value in region.inputs]
    options: list[list[Value]] = []
    for arg in mutant.arguments:
        if arg.layout is None:
            sizes = tuple(size if isinstance(size, int) else new[size[0]][size[1]] for size in arg.shape)
            options.append([fill(_fraction(arg.number), TensorType(target.type.dtype, sizes))])  # type: ignore[arg-type]
            continue
        value = region.inputs[arg.input]
        options.append([laid(value, layout) for layout in resized(arg.layout, old[arg.input], new[arg.input])])
    seen: set[Value] = set()
    renamed = {a: b for was, now in zip(old, new, strict=True) for a, b in zip(was, now, strict=True) if a != b}
    for args in product(*options):
        for core in _cores(mutant.core, renamed):
            product_ = core.on(rules, args)
            if product_ is None or not product_.known:
                continue
            shape, wanted = shape_of(product_), shape_of(target)
            if mutant.ties:
                ways = [each for each in resized(mutant.back, _tied_shape(mutant), shape, wanted) if each.shape == wanted]
                results = [laid(product_, each) for each in ways]
            else:
                ways = [each for each in resized(mutant.back, shape_of(before), wanted, shape) if each.shape == shape]
                results = [laid(product_, inverse(each), wanted) for each in ways]
            for value in results:
                if value not in seen and value.type == target.type:
                    seen.add(value)
                    yield value
                    if len(seen) >= LIFTED:
                        return


def _tied_shape(mutant: Mutant) -> Shape:
    return mutant.back.taken


def _cores(core: Core, renamed: Mapping[int, int]) -> Iterator[Core]:
    """The operator with its attributes, and with sizes of the real tensors for those of the small ones."""
    yield core
    other = tuple((name, renamed.get(value, value) if type(value) is int else value) for name, value in core.attrs)
    if other != core.attrs:
        yield Core(core.op, other, core.count)


__all__ = ["Argument", "Found", "Mutant", "Options", "made", "search"]

"""The search for mutants: an operator between changes of layout, of the shapes of a region, that is equal to it almost everywhere.

Programs are enumerated at small sizes and computed modulo a prime, on the same inputs as the region. What becomes of the operator's
result is not guessed: only layouts that give the region's shape are looked at, and of these none where too few of the region's elements
occur in the operator's result at all. What is found at small sizes is made at the real ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations, permutations, product, zip_longest
from math import inf, prod

import numpy as np

from dslc.analysis.counts import known_flops
from dslc.interpret.check_rule import draw
from dslc.interpret.domain import Array, Redraw
from dslc.interpret.field import Field
from dslc.interpret.run import InterpretError, run_scopes
from dslc.ir.constants import fill
from dslc.ir.dtype import TensorType
from dslc.ir.graph import Graph, Value
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
    #: the best that are kept
    best: int = 16
    #: the largest share of the result that may differ
    share: float = 0.75
    #: operations of a mutant, as a multiple of the region's
    operations: float = 4.0
    seconds: float = inf
    #: programs that are computed at most
    tries: float = inf
    seed: int = 0


OPTIONS = Options()
#: sizes of a real instance that are tried for what was found at a small one
LIFTED = 12
#: elements of arrays that are kept for later
HELD = 1 << 24
#: operations that are computed again take so many times as long as those of an operator
AGAIN = 8.0
#: the sizes of tensors of which an operator is asked whether it takes their ranks at all, and the choices of attributes for that
SIZE, FEW = 4, 3


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
        def shown(arg: Argument) -> str:
            changed = f"[{arg.layout}]" if arg.steps else ""
            return "constant" if arg.layout is None else f"h{arg.input}{changed}"

        return f"{self.core} of {', '.join(map(shown, self.arguments))}, back {self.back}: {self.share:.1%} differ"


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


@dataclass(frozen=True, slots=True)
class _Fitted:
    """An operator on tensors of some shapes: what it computes, the shape of that, and its operations."""

    core: Core
    holes: tuple[Value, ...]
    scope: Value
    shape: Shape
    operations: float


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
    backs: dict[Shape, list[Layout]] = field(init=False, default_factory=dict)
    ties: dict[Shape, list[Layout]] = field(init=False, default_factory=dict)
    operations: float = field(init=False)
    domain: Field = field(init=False)
    began: float = field(init=False)
    tried: int = 0
    computed: int = 0
    found: list[Mutant] = field(init=False, default_factory=list)
    #: tensors in other layouts, and ways back; their elements together
    _arrays: dict[tuple[Layout, int | Shape, bool], Array] = field(init=False, default_factory=dict)
    _held: int = field(init=False, default=0)
    #: of operators that fitted: which sizes divide each other
    _together: dict[tuple[str, tuple[int, ...]], tuple[tuple[Place, Place], ...] | None] = field(init=False, default_factory=dict)
    complete: bool = True
    _choices: list[tuple[str, int, list[Core]]] | None = field(init=False, default=None)
    _operators: dict[tuple[int, ...], list[tuple[str, list[Core]]]] = field(init=False, default_factory=dict)
    _others: dict[int, list[Layout]] = field(init=False, default_factory=dict)
    _kept: set[tuple[Core, tuple[Shape, ...], float]] = field(init=False, default_factory=set)
    _terms: set[Value] = field(init=False, default_factory=set)
    _cores: dict[tuple[str, tuple[Shape, ...]], list[_Fitted]] = field(init=False, default_factory=dict)
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
                self.backs.setdefault(layout.shape, []).append(layout)
        for fitted, args in self._programs():
            if self._late():
                break
            self.tried += 1
            self._try(fitted, args)
        best = sorted(self.found, key=lambda each: (each.operations + AGAIN * each.share * self.operations, each.steps))
        complete = self.complete and not self._late()
        return Found(tuple(best[: self.options.best]), self.tried, self.computed, time.monotonic() - self.began, complete)

    def _late(self) -> bool:
        return time.monotonic() - self.began > self.options.seconds or self.tried >= self.options.tries

    def _computed(self) -> bool:
        rng = np.random.default_rng(self.options.seed)
        values = self.problem.small.inputs
        if not all(map(prod, (*self.shapes, self.wanted))):
            return False
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

    def _programs(self) -> Iterator[tuple[_Fitted, tuple[Argument, ...]]]:
        """Operators on the inputs in other layouts, those with the fewest layouts first, and the region's own operators."""
        count = len(self.shapes)
        subsets = [each for steps in range(min(self.options.depth - 1, count) + 1) for each in combinations(range(count), steps)]
        turns = list(product(subsets, (True, False)))
        region = {node.op for node in self.problem.calls}
        for number, (changed, same) in enumerate(turns):
            # each takes half of the time that is left, so that those after it have some
            now = time.monotonic() - self.began
            end = now + (self.options.seconds - now) / (2 if number + 1 < len(turns) else 1)
            for chosen in _alike([self._ways(k) for k in changed]):
                if time.monotonic() - self.began > end:
                    self.complete = False
                    break
                given = dict(zip(changed, chosen, strict=True))
                own = [Argument(k, given.get(k, identity(shape))) for k, shape in enumerate(self.shapes)]
                for tensors in (count, count + 1):
                    for args in self._arguments(tensors, own):
                        for op, cores in self._able(tuple(len(self._shape(arg)) for arg in args)):
                            if (op in region) is not same:
                                continue
                            for fitted in self._fitting(op, cores, args):
                                yield fitted, args

    def _able(self, ranks: tuple[int, ...]) -> list[tuple[str, list[Core]]]:
        """The linear operators of tensors of some ranks, with their choices of attributes."""
        if ranks not in self._operators:
            if self._choices is None:
                self._choices = [(op.name, arity(op), list(choices(op, self.numbers))) for op in operators(self.rules)]
            self._operators[ranks] = [
                (op, cores) for op, count, cores in self._choices if count == len(ranks) and self._known(op, cores, ranks) is not None
            ]
        return self._operators[ranks]

    def _ways(self, number: int) -> list[Layout]:
        """Other layouts of an input, those first that keep its rank and as many elements."""
        if number not in self._others:
            shape = self.shapes[number]
            found = [layout for layout in layouts(shape, self._factors(shape)) if not layout.identity]
            found.sort(key=lambda each: self._far(each, shape))
            # windows slide over several dimensions, which are cut alike; other changes are of one dimension
            kinds: tuple[list[Layout], list[Layout]] = ([], [])
            for each in found:
                kinds[sum(size > 1 for size in each.sizes[len(shape) :]) < 2].append(each)
            self._others[number] = [each for pair in zip_longest(*kinds) for each in pair if each is not None]
        return self._others[number]

    def _far(self, layout: Layout, shape: Shape) -> tuple[int, int]:
        ratio = prod(layout.shape) / prod(shape)
        return abs(len(layout.shape) - len(shape)), int(2 * max(ratio, 1 / ratio))

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

    def _fitting(self, op: str, cores: Sequence[Core], args: tuple[Argument, ...]) -> list[_Fitted]:
        """The operator with each choice of attributes that takes tensors of these shapes, and gives one that a way leads back from."""
        shapes = tuple(self._shape(arg) for arg in args)
        key = (op, shapes)
        found = self._cores.get(key)
        if found is None:
            found = self._cores[key] = []
            known = self._known(op, cores, tuple(len(shape) for shape in shapes))
            if known is None or not all(_fit(shapes, *pair) for pair in known):
                return found
            holes = self._holes(shapes)
            for core in cores:
                shape = instance(self.rules, core, holes)
                if shape is None:
                    continue
                if shape in self.backs or prod(shape) > prod(self.wanted):
                    made = core.on(self.rules, holes)
                    assert made is not None
                    (scope,) = expand(self.rules, (made,))
                    operations = known_flops((scope,)) or inf
                    if operations <= self.options.operations * self.operations:
                        found.append(_Fitted(core, holes, scope, shape, operations))
        return found

    def _known(self, op: str, cores: Sequence[Core], ranks: tuple[int, ...]) -> tuple[tuple[Place, Place], ...] | None:
        """Which sizes of tensors of some ranks divide each other, None where an operator takes no such tensors or is not linear.

        Asked of tensors of which all sizes are equal.
        """
        key = (op, ranks)
        if key not in self._together:
            self._together[key] = None
            holes = self._holes([(SIZE,) * rank for rank in ranks])
            for core in cores[:FEW]:
                if instance(self.rules, core, holes) is not None:
                    if is_linear(self.rules, core, holes):
                        self._together[key] = together(self.rules, core, holes)
                    break
        return self._together[key]

    def _holes(self, shapes: Sequence[Shape]) -> tuple[Value, ...]:
        dtype = self.problem.region.inputs[0].type.dtype
        return tuple(hole(k, TensorType(dtype, shape)) for k, shape in enumerate(shapes))

    def _shape(self, arg: Argument) -> Shape:
        if arg.layout is not None:
            return arg.layout.shape
        return tuple(size if isinstance(size, int) else self.shapes[size[0]][size[1]] for size in arg.shape)

    # ---- one program -------------------------------------------------------------------------------------------

    def _try(self, fitted: _Fitted, args: tuple[Argument, ...]) -> None:
        feeds = {value: self._array(arg, value.type) for value, arg in zip(fitted.holes, args, strict=True)}
        try:
            (result,) = run_scopes((fitted.scope,), feeds, self.domain)
        except (InterpretError, Redraw):
            return
        core, shape, operations = fitted.core, fitted.shape, fitted.operations
        self.computed += 1
        limit = self.options.share
        if 1 - float(np.isin(self.result, result).mean()) > limit:
            return
        flat = np.append(result.reshape(-1), 0)
        best: Mutant | None = None
        for ties, ways in ((False, self.backs.get(shape, [])), (True, self._tied(shape))):
            for layout in ways:
                share = float((flat[self._places(layout, ties, shape)] != self.result).mean())
                if share <= limit and (best is None or share < best.share):
                    best = Mutant(args, core, layout, ties, share, operations)
        if best is not None and best.steps <= self.options.depth and is_linear(self.rules, core, fitted.holes) and self._is_new(best):
            self.found.append(best)

    def _tied(self, shape: Shape) -> list[Layout]:
        if prod(shape) <= prod(self.wanted):
            return []
        if shape not in self.ties:
            every = layouts(shape, self._factors(shape), True)
            self.ties[shape] = [layout for layout in every if layout.shape == self.wanted and not any(layout.shifts)]
        return self.ties[shape]

    def _places(self, layout: Layout, ties: bool, shape: Shape) -> Array:
        """Where in an operator's result of a shape each element of the region's is."""

        def places() -> Array:
            return gathered(layout, shape) if ties else gathered(inverse(layout), shape, self.wanted)

        # a layout may span more than a shape, or less
        return self._kept_array((layout, shape, ties), places)

    def _array(self, arg: Argument, type: TensorType) -> Array:
        if arg.layout is None:
            return np.broadcast_to(np.asarray(self.domain.number(_fraction(arg.number))), shape_of_type(type))
        if arg.layout.identity:
            return self.inputs[arg.input]
        own, layout = self.inputs[arg.input], arg.layout
        return self._kept_array((layout, arg.input, False), lambda: np.append(own.reshape(-1), 0)[gathered(layout, own.shape)])

    def _kept_array(self, key: tuple[Layout, int | Shape, bool], make: Callable[[], Array]) -> Array:
        """An array that is made once, as long as all of them are not too large."""
        found = self._arrays.get(key)
        if found is None:
            found = make()
            self._held += found.size
            if self._held > HELD:
                self._arrays.clear()
                self._held = found.size
            self._arrays[key] = found
        return found

    def _is_new(self, mutant: Mutant) -> bool:
        """Whether it is neither the region itself nor, in its normal form, one that was found, nor as good as one."""
        like = (mutant.core, tuple(self._shape(arg) for arg in mutant.arguments), round(mutant.share, 9))
        if like in self._kept:
            return False
        value = next(iter(made(self.rules, mutant, self.problem.small, self.problem.small)), None)
        if value is None or value in self.problem.small.outputs:
            return False
        form = self._normal.value(expand(self.rules, (value,))[0])
        if form in self._terms:
            return False
        self._terms.add(form)
        self._kept.add(like)
        return True


def shape_of_type(type: TensorType) -> Shape:
    return tuple(int(str(size)) for size in type.shape)


def _fraction(number: float) -> Fraction:
    return Fraction(number).limit_denominator(1 << 16)


def _fit(shapes: Sequence[Shape], one: Place, other: Place) -> bool:
    a, b = (shapes[k][axis] if axis < len(shapes[k]) else 1 for k, axis in (one, other))
    return a % b == 0 or b % a == 0


def _alike(ways: Sequence[Sequence[Layout]]) -> Iterator[tuple[Layout, ...]]:
    """Layouts of several tensors that cut off parts of the same sizes: one alone is no use where operands meet."""
    if len(ways) < 2:
        yield from product(*ways)
        return
    groups: list[dict[tuple[int, ...], list[Layout]]] = []
    for every in ways:
        groups.append({})
        for layout in every:
            cut = tuple(sorted(size for size in layout.sizes[len(layout.source) :] if size > 1))
            groups[-1].setdefault(cut, []).append(layout)
    for cut in sorted(groups[0], key=lambda cut: (max(cut, default=0), len(cut))):
        if all(cut in each for each in groups):
            yield from product(*[each[cut] for each in groups])


def made(rules: Rules, mutant: Mutant, small: Graph, region: Graph) -> Iterator[Value]:
    """A mutant at the sizes of a region, over its holes: once where sizes are those at which it was found, else for some parts."""
    (target,) = region.outputs
    (before,) = small.outputs
    old, new = [shape_of(value) for value in small.inputs], [shape_of(value) for value in region.inputs]
    options: list[list[Value]] = []
    for arg in mutant.arguments:
        if arg.layout is None:
            sizes = tuple(size if isinstance(size, int) else new[size[0]][size[1]] for size in arg.shape)
            options.append([fill(_fraction(arg.number), TensorType(target.type.dtype, sizes))])
            continue
        value = region.inputs[arg.input]
        options.append([laid(value, layout) for layout in resized(arg.layout, old[arg.input], new[arg.input])])
    seen: set[Value] = set()
    renamed = {a: b for was, now in zip(old, new, strict=True) for a, b in zip(was, now, strict=True) if a != b}
    for args in product(*options):
        for core in _cores(mutant.core, renamed):
            result = core.on(rules, args)
            if result is None or not result.known:
                continue
            shape, wanted = shape_of(result), shape_of(target)
            if mutant.ties:
                ways = [each for each in resized(mutant.back, mutant.back.taken, shape, wanted) if each.shape == wanted]
                found = [laid(result, each) for each in ways]
            else:
                ways = [each for each in resized(mutant.back, shape_of(before), wanted, shape) if each.shape == shape]
                found = [laid(result, inverse(each), wanted) for each in ways]
            for value in found:
                if value not in seen and value.type == target.type:
                    seen.add(value)
                    yield value
                    if len(seen) >= LIFTED:
                        return


def _cores(core: Core, renamed: Mapping[int, int]) -> Iterator[Core]:
    """The operator with its attributes, and with sizes of the real tensors for those of the small ones."""
    yield core
    other = tuple((name, renamed.get(value, value) if type(value) is int else value) for name, value in core.attrs)
    if other != core.attrs:
        yield Core(core.op, other, core.count)


__all__ = ["Argument", "Found", "Mutant", "Options", "made", "search"]

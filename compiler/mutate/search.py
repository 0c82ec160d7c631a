"""The search for mutants: operators between changes of layout, of the shapes of a region, that are equal to it almost everywhere.

Programs are enumerated at small sizes and computed modulo a prime, on the same inputs as the region: one operator first, then chains,
depth first, of which the cheapest beginnings are gone on from. What becomes of the last operator's result is not guessed: only layouts
that give the region's shape are looked at, and of these none where too few of the region's elements occur in the result at all. What is
found at small sizes is made at the real ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from functools import cached_property
from heapq import heappop, heappush, nsmallest
from itertools import combinations, permutations, product, zip_longest
from math import inf, prod

import numpy as np

from dslc.analysis.counts import known_flops
from dslc.derivation.kinds import in_turns
from dslc.interpret.check_rule import draw
from dslc.interpret.domain import Array, Redraw
from dslc.interpret.field import Field
from dslc.interpret.run import InterpretError, run_scopes
from dslc.ir.dtype import TensorType
from dslc.ir.graph import Value
from dslc.ir.normal import Normalizer
from dslc.mutate.cores import (
    DERIVED_AT_ONCE,
    Core,
    CoreNumbers,
    Place,
    arity,
    choices,
    instance,
    is_linear,
    operators,
    together,
)  # fmt: skip
from dslc.mutate.layouts import Layout, Shape, gathered, identity, inverse, whole_first
from dslc.mutate.mutant import (
    OPTIONS,
    Argument,
    Fitted,
    Mutant,
    MutantOptions,
    MutantsFound,
    MutantStep,
    Operand,
    TensorPool,
    fraction,
    made,
)
from dslc.mutate.problem import MutationProblem, shape_of
from dslc.mutate.shapes import Shapes
from dslc.mutate.ways import LayoutWays, middle
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules

HELD = 1 << 24  #: elements of arrays that are kept for later
COMPUTING = 4.0  #: choices of attributes that take as long as a program that is computed
LOOKING = 0.02  #: choices of attributes that take as long as looking up what an operator gives
LARGE = 1e5  #: operations; programs of more are computed in the middle first
MIDDLE = 512  #: positions of the middle that are computed, at most
COMPUTED_AGAIN = 8.0  #: how many times as long operations take that are computed again as those of an operator
SIZE = 4  #: size of tensors of which an operator is asked whether it takes their ranks at all
CHOICES = 3  #: choices of attributes for which it is asked that
ALONE = 0.75  #: share of the time for one operator alone, where a region is one operator
FIRST = 0.25  #: the same where a region is several operators
PACE = 1e8  #: operations that are computed in a second, about
OPERATIONS = 4e8  #: operations that are computed at most: sums over gathered elements hold all of them at once
RIGHT = 0.25  #: share of the result that differs of mutants that come before the others: what is corrected by default


def search(rules: Rules, problem: MutationProblem, options: MutantOptions = OPTIONS) -> MutantsFound:
    """Mutants of a region of one result."""
    operations = known_flops(expand(rules, problem.small.outputs))
    # computing a region at its small sizes may take longer than a search has time for
    if operations is not None and operations > min(PACE * options.seconds, OPERATIONS):
        return MutantsFound((), 0, 0, 0.0, False)
    return _Search(rules, problem, options).run()


class _Effort(Enum):
    """The parts of chains: operators as they are, with other layouts of the first ones' operands, with other attributes too."""

    PLAIN = 0
    LAYOUTS = 1
    ATTRIBUTES = 2


class _Search:
    def __init__(self, rules: Rules, problem: MutationProblem, options: MutantOptions) -> None:
        self.rules, self.problem, self.options = rules, problem, options
        self.began = self._now()
        self.numbers = CoreNumbers(problem)
        (out,) = problem.small.outputs
        self.wanted = shape_of(out)
        self.domain = Field(options.seed)
        self.tried = self.computed = 0
        #: choices of attributes that were tried on shapes, and programs that were computed, as many times as they take as long
        self.work = 0.0
        self.complete = True
        #: mutants with the seconds after which each was found
        self.found: dict[Mutant, float] = {}
        #: tensors in other layouts, and ways back; their elements together
        self._arrays: dict[tuple[Layout, object], Array] = {}
        self._held = 0
        #: of operators that fitted: which sizes divide each other
        self._together: dict[tuple[str, tuple[int, ...]], tuple[tuple[Place, Place], ...] | None] = {}
        #: the parts of chains now; None while there is one operator
        self._effort: _Effort | None = None
        self._choices: dict[bool, list[tuple[str, int, list[Core]]]] = {}
        self._operators: dict[tuple[bool, tuple[int, ...]], list[tuple[str, list[Core]]]] = {}
        self._kept: set[object] = set()
        self._terms: set[Value] = set()
        self._cores: dict[tuple[str, tuple[Shape, ...], bool, bool], list[Fitted]] = {}
        #: states that chains have reached: what their tensors hold, whatever computed it
        self._reached: set[tuple[tuple[int, ...], Shape, bytes]] = set()
        self._shapes = Shapes(rules, problem.region.inputs[0].type.dtype)
        #: the middle of what operators compute
        self._parts: dict[Value, Value] = {}
        self._normal = Normalizer()

    # ---- the run -----------------------------------------------------------------------------------------------

    def run(self) -> MutantsFound:
        pool = self._computed()
        if not pool:
            return MutantsFound((), 0, 0, self._now() - self.began, True)
        several = len(self.problem.calls) > 1
        first = FIRST if several else ALONE
        self._all(pool, self.began + self.options.seconds * first, self.options.tries * (first if several else 1))
        for effort in _Effort:
            # each takes half of the time that is left, so that those after it have some
            now = self._now()
            share = 2 if effort is not list(_Effort)[-1] else 1
            self._effort = effort
            self._reached.clear()
            self._chains(pool, now + (self.began + self.options.seconds - now) / share)
        self._effort = None
        best = sorted(
            self.found,
            key=lambda each: (each.operations + COMPUTED_AGAIN * each.share * self.operations, each.steps),
        )
        # what is mostly wrong comes last, whatever its price
        right = [each for each in best if each.share <= RIGHT]
        best = [*_in_turns(right), *_in_turns([each for each in best if each.share > RIGHT])]
        complete = self.complete and not self._late()
        best = best[: self.options.best]
        seconds = self._now() - self.began
        return MutantsFound(
            tuple(best), self.tried, self.computed, seconds, complete, tuple(self.found[each] for each in best)
        )

    def _now(self) -> float:
        return time.process_time() if self.options.processor else time.monotonic()

    def _late(self, end: float = inf) -> bool:
        now = self._now()
        return now > end or now - self.began > self.options.seconds or self.tried >= self.options.tries

    def _computed(self) -> TensorPool | None:
        """The region's inputs, its result computed; None where that fails."""
        rng = np.random.default_rng(self.options.seed)
        values = self.problem.small.inputs
        if not all(map(prod, (*self.problem.small_inputs, self.wanted))):
            return None
        try:
            scopes = expand(self.rules, self.problem.small.outputs)
            inputs = [draw(value.type, self.domain, rng, 0, False) for value in values]
            feeds = dict(zip(values, inputs, strict=True))
            (self.result,) = run_scopes(scopes, feeds, self.domain)
            self._ways = LayoutWays(self.problem, self.numbers, self.domain, scopes[0], feeds, self.options.share)
        except (InterpretError, Redraw):
            return None
        self.operations = max(1.0, known_flops(scopes) or 1.0)
        pairs = enumerate(zip(values, inputs, strict=True))
        return TensorPool(tuple(Operand(k, array, value.constant) for k, (value, array) in pairs))

    # ---- programs ----------------------------------------------------------------------------------------------

    def _all(self, pool: TensorPool, end: float, tries: float = inf) -> None:
        """Tries every operator that takes all of a pool."""
        for fitted, args in self._programs(pool, end):
            if self._late(end) or self.tried >= tries:
                self.complete = False
                break
            self.tried += 1
            self._try(pool, fitted, args)

    def _programs(self, pool: TensorPool, end: float) -> Iterator[tuple[Fitted, tuple[Argument, ...]]]:
        """Operators on the tensors in other layouts, those with the fewest layouts first, and the region's own operators."""
        count = len(pool.operands)
        most = min(self.options.depth - pool.steps - 1, count, inf if self._effort is None else self._effort.value)
        # few operators take more than two tensors, and the layouts of three are too many
        most = 0 if count > 2 else most
        subsets = [each for steps in range(int(most) + 1) for each in combinations(range(count), steps)]
        turns = list(product(subsets, (True, False)))
        # the one whose work is the least goes on, the region's own operators more than others: what changes most comes as early
        weights = [2.0 if same else 1.0 for _, same in turns]
        going = [(0.0, number, self._turn(pool, *turn)) for number, turn in enumerate(turns)]
        while going:
            if self._now() > end:
                self.complete = False
                return
            spent, number, turn = heappop(going)
            before = self.work
            if (batch := next(turn, None)) is not None:
                yield from batch
                heappush(going, (spent + (1 + self.work - before) / weights[number], number, turn))

    def _turn(
        self, pool: TensorPool, changed: Sequence[int], same: bool
    ) -> Iterator[list[tuple[Fitted, tuple[Argument, ...]]]]:
        """Operators on the tensors, of which some have other layouts: the region's own operators, or all others."""
        region = {node.op for node in self.problem.calls}
        ways = [self._ways.useful(pool.operands[k]) for k in changed]
        for chosen in whole_first(ways, [pool.operands[k].shape for k in changed]):
            given = dict(zip(changed, chosen, strict=True))
            own = [Argument(each.number, given.get(k, identity(each.shape))) for k, each in enumerate(pool.operands)]
            yield list(self._applied(pool, own, lambda op: (op in region) is same))

    def _applied(
        self,
        pool: TensorPool,
        own: Sequence[Argument],
        wanted: Callable[[str], bool] = lambda _: True,
        last: bool = True,
    ) -> Iterator[tuple[Fitted, tuple[Argument, ...]]]:
        """Operators on some tensors, or on them and a constant."""
        for tensors in (len(own), len(own) + 1)[: 1 if self._plain else 2]:
            for args in self._arguments(tensors, own):
                for op, cores in self._able(tuple(len(pool.shape(arg)) for arg in args)):
                    if wanted(op):
                        for fitted in self._fitting(pool, op, cores, args, last):
                            yield fitted, args

    def _able(self, ranks: tuple[int, ...]) -> list[tuple[str, list[Core]]]:
        """The linear operators of tensors of some ranks, with their choices of attributes."""
        key = (self._plain, ranks)
        if key not in self._operators:
            if self._plain not in self._choices:
                most = 0 if self._plain else DERIVED_AT_ONCE
                self._choices[self._plain] = [
                    (op.name, arity(op), list(choices(op, self.numbers, most))) for op in operators(self.rules)
                ]
            self._operators[key] = [
                (op, cores) for op, count, cores in self._choices[self._plain]
                if count == len(ranks) and self._known(op, cores, ranks) is not None
            ]  # fmt: skip
        return self._operators[key]

    @property
    def _plain(self) -> bool:
        return self._effort in (_Effort.PLAIN, _Effort.LAYOUTS)

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
        if not first.layout or len(first.layout.shape) < 3 or not _slides(first.layout):
            return
        channel: tuple[int | tuple[int, int], ...] = (1, (first.input, 1))
        for window in self.numbers.windows:
            if len(window) == len(first.layout.shape) - 2:
                for sizes in product(channel, channel):
                    yield Argument(-1, None, (*sizes, *window), 1 / prod(window))

    def _fitting(
        self, pool: TensorPool, op: str, cores: Sequence[Core], args: tuple[Argument, ...], last: bool
    ) -> list[Fitted]:
        """The operator with each choice of attributes that takes tensors of these shapes.

        Where it is the last one, its result is one that a way leads back from.
        """
        shapes = tuple(pool.shape(arg) for arg in args)
        key = (op, shapes, last, self._plain)
        found = self._cores.get(key)
        if found is None:
            found = self._cores[key] = []
            # of chains there are so many that it counts as a try whether operators fit
            self.tried += self._effort is not None
            known = self._known(op, cores, tuple(len(shape) for shape in shapes))
            if known is None or not all(_fit(shapes, *pair) for pair in known):
                return found
            holes = self._shapes.holes(shapes)
            scopes: set[Value] = set()
            for core in cores:
                asked = self._shapes.asked
                shape = self._shapes.of(core, shapes)
                self.work += self._shapes.asked - asked + LOOKING
                if shape is None or not prod(shape):
                    continue
                if not last or shape in self._ways.backs or prod(shape) > prod(self.wanted):
                    scope = self._shapes.scope(core, shapes)
                    operations = known_flops((scope,)) or (inf if last else float(prod(shape))) if scope else inf
                    # other attributes may say the same
                    if scope and scope not in scopes and operations <= self.options.operations * self.operations:
                        scopes.add(scope)
                        found.append(Fitted(core, holes, scope, shape, operations))
        return found

    def _known(self, op: str, cores: Sequence[Core], ranks: tuple[int, ...]) -> tuple[tuple[Place, Place], ...] | None:
        """The sizes of tensors of some ranks that divide each other; None where an operator takes no such tensors, or is not linear.

        Asked of tensors of which all sizes are equal.
        """
        key = (op, ranks)
        if key not in self._together:
            self._together[key] = None
            holes = self._shapes.holes([(SIZE,) * rank for rank in ranks])
            for core in cores[:CHOICES]:
                if instance(self.rules, core, holes):
                    if is_linear(self.rules, core, holes):
                        self._together[key] = together(self.rules, core, holes)
                    break
        return self._together[key]

    # ---- chains ------------------------------------------------------------------------------------------------

    def _chains(self, pool: TensorPool, end: float) -> None:
        """Operators one after the other, depth first: each is taken as a first one, and what it gives is an operand of the others."""
        # every operator takes two tensors at most, so that so many are needed
        if self.options.depth - pool.steps - 1 < max(1, len(pool.operands) - 2) or self._late(end):
            return
        firsts = self._firsts(pool, end)
        # what is complete with one more comes before what needs several
        for last in (True, False):
            for number, each in enumerate(firsts):
                now = self._now()
                if self._late(end):
                    self.complete = False
                    return
                until = now + (end - now) / (len(firsts) - number + (len(firsts) if last else 0))
                if last:
                    self._all(each, until)
                else:
                    self._chains(each, until)

    def _firsts(self, pool: TensorPool, end: float) -> list[TensorPool]:
        """The pools after one operator: the cheapest of so many steps and on so many tensors, as none must crowd out others."""
        made: dict[tuple[int, int], list[TensorPool]] = {}
        until = self._now() + (end - self._now()) / 3
        count = len(pool.operands)
        changes: list[list[list[Argument]]] = []
        for taken in (*combinations(range(count), 2), *combinations(range(count), 1)):
            own = [Argument(pool.operands[k].number, identity(pool.operands[k].shape)) for k in taken]
            changes.append([own])
            if self._effort is not _Effort.PLAIN and pool.steps + 3 <= self.options.depth:
                ways = [self._ways.few(pool.of(arg.input).shape) for arg in own]
                pairs = [(k, way) for each in zip_longest(*ways) for k, way in enumerate(each) if way is not None]
                changes[-1] += [
                    [Argument(arg.input, way) if j == k else arg for j, arg in enumerate(own)] for k, way in pairs
                ]
        # operands take turns: the last ones have as much time as the first
        for args in in_turns(changes):
            if self._late(until):
                break
            for fitted, order in self._applied(pool, args, last=False):
                if self._late(until):
                    break
                new = self._after(pool, fitted, order)
                if new:
                    made.setdefault((new.steps, -len(args)), []).append(new)
        best = [nsmallest(self.options.best, made[key], key=lambda one: one.operations) for key in sorted(made)]
        return [*in_turns(best)]

    def _after(self, pool: TensorPool, fitted: Fitted, args: tuple[Argument, ...]) -> TensorPool | None:
        """The pool after an operator; None where that was reached before, or costs too much."""
        self.tried += 1
        constant = all(arg.layout is None or pool.of(arg.input).constant for arg in args)
        operations = pool.operations + (0.0 if constant else fitted.operations)
        if operations > self.options.operations * self.operations or not is_linear(
            self.rules, fitted.core, fitted.holes
        ):
            return None
        result = self._result(pool, fitted, args)
        if result is None:
            return None
        if np.isin(self.result, result).all():
            # the region is computed already
            return None
        taken = {arg.input for arg in args}
        rest = tuple(each for each in pool.operands if each.number not in taken)
        # an operator and its inverse give what there was; so do two ways to one tensor
        key = (tuple(each.number for each in rest), fitted.shape, result.tobytes())
        if key in self._reached or any(np.array_equal(result, each.array) for each in pool.operands):
            return None
        self._reached.add(key)
        step = MutantStep(fitted.core, args, fitted.shape)
        number = len(self.problem.inputs) + len(pool.before)
        return TensorPool((*rest, Operand(number, result, constant)), (*pool.before, step), operations)

    # ---- one program -------------------------------------------------------------------------------------------

    def _result(self, pool: TensorPool, fitted: Fitted, args: tuple[Argument, ...]) -> Array | None:
        feeds = {value: self._array(pool, arg, value.type) for value, arg in zip(fitted.holes, args, strict=True)}
        try:
            (result,) = run_scopes((fitted.scope,), feeds, self.domain)
        except (InterpretError, Redraw):
            return None
        self.computed += 1
        self.work += COMPUTING
        found: Array = result
        return found

    def _try(self, pool: TensorPool, fitted: Fitted, args: tuple[Argument, ...]) -> None:
        if pool.operations + fitted.operations > self.options.operations * self.operations:
            return
        if fitted.operations > LARGE and not self._occurs(pool, fitted, args):
            return
        result = self._result(pool, fitted, args)
        if result is None:
            return
        core, shape, operations = fitted.core, fitted.shape, pool.operations + fitted.operations
        limit = self.options.share
        if 1 - float(np.isin(self.result, result).mean()) > limit:
            return
        flat = np.append(result.reshape(-1), 0)
        best: Mutant | None = None
        for ties, ways in ((False, self._ways.backs.get(shape, [])), (True, self._ways.tied(shape))):
            for layout in ways:
                share = float((flat[self._places(layout, ties, shape)] != self.result).mean())
                if share <= limit and (not best or share < best.share):
                    best = Mutant(args, core, layout, ties, share, operations, pool.before, shape)
        if not best or best.steps > self.options.depth or not is_linear(self.rules, core, fitted.holes):
            return
        taken = (self._array(pool, arg, value.type) for arg, value in zip(args, fitted.holes, strict=True))
        if pool.before and any(np.array_equal(result, each) for each in taken):
            # a chain without its last operator is that already
            return
        if self._is_new(best, pool):
            self.found[best] = self._now() - self.began

    def _occurs(self, pool: TensorPool, fitted: Fitted, args: tuple[Argument, ...]) -> bool:
        """Return whether any of the region's elements is in the middle of a result: large ones are computed there first."""
        part = self._parts.get(fitted.scope)
        if not part:
            part = self._parts[fitted.scope] = middle(fitted.scope, MIDDLE)
        result = self._result(pool, replace(fitted, scope=part), args)
        if result is None:
            return False
        some = result[result != 0]
        return bool((self._sorted[np.searchsorted(self._sorted, some) % self._sorted.size] == some).any())

    @cached_property
    def _sorted(self) -> Array:
        return np.unique(self.result)

    def _places(self, layout: Layout, ties: bool, shape: Shape) -> Array:
        """The place in an operator's result of a shape of each element of the region's."""

        def places() -> Array:
            return gathered(layout, shape) if ties else gathered(inverse(layout), shape, self.wanted)

        # a layout may span more than a shape, or less
        return self._kept_array((layout, (shape, ties)), places)

    def _array(self, pool: TensorPool, arg: Argument, type: TensorType) -> Array:
        if not arg.layout:
            return np.broadcast_to(np.asarray(self.domain.number(fraction(arg.number))), type.sizes)
        own, layout = pool.of(arg.input), arg.layout
        if layout.identity:
            return own.array
        return self._kept_array((layout, own), lambda: np.append(own.array.reshape(-1), 0)[gathered(layout, own.shape)])

    def _kept_array(self, key: tuple[Layout, object], make: Callable[[], Array]) -> Array:
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

    def _is_new(self, mutant: Mutant, pool: TensorPool) -> bool:
        """Return whether it is neither the region itself nor, in its normal form, one that was found, nor as good as one."""
        shapes = tuple(pool.shape(arg) for arg in mutant.arguments)
        like = (tuple(step.core for step in mutant.before), mutant.core, shapes, round(mutant.share, 9))
        if like in self._kept:
            return False
        value = next(iter(made(self.rules, mutant, self.problem.small, self.problem.small)), None)
        if not value or value in self.problem.small.outputs:
            return False
        form = self._normal.value(expand(self.rules, (value,))[0])
        if form in self._terms:
            return False
        self._terms.add(form)
        self._kept.add(like)
        return True


def _in_turns(best: Sequence[Mutant]) -> list[Mutant]:
    """The best by each chain of operators take turns: what one of them is priced at says little about the others."""
    kinds: dict[tuple[str, ...], list[Mutant]] = {}
    for each in best:
        kinds.setdefault((*(step.core.op for step in each.before), each.core.op), []).append(each)
    return [*in_turns(kinds.values())]


def _slides(layout: Layout) -> bool:
    """Return whether a layout leaves the dimensions alone that windows slide over."""
    return (
        len(layout.result) == len(layout.source) and layout.result[2:] == layout.source[2:] and not any(layout.shifts)
    )


def _fit(shapes: Sequence[Shape], one: Place, other: Place) -> bool:
    a, b = (shapes[k][axis] if axis < len(shapes[k]) else 1 for k, axis in (one, other))
    return a % b == 0 or b % a == 0

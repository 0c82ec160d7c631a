"""Which of many programs are shown: of every kind one before a second of any.

A kind is what a program's operators do with the windows and the sums of the given expression, and not how large or in which layout:
an operator, whether it has a window as large as the given one, a smaller one or none, whether a batch stands for what was summed,
whether parts of a window are channels, and whether something is left to add afterwards. Kinds that depart in one thing from the given
expression come before those that depart in several, and of these first those that show a thing that none before them did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from dslc.analysis.iterators import coefficient_of
from dslc.derivation.programs import PricedProgram
from dslc.derivation.tables import OperatorPattern, around
from dslc.derivation.targets import sizes_in
from dslc.ir.graph import Call, Input, ScopeNode, Value, topological
from dslc.ir.scalar import Iter, Num, Read, Reduce, Scalar
from dslc.ir.scopes import each_of
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules

CHEAPEST = 4  #: programs that are shown for their price alone, at most


@dataclass(frozen=True, slots=True)
class _Form:
    """Sums of products: extents of what is summed along a window, of all else that is summed, and of what both factors have.

    `strides`, `dilations`: the largest coefficients of positions and of what is summed along a window.
    """

    windows: tuple[int, ...]
    plain: int
    batch: int
    strides: int = 1
    dilations: int = 1


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a program does otherwise: per call the operator and its features, of which those that start with `+` are departures."""

    calls: tuple[tuple[str, tuple[str, ...]], ...]
    whole: tuple[str, ...]

    @property
    def things(self) -> frozenset[tuple[str, str]]:
        own = {(op, feature) for op, features in self.calls for feature in features}
        return frozenset(own | {("", feature) for feature in self.whole})

    @property
    def departures(self) -> int:
        return sum(feature.startswith("+") for _, features in (*self.calls, ("", self.whole)) for feature in features)


class Kinds:
    """The kinds of programs for some given calls."""

    def __init__(self, rules: Rules, given: Sequence[Call] = ()) -> None:
        self.rules, self.given = rules, given
        self.forms = [form for call in given for form in _forms(rules, call)]
        self._of: dict[Call, tuple[tuple[str, ...], bool, bool]] = {}
        self._below: dict[Value, frozenset[Value]] = {}

    def first(self, programs: Iterable[PricedProgram]) -> Iterator[PricedProgram]:
        """Programs, the cheapest first, in the order in which they are shown.

        Before all kinds come the cheapest: one, and more where several products are given; then where several are given by their
        number in turn.
        """
        every = list(programs)
        count = max(1, min(2 * len(self.forms) - 1, CHEAPEST))
        yield from every[:count]
        left = every[count:]
        if len(self.forms) < 2:
            yield from self._in_turn(left, every[:count])
            return
        groups: dict[int, list[PricedProgram]] = {}
        for each in sorted(left, key=lambda each: len(each.calls)):
            groups.setdefault(len(each.calls), []).append(each)
        yield from _turns([self._in_turn(own, every[:count]) for own in groups.values()])

    def _in_turn(self, programs: Sequence[PricedProgram], cheapest: Sequence[PricedProgram]) -> Iterator[PricedProgram]:
        groups: dict[_Kind, list[PricedProgram]] = {}
        for each in programs:
            groups.setdefault(self.kind(each), []).append(each)
        queues = {kind: sorted(own, key=self._order) for kind, own in groups.items()}
        # the cheapest stand for their kinds where these have none that is plainer
        ahead = [
            kind
            for each in cheapest
            if (kind := self.kind(each)) in queues and self._odd(each) <= self._odd(queues[kind][0])
        ]
        order = [*self._ordered([kind for kind in queues if kind not in ahead], queues, ahead), *dict.fromkeys(ahead)]
        yield from _turns([iter(queues[kind]) for kind in order])

    def _ordered(
        self, kinds: list[_Kind], queues: dict[_Kind, list[PricedProgram]], shown: Sequence[_Kind]
    ) -> list[_Kind]:
        """Kinds by their departures, then those of what was not shown yet."""
        seen = {thing for kind in shown for thing in kind.things}
        left, order = list(kinds), list[_Kind]()

        def rank(kind: _Kind) -> tuple[bool, int, int, int, float]:
            best = queues[kind][0]
            several = kind.departures > 1
            new = len(kind.things - seen) if several else 0
            return several, -min(new, 1), kind.departures, len(best.steps) if several else 0, best.seconds

        while left:
            chosen = min(left, key=rank)
            left.remove(chosen)
            order.append(chosen)
            seen |= chosen.things
        return order

    def _odd(self, program: PricedProgram) -> tuple[bool, bool, bool]:
        """Parts of one size come before what is rounded up, neighbours before what is dilated, and operands in their places."""
        marks = [(*self._features(call)[1:], self._swapped(call)) for call in program.calls]
        uneven, dilated, swapped = (any(each) for each in zip(*marks, strict=True)) if marks else (False, False, False)
        return uneven, dilated, swapped

    def _order(self, program: PricedProgram) -> tuple[tuple[bool, bool, bool], bool, int, float, int]:
        """Of one kind the plain ones first, then by ranks, prices and derivations."""
        other = False
        rank = 0
        ranks = {(call.op, *(len(arg.type.shape) for arg in call.args)) for call in self.given}
        names = {op for op, *_ in ranks}
        for call in program.calls:
            own = (call.op, *(len(arg.type.shape) for arg in call.args))
            other = other or (call.op in names and own not in ranks)
            rank += 0 if call.op in names else sum(own[1:])  # type: ignore[arg-type]
        return self._odd(program), other, rank, program.seconds, len(program.steps)

    def kind(self, program: PricedProgram) -> _Kind:
        calls = tuple(sorted((call.op, self._features(call)[0]) for call in program.calls))
        whole = []
        if any(node.scope.body.binds for node in program.generated if not node.constant):
            whole.append("+added")
        products = max(1, len(self.forms))
        whole += ["+more"] * max(0, len(calls) - products)
        return _Kind(calls, tuple(whole))

    def _features(self, call: Call) -> tuple[tuple[str, ...], bool, bool]:
        found = self._of.get(call)
        if found is None:
            found = self._of[call] = self._compared(call)
        return found

    def _compared(self, call: Call) -> tuple[tuple[str, ...], bool, bool]:
        """What an operator does otherwise than the given expression; whether its window is no even part, and is dilated more."""
        (own,) = _forms(self.rules, call) or (None,)
        if own is None or not self.forms:
            return (), False, False
        # of several products the one that it is most like
        given = min(
            self.forms, key=lambda form: (form.windows != own.windows, abs(len(form.windows) - len(own.windows)))
        )
        features: list[str] = []
        uneven = False
        if own.windows:
            features.append(_windows(own.windows, given.windows))
            uneven = features[0] == "less" and any(a % b for a, b in zip(given.windows, own.windows, strict=True))
        if given.dilations > 1 == own.dilations:
            features.append("dense")
        if given.strides > 1 == own.strides:
            features.append("at every position")
        # a window that does not overlap looks like a part of a dimension
        more = len(own.windows) > len(given.windows)
        summed, wanted = (
            (own.plain * prod(own.windows), given.plain * prod(given.windows)) if more else (own.plain, given.plain)
        )
        if summed > wanted:
            features.append("+of a window")
        elif summed < wanted and own.batch == given.batch:
            features.append("+in parts")
        if own.batch != given.batch:
            features.append("no batch" if own.batch == 1 else "+batch")
        return tuple(features), uneven, own.dilations > given.dilations

    def _swapped(self, call: Call) -> bool:
        """Whether the operands come from what the given call has in other places."""
        if len(self.given) != 1 or len(self.given[0].args) != len(call.args):
            return False
        places = [self._inputs(arg) for arg in self.given[0].args]
        return any(self._inputs(arg).isdisjoint(place) for arg, place in zip(call.args, places, strict=True))

    def _inputs(self, value: Value) -> frozenset[Value]:
        found = self._below.get(value)
        if found is None:
            nodes = topological([value.node])
            found = self._below[value] = frozenset(node.values[0] for node in nodes if isinstance(node, Input))
        return found


def _windows(own: tuple[int, ...], given: tuple[int, ...]) -> str:
    if len(own) != len(given):
        return "+fewer dimensions" if len(own) < len(given) else "windows"
    pairs = [*zip(own, given, strict=True)]
    if all(a == b for a, b in pairs):
        return "same"
    if all(a < b for a, b in pairs):
        return "less"
    return "+larger" if all(a >= b for a, b in pairs) else "+uneven"


def _forms(rules: Rules, call: Call) -> list[_Form]:
    """What an operator adds, by its table; else by its expression, where it may be of several products."""
    found = sizes_in(rules, call)
    if found is not None:
        return [_of_pattern(*found)] if found[0].kind is not None else []
    forms = []
    for value in expand(rules, (call.values[0],)):
        for node in topological([value.node]):
            total = around(node.scope.body)[0] if isinstance(node, ScopeNode) else None
            if isinstance(node, ScopeNode) and total is not None and total.reads:
                forms.append(_of_scope(node, total))
    return forms


def _of_pattern(pattern: OperatorPattern, sizes: dict[Iter, int], slopes: dict[Iter, int]) -> _Form:
    moving = {it for it in pattern.moving if it in pattern.sums}
    plain = batch = 1
    for it in pattern.extents:
        size = sizes.get(it, 1)
        operands, result = pattern.group(it)
        if it in pattern.sums and it not in moving:
            plain *= size
        elif result and len(operands) > 1:
            batch *= size
    windows = tuple(sorted(sizes.get(it, 1) for it in moving if sizes.get(it, 1) > 1))
    dilations = max((slopes.get(it, 1) for it in moving if sizes.get(it, 1) > 1), default=1)
    strides = max((slopes.get(it, 1) for it in pattern.moving if it not in moving and sizes.get(it, 1) > 1), default=1)
    return _Form(windows, plain, batch, strides, dilations)


def _of_scope(node: ScopeNode, total: Reduce) -> _Form:
    reads = [*each_of(Read, total.body)]
    plain, windows = 1, []
    for it, extent in zip(total.iters, total.extents, strict=True):
        size = int(extent.value) if isinstance(extent, Num) and isinstance(extent.value, int) else 128
        if any(_slides(it, size, at) for each in reads for at in each.index):
            windows += [size] * (size > 1)
        else:
            plain *= size
    batch = 1
    for it, long in zip(node.scope.iters, node.scope.extents, strict=True):
        if len(reads) > 1 and all(any(at is it for at in each.index) for each in reads):
            batch *= long if isinstance(long, int) else 128
    return _Form(tuple(sorted(windows)), plain, batch)


def _slides(it: Iter, size: int, at: Scalar) -> bool:
    """Whether an iterator moves along a dimension with others, and is not the inner one of a merged dimension."""
    others = at.free - {it}
    inner = coefficient_of(at, it) == 1 and any(coefficient_of(at, other) == size for other in others)
    return it in at.free and bool(others) and not inner


def _turns(queues: Sequence[Iterator[PricedProgram]]) -> Iterator[PricedProgram]:
    """One of each in turn, until there are no more."""
    left = list(queues)
    while left:
        for queue in list(left):
            found = next(queue, None)
            if found is None:
                left.remove(queue)
            else:
                yield found


def kinds(rules: Rules, programs: Iterable[PricedProgram], given: Sequence[Call] = ()) -> Iterator[PricedProgram]:
    """Programs, which come with the cheapest first, in the order in which they are shown: see `Kinds`."""
    yield from Kinds(rules, given).first(programs)

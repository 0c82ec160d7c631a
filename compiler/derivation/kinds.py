"""The order in which programs are shown: of every kind one before a second of any.

A kind is what a program's operators do with the windows and the sums of the given expression, and not how large or in which layout:
an operator, whether it has a window as large as the given one, a smaller one or none, whether a batch stands for what was summed,
whether parts of a window are channels, and whether something is left to add afterwards. Kinds that depart in one thing from the given
expression come before those that depart in several, and of these first those that show a thing that none before them did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import zip_longest
from math import prod
from typing import TypeVar

from dslc.analysis.iterators import coefficient_of
from dslc.derivation.programs import PricedProgram
from dslc.derivation.tables import OperatorPattern, around
from dslc.derivation.targets import sizes_in
from dslc.ir.graph import Call, Input, ScopeNode, Value, nodes_of
from dslc.ir.scalar import Iter, Num, Read, Reduce, Scalar
from dslc.ir.scopes import each_of
from dslc.records import record
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules

T = TypeVar("T")

CHEAPEST = 4  #: programs that are shown for their price alone, at most


@record
class _Form:
    """Sums of products: extents of sums along a window, of all other sums, and of the positions that both factors have.

    `strides`, `dilations`: the largest coefficients of positions and of sums along a window.
    """

    windows: tuple[int, ...]
    plain: int
    batch: int
    strides: int = 1
    dilations: int = 1


#: of each call the operator and its features, departures with a `+`; features of the whole program have no operator
Kind = tuple[tuple[str, tuple[str, ...]], ...]


class Kinds:
    """The kinds of programs for some given calls."""

    def __init__(self, rules: Rules, given: Sequence[Call] = ()) -> None:
        self.rules, self.given = rules, given
        self.forms = [form for call in given for form in _forms(rules, call)]
        #: for each call its features, and whether its window is no even part of the given one, and is dilated more
        self._features = cache(self._compared)
        self._inputs = cache(_inputs)

    def first(self, programs: Iterable[PricedProgram]) -> Iterator[PricedProgram]:
        """Programs, the cheapest first, in the order in which they are shown.

        Before all kinds come the cheapest: one, and more where several products are given; then where several are given by their
        number in turn.
        """
        every = list(programs)
        count = max(1, min(2 * len(self.forms) - 1, CHEAPEST))
        cheapest, left = every[:count], every[count:]
        yield from cheapest
        groups: dict[int, list[PricedProgram]] = {}
        for each in left if len(self.forms) < 2 else sorted(left, key=lambda each: len(each.calls)):
            groups.setdefault(len(each.calls) if len(self.forms) > 1 else 0, []).append(each)
        yield from in_turns(self._in_turn(own, cheapest) for own in groups.values())

    def _in_turn(self, programs: Sequence[PricedProgram], cheapest: Sequence[PricedProgram]) -> Iterator[PricedProgram]:
        queues: dict[Kind, list[PricedProgram]] = {}
        for each in programs:
            queues.setdefault(self.kind(each), []).append(each)
        for own in queues.values():
            own.sort(key=self._order)
        # the cheapest stand for their kinds where these have none that is plainer
        ahead = [
            kind
            for each in cheapest
            if (kind := self.kind(each)) in queues and self._odd(each) <= self._odd(queues[kind][0])
        ]
        # kinds by their departures, then those of features that none before them has
        seen = {thing for kind in ahead for thing in _things(kind)}
        left, order = [kind for kind in queues if kind not in ahead], list[Kind]()

        def rank(kind: Kind) -> tuple[bool, bool, int, int, float]:
            best = queues[kind][0]
            departures = sum(feature.startswith("+") for _, features in kind for feature in features)
            several = departures > 1
            new = several and not _things(kind) <= seen
            return several, not new, departures, len(best.steps) if several else 0, best.seconds

        while left:
            order.append(min(left, key=rank))
            left.remove(order[-1])
            seen |= _things(order[-1])
        yield from in_turns(queues[kind] for kind in (*order, *dict.fromkeys(ahead)))

    def _odd(self, program: PricedProgram) -> tuple[bool, ...]:
        """Parts of one size come before what is rounded up, neighbours before what is dilated, and operands in their places."""
        marks = [(*self._features(call)[1:], self._swapped(call)) for call in program.calls]
        return tuple(map(any, zip(*marks, strict=True))) if marks else (False,) * 3

    def _order(self, program: PricedProgram) -> tuple[tuple[bool, ...], bool, int, float, int]:
        """Of one kind the plain ones first, then by ranks, prices and derivations."""
        ranks = [(call.op, [len(arg.type.shape) for arg in call.args]) for call in self.given]
        names = {op for op, _ in ranks}
        calls = [(call.op, [len(arg.type.shape) for arg in call.args]) for call in program.calls]
        other = any(call[0] in names and call not in ranks for call in calls)
        rank = sum(sum(own) for op, own in calls if op not in names)
        return self._odd(program), other, rank, program.seconds, len(program.steps)

    def kind(self, program: PricedProgram) -> Kind:
        calls = sorted((call.op, self._features(call)[0]) for call in program.calls)
        added = any(node.scope.body.binds for node in program.generated if not node.constant)
        more = len(calls) - max(1, len(self.forms))
        return (*calls, ("", ("+added",) * added + ("+more",) * more))

    def _compared(self, call: Call) -> tuple[tuple[str, ...], bool, bool]:
        own = next(iter(_forms(self.rules, call)), None)
        if not own or not self.forms:
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
        summed, wanted = (form.plain * (prod(form.windows) if more else 1) for form in (own, given))
        if summed > wanted:
            features.append("+of a window")
        elif summed < wanted and own.batch == given.batch:
            features.append("+in parts")
        if own.batch != given.batch:
            features.append("no batch" if own.batch == 1 else "+batch")
        return tuple(features), uneven, own.dilations > given.dilations

    def _swapped(self, call: Call) -> bool:
        """Return whether the operands come from what the given call has in other places."""
        if len(self.given) != 1 or len(self.given[0].args) != len(call.args):
            return False
        pairs = zip(call.args, self.given[0].args, strict=True)
        return any(self._inputs(arg).isdisjoint(self._inputs(place)) for arg, place in pairs)


def _things(kind: Kind) -> set[tuple[str, str]]:
    return {(op, feature) for op, features in kind for feature in features}


def _inputs(value: Value) -> frozenset[Value]:
    return frozenset(node.values[0] for node in nodes_of([value]) if isinstance(node, Input))


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
    """The sums of an operator, by its table; else by its expression, which may be of several products."""
    found = sizes_in(rules, call)
    if found is not None:
        return [_of_pattern(*found)] if found[0].kind is not None else []
    forms = []
    for value in expand(rules, (call.values[0],)):
        for node in nodes_of([value]):
            total = around(node.scope.body)[0] if isinstance(node, ScopeNode) else None
            if isinstance(node, ScopeNode) and total and total.reads:
                forms.append(_of_scope(node, total))
    return forms


def _of_pattern(pattern: OperatorPattern, sizes: dict[Iter, int], slopes: dict[Iter, int]) -> _Form:
    long = [it for it in pattern.extents if sizes.get(it, 1) > 1]
    moving = [it for it in long if it in pattern.moving]
    plain = prod(sizes[it] for it in long if it in pattern.sums and it not in moving)
    groups = ((it, *pattern.group(it)) for it in long if it not in pattern.sums or it in moving)
    batch = prod(sizes[it] for it, operands, result in groups if result and len(operands) > 1)
    windows = tuple(sorted(sizes[it] for it in moving if it in pattern.sums))
    strides, dilations = (
        max((slopes.get(it, 1) for it in moving if (it in pattern.sums) is summed), default=1)
        for summed in (False, True)
    )
    return _Form(windows, plain, batch, strides, dilations)


def _of_scope(node: ScopeNode, total: Reduce) -> _Form:
    reads = [*each_of(Read, total.body)]
    plain, windows = 1, []
    for it, extent in total.ranges:
        size = int(extent.value) if isinstance(extent, Num) and isinstance(extent.value, int) else 128
        if any(_slides(it, size, at) for each in reads for at in each.index):
            windows += [size] * (size > 1)
        else:
            plain *= size
    batch = prod(
        long if isinstance(long, int) else 128
        for it, long in node.scope.ranges
        if len(reads) > 1 and all(it in each.index for each in reads)
    )
    return _Form(tuple(sorted(windows)), plain, batch)


def _slides(it: Iter, size: int, at: Scalar) -> bool:
    """Return whether an iterator moves along a dimension with others, and is not the inner one of a merged dimension."""
    others = at.free - {it}
    inner = coefficient_of(at, it) == 1 and any(coefficient_of(at, other) == size for other in others)
    return it in at.free and bool(others) and not inner


def in_turns(queues: Iterable[Iterable[T]]) -> Iterator[T]:
    """One of each in turn, until there are no more."""
    for row in zip_longest(*queues):
        yield from (each for each in row if each is not None)

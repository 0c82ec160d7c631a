"""The search for programs that an expression can be computed by: derivations, then operators between changes of layout.

Explorative steps are taken in layers. Of each layer those are kept that come nearest to an operator's iterator table (EinNet,
section 5.2: the distance is what stands between the expression and the table), and those whose best program is the cheapest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from math import inf

from dslc.derive.pieces import Operands, view_of
from dslc.derive.solving import Miss, Missed, nearer
from dslc.derive.steps import Step, Steps
from dslc.derive.targets import instances, missed, products_of, summed
from dslc.ir.graph import Call, Input, Node, ScopeNode, Value, replace, topological
from dslc.ir.scalar import Apply, Num, Read, Reduce, Scalar, walk
from dslc.semantics.definitions import DerivationDef
from dslc.semantics.library import Rules

#: an estimate of a machine, where none is measured: operations and bytes a second, and what a call takes
OPERATIONS, SCALAR, BYTES, LAUNCH = 2e11, 2e10, 3e10, 2e-6
#: ways to write an expression by operators that are looked at
_WAYS = 16
#: expressions that are asked why they are not an operator
_ASKED = 200


@dataclass(frozen=True)
class Limits:
    """How far the search goes."""

    max_depth: int = 7
    #: states of a layer that are taken further
    beam: int = 48
    seconds: float = inf
    #: expressions that are looked at: with this limit alone a search finds the same on every machine
    max_states: float = inf
    #: operations per element moved up to which an expression runs as an operator that is generated for it
    intensity: float = 4.0
    #: whether equal expressions are told by their normal form, and whether the nearest to an operator are taken further; for studies
    fingerprint: bool = True
    guided: bool = True


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Program:
    """An equal program of operators and generated operators: how it was derived, and the estimate of its price in seconds."""

    value: Value
    steps: tuple[Step, ...]
    targets: tuple[str, ...]
    seconds: float

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(node for node in topological([self.value.node]) if isinstance(node, Call))

    @property
    def generated(self) -> tuple[ScopeNode, ...]:
        return tuple(node for node in topological([self.value.node]) if isinstance(node, ScopeNode))


@dataclass(frozen=True, slots=True)
class Derived:
    """What was found, the cheapest first."""

    programs: tuple[Program, ...]
    states: int
    applications: int
    seconds: float
    #: whether everything within the depth was looked at
    complete: bool


Price = Callable[[Node], float]


def estimated(rules: Rules) -> Price:
    """Seconds of a node by its operations and bytes."""
    products: dict[Node, float] = {}

    def price(node: Node) -> float:
        if isinstance(node, Input) or node.constant:
            return 0.0
        sizes = sum(_elements(value) * value.type.dtype.bytes for value in (*dict.fromkeys(node.args), *node.values))
        if isinstance(node, ScopeNode):
            per = _operations(node.scope.body)
            return LAUNCH / 2 + max(per * _elements(node.values[0]) / SCALAR, sizes / BYTES)
        if isinstance(node, Call):
            if node not in products:
                products[node] = 2.0 * _elements(node.values[0]) * summed(rules, node)
            return LAUNCH + max(products[node] / OPERATIONS, sizes / BYTES)
        return LAUNCH

    return price


def _elements(value: Value) -> int:
    total = 1
    for size in value.type.shape:
        total *= size if isinstance(size, int) else 128
    return total


def _operations(body: Scalar) -> float:
    if isinstance(body, Reduce):
        count = 1.0
        for extent in body.extents:
            count *= float(extent.value) if isinstance(extent, Num) and isinstance(extent.value, int) else 128.0
        return count * (1 + _operations(body.body))
    if isinstance(body, Apply):
        return sum(_operations(arg) for arg in body.args) + (len(body.args) - 1 if body.reads else 0)
    return 0.0


def intensity(node: ScopeNode) -> float:
    """Operations per element that is read or written; 1 at most for what adds elements of one tensor, each of them as it is."""
    count = 1.0
    body = node.scope.body
    while isinstance(body, Reduce):
        for extent in body.extents:
            count *= float(extent.value) if isinstance(extent, Num) and isinstance(extent.value, int) else 128.0
        body = body.body
    if sum(isinstance(part, Read) for part in walk(body)) < 2:
        return min(1.0, _operations(body) + 1.0)
    moved = sum(min(_elements(arg), count * _elements(node.values[0])) for arg in dict.fromkeys(node.args))
    return _operations(node.scope.body) * _elements(node.values[0]) / max(1.0, moved + _elements(node.values[0]))


def distance(value: Value) -> int:
    """What stands between an expression and the tables of products: indexes of several iterators, guards, divisions."""
    total = 0
    for node in topological([value.node]):
        if isinstance(node, ScopeNode) and any(isinstance(part, Reduce) for part in walk(node.scope.body)):
            view = view_of(node.values[0], Operands())
            body = node.scope.body if view is None else view.body
            reads = [part for part in walk(body) if isinstance(part, Read)]
            if len(reads) < 2:
                continue
            total += sum(max(0, len(at.free) - 1) for each in reads for at in each.index)
            total += sum(2 for part in walk(body) if isinstance(part, Apply) and part.name in {"//", "%", "select"})
    return total


class Search:
    """One search; `programs` are the best so far at any moment."""

    def __init__(
        self, rules: Rules, derivations: Sequence[DerivationDef], limits: Limits = LIMITS, targets: tuple[str, ...] | None = None,
        price: Price | None = None,
    ) -> None:  # fmt: skip
        self.rules, self.limits, self.targets = rules, limits, targets or products_of(rules)
        self.price = price or estimated(rules)
        self.steps = Steps(derivations, fingerprint=limits.fingerprint)
        self.programs: dict[Value, Program] = {}
        self.states = 0
        self.seen: tuple[Value, ...] = ()
        self._instances: dict[Value, tuple[tuple[str, Value], ...]] = {}
        self._prices: dict[Node, float] = {}
        self._heavy: dict[ScopeNode, bool] = {}

    def run(self, value: Value) -> Derived:
        """Explores from one scope, and gives the programs, cheapest first."""
        began = time.monotonic()

        def late() -> bool:
            return time.monotonic() - began > self.limits.seconds

        self.steps.late = late
        start = self.steps.start(value)
        paths: dict[Value, tuple[Step, ...]] = {start: ()}
        layer = [start]
        best = {start: self._programs(start, ())}
        complete = True
        for _ in range(self.limits.max_depth):
            fresh: list[Value] = []
            for state in layer:
                if late() or len(paths) >= self.limits.max_states:
                    complete = False
                    break
                for step, new in self.steps.near(state):
                    if new not in paths and len(paths) < self.limits.max_states:
                        paths[new] = (*paths[state], step)
                        fresh.append(new)
            for new in fresh:
                # at least the first of a layer, whatever time is left
                best[new] = inf if new is not fresh[0] and late() else self._programs(new, paths[new])
            if not fresh:
                break
            layer, cut = self._kept(fresh, best, paths)
            complete = complete and not cut
            if late():
                complete = False
                break
        self.states = len(paths)
        self.seen = tuple(paths)
        ordered = sorted(self.programs.values(), key=lambda each: (each.seconds, len(each.steps)))
        return Derived(tuple(ordered), self.states, self.steps.applications, time.monotonic() - began, complete)

    def missed(self, target: str) -> Missed:
        """Why no expression that was looked at is an operator, by the one that came nearest to it."""
        found: Missed | None = None
        for state in self.seen[:_ASKED]:
            for node in topological([state.node]):
                if isinstance(node, ScopeNode):
                    why = missed(self.rules, node.values[0], target)
                    if why is None:
                        return Missed(Miss.INTENSITY)
                    found = nearer(found, why)
        return found or Missed(Miss.NO_TABLE)

    def _kept(self, fresh: list[Value], best: dict[Value, float], paths: Mapping[Value, tuple[Step, ...]]) -> tuple[list[Value], bool]:
        """Those that are taken further: for the rules that led to them, for their price, and for their distance."""
        if len(fresh) <= self.limits.beam:
            return fresh, False
        if not self.limits.guided:
            return fresh[: self.limits.beam], True
        order = {value: k for k, value in enumerate(fresh)}
        far = {value: distance(value) for value in fresh}
        cheap = sorted(fresh, key=lambda value: (best[value], far[value], order[value]))
        near = sorted(fresh, key=lambda value: (far[value], _scopes(value), best[value], order[value]))
        kept: dict[Value, None] = {}
        # of every set of rules that led here some, as what pays in the end may look worse on its way
        groups: dict[tuple[str, ...], list[Value]] = {}
        for value in near:
            groups.setdefault(tuple(sorted({str(step) for step in paths[value]})), []).append(value)
        for turn in range(max(map(len, groups.values()))):
            for members in groups.values():
                if turn < len(members) and len(kept) < self.limits.beam // 2:
                    kept[members[turn]] = None
        for a, b in zip(cheap, near, strict=True):
            if len(kept) >= self.limits.beam:
                break
            kept[a] = kept[b] = None
        return list(kept), True

    # ---- instantiation -------------------------------------------------------------------------------------

    def _programs(self, state: Value, steps: tuple[Step, ...]) -> float:
        """The programs of a state, kept; the price of the cheapest, complete or not."""
        least = self._price(state)
        for targets, value in self._instantiated(state):
            new = self.steps.normal(value)
            seconds = self._price(new)
            least = min(least, seconds)
            if not targets or any(self._is_heavy(node) for node in topological([new.node]) if isinstance(node, ScopeNode)):
                continue
            known = self.programs.get(new)
            if known is None or len(steps) < len(known.steps):
                self.programs[new] = Program(new, steps, targets, seconds)
        return least

    def _instantiated(self, state: Value) -> Iterator[tuple[tuple[str, ...], Value]]:
        """The state with its products as operators: every one of them, each in some ways."""
        yield (), state
        found: list[tuple[Value, tuple[tuple[str, Value] | None, ...]]] = []
        # users before what they use: that is replaced in what stands for them
        for node in reversed(topological([state.node])):
            if isinstance(node, ScopeNode):
                (value,) = node.values
                ways = self._of(value)
                if ways:
                    # what is computed of a product need not go with it
                    alone = any(isinstance(part, Reduce) for part in walk(node.scope.body))
                    found.append((value, ways if alone else (*ways[: _WAYS - 1], None)))
        if not found:
            return
        # of each operator the first way first
        sizes = [range(min(len(ways), _WAYS)) for _, ways in found]
        for chosen in sorted(islice(product(*sizes), _WAYS**2), key=lambda choice: (sum(choice), choice))[:_WAYS]:
            whole, names = state, list[str]()
            for (value, choices), k in zip(found, chosen, strict=True):
                way = choices[k]
                if way is None:
                    continue
                (name, made), before = way, whole
                (whole,) = replace((whole,), {value: made})
                if whole != before:
                    # else it went with what reads it
                    names.append(name)
            yield tuple(names), whole

    def _of(self, value: Value) -> tuple[tuple[str, Value], ...]:
        found = self._instances.get(value)
        if found is None:
            made = list(instances(self.rules, value, self.targets))
            order = {id(each): [name for name, _ in made[:k]].count(each[0]) for k, each in enumerate(made)}
            found = self._instances[value] = tuple(sorted(made, key=lambda each: order[id(each)]))
        return found

    def _is_heavy(self, node: ScopeNode) -> bool:
        """Whether a scope computes too much for an operator that is generated."""
        found = self._heavy.get(node)
        if found is None:
            found = self._heavy[node] = intensity(node) > self.limits.intensity
        return found

    def _price(self, value: Value) -> float:
        total = 0.0
        for node in topological([value.node]):
            own = self._prices.get(node)
            if own is None:
                own = self._prices[node] = self.price(node)
            total += own
        return total


@dataclass(frozen=True, slots=True)
class _Size:
    """What the operators of a program are, and how large: numbers of attributes, elements of the result, what is added for each."""

    operators: tuple[str, ...]
    numbers: tuple[tuple[int, ...], ...]
    sums: bool

    def within(self, other: _Size) -> bool:
        """Whether another program has the same operators, all of them as large at least."""
        if (self.operators, self.sums) != (other.operators, other.sums) or [*map(len, self.numbers)] != [*map(len, other.numbers)]:
            return False
        return all(a <= b for own, its in zip(self.numbers, other.numbers, strict=True) for a, b in zip(own, its, strict=True))


def _size_of(rules: Rules, nodes: Iterable[Node]) -> _Size:
    found, sums = [], False
    for node in nodes:
        if isinstance(node, Call):
            numbers = [int(each) for _, value in node.attrs for each in (value if isinstance(value, tuple) else (value,))
                       if isinstance(each, int)]  # fmt: skip
            sizes = sorted(int(_elements(arg)) for arg in node.args)
            found.append((node.op, (*numbers, _elements(node.values[0]), int(summed(rules, node)), *sizes)))
        elif isinstance(node, ScopeNode):
            sums = sums or any(isinstance(part, Reduce) for part in walk(node.scope.body))
    found.sort()
    return _Size(tuple(name for name, _ in found), tuple(numbers for _, numbers in found), sums)


def unlike(rules: Rules, programs: Iterable[Program], given: Iterable[Node] = ()) -> Iterator[Program]:
    """Of programs, the cheapest first, those that are no others (or the `given` one) with more to compute by the same operators."""
    kept = [_size_of(rules, given)]
    for each in programs:
        size = _size_of(rules, topological([each.value.node]))
        if not any(known.within(size) for known in kept):
            kept.append(size)
            yield each


def _scopes(value: Value) -> int:
    return sum(isinstance(node, ScopeNode) for node in topological([value.node]))

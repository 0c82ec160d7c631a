"""The search for programs that an expression can be computed by: derivations, then operators between changes of layout.

Explorative steps are taken in layers. Of each layer those are kept that come nearest to an operator's iterator table (EinNet,
section 5.2: the distance is what stands between the expression and the table), and those whose best program is the cheapest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from dslc.derive.pieces import Operands, view_of
from dslc.derive.steps import Step, Steps
from dslc.derive.targets import Operators, instances, operators_of
from dslc.ir.graph import Call, Input, Node, ScopeNode, Value, product, replace, topological
from dslc.ir.scalar import Apply, Num, Read, Reduce, Scalar, walk
from dslc.semantics.definitions import DerivationDef
from dslc.semantics.library import Rules

#: an estimate of a machine, where none is measured: operations and bytes a second, and what a call takes
OPERATIONS, SCALAR, BYTES, LAUNCH = 2e11, 2e10, 3e10, 2e-6


@dataclass(frozen=True)
class Limits:
    """How far the search goes."""

    max_depth: int = 7
    #: states of a layer that are taken further
    beam: int = 48
    seconds: float = inf
    #: operations per element moved up to which an expression runs as an operator that is generated for it
    intensity: float = 4.0


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


def estimated(node: Node) -> float:
    """Seconds of a node by its operations and bytes."""
    if isinstance(node, Input) or node.constant:
        return 0.0
    sizes = sum(_elements(value) * value.type.dtype.bytes for value in (*dict.fromkeys(node.args), *node.values))
    if isinstance(node, ScopeNode):
        scope = node.scope
        per = _operations(scope.body)
        return LAUNCH / 2 + max(per * _elements(node.values[0]) / SCALAR, sizes / BYTES)
    if isinstance(node, Call):
        return LAUNCH + max(_product_operations(node) / OPERATIONS, sizes / BYTES)
    return LAUNCH


def _elements(value: Value) -> int:
    total = 1
    for size in value.type.shape:
        total *= size if isinstance(size, int) else 128
    return total


def _product_operations(node: Call) -> float:
    """Twice the products of a convolution or a matrix product: what the output has, times what one operand has for each."""
    (y,) = node.values
    if len(node.args) < 2:
        return 2.0 * _elements(y)
    left, right = node.args[:2]
    rank = len(y.type.shape)
    if len(left.type.shape) == rank and len(right.type.shape) == rank:
        # the summed sizes: all of the second operand but those of the output's channels, or the last of the first
        kernel = _elements(right) / max(1, _size(right, 0))
        return 2.0 * _elements(y) * (kernel if dict(node.attrs) else _size(left, rank - 1))
    return 2.0 * _elements(y)


def _size(value: Value, axis: int) -> int:
    size = value.type.shape[axis]
    return size if isinstance(size, int) else 128


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
        self, rules: Rules, derivations: Sequence[DerivationDef], limits: Limits = LIMITS, target: Operators | None = None,
        price: Price = estimated,
    ) -> None:  # fmt: skip
        self.rules, self.limits, self.target, self.price = rules, limits, target or operators_of(rules), price
        self.steps = Steps(derivations)
        self.programs: dict[Value, Program] = {}
        self.states = 0
        self._instances: dict[Value, tuple[tuple[str, Value], ...]] = {}

    def run(self, value: Value) -> Derived:
        """Explores from one scope, and gives the programs, cheapest first."""
        began = time.monotonic()
        start = self.steps.start(value)
        paths: dict[Value, tuple[Step, ...]] = {start: ()}
        layer = [start]
        best = {start: self._programs(start, ())}
        complete = True
        for _ in range(self.limits.max_depth):
            fresh: list[Value] = []
            for state in layer:
                if time.monotonic() - began > self.limits.seconds:
                    complete = False
                    break
                for step, new in self.steps.of(state):
                    if new not in paths:
                        paths[new] = (*paths[state], step)
                        fresh.append(new)
            for new in fresh:
                # at least the first of a layer, whatever time is left
                late = new is not fresh[0] and time.monotonic() - began > self.limits.seconds
                best[new] = inf if late else self._programs(new, paths[new])
            if not fresh:
                break
            layer, cut = self._kept(fresh, best, paths)
            complete = complete and not cut
            if time.monotonic() - began > self.limits.seconds:
                complete = False
                break
        self.states = len(paths)
        ordered = sorted(self.programs.values(), key=lambda each: (each.seconds, len(each.steps)))
        return Derived(tuple(ordered), self.states, self.steps.applications, time.monotonic() - began, complete)

    def _kept(self, fresh: list[Value], best: dict[Value, float], paths: Mapping[Value, tuple[Step, ...]]) -> tuple[list[Value], bool]:
        """Those that are taken further: for the rules that led to them, for their price, and for their distance."""
        if len(fresh) <= self.limits.beam:
            return fresh, False
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
            if not targets or any(intensity(n) > self.limits.intensity for n in topological([new.node]) if isinstance(n, ScopeNode)):
                continue
            known = self.programs.get(new)
            if known is None or len(steps) < len(known.steps):
                self.programs[new] = Program(new, steps, targets, seconds)
        return least

    def _instantiated(self, state: Value) -> Iterator[tuple[tuple[str, ...], Value]]:
        """The state with its products as operators: every one that is a product in every way, one after the other."""
        options: list[tuple[tuple[str, ...], Value]] = [((), state)]
        for node in topological([state.node]):
            if not isinstance(node, ScopeNode):
                continue
            (value,) = node.values
            found = self._of(value)
            if found:
                options = [
                    ((*names, name), replace((whole,), {value: made})[0]) for names, whole in options for name, made in found
                ][:12]  # fmt: skip
        yield from options

    def _of(self, value: Value) -> tuple[tuple[str, Value], ...]:
        found = self._instances.get(value)
        if found is None:
            found = self._instances[value] = tuple(instances(self.rules, value, self.target))
        return found

    def _price(self, value: Value) -> float:
        return sum(self.price(node) for node in topological([value.node]))


def _count(value: Value) -> str:
    """The number of elements, which may be unknown."""
    return str(product(value.type.shape))


def unlike(programs: Iterable[Program]) -> list[Program]:
    """Of programs that differ in the order of axes and operands only, the first."""
    found: dict[tuple[str, str], Program] = {}
    for each in programs:
        calls = sorted(
            (node.op, str(node.attrs), sorted(_count(arg) for arg in node.args), _count(node.values[0]))
            for node in each.calls
        )
        sizes = sorted(_count(node.values[0]) for node in each.generated)
        found.setdefault((str(calls), str(sizes)), each)
    return list(found.values())


def _scopes(value: Value) -> int:
    return sum(isinstance(node, ScopeNode) for node in topological([value.node]))

"""Mutants of operators that stand one behind the other, chosen together (PET, Algorithm 2).

    back(conv(phases(X), K)) -> relu -> back(conv(phases(..), L))  =>  back(conv(relu(conv(phases(X), K)), L))

A mutant by itself pays for its layouts. Behind another one what lays out its operand meets what lays out the result of the one
before: the two are one kernel, or nothing at all. So mutants are kept that do not pay by themselves. A heap has the best programs so
far; each mutant is put in the place of its operator in each of them, and the whole is priced, layouts next to each other as one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dslc.deadline import TimeUp
from dslc.fuse.groups import Neighbours
from dslc.ir.facts import Chain, Fact, fact_of
from dslc.ir.graph import Call, Graph, Kernel, Node, Scope, ScopeNode, Value, replace, scope_value
from dslc.ir.holes import abstracted, instantiated, leaves_of, program
from dslc.ir.scalar import num, read, traversal
from dslc.mutate.problem import shape_of
from dslc.prove.exact import Equal, compare
from dslc.search.candidates.candidate import Candidate
from dslc.search.finders.looking import HotSite, NodePlace
from dslc.search.finders.mutants import Mutants
from dslc.search.finders.together import Several, Together
from dslc.semantics.apply import apply
from dslc.semantics.elaborate import expand
from dslc.semantics.env import EvalError, Mismatch

HEAP = 8  #: programs that are kept (PET's K)
EACH = 6  #: mutants of one operator that are put into each of them
DEARER = 1.5  #: times that what an operator takes its mutant may take by itself
MOST = 6  #: operators one behind the other
ROWS = 4  #: rows of operators that are looked at, the dearest
BETWEEN = 4  #: nodes between two layouts that cancel
PROVING = 1.0  #: seconds of proving that two layouts cancel


@dataclass(frozen=True, slots=True)
class _Subprogram:
    """An operator with what is computed element by element behind it, over these leaves, its seconds, and what may stand for it."""

    price: float
    place: NodePlace
    leaves: tuple[Value, ...]
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class _Partial:
    """A program of the heap: what stands for the results of its operators by now, the facts that it rests on, estimated seconds."""

    now: Mapping[Value, Value]
    facts: tuple[Fact, ...]
    seconds: float
    mutated: int = 0


@dataclass(slots=True)
class Subprograms(Together):
    """Where mutants of operators one behind the other are chosen together; `mutants` has those of each."""

    mutants: Mutants = field(kw_only=True)
    _sites_of: dict[Call, HotSite] = field(init=False, default_factory=dict)
    #: rows that were looked at, in whatever candidate
    _done: set[Graph] = field(init=False, default_factory=set)
    #: whether two layouts were proved to cancel
    _cancel: dict[tuple[Graph, Graph], bool] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        # what is known of operators in other forms is known to both
        self.builder = self.mutants.builder

    def _sets(self, base: Candidate, around: Neighbours) -> Iterator[tuple[Call, ...]]:
        """Hot operators, each of which reads what the one before gives and nobody else reads: the dearest rows, equal ones once."""
        rows: dict[Graph, tuple[Call, ...]] = {}
        for calls in self._rows(base, around):
            places = [self._place(node, around, set()) for node in calls]
            nodes = [node for place in places for node in (place.node, *place.behind)]
            rows.setdefault(abstracted((places[-1].end,), leaves_of(nodes))[0], calls)
        worth = {region: sum(self._sites_of[call].price for call in calls) for region, calls in rows.items()}
        for region in sorted(worth, key=lambda region: -worth[region])[:ROWS]:
            if region not in self._done:
                yield rows[region]

    def _rows(self, base: Candidate, around: Neighbours) -> Iterator[tuple[Call, ...]]:
        self._sites_of = {node: site for site in self.mutants.hot(base, around) for node in site.nodes}
        places = [
            self._place(node, around, set())
            for node in around.nodes
            if isinstance(node, Call) and node in self._sites_of
        ]
        behind: dict[Call, NodePlace] = {}
        for place in places:
            users = around.used.get(place.end, [])
            if (
                len(users) == 1
                and place.end not in around.final
                and isinstance(users[0], Call)
                and users[0] in self._sites_of
            ):
                behind[users[0]] = place
        row: list[Call] = []
        for place in places:
            before = behind.get(place.node)
            if before is None or not row or row[-1] is not before.node or len(row) == MOST:
                if len(row) > 1:
                    yield tuple(row)
                row = []
            row.append(place.node)
        if len(row) > 1:
            yield tuple(row)

    def _several(
        self, base: Candidate, calls: tuple[Call, ...], around: Neighbours, owned: set[Node]
    ) -> Several | None:
        inside = {*owned}
        places = [self._place(node, around, inside) for node in calls]
        nodes = tuple(node for place in places for node in (place.node, *place.behind))
        region, leaves = abstracted((places[-1].end,), leaves_of(nodes))
        row = [self._subprogram(place) for place in places]
        start = _Partial({}, (), sum(one.price for one in row))
        best = [one for one in self._heap(row, start) if one.mutated > 1 and one.seconds * self.margin < start.seconds]
        facts: dict[Graph, Fact] = {}
        for one in best:
            fact = self._whole(region, leaves, places[-1].end, one)
            if fact is not None:
                facts.setdefault(fact.new, fact)
        self._done.add(region)
        return Several((places[-1].end,), leaves, nodes, tuple(facts.values())[: self.built])

    def _subprogram(self, place: NodePlace) -> _Subprogram:
        """What may stand for an operator, the cheapest by estimate first, dearer ones among them. Raises TimeUp."""
        site = self._sites_of[place.node]
        _, leaves = abstracted((place.end,), leaves_of((place.node, *place.behind)))
        found = self.mutants.corrected(self.mutants.programs(site), site.price * DEARER)
        facts = (self.mutants.fact(each, site.program, place) for each in found)
        price = min(site.price, self.mutants.seconds_of(place.node))
        return _Subprogram(price, place, leaves, tuple(fact for fact in facts if fact is not None)[:EACH])

    # ---- the heap ----------------------------------------------------------------------------------------------

    def _heap(self, row: Sequence[_Subprogram], start: _Partial) -> list[_Partial]:
        """The best programs after each operator of a row stayed as it is, or became one of its mutants. Raises TimeUp."""
        heap, left = [start], start.seconds
        for one in row:
            left -= one.price
            made: dict[Value, _Partial] = {}
            for partial in heap:
                if self.until.over:
                    raise TimeUp
                for fact in (None, *one.facts):
                    next_one = self._after(partial, one, fact, row, left)
                    made.setdefault(next_one.now[one.place.end], next_one)
            heap = sorted(made.values(), key=lambda each: each.seconds)[:HEAP]
        return heap

    def _after(
        self, partial: _Partial, one: _Subprogram, fact: Fact | None, row: Sequence[_Subprogram], left: float
    ) -> _Partial:
        """A program with one more operator as it is, or as a mutant, and what its layouts and those before it cancel."""
        if fact is None:
            (end,) = replace((one.place.end,), partial.now)
            facts = partial.facts
        else:
            (end,) = instantiated(fact.new, [partial.now.get(leaf, leaf) for leaf in one.leaves])
            end, cancelled = self._cancelled(end)
            facts = (*partial.facts, fact, *cancelled)
        mutated = partial.mutated + (fact is not None)
        leaves = leaves_of(node for each in row for node in (each.place.node, *each.place.behind))
        seconds = self._price(abstracted((end,), leaves)[0], row) if mutated else sum(each.price for each in row) - left
        return _Partial({**partial.now, one.place.end: end}, facts, seconds + left, mutated)

    def _price(self, made: Graph, row: Sequence[_Subprogram]) -> float:
        """Estimated seconds of a program whose layouts are kernels, with what is computed element by element next to them."""
        with_kernels = self.with_kernels(made)
        if with_kernels is None:
            return float("inf")
        total = 0.0
        for node in with_kernels.nodes():
            if node.constant:
                continue
            if isinstance(node, Kernel):
                total += self._kernel(node)
            elif isinstance(node, Call) and not self.builder.is_pointwise(node):
                # what is computed element by element behind an operator the runtime does along with it
                total += self.mutants.seconds_of(node)
        return total

    def _kernel(self, node: Kernel) -> float:
        calls = [each for each in node.group.nodes() if isinstance(each, Call)]
        if len(calls) == 1 and not any(isinstance(each, ScopeNode) for each in node.group.nodes()):
            return self.mutants.seconds_of(calls[0])
        return self.builder.as_kernel(node)

    # ---- what cancels ------------------------------------------------------------------------------------------

    def _cancelled(self, end: Value) -> tuple[Value, list[Fact]]:
        """A program without the layouts that undo each other, also with what is computed element by element between them."""
        facts: list[Fact] = []
        looked: set[Node] = set()
        while True:
            found = next(filter(None, (self._undone(node, looked) for node in Graph((), (end,)).nodes())), None)
            if found is None:
                return end, facts
            old, new, fact = found
            facts.append(fact)
            (end,) = replace((end,), {old: new})

    def _undone(self, node: Node, looked: set[Node]) -> tuple[Value, Value, Fact] | None:
        """`forth(relu(back(Z)))` as `relu(Z)`, where that is proved."""
        if not isinstance(node, ScopeNode) or node in looked or node.scope.body.binds:
            return None
        looked.add(node)
        for arg in node.args:
            between: list[tuple[Call, int]] = []
            below = arg
            while isinstance(below.node, Call) and self.builder.is_pointwise(below.node) and len(between) < BETWEEN:
                # what varies: weights may come first
                at = next((k for k, each in enumerate(below.node.args) if not each.constant), 0)
                between.append((below.node, at))
                below = below.node.args[at]
            if not isinstance(below.node, ScopeNode) or below.node.scope.body.binds:
                continue
            places = [(inner, laid) for inner in below.node.args if not inner.constant for laid in (False, True)]
            for inner, laid in places:
                if inner.type != node.values[0].type or (laid and not any(len(call.args) > 1 for call, _ in between)):
                    continue
                made = self._over(inner, between, node if laid else None, arg)
                if made is None or made.type != node.values[0].type:
                    continue
                leaves = leaves_of((node, *(call for call, _ in between), below.node))
                fact, _ = fact_of("layouts that cancel", node.values, (made,), [*leaves, inner])
                key = fact.old, fact.new
                if key not in self._cancel:
                    self._cancel[key] = self._is_equal(fact)
                if self._cancel[key]:
                    return node.values[0], made, fact
        return None

    def _over(
        self, value: Value, between: Sequence[tuple[Call, int]], layout: ScopeNode | None, laid: Value
    ) -> Value | None:
        """What is computed element by element, of something else; weights are laid out as well where there is a `layout` of `laid`."""
        try:
            for call, at in reversed(between):
                args = [
                    value if k == at else each if layout is None or not each.constant else _laid(layout, laid, each)
                    for k, each in enumerate(call.args)
                ]
                (value,) = apply(self.rules, call.op, args, dict(call.attrs))
        except (Mismatch, EvalError, ValueError):
            return None
        return value

    def _is_equal(self, fact: Fact) -> bool:
        try:
            old, new = expand(self.rules, fact.old.outputs), expand(self.rules, fact.new.outputs)
        except (Mismatch, EvalError):
            return False
        return isinstance(compare(self.rules, old, new, seconds=PROVING), Equal)

    # ---- as one fact -------------------------------------------------------------------------------------------

    def _whole(self, region: Graph, leaves: Sequence[Value], end: Value, one: _Partial) -> Fact | None:
        """That a program of the heap may stand for the whole row."""
        both, order = abstracted((end, one.now[end]), leaves)
        if order != tuple(leaves) or program(both.inputs, both.outputs[:1]) != region:
            return None
        mutated = [fact.rule for fact in one.facts if fact.rule.startswith("mutant by ")]
        name = f"{len(mutated)} mutants together: {', '.join(dict.fromkeys(mutated))}"
        fact = Fact(name, region, program(both.inputs, both.outputs[1:]), Chain(one.facts))
        return fact if Chain(one.facts).shows(fact) else None


def _laid(layout: ScopeNode, taken: Value, weight: Value) -> Value:
    """What a layout of `taken` makes of a weight that is read along with it. Raises ValueError."""
    shape, rank = shape_of(taken), len(weight.type.shape)
    pairs = zip(shape_of(weight), range(len(shape) - rank, len(shape)), strict=True)
    body = read(0, tuple(num(0) if size == 1 else traversal(axis) for size, axis in pairs))
    spread = scope_value(Scope(shape, body, weight.type.dtype), (weight,))
    (made,) = replace(layout.values, {taken: spread})
    return made

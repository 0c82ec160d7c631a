"""Mutants of operators that stand one behind the other, chosen together (PET, Algorithm 2).

    back(conv(phases(X), K)) -> relu -> back(conv(phases(..), L))  =>  back(conv(relu(conv(phases(X), K)), L))

A mutant by itself pays for its layouts. Behind another one what lays out its operand meets what lays out the result of the one
before: the two are one kernel, or nothing at all. So mutants are kept that do not pay by themselves. A heap has the best programs so
far; each mutant is put in the place of its operator in each of them, and the whole is priced, layouts next to each other as one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from dslc.deadline import TimeUp
from dslc.fuse.groups import Neighbours
from dslc.ir.facts import Chain, Fact, fact_of
from dslc.ir.graph import Call, Graph, Kernel, Node, Scope, ScopeNode, Value, replace, scope_value
from dslc.ir.holes import abstracted, instantiated, leaves_of, program
from dslc.ir.scalar import num, read, traversal
from dslc.mutate.problem import expanded
from dslc.prove.exact import Equal, compare
from dslc.records import record
from dslc.search.candidates.candidate import Candidate
from dslc.search.region_rewrites.building import Builder
from dslc.search.region_rewrites.hot_operators import site_of
from dslc.search.region_rewrites.mutants import Mutants
from dslc.search.region_rewrites.region_log import HotRegion, MatchSite, Visit
from dslc.semantics.apply import apply
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules

HEAP = 8  #: programs that are kept (PET's K)
EACH = 6  #: mutants of one operator that are put into each of them
DEARER = 1.5  #: times that what an operator takes its mutant may take by itself
MOST = 6  #: operators one behind the other
ROWS = 4  #: rows of operators that are looked at, the dearest
BETWEEN = 4  #: nodes between two layouts that cancel
PROVING = 1.0  #: seconds of proving that two layouts cancel


@record
class _Partial:
    """A program of the heap: what stands for the results of its operators by now, the facts that it rests on, estimated seconds."""

    now: Mapping[Value, Value]
    facts: tuple[Fact, ...]
    seconds: float
    mutated: int = 0


@dataclass(slots=True)
class MutantChains:
    """Rows of hot operators, each of which reads what the one before gives, and programs of mutants that are chosen together."""

    mutants: Mutants
    _hot: dict[Call, HotRegion] = field(init=False, default_factory=dict)
    #: rows that were looked at, in whatever candidate
    _done: set[Graph] = field(init=False, default_factory=set)
    #: of two layouts, whether they were proved to cancel
    _cancel: dict[tuple[Graph, Graph], bool] = field(init=False, default_factory=dict)

    @property
    def builder(self) -> Builder:
        return self.mutants.builder

    def least(self, node: Call) -> float:
        return self.mutants.least(node)

    def regions(self, base: Candidate, around: Neighbours) -> list[HotRegion]:
        """The dearest rows, equal ones once."""
        self._hot = {node: each for each in self.mutants.operators(base, around) for (node,) in each.places}
        rows: dict[Graph, HotRegion] = {}
        for sites in self._rows(around):
            region = _joined(sites).region[0]
            calls = tuple(site.place[0] for site in sites)
            rows.setdefault(region, HotRegion(region, (calls,), sum(self._hot[call].price for call in calls)))
        dearest = sorted(rows.values(), key=lambda each: -each.price)[:ROWS]
        return [each for each in dearest if each.program not in self._done]

    def _rows(self, around: Neighbours) -> Iterator[list[MatchSite]]:
        row: list[MatchSite] = []
        sites = [
            site_of(self.builder, (node,), around, set())
            for node in around.nodes
            if isinstance(node, Call) and node in self._hot
        ]
        for site in (*sites, None):
            end = row[-1].ends[0] if row else None
            follows = (
                site is not None
                and end is not None
                and end not in around.final
                and around.used.get(end) == [site.place[0]]
                and len(row) < MOST
            )
            if not follows:
                if len(row) > 1:
                    yield row
                row = []
            row += [site] if site else []

    def visit(self, region: HotRegion, around: Neighbours, owned: set[Node]) -> Visit:
        (calls,), inside = region.places, {*owned}
        if not inside.isdisjoint(calls):
            return Visit()
        row = [site_of(self.builder, (node,), around, inside) for node in calls]
        site = _joined(row)
        old, leaves = site.region
        prices = [min(self._hot[call].price, self.builder.calls([call])) for call in calls]
        start = _Partial({}, (), sum(prices))
        facts: dict[Graph, Fact] = {}
        for one in self._heap(row, prices, start):
            if one.mutated > 1 and one.seconds * self.builder.margin < start.seconds:
                fact = _whole(old, leaves, site.ends[0], one)
                if fact:
                    facts.setdefault(fact.new, fact)
        self._done.add(region.program)
        waiting = [(fact, None) for fact in facts.values()][: self.builder.built]
        return Visit({old: [site]}, [*waiting], len(waiting))

    def _facts(self, site: MatchSite) -> list[Fact]:
        """Facts about mutants in the place of an operator, the cheapest by estimate first, dearer ones among them. Raises TimeUp."""
        region = self._hot[site.place[0]]
        found = self.mutants.corrected(region.program, region.price * DEARER)
        facts = (self.mutants.fact(each, region.program, site) for each in found)
        return [fact for fact in facts if fact][:EACH]

    # ---- the heap ----------------------------------------------------------------------------------------------

    def _heap(self, row: Sequence[MatchSite], prices: Sequence[float], start: _Partial) -> list[_Partial]:
        """The best programs after each operator of a row stayed as it is, or became one of its mutants. Raises TimeUp."""
        heap = [start]
        options = [(site, site.region[1], [None, *self._facts(site)]) for site in row]
        inside = leaves_of(node for site in row for node in site.nodes)
        for k, (site, leaves, facts) in enumerate(options):
            (end,) = site.ends
            made: dict[Value, _Partial] = {}
            for partial in heap:
                if self.builder.until.over:
                    raise TimeUp
                for fact in facts:
                    rests, mutated = partial.facts, partial.mutated + (fact is not None)
                    if not fact:
                        (new,) = replace((end,), partial.now)
                    else:
                        (new,) = instantiated(fact.new, [partial.now.get(leaf, leaf) for leaf in leaves])
                        new, cancelled = self._cancelled(new)
                        rests = (*rests, fact, *cancelled)
                    seconds = self._price(abstracted((new,), inside)[0]) if mutated else sum(prices[: k + 1])
                    made.setdefault(
                        new, _Partial({**partial.now, end: new}, rests, seconds + sum(prices[k + 1 :]), mutated)
                    )
            heap = sorted(made.values(), key=lambda each: each.seconds)[:HEAP]
        return heap

    def _price(self, made: Graph) -> float:
        """Estimated seconds of a program whose layouts are kernels, with what is computed element by element next to them."""
        builder, total = self.builder, 0.0
        with_kernels = builder.with_kernels(made)
        if not with_kernels:
            return inf
        for node in with_kernels.nodes():
            if isinstance(node, Kernel) and not node.constant:
                inside = [each for each in node.group.nodes() if isinstance(each, Call | ScopeNode)]
                calls = [each for each in inside if isinstance(each, Call)]
                total += builder.calls(calls) if len(inside) == len(calls) == 1 else builder.as_kernel(node)
            elif isinstance(node, Call) and not builder.is_pointwise(node):
                # what is computed element by element behind an operator the runtime does along with it
                total += builder.calls([node])
        return total

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
                if not made or made.type != node.values[0].type:
                    continue
                leaves = leaves_of((node, *(call for call, _ in between), below.node))
                fact, _ = fact_of("layouts that cancel", node.values, (made,), [*leaves, inner])
                key = fact.old, fact.new
                if key not in self._cancel:
                    self._cancel[key] = _is_equal(self.builder.rules, fact)
                if self._cancel[key]:
                    return node.values[0], made, fact
        return None

    def _over(
        self, value: Value, between: Sequence[tuple[Call, int]], layout: ScopeNode | None, laid: Value
    ) -> Value | None:
        """Compute element by element of another value; weights are laid out as well where there is a `layout` of `laid`."""
        try:
            for call, at in reversed(between):
                args = [
                    value if k == at else each if not layout or not each.constant else _laid(layout, laid, each)
                    for k, each in enumerate(call.args)
                ]
                (value,) = apply(self.builder.rules, call.op, args, dict(call.attrs))
        except (Mismatch, EvalError, ValueError):
            return None
        return value


def _is_equal(rules: Rules, fact: Fact) -> bool:
    sides = expanded(rules, (*fact.old.outputs, *fact.new.outputs))
    return sides is not None and isinstance(compare(sides[:1], sides[1:], seconds=PROVING), Equal)


def _joined(sites: Sequence[MatchSite]) -> MatchSite:
    """A row of places as one."""
    calls = tuple(call for site in sites for call in site.place)
    return MatchSite(calls, tuple(node for site in sites for node in site.nodes), sites[-1].ends)


def _whole(region: Graph, leaves: Sequence[Value], end: Value, one: _Partial) -> Fact | None:
    """The fact that a program of the heap may stand for the whole row."""
    both, order = abstracted((end, one.now[end]), leaves)
    if order != tuple(leaves) or program(both.inputs, both.outputs[:1]) != region:
        return None
    mutated = [fact.rule for fact in one.facts if fact.rule.startswith("mutant by ")]
    name = f"{len(mutated)} mutants together: {', '.join(dict.fromkeys(mutated))}"
    fact = Fact(name, region, program(both.inputs, both.outputs[1:]), Chain(one.facts))
    return fact if Chain(one.facts).shows(fact) else None


def _laid(layout: ScopeNode, taken: Value, weight: Value) -> Value:
    """Lay out a weight as a layout of `taken` does that is read along with it. Raises ValueError."""
    shape, rank = taken.type.sizes, len(weight.type.shape)
    pairs = zip(weight.type.sizes, range(len(shape) - rank, len(shape)), strict=True)
    body = read(0, tuple(num(0) if size == 1 else traversal(axis) for size, axis in pairs))
    spread = scope_value(Scope(shape, body, weight.type.dtype), (weight,))
    (made,) = replace(layout.values, {taken: spread})
    return made

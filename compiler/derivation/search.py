"""The search for programs that an expression can be computed by: derivations, then operators between changes of layout.

Explorative steps are taken in layers. Of each layer those are kept that come nearest to an operator's iterator table (EinNet,
section 5.2: the distance is what stands between the expression and the table), and those whose best program is the cheapest.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from functools import cache
from itertools import islice, product, zip_longest
from math import inf
from operator import itemgetter
from typing import TypeVar

from dslc.analysis.iterators import coefficient_of
from dslc.deadline import FOREVER, Deadline
from dslc.derivation.layouts import carried
from dslc.derivation.pieces import Operands, Views, scopes_of, view_of
from dslc.derivation.programs import Price, PricedProgram, estimated, intensity, operations, unlike
from dslc.derivation.solver import Miss, MissReason, Shaped, nearer, shaped
from dslc.derivation.steps import Neighbours, Path, Steps
from dslc.derivation.targets import instances, missed, products_of
from dslc.ir.graph import Call, Graph, ScopeNode, Value, Values, nodes_of, replace
from dslc.ir.holes import abstracted, instantiated
from dslc.ir.scalar import Apply, Iter, Read, Reduce, scalars, walk
from dslc.ir.scopes import each_of
from dslc.records import record
from dslc.semantics.definitions import DerivationDef
from dslc.semantics.library import Rules

EACH = 12  #: programs of one member that are put together
TOGETHER = 96  #: programs of all members together that are put together
STATES = 12  #: states of one member that are looked at beside those of others
JOINED = 144  #: states of all members together that are looked at

T = TypeVar("T")


@record
class Member:
    """A product within an expression: the same over holes, and what these stand for."""

    value: Value
    alone: Graph
    args: Values


def members_of(whole: Value) -> tuple[Member, ...]:
    """The scopes of an expression that add products of several elements, users before what they use.

    None where there is one, and beside it nothing but changes of layout.
    """
    found, others = [], False
    for node in reversed(nodes_of([whole])):
        if isinstance(node, ScopeNode):
            if is_product(node):
                alone, args = abstracted(node.values, tuple(dict.fromkeys(node.args)))
                found.append(Member(node.values[0], alone, args))
            elif not isinstance(node.scope.body, Read):
                others = True
    return tuple(found) if len(found) > 1 or (found and others) else ()


def is_product(node: ScopeNode) -> bool:
    """Return whether a scope adds something that is read at two places at least."""
    return node.scope.body.binds and sum(1 for _ in each_of(Read, node.scope.body)) > 1


def put(whole: Value, members: Sequence[Member], made: Sequence[Value]) -> Value:
    """An expression with what was derived of its members, over holes."""
    for member, own in zip(members, made, strict=True):
        new = instantiated(Graph(member.alone.inputs, (own,)), member.args)
        (whole,) = replace((whole,), {member.value: new[0]})
    return whole


def choices(found: Sequence[Sequence[PricedProgram]]) -> list[tuple[PricedProgram, ...]]:
    """One for each member of the programs that were found for it: the cheapest together first."""
    few = [own[: EACH if len(found) < 4 else 3] for own in found]
    return sorted(islice(product(*few), 4096), key=lambda choice: sum(each.seconds for each in choice))[:TOGETHER]


def ranks(states: Sequence[Sequence[T]]) -> Iterator[tuple[T, ...]]:
    """One of the states of each member: the first of all first."""
    few = [own[: STATES if len(states) < 3 else 4] for own in states]
    places = sorted(islice(product(*(range(len(own)) for own in few)), 4096), key=lambda place: (sum(place), place))
    for place in islice(places, JOINED):
        yield tuple(own[k] for own, k in zip(few, place, strict=True))


WAYS = 16  #: ways to write an expression by operators that are looked at
WHOLE = 0.25  #: share of the time for an expression of several products as a whole
MEMBERS = 0.5  #: share of the rest for each product by itself
JOINING = 0.7  #: share of the rest for making one product of two
LAYOUTS = 2  #: programs of one call at its sizes, with other layouts before and behind it, that are made
WIDENING: tuple[int, ...] = (3, 1)  #: parts of the whole that a beam is, one after the other
ASKED = 200  #: expressions that are asked why they are not an operator
CHEAPER = 0.95  #: part of the best price so far below which a program is a find


@dataclass(frozen=True)
class DerivationLimits:
    """Limits of the search."""

    max_depth: int = 7
    #: states of a layer that are taken further
    beam: int = 60
    until: Deadline = FOREVER
    #: expressions that are looked at: with this limit alone a search finds the same on every machine
    max_states: float = inf
    #: so many expressions are looked at, and so many times as many as led to the best by then: later ones are mostly no better
    patient: float = inf
    patience: float = inf
    #: operations per element moved up to which an expression runs as an operator that is generated for it
    intensity: float = 4.0
    #: whether equal expressions are told by their normal form, and whether the nearest to an operator are taken further; for studies
    fingerprint: bool = True
    guided: bool = True


LIMITS = DerivationLimits()


@record
class ProgramsFound:
    """The programs of a search, the cheapest first."""

    programs: tuple[PricedProgram, ...]
    states: int
    applications: int
    seconds: float
    #: whether everything within the depth was looked at
    complete: bool


def distance(value: Value, views: Views | None = None) -> int:
    """The distance of an expression from the tables of products: indexes of several iterators, guards, divisions."""
    total = 0
    for node in scopes_of(value):
        if node.scope.body.binds:
            view = view_of(node.values[0], Operands(views={} if views is None else views))
            body = view.body if view else node.scope.body
            reads = [*each_of(Read, body)]
            if len(reads) > 1:
                total += sum(max(0, len(at.free) - 1) for each in reads for at in each.index)
                total += sum(2 for part in scalars(Apply, body) if part.name in {"//", "%", "select"})
    return total


def _sums(value: Value) -> Iterator[tuple[frozenset[Iter], Read]]:
    """The reads of sums, with the iterators of these."""
    for node in scopes_of(value):
        if isinstance(node.scope.body, Reduce):
            sums = frozenset(node.scope.body.iters)
            yield from ((sums, each) for each in each_of(Read, node.scope.body))


def sides(value: Value) -> tuple[tuple[object, ...], ...]:
    """For the tensors that sums read the indexes of several iterators, whatever the names and the order of these are.

    Each iterator is given by its coefficient, and True where it is summed.
    """
    found = []
    for sums, each in _sums(value):
        along = [tuple(sorted((it in sums, coefficient_of(at, it) or 0) for it in at.free)) for at in each.index]
        found.append(tuple(sorted(terms for terms in along if len(terms) > 1)))
    return tuple(found)


def turned(value: Value) -> int:
    """The distance of the windows of sums from the last dimensions, whose elements are neighbours in memory.

    Sums along rows keep them together, sums along columns have to turn them.
    """
    return sum(
        len(each.index) - 1 - k
        for sums, each in _sums(value)
        for k, at in enumerate(each.index)
        if len(at.free) > 1 and not sums.isdisjoint(at.free)
    )


class DerivationSearch:
    """One search; `programs` are the best so far at any moment."""

    def __init__(
        self, rules: Rules, derivations: Sequence[DerivationDef], limits: DerivationLimits = LIMITS,
        targets: tuple[str, ...] | None = None, price: Price | None = None,
    ) -> None:  # fmt: skip
        self.rules, self.limits, self.targets = rules, limits, targets or products_of(rules)
        self.price = price or estimated(rules)
        self.steps = Steps(derivations, fingerprint=limits.fingerprint)
        #: by their operators at their sizes
        self.programs: dict[tuple[object, ...], PricedProgram] = {}
        self.complete, self.units = True, False
        self.seen: Values = ()
        self.paths: dict[Value, Path] = {}
        self._ranks: dict[tuple[object, ...], tuple[float, int]] = {}
        #: what programs of one call cost, by its sizes; what is known so of a scope; and whether one product is all that is searched
        self._sizes: dict[Shaped, list[float]] = {}
        self._known: dict[Value, float] = {}
        self._alone = False
        self._near: dict[Value, Neighbours] = {}
        self._ways, self._intensity, self._price_of = cache(self._instances), cache(intensity), cache(self.price)
        #: the price of the cheapest program, and how many expressions had led to it
        self._least, self._led = inf, 0

    def run(self, value: Value) -> ProgramsFound:
        """Explores from one expression, and gives the programs, cheapest first.

        Where it has several products, or others beside one, each product is explored by itself too, for most of the time.
        """
        began = time.monotonic()
        start = self.steps.start(value)
        members = members_of(start)
        # where nothing is multiplied, sums are products with ones
        products = sum(map(is_product, scopes_of(start)))
        self.units, self._alone = products == 0, products == 1
        until = self.limits.until
        complete = self._explored(start, until.part(WHOLE) if members else until)
        inner: dict[Graph, DerivationSearch] = {}
        if members:
            inner = self._of_members(members, until)
            self._joined(start, members, inner, until.part(JOINING))
            self._put_together(start, members, inner, until)
        self.complete = complete and all(each.complete for each in inner.values())
        self.seen = (*self.paths, *(state for each in inner.values() for state in each.seen))
        applications = sum(each.steps.applications for each in (self, *inner.values()))
        return ProgramsFound(self.ordered(), len(self.seen), applications, time.monotonic() - began, self.complete)

    def _explored(self, start: Value, until: Deadline) -> bool:
        """Derivations from one expression, layer by layer; returns whether that was all within the depth."""
        self.steps.until = until
        self.paths[start] = ()
        best = {start: self._programs(start, ())}
        complete = True
        # few of each layer at first, so that what takes several derivations is found before all that takes two was looked at
        for beam in dict.fromkeys(-(-self.limits.beam // part) for part in WIDENING):
            complete = self._layers(start, beam, best, until)
            if complete or until.over or self._enough():
                break
        return complete

    def _layers(self, start: Value, beam: int, best: dict[Value, float], until: Deadline) -> bool:
        """Derivations from one expression, so many of each layer taken further; whether that was all within the depth."""
        paths, layer, complete = self.paths, [start], True
        for depth in range(1, self.limits.max_depth + 1):
            found: dict[Value, None] = {}
            for state in layer:
                if until.over or self._enough():
                    complete = False
                    break
                for step, new in self._children(state):
                    if new not in paths and len(paths) < self.limits.max_states:
                        paths[new] = (*paths[state], step)
                    if len(paths.get(new, ())) == depth:
                        found[new] = None
                for new in found:
                    # each as soon as it is there, and at least the first of a layer, whatever time is left
                    if new not in best:
                        first = next(iter(found))
                        best[new] = inf if new is not first and until.over else self._programs(new, paths[new])
            if not found:
                break
            layer = self._kept([*found], best, beam)
            complete = complete and len(found) <= beam
            if until.over or self._enough():
                return False
        return complete

    def _enough(self) -> bool:
        """Return whether as many expressions were looked at as the limits allow."""
        limits = self.limits
        return len(self.paths) >= min(limits.max_states, max(limits.patient, limits.patience * self._led))

    def _children(self, state: Value) -> Neighbours:
        """The expressions one derivation away, found once, as far as time allows."""
        if state in self._near:
            return self._near[state]
        found = tuple(self.steps.near(state))
        if not self.steps.until.over:
            self._near[state] = found
        return found

    # ---- several products ----------------------------------------------------------------------------------

    def _of_members(self, members: Sequence[Member], until: Deadline) -> dict[Graph, DerivationSearch]:
        """A search for every product, equal ones together."""
        found: dict[Graph, DerivationSearch] = {}
        different = list(dict.fromkeys(each.alone for each in members))
        # of what is left some is for putting them together
        left = until.left() * MEMBERS / len(different)
        for alone in different:
            own = replaced(self.limits, until=until.part(most=left))
            found[alone] = DerivationSearch(self.rules, self.steps.rules, own, self.targets, self.price)
            found[alone].run(alone.outputs[0])
        return found

    def _joined(
        self, start: Value, members: Sequence[Member], inner: Mapping[Graph, DerivationSearch], until: Deadline
    ) -> None:
        """Programs by what rules make of two products at once, of those that are nearest to operators: these are looked at together."""
        self.steps.until = until
        nearest = {alone: search.nearest() for alone, search in inner.items()}
        for ranked in ranks([nearest[each.alone] for each in members]):
            whole = put(start, members, [state for state, _ in ranked])
            queue = [(self.steps.normal(whole), tuple(step for _, steps in ranked for step in steps))]
            for state, before in queue:
                for step, new in self.steps.between(state, is_product):
                    if new not in self.paths:
                        self.paths[new] = (*before, step)
                        self._programs(new, self.paths[new])
                        # what is one may be one with a third
                        queue.append((new, self.paths[new]))
                if until.over:
                    return

    def _put_together(
        self, start: Value, members: Sequence[Member], inner: Mapping[Graph, DerivationSearch], until: Deadline
    ) -> None:
        """Programs of an expression by those of its products."""
        programs = {alone: list(unlike(self.rules, search.ordered())) for alone, search in inner.items()}
        for choice in choices([programs[each.alone] for each in members]):
            whole = put(start, members, [each.value for each in choice])
            steps = tuple(step for each in choice for step in each.steps)
            self._kept_program(whole, steps, tuple(name for each in choice for name in each.targets))
            if until.over:
                return

    def ordered(self) -> tuple[PricedProgram, ...]:
        """The programs found by now, the cheapest first."""
        order = sorted(self.programs.values(), key=lambda each: (each.seconds, len(each.steps)))
        return tuple({each.value: each for each in reversed(order)}.values())[::-1]

    def nearest(self) -> list[tuple[Value, Path]]:
        """The expressions that were looked at, and how they were derived; those nearest to operators first."""

        def rank(found: tuple[Value, Path]) -> tuple[float, ...]:
            state, steps = found
            return distance(state, self.steps.views), len(scopes_of(state)), operations(state), len(steps)

        return sorted(self.paths.items(), key=rank)

    def missed(self, target: str) -> Miss:
        """The reason why no explored expression is an operator, by the one that came nearest to it."""
        found: Miss | None = None
        for state in self.seen[:ASKED]:
            for node in scopes_of(state):
                why = missed(self.rules, node.values[0], target)
                if not why:
                    return Miss(MissReason.INTENSITY)
                found = nearer(found, why)
        return found or Miss(MissReason.NO_TABLE)

    def _kept(self, fresh: list[Value], best: Mapping[Value, float], beam: int) -> list[Value]:
        """The beam: expressions that are taken further, the most promising by their rules, price and distance first."""
        paths = self.paths
        if not self.limits.guided:
            return fresh[:beam]
        far = {value: distance(value, self.steps.views) for value in fresh}
        along = {value: sides(value) for value in fresh}
        # of those that are alike in all that is known of them, as rows and columns are, one goes before the others: rows
        alike: dict[tuple[object, ...], int] = {}
        again = dict[Value, int]()
        for value in sorted(fresh, key=turned):
            key = (best[value], far[value], along[value], len(scopes_of(value)), tuple(sorted(map(str, paths[value]))))
            again[value] = alike[key] = alike.get(key, -1) + 1
        # differences between what is alike otherwise, as the sides of a window are
        odd = {value: sum(max(0, len(set(each)) - 1) for each in along[value]) for value in fresh}
        cheap = sorted(fresh, key=lambda value: (again[value], odd[value], best[value], far[value]))
        near = sorted(
            fresh, key=lambda value: (again[value], odd[value], far[value], len(scopes_of(value)), best[value])
        )
        kept: dict[Value, None] = {}
        # of every set of rules that led here some, as what pays in the end may look worse on its way
        groups: dict[tuple[str, ...], list[Value]] = {}
        for value in near:
            groups.setdefault(tuple(sorted(set(map(str, paths[value])))), []).append(value)
        dear = {value: k for k, value in enumerate(cheap)}
        # the nearest first, then the cheapest, in turn
        queues = [
            [each for pair in zip(own, sorted(own, key=lambda value: dear[value]), strict=True) for each in pair]
            for own in groups.values()
        ]
        for turn, members in enumerate(zip_longest(*queues)):
            for each in members:
                if each is not None and (turn == 0 or len(kept) < beam // 2):
                    kept[each] = None
        for k, value in enumerate(near):
            if len(kept) >= beam:
                break
            # a price says more than a distance
            kept.update(dict.fromkeys((*cheap[2 * k : 2 * k + 2], value)))
        return list(kept)

    # ---- instantiation -------------------------------------------------------------------------------------

    def _programs(self, state: Value, steps: Path) -> float:
        """The programs of a state, kept; the price of the cheapest, complete or not."""
        least = self._price(state)
        for targets, value in self._instantiated(state):
            heavy = any(self._intensity(node) > self.limits.intensity for node in scopes_of(value))
            # where it is heavy it is no program: its form is of no interest
            least = min(least, self._price(value) if heavy else self._kept_program(value, steps, targets))
        # what was known by its sizes costs what it did before
        known = (self._known.get(node.values[0], inf) for node in nodes_of([state]))
        return min(least, *known) if self._alone else least

    def _kept_program(self, value: Value, steps: Path, targets: tuple[str, ...]) -> float:
        """Of programs that differ in layouts only the cheapest is kept, and only such a one gets its normal form."""
        nodes = nodes_of([value])
        if sum(isinstance(node, Call) for node in nodes) > 1:
            # between two calls the changes of layout may go
            value = self.steps.normal(value)
            other = self.steps.normal(carried(value))
            value = other if self._price(other) < self._price(value) else value
            nodes = nodes_of([value])
        seconds = self._price(value)
        calls = sorted((node.op, node.head.code, k, node) for k, node in enumerate(nodes) if isinstance(node, Call))
        added = any(isinstance(node, ScopeNode) and node.scope.body.binds for node in nodes)
        key = (added, *((node.head, *(arg.type for arg in node.args)) for _, _, _, node in calls))
        rank = (seconds, len(steps))
        if self._alone and len(calls) == 1:
            call = calls[0][-1]
            size = shaped(call.op, [own for _, own in call.attrs], [arg.type.shape for arg in call.args])
            self._sizes.setdefault(size, []).append(seconds)
        if key not in self._ranks or rank < self._ranks[key]:
            new = self.steps.normal(value)
            self._ranks[key] = rank
            self.programs[key] = made = PricedProgram(new, steps, targets, self._price(new))
            if made.seconds < CHEAPER * self._least:
                self._least, self._led = made.seconds, len(self.paths)
        return seconds

    def _instantiated(self, state: Value) -> Iterator[tuple[tuple[str, ...], Value]]:
        """The state with its products as operators: every one of them, each in some ways."""
        found: list[tuple[Value, tuple[tuple[str, Value] | None, ...]]] = []
        # users before what they use: that is replaced in what stands for them
        for node in reversed(scopes_of(state)):
            if not node.constant and (ways := self._ways(node.values[0])):
                # what is computed of a product need not go with it
                alone = any(isinstance(part, Reduce) for part in walk(node.scope.body))
                found.append((node.values[0], ways if alone else (*ways[: WAYS - 1], None)))
        if not found:
            return
        # of each operator the first way first
        sizes = [range(min(len(ways), WAYS)) for _, ways in found]
        for chosen in sorted(islice(product(*sizes), WAYS**2), key=lambda choice: (sum(choice), choice))[:WAYS]:
            whole, names = state, list[str]()
            for (value, own), k in zip(found, chosen, strict=True):
                if (way := own[k]) is not None:
                    before = whole
                    (whole,) = replace((whole,), {value: way[1]})
                    # where nothing changed it went with what reads it
                    names += [way[0]] * (whole != before)
            if names:
                yield tuple(names), whole

    def _instances(self, value: Value) -> tuple[tuple[str, Value], ...]:
        """The operators that a scope is, each of them before a second way of any."""
        least = inf

        def skipped(size: Shaped) -> bool:
            nonlocal least
            known = self._sizes.get(size, ())
            least = min(least, *known, inf)
            return len(known) >= LAYOUTS

        found = instances(
            self.rules, value, self.targets, self.steps.views, self.units, skipped if self._alone else None
        )
        counts = Counter[str]()
        made: list[tuple[int, tuple[str, Value]]] = []
        for each in found:
            made.append((counts[each[0]], each))
            counts[each[0]] += 1
        if least < inf:
            self._known[value] = least
        return tuple(each for _, each in sorted(made, key=itemgetter(0)))

    def _price(self, value: Value) -> float:
        return sum(map(self._price_of, nodes_of([value])), 0.0)

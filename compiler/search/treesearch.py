"""Monte Carlo tree search over e-graphs (PACT'24) as a strategy: which rule is applied next is what is searched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf, log, sqrt
from random import Random
from typing import TYPE_CHECKING, ClassVar

from dslc.search.option import option

if TYPE_CHECKING:
    from dslc.cost.model import CostModel
    from dslc.egraph.extract.growing import Growing
    from dslc.egraph.extract.table import Extraction
    from dslc.egraph.graph import EGraph
    from dslc.egraph.rewrite import Caps, Outcome
    from dslc.egraph.view import View
    from dslc.ir.facts import Fact
    from dslc.ir.graph import Graph, Node, Value
    from dslc.match import CompiledRule
    from dslc.search.candidate import Candidate, Limits, Progress
    from dslc.search.findings import Findings
    from dslc.search.programs import Own
    from dslc.search.sources import Source
    from dslc.search.strategy import Grown, Space


@dataclass(frozen=True, slots=True)
class _Tuning:
    """Numbers that decide how trees of programs are searched.

    Attributes:
        stop: chance that a selection ends at a node, and expands it.
        least: e-nodes of a region, however many regions there are.
        part: parts of the simulations of which one without a gain, where there was one before, ends a tree.
        told: facts of another source about one program.
        levelled: nested calls that are made one after a rule: anywhere, and near the best program.
        near: how many times fewer places a rule is applied at in the best program.
        fresh: e-nodes that were added last that are near; those of the last rule are in any case.
        barren: trees from one graph that find nothing better before the search ends.
        less: share by which a program is cheaper than another one, at least.
        asked: calls that are looked at for matches of one rule: no rule holds up a simulation for long.
    """

    stop: float = 0.5
    least: int = 500
    part: int = 16
    told: int = 200
    levelled: tuple[int, ...] = (8, 32)
    near: int = 4
    fresh: int = 200
    barren: int = 3
    less: float = 1e-9
    asked: int = 5_000


_TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class Mcts:
    """A tree of e-graphs, in which an edge is a rule at random places; a step is one application of a rule."""

    egraphs: ClassVar[bool] = True

    simulations: int = field(default=128, metadata=option(
        "Simulations before a rule is chosen (default: 128).", type=int, least=1, metavar="N",
    ))  # fmt: skip
    rollout: int = field(default=10, metadata=option(
        "Rules that a simulation applies (default: 10).", type=int, least=0, metavar="N",
    ))  # fmt: skip
    exploration: float = field(default=sqrt(2), metadata=option(
        "Weight of what was tried seldom (default: 1.41).", type=float, least=0, metavar="C",
        more="The constant of UCB1; rewards are parts of what the graph costs.",
    ))  # fmt: skip
    enodes: int = field(default=2_000, metadata=option(
        "How large an e-graph of the tree grows (default: 2000 e-nodes).", type=int, least=1, metavar="N",
        more="No rule is applied to one that has as many.",
    ))  # fmt: skip
    matches: int = field(default=60, metadata=option(
        "Places at which a rule is applied at once (default: 60).", type=int, least=1, metavar="N",
        more="A random sample where it matches at more.",
    ))  # fmt: skip
    near: float = field(default=0.75, metadata=option(
        "Share of rules that are applied near the best program (default: 0.75).", type=float, least=0, most=1, metavar="P",
        more="The others are applied anywhere.",
    ))  # fmt: skip
    mixed: bool = field(default=False, metadata=option(
        "Kernels and steps of derivation as moves beside rules.", type=bool,
        more="They are priced by estimates; by default they are looked for in what the search finds.",
    ))  # fmt: skip
    ranked: int = field(default=5, metadata=option(
        "Programs ranked as whole graphs when a rule is chosen (default: 5).", type=int, least=1, metavar="N",
        more="The best by the sum of their prices.",
    ))  # fmt: skip

    def explore(self, space: Space) -> Iterator[Candidate]:
        from dslc.search.explorers import explored
        from dslc.search.programs import rules_of

        rules = rules_of(space)

        def make(start: Candidate, costs: CostModel, count: int, told: Progress) -> _Searching:
            options = replace(self, enodes=max(self.enodes // count, min(self.enodes, _TUNING.least)))
            return _Searching(
                options, start, rules, costs, space.limits, space.seed, told, space.moves, space.price, space.findings
            )

        return explored(space, make, apart=True)


class _State:
    """An e-graph with its best program, and what simulations from here were worth."""

    __slots__ = ("before", "children", "egraph", "found", "fresh", "growing", "open", "parent", "value", "views", "visits")

    def __init__(self, egraph: EGraph, growing: Growing, found: Extraction, parent: _State | None = None) -> None:
        self.egraph, self.growing, self.found, self.parent = egraph, growing, found, parent
        self.children: list[_State] = []
        #: e-nodes that the last rules added: what these made possible is near too
        self.fresh: frozenset[Node] = frozenset()
        #: rules that may change something, and were not tried: everywhere, and in the best program
        self.open: dict[bool, list[CompiledRule | Source]] = {}
        self.views: dict[bool, View] = {}
        #: what rules saw of everything in a state before this one
        self.before: View | None = None
        self.value = 0.0
        self.visits = 0

    @property
    def cost(self) -> float:
        return self.found.cost

    def view(self, near: bool) -> View:
        """What rules see here: everything, or the best program."""
        found = self.views.get(near)
        if found is None:
            from dslc.egraph.view import View
            from dslc.ir.graph import Node

            chosen = (one.key for one in self.found.choice.values())
            only = self.fresh.union(key for key in chosen if isinstance(key, Node)) if near else None
            found = self.views[near] = View(self.egraph, only, self.before)
        return found

    def seen(self) -> View | None:
        """The last view of everything, here or before."""
        return self.views.get(False, self.before)

    def close(self) -> None:
        """It is visited no more; what it was worth stays."""
        self.open = {False: [], True: []}
        self.children, self.views = [], {}


class _Searching:
    """A tree of e-graphs of one graph; each turn is a simulation."""

    def __init__(
        self, options: Mcts, start: Candidate, rules: Sequence[CompiledRule], costs: CostModel, limits: Limits, seed: int,
        told: Progress, moves: Sequence[Source] = (), price: Own | None = None, findings: Findings | None = None,
    ) -> None:  # fmt: skip
        from dslc.egraph.rewrite import Caps
        from dslc.search.programs import Prices, Programs, Tidying

        self._options, self._limits, self._start = options, limits, start
        self._rules = sorted(rules, key=lambda rule: rule.name)
        # a term variable stands for any operator
        self._operators = [frozenset(site.operator for site in rule.left.sites if site.operator) for rule in self._rules]
        self._random = Random(seed)
        self._moves = list(moves)
        self._facts: dict[tuple[int, int], list[tuple[Fact, tuple[Value, ...]]]] = {}
        self._prices = Prices(costs, limits, lazy=True, own=price)
        self._programs = Programs(start, costs, limits, self._prices, options.ranked, told)
        self._tidying, self._barren = Tidying(rules, costs, limits, seed, findings), 0
        few = max(1, options.matches // _TUNING.near)
        self._caps: dict[bool, Caps] = {
            near: Caps(matches, 2 * matches, options.enodes, asked=_TUNING.asked)
            for near, matches in ((False, options.matches), (True, few))
        }
        self._root: _State | None = None
        self._initial = 1.0
        self._stale = False
        self._done = 0
        #: the cheapest program by its sum, the e-graph that it is of, and what was the cheapest when the tree was planted
        self._least: tuple[EGraph, Extraction] | None = None
        self._planted = inf
        #: simulations since the cheapest program was found
        self._idle = 0

    @property
    def best(self) -> Candidate:
        return self._programs.best

    def grown(self) -> Grown | None:
        from dslc.search.strategy import Grown

        if self._least is not None:
            return Grown(self._least[0], self._prices)
        return None if self._root is None else Grown(self._root.egraph, self._prices)

    def begin(self) -> None:
        """What can be had at once, and the e-graph of the graph itself."""
        self._tidy(swept=True)
        # the first tree has all of the patience
        self._limits.gained()
        self._begin()

    def _begin(self) -> None:
        from dslc.egraph.extract.growing import Growing
        from dslc.egraph.graph import EGraph

        egraph = EGraph.of(self._start.graph)
        found = Growing(egraph, self._prices).best()
        if found is not None:
            self._prices.settle(found)
            self._plant(egraph)
            self._initial = max(self._root.cost, 1e-12) if self._root is not None else 1.0
            self._programs.known(self._initial)

    def _tidy(self, swept: bool = False) -> None:
        if not self._moves:
            self._tidying.tidy(self._programs, swept)

    def _onwards(self) -> bool:
        """A new tree from the best graph as it is; False where that was done a few times in vain, or time is over."""
        if self._limits.over:
            return False
        self._programs.rank()
        self._tidy()
        best = self._programs.best
        self._barren = self._barren + 1 if best is self._start else 0
        if self._limits.over or self._barren >= _TUNING.barren or self._moves:
            return False
        self._start, self._least = best, None
        self._programs = self._programs.onwards()
        self._begin()
        return self._root is not None

    def _plant(self, egraph: EGraph, program: Graph | None = None) -> None:
        """A new tree, at prices as they are known by now; `program` is one that the e-graph holds."""
        from dslc.egraph.extract.growing import Growing

        growing = Growing(egraph, self._prices, program=program)
        found = growing.best()
        self._root = None if found is None else _State(egraph, growing, found)
        self._done, self._idle, self._stale = 0, 0, False
        self._planted = inf if found is None else found.cost

    def _again(self) -> bool:
        """A new tree from the cheapest program and what that rests on, without all else; False where nothing was gained since.

        Where others have found what is better than this tree's, from that.
        """
        from dslc.egraph.extract.program import program_of
        from dslc.egraph.story import kept

        self._tidy()
        if not self._programs.own and not self._moves:
            return self._onwards()
        if self._least is None or not self._least[1].cost < self._planted * (1 - _TUNING.less):
            return False
        known = self._least[1].cost
        self._plant(kept(*self._least, self._start.graph), program_of(*self._least))
        # whatever the new tree begins with: the next one takes a gain
        self._planted = min(self._planted, known)
        return self._root is not None

    def _offer(self, egraph: EGraph, found: Extraction) -> None:
        """A program, once what it is made of is measured where it promises something: what was guessed then makes the tree another."""
        least = self._initial if self._least is None else self._least[1].cost
        # guesses hope: what is above the best by them is above it measured
        if found.cost < least and self._prices.settle(found):
            self._stale = True
            found = replace(found, cost=self._prices.total(found))
        if found.cost < least:
            self._least, self._idle = (egraph, found), 0
        self._programs.offer(egraph, found)

    def expand(self) -> bool:
        """One simulation; after so many of them the best rule is applied for good. False where nothing is left to do."""
        if self._root is None:
            return False
        if self._stale:
            # what was measured is another price than what was guessed
            if not self._again():
                self._plant(self._root.egraph)
            return self._root is not None
        if self._done >= self._options.simulations:
            return self._descend()
        if self._idle * _TUNING.part >= self._options.simulations and self._again():
            return True
        self._done += 1
        self._idle += 1
        state = self._selected(self._root)
        if state is None:
            # nothing more can be tried below
            return self._descend()
        child = self._expanded(state)
        if child is None:
            return not self._limits.over
        gained = max(state.cost - child.cost, 0.0) + self._rolled(child)
        reward = gained / self._initial
        at: _State | None = child
        while at is not None:
            at.value += reward
            at.visits += 1
            at = at.parent
        return not self._limits.over

    # ---- the tree --------------------------------------------------------------------------------------------------

    def _descend(self) -> bool:
        """Applies the rule with the highest average for good: what was found below it stays known.

        Where something cheaper was found than is there, the search goes on from that.
        """
        self._programs.rank()
        root = self._root
        assert root is not None
        visited = [child for child in root.children if child.visits]
        best = max(visited, key=lambda child: child.value / child.visits) if visited else None
        known = inf if self._least is None else self._least[1].cost
        if (
            best is None or len(best.egraph) >= self._options.enodes or known < best.cost * (1 - _TUNING.less)
        ) and self._again():
            return True
        if best is None or len(best.egraph) >= self._options.enodes:
            return self._onwards()
        best.parent = best.before = None
        self._root = best
        # the simulations that went through it count
        self._done = min(best.visits, self._options.simulations // 2)
        return True

    def _selected(self, root: _State) -> _State | None:
        """The state to expand: halfway by chance, else where UCB1 is highest. None where every rule was tried everywhere."""
        at = root
        while True:
            free = any(self._tryable(at, near) for near in (False, True))
            alive = [child for child in at.children if self._alive(child)]
            if not alive or (free and self._random.random() < _TUNING.stop):
                if free:
                    return at
                if at is root:
                    return None
                at.close()
                at = root
                continue
            at = max(alive, key=lambda child: self._bound(child, at))

    def _alive(self, child: _State) -> bool:
        return len(child.egraph) < self._options.enodes and (not child.open or any(child.open.values()) or bool(child.children))

    def _bound(self, child: _State, parent: _State) -> float:
        if not child.visits:
            return inf
        return child.value / child.visits + self._options.exploration * sqrt(log(max(1, parent.visits)) / child.visits)

    def _tryable(self, state: _State, near: bool) -> list[CompiledRule | Source]:
        """The rules that are not known to change nothing: all whose operators are there, until they are tried."""
        found = state.open.get(near)
        if found is None:
            found = state.open[near] = self._fitting(state, near)
        return found

    def _expanded(self, state: _State) -> _State | None:
        """A new child by a random rule; None where none changes anything, or time is over."""
        near = self._random.random() < self._options.near
        near = near if self._tryable(state, near) else not near
        rules = self._tryable(state, near)
        while rules:
            rule = rules[self._random.randrange(len(rules))]
            applied = self._applied(state, rule, near)
            if applied is None:
                if self._limits.over:
                    return None
                rules.remove(rule)
                continue
            made, outcome = applied
            if not _sampled(outcome):
                rules.remove(rule)
            made.parent = state
            state.children.append(made)
            self._offer(made.egraph, made.found)
            return made
        return None

    # ---- simulation ------------------------------------------------------------------------------------------------

    def _rolled(self, state: _State) -> float:
        """What random rules from here gain one after the other, in seconds."""
        options, random = self._options, self._random
        gained = 0.0
        for _ in range(options.rollout):
            if len(state.egraph) >= options.enodes:
                break
            first = random.random() < options.near
            after = self._random_step(state, first) or self._random_step(state, not first)
            if after is None:
                break
            gained += max(state.cost - after.cost, 0.0)
            state = after
            self._offer(state.egraph, state.found)
        return gained

    def _random_step(self, state: _State, near: bool) -> _State | None:
        """A state after a random rule of those that change something; None where there is none, or time is over."""
        rules = self._fitting(state, near)
        while rules and not self._limits.over:
            k = self._random.randrange(len(rules))
            applied = self._applied(state, rules[k], near)
            if applied is not None:
                return applied[0]
            del rules[k]
        return None

    def _fitting(self, state: _State, near: bool) -> list[CompiledRule | Source]:
        """Rules whose operators are all there, whether they match is seen when they are tried; other sources know the best program."""
        there = state.view(near).by_operator.keys()
        rules = [rule for rule, operators in zip(self._rules, self._operators, strict=True) if operators <= there]
        return [*rules, *self._moves] if near else [*rules]

    def _applied(self, state: _State, rule: CompiledRule | Source, near: bool) -> tuple[_State, Outcome] | None:
        """What a rule makes of a state, with its best program; None where nothing changed, or time is over."""
        from dslc.match import CompiledRule
        from dslc.search.levelled import level

        egraph, options = state.egraph, self._options
        applied = self._matched(state, rule, near) if isinstance(rule, CompiledRule) else self._stated(state, rule)
        if applied is None:
            return None
        child, outcome = applied
        if not outcome.unions and len(child) == len(egraph):
            return None
        if isinstance(rule, CompiledRule):
            level(
                child,
                rule,
                [node for node in child.memo if node not in egraph.memo],
                options.enodes,
                _TUNING.levelled[near],
            )
        growing = state.growing.clone(child)
        found = growing.best()
        if found is None:
            return None
        made = _State(child, growing, found)
        made.before = state.seen()
        fresh = frozenset(child.memo.keys() - egraph.memo.keys())
        older = state.fresh if len(fresh) + len(state.fresh) <= _TUNING.fresh else frozenset()
        made.fresh = fresh | older
        return made, outcome

    def _matched(self, state: _State, rule: CompiledRule, near: bool) -> tuple[EGraph, Outcome] | None:
        """A clone after a rule at some places; None where it matches nowhere."""
        from dslc.egraph import rewrite

        limits = self._limits
        matches, capped = rewrite.matches_of(rule, state.view(near), self._random, self._caps[near], limits.until)
        if not matches or not limits.step():
            return None
        child = state.egraph.clone()
        outcome = rewrite.apply_matches(child, matches, self._caps[near], limits.until)
        return child, replace(outcome, capped=outcome.capped | capped)

    def _stated(self, state: _State, source: Source) -> tuple[EGraph, Outcome] | None:
        """A clone after some facts of another source about the best program; None where it says none."""
        from dslc.deadline import TimeUp
        from dslc.egraph import rewrite
        from dslc.egraph.extract.program import program_of

        graph = program_of(state.egraph, state.found)
        key = (self._moves.index(source), hash(graph.outputs))
        told = self._facts.get(key)
        if told is None:
            told = self._facts[key] = []
            with suppress(TimeUp):
                told.extend(islice(source.facts(graph), _TUNING.told))
        if not told or not self._limits.step():
            return None
        most = self._caps[True].matches
        taken = sorted(self._random.sample(range(len(told)), most)) if len(told) > most else range(len(told))
        child = state.egraph.clone()
        unions = 0
        for fact, leaves in (told[k] for k in taken):
            if len(child) >= self._options.enodes:
                break
            unions += rewrite.state(child, fact, rewrite.placed(child, leaves))
        child.rebuild()
        capped = frozenset({rewrite.Cap.MATCHES}) if len(told) > most else frozenset()
        return child, rewrite.Outcome(len(told), len(taken), unions, capped)


def _sampled(outcome: Outcome) -> bool:
    """Whether a rule was applied at some of its places only: another time it may be others."""
    from dslc.egraph.rewrite import Cap

    return Cap.MATCHES in outcome.capped


__all__ = ["Mcts"]

"""Monte Carlo tree search over e-graphs (PACT'24): the choice of the next rule is searched; its turns are simulations."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf, log, sqrt
from random import Random

from dslc.deadline import TimeUp
from dslc.egraph import rewrite
from dslc.egraph.deltas import added
from dslc.egraph.extract.incremental import FreshExtraction, IncrementalExtraction
from dslc.egraph.extract.program import extract, program_of
from dslc.egraph.extract.table import Extraction
from dslc.egraph.graph import EGraph
from dslc.egraph.incremental_matches import IncrementalMatches
from dslc.egraph.rewrite import Cap, Caps, StepOutcome
from dslc.egraph.story import kept
from dslc.egraph.view import View
from dslc.ir.graph import Node
from dslc.match import CompiledRule
from dslc.match.matcher import Match
from dslc.search.candidates.candidate import Candidate, PlacedFact
from dslc.search.options.strategies import WAYS, Mcts, Saturate
from dslc.search.rewrites.associative_flattening import level
from dslc.search.strategies.explorers import SweepCount, explored
from dslc.search.strategies.programs import NodePrices, Programs, Tidying
from dslc.search.strategies.saturation import Saturating
from dslc.search.strategies.space import SearchedEGraph, Source, Space

PART = 16  #: parts of the simulations of which one without a gain, where there was one before, ends a tree
TOLD = 200  #: facts of another source about one program
LEVELLED: tuple[int, ...] = (8, 32)  #: nested calls that are made one after a rule: anywhere, and near the best program
NEAR = 4  #: how many times fewer places a rule is applied at in the best program
FRESH = 200  #: e-nodes that were added last that are near; those of the last rule are in any case
BARREN = 3  #: trees from one graph that find nothing better before the search ends
LESS = 1e-9  #: share by which a program is cheaper than another one, at least
ASKED = 5_000  #: calls that are looked at for matches of one rule: no rule holds up a simulation for long
LEAST = 500  #: e-nodes of a region's, however many regions there are
SOLVER = 2.0  #: seconds of integer programming for one state
OPENED = 0.35  #: share of the time, or of the steps, that saturation has before the first tree
#: share of the time that is left for the last programs, and most seconds of one
LAST: tuple[float, float] = (0.2, 30.0)


@dataclass(slots=True, eq=False)
class TreeState:
    """An e-graph with its best program, what may be tried there, and what simulations from here were worth."""

    egraph: EGraph
    growing: IncrementalExtraction | FreshExtraction
    found: Extraction
    places: IncrementalMatches
    #: e-nodes that the last rules added: what these made possible is near too
    fresh: frozenset[Node] = frozenset()
    #: matches near the best program of what the e-graph was cloned from, and those that were applied since
    _before: IncrementalMatches | None = None
    _done: Collection[Match] = ()
    parent: TreeState | None = None
    children: list[TreeState] = field(default_factory=list)
    #: rules that may change something, and were not tried: everywhere, and in the best program
    open: dict[bool, list[CompiledRule | Source]] = field(default_factory=dict)
    _beside: IncrementalMatches | None = None
    value: float = 0.0
    visits: int = 0

    @property
    def cost(self) -> float:
        return self.found.cost

    @property
    def beside(self) -> IncrementalMatches:
        """Matches of rules in the e-nodes that are near: those of the best program, and those that were added last."""
        if not self._beside:
            before = self._before
            chosen = (one.key for one in self.found.choice.values())
            near = self.fresh.union(key for key in chosen if isinstance(key, Node))
            view = View(self.egraph, near, before.view if before else self.places.view)
            self._beside = IncrementalMatches(view, before, self._done)
            self._before, self._done = None, ()
        return self._beside

    def close(self) -> None:
        """Visit it no more; what it was worth stays."""
        self.open = {False: [], True: []}
        self.children, self._beside, self._before, self._done = [], None, None, ()


def explore(options: Mcts, space: Space) -> Iterator[Candidate]:
    """Search trees of e-graphs of the graph or of its regions."""

    def make(part: Space, count: int) -> Searching:
        enodes = max(options.enodes // count, min(options.enodes, LEAST))
        return Searching(replace(options, enodes=enodes), part, 1 / count)

    return explored(space, make, options.whole)


class Searching:
    """A tree of e-graphs of one graph; each turn is a simulation."""

    def __init__(self, options: Mcts, space: Space, share: float = 1.0) -> None:
        """Begin without a tree; of all that is searched this has such a share."""
        self._options, self._space, self._limits, self._start = options, space, space.limits, space.start
        self._share = share
        self._rules = sorted(space.tried, key=lambda rule: rule.name)
        # a term variable stands for any operator
        self._operators = [
            frozenset(site.operator for site in rule.left.sites if site.operator) for rule in self._rules
        ]
        self._random = Random(space.seed)
        self._moves = space.moves
        self._facts: dict[tuple[int, int], list[PlacedFact]] = {}
        self._prices = NodePrices(space)
        self._programs = Programs(space, self._prices, options.ranked)
        self._tidying, self._barren = Tidying(space), 0
        few = max(1, options.matches // NEAR)
        self._caps: dict[bool, Caps] = {
            near: Caps(matches, matches + 1, options.enodes, asked=ASKED)
            for near, matches in ((False, options.matches), (True, few))
        }
        self._fit: dict[frozenset[str], list[CompiledRule]] = {}
        self._root: TreeState | None = None
        self._initial = self._scale = 1.0
        self._stale = False
        self._done = 0
        #: the cheapest program by its sum, the e-graph that it is of, and what was the cheapest when the tree was planted
        self._least: tuple[EGraph, Extraction] | None = None
        self._planted = inf
        #: simulations since the cheapest program was found
        self._idle = 0
        # the last programs are taken out in time of their own, where that is done in another way
        self._final = options.final if options.final != options.reward else ""
        self._last = space.limits.until.part(1 - LAST[0])

    @property
    def best(self) -> Candidate:
        return self._programs.best

    @property
    def sweeps(self) -> SweepCount:
        return self._tidying.sweeps

    def grown(self) -> SearchedEGraph | None:
        """Return the e-graph of the cheapest program, or of the tree."""
        if self._least is not None:
            return SearchedEGraph(self._least[0], self._prices)
        return SearchedEGraph(self._root.egraph, self._prices) if self._root else None

    def begin(self) -> None:
        """Take what can be had at once and what saturation finds from there, and plant the e-graph of the best of it."""
        self._tidy(swept=True)
        self._open()
        # the first tree has all of the patience
        self._limits.gained()
        self._begin()

    def _open(self) -> None:
        """Begins with the best that saturation finds: a tree has nothing to choose where all rules have room at once."""
        limits, options = self._limits, self._options
        if not options.tidy or options.mixed or limits.over:
            return
        before, share = self._programs.best, self._share * OPENED
        end = inf if limits.steps is None else limits.done + share * (limits.steps - limits.done)
        with limits.within(share):
            part = self._space.at(before, self._programs.take)
            near = Saturating(Saturate(enodes=options.enodes), part, swept=0.0, tidying=self._tidying)
            near.begin()
            while not limits.over and limits.done < end and near.expand():
                pass
        if self._programs.best is not before:
            self._start, self._programs = self._programs.best, self._programs.onwards()

    def _begin(self) -> None:

        egraph = EGraph.of(self._start.graph)
        found = IncrementalExtraction(egraph, self._prices).best()
        if found:
            self._prices.settle(found)
            self._plant(egraph)
            self._initial = max(self._root.cost, 1e-12) if self._root else 1.0
            self._scale = max(self._worth(self._root), 1e-12) if self._root else 1.0
            self._programs.known(self._initial)

    def _tidy(self, swept: bool = False) -> None:
        if self._options.tidy and not self._options.mixed:
            self._tidying.tidy(self._programs, swept)

    def _onwards(self) -> bool:
        """A new tree from the best graph as it is; False where that was done a few times in vain, or time is over."""
        if self._limits.over:
            return False
        self._programs.rank()
        self._tidy()
        best = self._programs.best
        self._barren = self._barren + 1 if best is self._start else 0
        if self._limits.over or self._barren >= BARREN or self._options.mixed:
            return False
        self._start, self._least = best, None
        self._programs = self._programs.onwards()
        self._begin()
        return self._root is not None

    def _plant(self, egraph: EGraph) -> None:
        """A new tree, at prices as they are known by now."""
        how = self._options.reward
        growing: IncrementalExtraction | FreshExtraction
        if how in ("shared", "joint"):
            growing = IncrementalExtraction(egraph, self._prices, how == "joint")
        else:
            growing = FreshExtraction(egraph, self._prices, WAYS[how], SOLVER)
        found = growing.best()
        self._root = TreeState(egraph, growing, found, IncrementalMatches(View(egraph))) if found else None
        self._done, self._idle, self._stale = 0, 0, False
        self._planted = found.cost if found else inf

    def _again(self) -> bool:
        """A new tree from the cheapest program and what that rests on, without all else; False where nothing was gained since.

        Where others have found what is better than this tree's, from that.
        """
        self._tidy()
        if not self._programs.own and not self._options.mixed:
            return self._onwards()
        if self._least is None or not self._least[1].cost < self._planted * (1 - LESS):
            return False
        known = self._least[1].cost
        self._plant(kept(*self._least, self._start.graph))
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
        self._programs.offer(egraph, found, later=True)

    def expand(self) -> bool:
        """One simulation; after so many of them the best rule is applied for good. False where nothing is left to do."""
        if not self._root:
            return False
        limits = self._limits
        ending = self._last.over or (
            limits.steps is not None and limits.done + self._options.rollout + 1 > limits.steps
        )
        if self._final and ending:
            # what is left, of time or steps, is for the last programs
            self._finish()
            return False
        if self._stale:
            # what was measured is another price than what was guessed
            if not self._again():
                self._plant(self._root.egraph)
            return self._root is not None
        if self._done >= self._options.simulations:
            return self._descend()
        if self._idle * PART >= self._options.simulations and self._again():
            return True
        self._done += 1
        self._idle += 1
        state = self._selected(self._root)
        if not state:
            # nothing more can be tried below
            return self._descend()
        child = self._expanded(state)
        if not child:
            return not self._limits.over
        gained = max(self._worth(state) - self._worth(child), 0.0) + self._rolled(child)
        reward = gained / self._scale
        at: TreeState | None = child
        while at:
            at.value += reward
            at.visits += 1
            at = at.parent
        # the way to a program takes longer than a step: once for all steps of a simulation
        self._programs.rank_first()
        return not self._limits.over

    def _worth(self, state: TreeState) -> float:
        """Return the reward of a state: the default cost is the paper's, trees and all, and not that of its program."""
        return state.found.estimate if self._options.reward == "default" else state.cost

    def _finish(self) -> None:
        """The last programs in another way than the rewards': of the tree's e-graph, and of the one that the cheapest is of."""
        egraphs = [self._root.egraph] if self._root else []
        egraphs += [self._least[0]] if self._least is not None else []
        limits = self._limits
        for egraph in dict.fromkeys(egraphs):
            found = extract(egraph, self._prices, WAYS[self._final], until=limits.until.part(1.0, LAST[1]))
            if found:
                self._offer(egraph, found)
        self._programs.rank_first()

    # ---- the tree --------------------------------------------------------------------------------------------------

    def _descend(self) -> bool:
        """Applies the rule with the highest average for good: what was found below it stays known.

        Where something cheaper was found than is there, the search goes on from that.
        """
        self._programs.rank()
        root = self._root
        assert root
        visited = [child for child in root.children if child.visits]
        best = max(visited, key=lambda child: child.value / child.visits) if visited else None
        known = inf if self._least is None else self._least[1].cost
        if (
            best is None or len(best.egraph) >= self._options.enodes or known < best.cost * (1 - LESS)
        ) and self._again():
            return True
        if best is None or len(best.egraph) >= self._options.enodes:
            return self._onwards()
        best.parent = None
        for near, places in ((False, best.places), (True, best.beside)):
            places.settle(self._rules, self._random, self._caps[near], self._limits.until)
        self._root = best
        # the simulations that went through it count
        self._done = min(best.visits, self._options.simulations // 2)
        return True

    def _selected(self, root: TreeState) -> TreeState | None:
        """The state to expand: halfway by chance, else where UCB1 is highest. None where every rule was tried everywhere."""
        at = root
        while True:
            free = any(self._tryable(at, near) for near in (False, True))
            alive = [child for child in at.children if self._alive(child)]
            if not alive or (free and self._random.random() < self._options.stop):
                if free:
                    return at
                if at is root:
                    return None
                at.close()
                at = root
                continue
            at = max(alive, key=lambda child: self._bound(child, at))

    def _alive(self, child: TreeState) -> bool:
        return len(child.egraph) < self._options.enodes and (
            not child.open or any(child.open.values()) or bool(child.children)
        )

    def _bound(self, child: TreeState, parent: TreeState) -> float:
        if not child.visits:
            return inf
        return child.value / child.visits + self._options.exploration * sqrt(log(max(1, parent.visits)) / child.visits)

    def _tryable(self, state: TreeState, near: bool) -> list[CompiledRule | Source]:
        """The rules that are not known to change nothing: all whose operators are there, until they are tried."""
        if near not in state.open:
            state.open[near] = self._fitting(state, near)
        return state.open[near]

    def _expanded(self, state: TreeState) -> TreeState | None:
        """A new child by a random rule; None where none changes anything, or time is over."""
        near = self._random.random() < self._options.near
        near = near if self._tryable(state, near) else not near
        made = self._random_step(state, self._tryable(state, near), near)
        if made:
            made.parent = state
            state.children.append(made)
            self._offer(made.egraph, made.found)
        return made

    # ---- simulation ------------------------------------------------------------------------------------------------

    def _rolled(self, state: TreeState) -> float:
        """Return what random rules from here gain one after the other, in seconds."""
        options, random = self._options, self._random
        gained = 0.0
        for _ in range(options.rollout):
            if len(state.egraph) >= options.enodes:
                break
            first = random.random() < options.near
            steps = (self._random_step(state, self._fitting(state, near), near) for near in (first, not first))
            after = next(filter(None, steps), None)
            if not after:
                break
            gained += max(self._worth(state) - self._worth(after), 0.0)
            state = after
            self._offer(state.egraph, state.found)
        return gained

    def _random_step(self, state: TreeState, rules: list[CompiledRule | Source], near: bool) -> TreeState | None:
        """Apply a random one of some rules; None where none changes anything, or time is over.

        A rule that changed nothing, or was applied at all of its places, leaves the list: another time it changes nothing.
        """
        while rules and not self._limits.over:
            k = self._random.randrange(len(rules))
            applied = self._applied(state, rules[k], near)
            if applied is None or Cap.MATCHES not in applied[1].capped:
                del rules[k]
            if applied is not None:
                return applied[0]
        return None

    def _fitting(self, state: TreeState, near: bool) -> list[CompiledRule | Source]:
        """Rules whose operators are all there, whether they match is seen when they are tried; other sources know the best program."""
        there = frozenset(state.places.view.by_operator)
        if there not in self._fit:
            pairs = zip(self._rules, self._operators, strict=True)
            self._fit[there] = [rule for rule, operators in pairs if operators <= there]
        return [*self._fit[there], *self._moves] if near else [*self._fit[there]]

    def _applied(
        self, state: TreeState, rule: CompiledRule | Source, near: bool
    ) -> tuple[TreeState, StepOutcome] | None:
        """Apply a rule to a state, with its best program; None where nothing changed, or time is over."""
        egraph, options = state.egraph, self._options
        applied = self._matched(state, rule, near) if isinstance(rule, CompiledRule) else self._stated(state, rule)
        if applied is None:
            return None
        child, outcome, matches = applied
        if not outcome.unions and len(child) == len(egraph):
            if isinstance(rule, CompiledRule):
                (state.beside if near else state.places).drop(rule, matches)
            return None
        if isinstance(rule, CompiledRule):
            level(child, rule, added(egraph, child), options.enodes, LEVELLED[near])
        growing = state.growing.clone(child)
        found = growing.best()
        if not found:
            return None
        fresh = frozenset(added(egraph, child))
        older = state.fresh if len(fresh) + len(state.fresh) <= FRESH else frozenset()
        places = IncrementalMatches(View(child, before=state.places.view), state.places, matches)
        return TreeState(child, growing, found, places, fresh | older, state.beside, matches), outcome

    def _matched(
        self, state: TreeState, rule: CompiledRule, near: bool
    ) -> tuple[EGraph, StepOutcome, Sequence[Match]] | None:
        """A clone after a rule at some places, and these; None where it matches nowhere."""
        limits, caps = self._limits, self._caps[near]
        matches, sampled = (state.beside if near else state.places).of(rule, self._random, caps, limits.until)
        if len(matches) > caps.matches:
            matches = rewrite.sampled(matches, caps.matches, self._random)
            sampled = True
        if not matches or not limits.step():
            return None
        child = state.egraph.clone()
        outcome = rewrite.apply_matches(child, matches, caps, limits.until)
        capped = outcome.capped | ({Cap.MATCHES} if sampled else set())
        return child, replace(outcome, capped=capped), matches

    def _stated(self, state: TreeState, source: Source) -> tuple[EGraph, StepOutcome, Sequence[Match]] | None:
        """A clone after some facts of another source about the best program; None where it says none."""
        graph = program_of(state.egraph, state.found)
        key = (self._moves.index(source), hash(graph.outputs))
        told = self._facts.get(key)
        if told is None:
            told = self._facts[key] = []
            with suppress(TimeUp):
                told.extend(islice(source.facts(graph), TOLD))
        if not told or not self._limits.step():
            return None
        most = self._caps[True].matches
        taken = rewrite.sampled(told, most, self._random) if len(told) > most else told
        child = state.egraph.clone()
        unions = 0
        for fact, leaves in taken:
            if len(child) >= self._options.enodes:
                break
            unions += rewrite.state(child, fact, rewrite.placed(child, leaves))
        child.rebuild()
        capped = frozenset({Cap.MATCHES}) if len(told) > most else frozenset()
        return child, StepOutcome(len(taken), unions, capped), ()

"""Monte Carlo tree search over e-graphs (PACT'24) as a strategy: which rule is applied next is what is searched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf, log, sqrt
from random import Random
from typing import TYPE_CHECKING

from dslc.search.option import option

if TYPE_CHECKING:
    from dslc.cost.model import CostModel
    from dslc.egraph.extract.growing import Growing
    from dslc.egraph.extract.table import Extraction
    from dslc.egraph.graph import EGraph
    from dslc.egraph.rewrite import Caps, Outcome
    from dslc.egraph.view import View
    from dslc.match import CompiledRule
    from dslc.search.candidate import Candidate, Limits, Progress
    from dslc.search.strategy import Space

#: a selection ends at a node with such a probability, and expands it
_STOP = 0.5
#: e-nodes of a region, however many there are
_LEAST = 500
#: what is looked at for matches of one rule: no rule holds up a simulation for long
_ASKED = 5_000


@dataclass(frozen=True, slots=True)
class Mcts:
    """A tree of e-graphs, in which an edge is a rule at random places; a step is one application of a rule."""

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
    matches: int = field(default=200, metadata=option(
        "Places at which a rule is applied at once (default: 200).", type=int, least=1, metavar="N",
        more="A random sample where it matches at more.",
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
            options = replace(self, enodes=max(self.enodes // count, min(self.enodes, _LEAST)))
            return _Searching(options, start, rules, costs, space.limits, space.seed, told)

        return explored(space, make)


class _State:
    """An e-graph with its best program, and what simulations from here were worth."""

    __slots__ = ("children", "cost", "egraph", "growing", "open", "parent", "rule", "value", "view", "visits")

    def __init__(self, egraph: EGraph, growing: Growing, cost: float, rule: CompiledRule | None, parent: _State | None) -> None:
        self.egraph, self.growing, self.cost, self.rule, self.parent = egraph, growing, cost, rule, parent
        self.children: list[_State] = []
        #: rules that may change something here, and were not tried; None before anybody looked
        self.open: list[CompiledRule] | None = None
        self.view: View | None = None
        self.value = 0.0
        self.visits = 0


class _Searching:
    """A tree of e-graphs of one graph; each turn is a simulation."""

    def __init__(
        self, options: Mcts, start: Candidate, rules: Sequence[CompiledRule], costs: CostModel, limits: Limits, seed: int,
        told: Progress,
    ) -> None:  # fmt: skip
        from dslc.egraph.rewrite import Caps
        from dslc.search.programs import Prices, Programs

        self._options, self._limits, self._start = options, limits, start
        self._rules = sorted(rules, key=lambda rule: rule.name)
        self._operators = [frozenset(site.operator for site in rule.left.sites) for rule in self._rules]
        self._random = Random(seed)
        self._prices = Prices(costs, limits, lazy=True)
        self._programs = Programs(start, costs, limits, self._prices, options.ranked, told)
        self._caps: Caps = Caps(options.matches, 2 * options.matches, options.enodes, asked=_ASKED)
        self._root: _State | None = None
        self._initial = 1.0
        self._stale = False
        self._done = 0

    @property
    def best(self) -> Candidate:
        return self._programs.best

    def begin(self) -> None:
        """The e-graph of the graph itself."""
        from dslc.egraph.extract.growing import Growing
        from dslc.egraph.graph import EGraph

        egraph = EGraph.of(self._start.graph)
        found = Growing(egraph, self._prices).best()
        if found is not None:
            self._prices.settle(found)
            self._plant(egraph)
            self._initial = max(self._root.cost, 1e-12) if self._root is not None else 1.0
            self._programs.known(self._initial)

    def _plant(self, egraph: EGraph) -> None:
        """A new tree, at prices as they are known by now."""
        from dslc.egraph.extract.growing import Growing

        growing = Growing(egraph, self._prices)
        found = growing.best()
        self._root = None if found is None else _State(egraph, growing, found.cost, None, None)
        self._done, self._stale = 0, False

    def _offer(self, egraph: EGraph, found: Extraction) -> None:
        """A program, once what it is made of is measured where it promises something: what was guessed then makes the tree another."""
        if found.cost < self._initial and self._prices.settle(found):
            self._stale = True
            found = replace(found, cost=self._prices.total(found))
        self._programs.offer(egraph, found)

    def expand(self) -> bool:
        """One simulation; after so many of them the best rule is applied for good. False where nothing is left to do."""
        if self._root is None:
            return False
        if self._stale:
            self._plant(self._root.egraph)
            return self._root is not None
        if self._done >= self._options.simulations:
            return self._descend()
        self._done += 1
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
        """Applies the rule with the highest average for good: what was found below it stays known."""
        self._programs.rank()
        root = self._root
        assert root is not None
        visited = [child for child in root.children if child.visits]
        if not visited:
            return False
        best = max(visited, key=lambda child: child.value / child.visits)
        best.parent = None
        self._root = best
        # the simulations that went through it count
        self._done = min(best.visits, self._options.simulations // 2)
        return len(best.egraph) < self._options.enodes

    def _selected(self, root: _State) -> _State | None:
        """The state to expand: halfway by chance, else where UCB1 is highest. None where every rule was tried everywhere."""
        at = root
        while True:
            free = self._tryable(at)
            alive = [child for child in at.children if self._alive(child)]
            if not alive or (free and self._random.random() < _STOP):
                if free:
                    return at
                if at is root:
                    return None
                # nothing is left to try here: it is visited no more
                assert at.parent is not None
                at.parent.children = [child for child in at.parent.children if child is not at] + [_closed(at)]
                at = root
                continue
            at = max(alive, key=lambda child: self._bound(child, at))

    def _alive(self, child: _State) -> bool:
        return len(child.egraph) < self._options.enodes and (child.open is None or bool(child.open) or bool(child.children))

    def _bound(self, child: _State, parent: _State) -> float:
        if not child.visits:
            return inf
        return child.value / child.visits + self._options.exploration * sqrt(log(max(1, parent.visits)) / child.visits)

    def _tryable(self, state: _State) -> list[CompiledRule]:
        """The rules that are not known to change nothing: single patterns that match, several each of which may match somewhere."""
        if state.open is None:
            from dslc.egraph.view import OutOfTime, TooFar
            from dslc.match import find_matches

            view, fitting = self._fitting(state.egraph)
            state.view, state.open = view, []
            for rule in fitting:
                tops = rule.left.tops
                if not all(rule.outlines[top].fitting(view).calls for top in tops):
                    continue
                try:
                    with view.limited(self._limits.deadline, self._limits.now, _ASKED):
                        if len(tops) > 1 or next(find_matches(rule, view), None) is not None:
                            state.open.append(rule)
                except TooFar:
                    state.open.append(rule)
                except OutOfTime:
                    self._limits.time_up()
                    break
        return state.open

    def _expanded(self, state: _State) -> _State | None:
        """A new child by a random rule; None where that changed nothing."""
        rules = self._tryable(state)
        rule = rules[self._random.randrange(len(rules))]
        child = self._applied(state.egraph, state.growing, rule, state.view)
        if child is None:
            rules.remove(rule)
            return None
        egraph, growing, found, outcome = child
        if not _sampled(outcome):
            rules.remove(rule)
        made = _State(egraph, growing, found.cost, rule, state)
        state.children.append(made)
        self._offer(egraph, found)
        return made

    # ---- simulation ------------------------------------------------------------------------------------------------

    def _rolled(self, state: _State) -> float:
        """What random rules from here gain one after the other, in seconds."""
        options, random = self._options, self._random
        egraph, growing, cost = state.egraph, state.growing, state.cost
        gained = 0.0
        rules: list[CompiledRule] | None = None
        depth = 0
        view: View | None = state.view
        while depth < options.rollout and len(egraph) < options.enodes:
            if rules is None:
                view, rules = self._fitting(egraph)
            if not rules:
                break
            rule = rules[random.randrange(len(rules))]
            applied = self._applied(egraph, growing, rule, view)
            if applied is None:
                if self._limits.over:
                    break
                rules.remove(rule)
                continue
            egraph, growing, found, _ = applied
            gained += max(cost - found.cost, 0.0)
            cost, rules = found.cost, None
            self._offer(egraph, found)
            depth += 1
        return gained

    def _fitting(self, egraph: EGraph) -> tuple[View, list[CompiledRule]]:
        """Rules whose operators are all there; whether they match is seen when they are tried."""
        from dslc.egraph.view import View

        view = View(egraph)
        there = view.by_operator.keys()
        return view, [rule for rule, operators in zip(self._rules, self._operators, strict=True) if operators <= there]

    def _applied(
        self, egraph: EGraph, growing: Growing, rule: CompiledRule, view: View | None
    ) -> tuple[EGraph, Growing, Extraction, Outcome] | None:
        """A clone after a rule, with its best program; None where nothing changed, or time is over."""
        from dslc.egraph import rewrite
        from dslc.egraph.view import View

        limits = self._limits
        seen = View(egraph) if view is None else view
        matches, capped = rewrite.matches_of(rule, seen, self._random, self._caps, limits.deadline, limits.now)
        if not matches or not limits.step():
            return None
        child = egraph.clone()
        outcome = rewrite.apply_matches(child, matches, self._caps, limits.deadline, limits.now)
        if not outcome.unions and len(child) == len(egraph):
            return None
        grown = growing.clone(child)
        found = grown.best()
        if found is None:
            return None
        return child, grown, found, replace(outcome, capped=outcome.capped | capped)


def _sampled(outcome: Outcome) -> bool:
    """Whether a rule was applied at some of its places only: another time it may be others."""
    from dslc.egraph.rewrite import Cap

    return Cap.MATCHES in outcome.capped


def _closed(state: _State) -> _State:
    """A state that is visited no more; what it was worth stays."""
    state.open, state.children = [], []
    return state


__all__ = ["Mcts"]

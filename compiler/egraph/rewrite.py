"""Rules at work on an e-graph: random samples of their matches within caps, and equality saturation."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from enum import Enum
from math import ceil, inf
from typing import NamedTuple, TypeVar

from dslc.deadline import FOREVER, Deadline
from dslc.egraph.graph import EGraph
from dslc.egraph.view import OutOfTime, TooFar, View
from dslc.ir.facts import Fact
from dslc.ir.graph import Call, Node, Value, Values, rebuild
from dslc.match.associative import unwrap
from dslc.match.cases import GuardCase
from dslc.match.index import Index
from dslc.match.matcher import Match, find_matches
from dslc.match.recipe import SPOILED, Refused, spoiled
from dslc.match.rule import CompiledRule
from dslc.match.state import MatchState
from dslc.records import record

FEW = 8  #: part of a rule's matches; where more of them are at one place, its places are shuffled

T = TypeVar("T")


class Cap(Enum):
    """Reasons for leaving something out: a run that was capped has not seen everything."""

    MATCHES = "a rule matches at more places than are taken at once"
    NODES = "the e-graph has as many e-nodes as it may"
    SECONDS = "the time is over"
    ROUNDS = "multi-pattern rules were applied as often as they may"


class Stop(Enum):
    """Reasons for the end of saturation."""

    SATURATED = "no rule adds anything"
    NODES = "the e-graph has as many e-nodes as it may"
    SECONDS = "the time is over"
    ROUNDS = "as many rounds as there may be"


@record
class Caps:
    """Limits on one application of a rule.

    Args:
        matches: so many are applied, a random sample of those found.
        looked: so many are found at most.
        nodes: no match is applied once there are so many e-nodes.
        asked: calls and classes that are looked at for matches of one rule.
    """

    matches: int = 200
    looked: int = 200
    nodes: int = 2_000
    asked: float = inf


class Built(NamedTuple):
    """A node of a right side: its arguments, the numbers of its results, and what stood for these then."""

    args: Values
    outs: tuple[int, ...]
    values: Values


@dataclass(frozen=True, slots=True, eq=False)
class AppliedMatch:
    """Justification of a union: a rule at a place.

    `outs` are the numbers of the results of the e-nodes that it matched, `roots` what stands for what it replaced, `built` what it
    added, in order.
    """

    rule: CompiledRule
    state: MatchState
    case: GuardCase
    leaves: Values
    number: int
    roots: Values
    outs: Mapping[Call, tuple[int, ...]]
    built: tuple[Built, ...]

    @property
    def name(self) -> str:
        return self.rule.name


@dataclass(frozen=True, slots=True, eq=False)
class Stated:
    """Justification of unions: a fact about classes, from any source.

    `leaves` are the values of its holes, `built` all of both sides.
    """

    fact: Fact
    leaves: Values
    built: tuple[Built, ...]

    @property
    def name(self) -> str:
        return self.fact.rule


@record
class StepOutcome:
    """Outcome of one application: matches that were applied, unions of different classes, and what was left out."""

    applied: int = 0
    unions: int = 0
    capped: frozenset[Cap] = frozenset()


def sampled(found: Sequence[T], most: int, rng: random.Random) -> list[T]:
    """So many of what was found at random, in their order."""
    return [found[k] for k in sorted(rng.sample(range(len(found)), most))]


def matches_of(
    rule: CompiledRule, view: View, rng: random.Random, caps: Caps, until: Deadline = FOREVER
) -> tuple[list[Match], frozenset[Cap]]:
    """Matches of a rule, at most `caps.matches`: where there may be more, they are looked for from random places on."""
    capped: set[Cap] = set()
    found: list[Match] = []
    index: Index = view
    try:
        with view.limited(until, caps.asked):
            # what changed is looked at in an order of its own
            many = view.memory.changed is None and any(
                len(rule.prefilters[top].fitting(view).calls) > caps.matches // FEW for top in rule.left.tops
            )
            with view.shuffled(rule, rng) if many else nullcontext():
                for match in find_matches(rule, index):
                    if len(found) >= caps.looked:
                        capped.add(Cap.MATCHES)
                        break
                    found.append(match)
    except OutOfTime:
        capped.add(Cap.SECONDS)
    except TooFar:
        capped.add(Cap.MATCHES)
    if len(found) > caps.matches:
        capped.add(Cap.MATCHES)
        found = sampled(found, caps.matches, rng)
    return found, frozenset(capped)


def apply_matches(
    egraph: EGraph,
    matches: Sequence[Match],
    caps: Caps,
    until: Deadline = FOREVER,
) -> StepOutcome:
    """Adds the right sides of matches of `egraph`, or of what it was cloned from, and merges them with what they are equal to."""
    applied = unions = 0
    capped: set[Cap] = set()
    try:
        for match in matches:
            if len(egraph) >= caps.nodes:
                capped.add(Cap.NODES)
                break
            if until.over:
                capped.add(Cap.SECONDS)
                break
            try:
                merged = _apply(egraph, match)
            except Refused:
                continue
            applied += 1
            unions += merged
    finally:
        egraph.rebuild()
    return StepOutcome(applied, unions, frozenset(capped))


def _apply(egraph: EGraph, match: Match) -> int:
    built: list[Built] = []

    def make(like: Node, args: Sequence[Value]) -> Values:
        outs, values = _entered(egraph, like, args, built)
        if like.constant and spoiled(match.rule.rules, egraph.term(outs[-1])):
            raise Refused(SPOILED)
        return values

    found = match.cases.replacement(match.order, match.ways, match.index, match.leaves, match.case, match.number, make)
    pairs: list[tuple[int, int]] = []
    wraps = match.state.wraps
    for (_, old), (_, pattern), new in zip(match.roots, match.rule.left.roots, found, strict=True):
        wrap = wraps.get(pattern.site) if wraps else None
        if wrap:
            whole = unwrap(match.rule.rules, wrap, egraph.add(new))
            if not whole or whole.type != old.type:
                raise Refused("it does not go back into the longer call")
            (new,) = rebuild((whole,), make)
        # the numbers that the match and the right side knew, not those that lead their classes by now: a proof goes by these
        one, other = egraph.number(old), egraph.number(new if egraph.class_of(new) is not None else egraph.add(new))
        if egraph.find(one) != egraph.find(other):
            pairs.append((one, other))
    if not pairs:
        return 0
    view = match.index
    assert isinstance(view, View)
    state = match.state
    memo = view.egraph.memo
    outs = {node: memo[node].outs for node in state.nodes.values() if node in memo}
    roots = tuple([value for _, value in match.roots])
    reason = AppliedMatch(match.rule, state, match.case, match.leaves, match.number, roots, outs, tuple(built))
    return sum(egraph.union(one, other, reason) for one, other in pairs)


def _entered(egraph: EGraph, like: Node, args: Sequence[Value], built: list[Built]) -> tuple[tuple[int, ...], Values]:
    """Add a node, note it, and return the numbers of its results and what stands for them."""
    outs = egraph.entered(like, args)
    values = egraph.values_of(outs)
    if args:
        built.append(Built(tuple(args), outs, values))
    return outs, values


def placed(egraph: EGraph, values: Sequence[Value]) -> Values:
    """The classes of terms over the inputs of the graph that an e-graph was made of; what is not there is added."""

    def make(like: Node, args: Sequence[Value]) -> Values:
        leaf = None if args else egraph.memo.get(like)
        return egraph.node(like, args) if leaf is None else egraph.values_of(leaf.outs)

    return rebuild(values, make)


def state(egraph: EGraph, fact: Fact, leaves: Sequence[Value]) -> int:
    """Adds both sides of a fact over values of classes, and merges them; how many classes became another's.

    `rebuild` has to follow before anything is asked.

    Raises:
        ValueError: a leaf is no class.
    """
    built: list[Built] = []
    known = {hole.node: egraph.value(egraph.number(leaf)) for hole, leaf in zip(fact.old.inputs, leaves, strict=True)}

    def make(like: Node, args: Sequence[Value]) -> Values:
        given = known.get(like)
        if given:
            return (given,)
        return _entered(egraph, like, args, built)[1]

    old, new = (rebuild(side.outputs, make) for side in (fact.old, fact.new))
    pairs = [(egraph.number(one), egraph.number(other)) for one, other in zip(old, new, strict=True)]
    reason = Stated(fact, tuple(known[hole.node] for hole in fact.old.inputs), tuple(built))
    return sum(egraph.union(one, other, reason) for one, other in pairs)


# ---- saturation ------------------------------------------------------------------------------------------------


@record
class SaturationLimits:
    """Limits on saturation.

    Args:
        nodes: e-nodes; a round ends with the first application that reaches so many.
        until: the end of all rounds.
        rounds: of all rules.
        k_multi: rounds in which rules with several patterns are applied; afterwards single ones only.
        matches: of one rule in one round.
        asked: calls and classes that are looked at for matches of one rule in one round.
        ordered: a rule takes all the room that it can, so that those after it may find none.
        acyclic: no match that reads what depends on what it replaces, as far as the e-graph of the round's begin says. Extraction
            leaves out the circles that other unions close.
    """

    nodes: int = 10_000
    until: Deadline = FOREVER
    rounds: int = 15
    k_multi: int = 1
    matches: int = 2_000
    asked: float = 50_000
    ordered: bool = False
    acyclic: bool = False
    seed: int = 0


@record
class Saturation:
    """Outcome of saturation. `capped` names what was left out on the way; it is empty where `stop` is SATURATED."""

    stop: Stop
    unions: int
    capped: frozenset[Cap]


#: told of the e-nodes that a rule added
Grown = Callable[[CompiledRule, Sequence[Node]], object]


def saturate(
    egraph: EGraph, rules: Sequence[CompiledRule], limits: SaturationLimits | None = None, grown: Grown | None = None
) -> Saturation:
    """Applies all rules in rounds, those with several patterns first, until nothing is added or a limit is met.

    A rule finds its matches in the e-graph as it was when the round began; then all are applied, one rule after the other. `grown` is
    told which e-nodes a rule added; what it adds to these counts as the rule's.
    """
    limits = limits or SaturationLimits()
    rng = random.Random(limits.seed)
    until = limits.until
    caps = Caps(limits.matches, limits.matches, limits.nodes, asked=limits.asked)
    several = [rule for rule in rules if len(rule.left.tops) > 1]
    single = [rule for rule in rules if len(rule.left.tops) <= 1]
    capped: set[Cap] = set()
    total = rounds = 0
    stop = Stop.ROUNDS
    while rounds < limits.rounds:
        multi = rounds < limits.k_multi
        view = View(egraph)
        found: list[list[Match]] = []
        here: set[Cap] = set()
        for rule in [*several, *single] if multi else single:
            matches, left_out = matches_of(rule, view, rng, caps, until)
            if limits.acyclic:
                matches = [match for match in matches if not view.depends(match.variables.values(), match.replaced)]
            found.append(matches)
            here |= left_out
            if Cap.SECONDS in here:
                break
        unions, size = 0, len(egraph)
        found = [matches for matches in found if matches]
        for k, matches in enumerate(found):
            before = set(egraph.memo) if grown is not None else set()
            # what one rule leaves is for those after it, and none takes what they need
            room = max(0, limits.nodes - len(egraph))
            share = room if limits.ordered else max(1, ceil(room / (len(found) - k)))
            own = replace(caps, nodes=len(egraph) + share if room else limits.nodes)
            if own.nodes < limits.nodes:
                matches = rng.sample(matches, len(matches))
            outcome = apply_matches(egraph, matches, own, until)
            if Cap.NODES in outcome.capped and len(egraph) < limits.nodes:
                outcome = replace(outcome, capped=outcome.capped - {Cap.NODES} | {Cap.MATCHES})
            unions += outcome.unions
            here |= outcome.capped
            if grown is not None:
                grown(matches[0].rule, [node for node in egraph.memo if node not in before])
            if outcome.capped & {Cap.SECONDS, Cap.NODES}:
                break
        total += unions
        rounds += 1
        capped |= here
        if Cap.SECONDS in here or Cap.NODES in here:
            stop = Stop.SECONDS if Cap.SECONDS in here else Stop.NODES
            break
        if not unions and len(egraph) == size and not here:
            if multi or not several:
                # this round saw everything, whatever earlier ones left out
                stop, capped = Stop.SATURATED, set()
            else:
                capped.add(Cap.ROUNDS)
            break
    else:
        capped.add(Cap.ROUNDS)
    return Saturation(stop, total, frozenset(capped))

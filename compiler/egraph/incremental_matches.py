"""Matches of rules in an e-graph that grows by clones: those of the clones before that still hold, and those near what changed."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import NamedTuple

from dslc.deadline import FOREVER, Deadline
from dslc.egraph.rewrite import Cap, Caps, matches_of
from dslc.egraph.view import View
from dslc.ir.graph import Call
from dslc.match.matcher import Match
from dslc.match.rule import CompiledRule

KEPT = 240  #: matches of one rule; of more a random sample is known
FRESH = 2  #: matches of one rule near what changed that are looked for, for each that is wanted
ASKED = 500  #: calls and classes near what changed that are looked at for matches of one rule


class RuleMatches(NamedTuple):
    """Matches of a rule; `sampled` where there are, or were, more."""

    matches: Sequence[Match]
    sampled: bool


class IncrementalMatches:
    """The matches of rules in one e-graph, each rule's when it is asked for. One for each e-graph, which may change no more."""

    def __init__(self, view: View, before: IncrementalMatches | None = None, done: Collection[Match] = ()) -> None:
        """`before` is of what the e-graph was cloned from, `done` what was applied since."""
        self.view = view
        self._before = before
        self._found: dict[CompiledRule, RuleMatches] = {}
        self._done: frozenset[Match] = before._done.union(done) if before else frozenset(done)

    def of(self, rule: CompiledRule, rng: random.Random, caps: Caps, until: Deadline = FOREVER) -> RuleMatches:
        """The matches of a rule, those that were applied before left out."""
        found = self._found.get(rule)
        if found is not None:
            return found
        before = self
        while before._before and rule not in before._found:
            before = before._before
        if rule not in before._found:
            # where all begins, so that it is done once
            matches, capped = matches_of(rule, before.view, rng, Caps(KEPT, KEPT, asked=caps.asked), until)
            found = RuleMatches(matches, bool(capped))
            if Cap.SECONDS in capped:
                return found
            before._found[rule] = found
        if before is not self:
            self._found[rule] = self._after(rule, before, rng, caps.matches, until)
        return self._found[rule]

    def _after(
        self, rule: CompiledRule, before: IncrementalMatches, rng: random.Random, wanted: int, until: Deadline
    ) -> RuleMatches:
        """Collect earlier matches that still hold, and those that have come since."""
        view, done = self.view, self._done
        matches, sampled = before._found[rule]
        holds = [match for match in matches if match not in done and all(call in view for call in match.calls)]
        since = self.view.since(before.view)
        calls: dict[Call, None] = {}
        for top in rule.left.tops:
            prefilter = rule.prefilters[top]
            unknown = since.unknown(prefilter)
            if unknown:
                fitting = prefilter.fitting(self.view).members
                calls.update((call, None) for call in unknown if call in fitting)
        if calls and not all(rule.prefilters[top].fitting(self.view).members for top in rule.left.tops):
            calls = {}
        if calls:
            caps = Caps(FRESH * wanted, FRESH * wanted, asked=ASKED)
            with self.view.changed(calls):
                fresh, capped = matches_of(rule, self.view, rng, caps, until)
            sampled = sampled or bool(capped)
            holds += fresh
        if len(holds) > KEPT:
            holds, sampled = rng.sample(holds, KEPT), True
        return RuleMatches(holds, sampled)

    def drop(self, rule: CompiledRule, matches: Collection[Match]) -> None:
        """Forgets matches that change nothing here, and so nothing in what is cloned from here."""
        known = self._found.get(rule)
        if known is not None:
            gone = frozenset(matches)
            self._found[rule] = RuleMatches([match for match in known.matches if match not in gone], known.sampled)

    def settle(self, rules: Sequence[CompiledRule], rng: random.Random, caps: Caps, until: Deadline) -> None:
        """Takes over what is known before, so that what it was cloned from may go."""
        known: set[CompiledRule] = set()
        before = self._before
        while before:
            known.update(before._found)
            before = before._before
        for rule in rules:
            if rule in known:
                self.of(rule, rng, caps, until)
        self.view.settle()
        self._before = None

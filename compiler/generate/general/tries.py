"""In which form a rule is proved: the most general one first, unless rules like it were not decided so.

Rules are alike that apply the same operators and have the same variables for attributes. A prover that gives up costs far more than one
that answers: after two rules of a kind that none decided, and none of the kind that one did, the others start from a less general form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dslc.generate.general.rules import GeneralRule, less_general
from dslc.generate.terms.term import applications
from dslc.semantics.library import Rules

TOGETHER = 2  #: rules of one kind that are tried at once

Kind = tuple[tuple[str, ...], tuple[str, ...], bool, str]


def kind(rule: GeneralRule) -> Kind:
    """Equal for rules that are alike."""
    used = applications(rule.candidate.roots)
    names = sorted(item.op for item, _ in used)
    return tuple(names), tuple(sorted(name for name, _, _ in rule.form.holes)), bool(rule.form.grouped), rule.form.pack


class Tries:
    """What provers have said of rules of each kind."""

    def __init__(self) -> None:
        self._undecided: Counter[Kind] = Counter()
        self._decided: set[Kind] = set()
        #: of each kind, how many rules were met since the last round of proofs
        self._met: Counter[Kind] = Counter()

    def at_once(self, rule: GeneralRule) -> bool:
        """Whether a rule that was kept just now will be among the first that `next` gives, whatever else is kept before that."""
        own = kind(rule)
        self._met[own] += 1
        return own in self._decided or self._met[own] <= TOGETHER

    def next(self, todo: Sequence[GeneralRule]) -> tuple[list[GeneralRule], list[GeneralRule]]:
        """Which rules are proved now, and which later."""
        self._met.clear()
        seen: Counter[Kind] = Counter()
        now: list[GeneralRule] = []
        later: list[GeneralRule] = []
        for rule in todo:
            own = kind(rule)
            seen[own] += 1
            (now if own in self._decided or seen[own] <= TOGETHER else later).append(rule)
        return now, later

    def decided(self, rule: GeneralRule) -> None:
        self._decided.add(kind(rule))

    def undecided(self, rule: GeneralRule) -> None:
        self._undecided[kind(rule)] += 1

    def weaker(self, rules: Rules, rule: GeneralRule) -> GeneralRule | None:
        """The next form that is worth a proof; the last one always is. None where there is no other."""
        found = less_general(rules, rule)
        while found is not None and self.hopeless(found) and (other := less_general(rules, found)) is not None:
            found = other
        return found

    def hopeless(self, rule: GeneralRule) -> bool:
        own = kind(rule)
        return own not in self._decided and self._undecided[own] >= TOGETHER

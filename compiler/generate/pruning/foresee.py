"""Which candidates follow from rules that are kept already, asked for many of them at once in several processes.

The processes are forked: they share the rules and classes with this one, and answer with the rules' numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from dslc.generate.general.rules import GeneralRule
from dslc.generate.pruning.derivable import KnownRules
from dslc.generate.terms.term import Term
from dslc.processes.forked import mapped

FEW = 400  #: pairs; fewer are not worth new processes
CHUNK = 32  #: pairs that a process takes at once

Pair = tuple[Term, Term]
#: what is known, the pairs, and the rules' numbers
_Shared: TypeAlias = "tuple[KnownRules, Sequence[Pair], dict[GeneralRule, int]]"


def derivable_pairs(known: KnownRules, pairs: Sequence[Pair], workers: int) -> dict[Pair, frozenset[GeneralRule]]:
    """Those of the pairs (term, target) that follow from the rules kept so far, and from which; nothing where it is not worth it."""
    if workers <= 1 or len(pairs) < FEW:
        return {}
    rules = known.rules
    shared: _Shared = known, pairs, {rule: k for k, rule in enumerate(rules)}
    found = mapped(_derivable, shared, range(len(pairs)), workers, CHUNK)
    return {
        pair: frozenset(rules[k] for k in numbers)
        for pair, numbers in zip(pairs, found, strict=True)
        if numbers is not None
    }


def _derivable(shared: _Shared, at: int) -> tuple[int, ...] | None:
    known, pairs, numbers = shared
    rests = known.derivable(*pairs[at])
    return None if rests is None else tuple(numbers[rule] for rule in rests)

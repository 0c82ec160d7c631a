"""Which candidates follow from rules that are kept already, asked for many of them at once in several processes.

The processes are forked: they share the rules and classes with this one, and answer with the rules' numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dslc.generate.general.rules import GeneralRule
from dslc.generate.pruning.derivable import KnownRules
from dslc.generate.terms.term import Term
from dslc.processes.forked import mapped


@dataclass(frozen=True, slots=True)
class _Tuning:
    """Numbers that decide when pairs are divided among processes.

    Attributes:
        few: pairs; fewer are not worth new processes.
        chunk: pairs that a process takes at once.
    """

    few: int = 400
    chunk: int = 32


_TUNING = _Tuning()

Pair = tuple[Term, Term]
#: what is known, the pairs, and the rules' numbers
_Shared: TypeAlias = "tuple[KnownRules, Sequence[Pair], dict[GeneralRule, int]]"


def derivable_pairs(known: KnownRules, pairs: Sequence[Pair], workers: int) -> dict[Pair, frozenset[GeneralRule]]:
    """Those of the pairs (term, target) that follow from the rules kept so far, and from which; nothing where it is not worth it."""
    if workers <= 1 or len(pairs) < _TUNING.few:
        return {}
    rules = known.rules
    shared: _Shared = known, pairs, {rule: k for k, rule in enumerate(rules)}
    found = mapped(_derivable, shared, range(len(pairs)), workers, _TUNING.chunk)
    return {
        pair: frozenset(rules[k] for k in numbers)
        for pair, numbers in zip(pairs, found, strict=True)
        if numbers is not None
    }


def _derivable(shared: _Shared, at: int) -> tuple[int, ...] | None:
    known, pairs, numbers = shared
    rests = known.derivable(*pairs[at])
    return None if rests is None else tuple(numbers[rule] for rule in rests)

"""Which candidates follow from rules that are kept already, asked for many of them at once in several processes.

The processes are forked: they share the rules and classes with this one, and answer with the rules' numbers.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence

from dslc.generate.general.rules import GeneralRule
from dslc.generate.pruning.derivable import Known
from dslc.generate.terms.term import Term

#: fewer are not worth new processes
_FEW = 400
_CHUNK = 32

Pair = tuple[Term, Term]
_shared: list[tuple[Known, Sequence[Pair], dict[GeneralRule, int]]] = []


def derivable_pairs(known: Known, pairs: Sequence[Pair], workers: int) -> dict[Pair, frozenset[GeneralRule]]:
    """Those of the pairs (term, target) that follow from the rules kept so far, and from which; nothing where it is not worth it."""
    if workers <= 1 or len(pairs) < _FEW:
        return {}
    rules = known.rules
    _shared.append((known, pairs, {rule: k for k, rule in enumerate(rules)}))
    try:
        with multiprocessing.get_context("fork").Pool(workers) as pool:
            found = pool.map(_derivable, range(len(pairs)), chunksize=_CHUNK)
    finally:
        _shared.pop()
    return {
        pair: frozenset(rules[k] for k in numbers)
        for pair, numbers in zip(pairs, found, strict=True)
        if numbers is not None
    }


def _derivable(at: int) -> tuple[int, ...] | None:
    known, pairs, numbers = _shared[-1]
    rests = known.derivable(*pairs[at])
    return None if rests is None else tuple(numbers[rule] for rule in rests)

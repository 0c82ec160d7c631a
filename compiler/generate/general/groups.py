"""Sizes that are products: where an operator takes a dimension apart (`(G, C)`), a rule may hold for any number of groups.

The shapes that are enumerated have one group. A size that stands where all operators which read the input take it apart is written
`(G, K)`; where a tensor is cut at such a size, at `G * K`. (TASO, Figure 9c: convolutions merged into grouped ones.)
"""

from __future__ import annotations

import re

from dslc.generate.general.dimensions import Typed
from dslc.generate.terms.term import Conjecture, Term, inputs, subterms
from dslc.semantics.library import Rules
from dslc.syntax import tree as t

#: an input and one of its axes
Place = tuple[Term, int]
#: the number of groups
GROUPS = "G"
_WORD = re.compile(r"[A-Za-z_]\w*")


def grouped_places(rules: Rules, candidate: Conjecture, taken: int) -> frozenset[Place]:
    """The axes of a candidate's inputs that some operator takes apart into groups and the rest; none if it has too many inputs.

    Args:
        taken: how many tensor names come before that of the groups.
    """
    roots = candidate.roots
    found: set[Place] = set()
    for term in subterms(roots):
        if term.item is None:
            continue
        places = _parted(rules, term.item.op)
        found |= {(term.args[k], axis) for k, axis in places if k < len(term.args) and term.args[k].is_input}
    return frozenset(found) if len(inputs(roots)) <= taken else frozenset()


def _parted(rules: Rules, op: str) -> set[tuple[int, int]]:
    """The parameters and axes of an operator that have the form `(G, C)`, where more than one of them has the same G."""
    found: dict[str, set[tuple[int, int]]] = {}
    for k, param in enumerate(rules.operators[op].syntax.params):
        dims = (param.type.dims if param.type is not None else None) or ()
        if any(isinstance(dim, t.Pack) for dim in dims):
            continue
        for axis, dim in enumerate(dims):
            if (
                isinstance(dim, t.TupleExpr)
                and len(dim.slots) == 2
                and all(isinstance(slot, t.Name) for slot in dim.slots)
            ):
                first = dim.slots[0]
                assert isinstance(first, t.Name)
                found.setdefault(first.id, set()).add((k, axis))
    return {place for places in found.values() if len(places) > 1 for place in places}


def grouped_cut(typed: Typed, places: frozenset[Place], groups: str, text: str) -> str:
    """The place of a cut as it is written: sizes that only stand for parts of groups are multiplied."""
    whole = {
        name
        for term, dims in typed.tensors.items()
        for axis, dim in enumerate(dims)
        if (term, axis) not in places
        for name in _WORD.findall(dim)
    }
    return (
        _WORD.sub(lambda found: found[0] if found[0] in whole else f"{groups} * {found[0]}", text) if places else text
    )

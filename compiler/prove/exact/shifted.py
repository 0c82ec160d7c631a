"""What all members of a maximum have in common: `max(x + c)` is `max(x) + c` where `c` is the same for every member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dslc.prove.exact.terms import Algebra, Atom, Sum, Term

INFINITY = Atom("inf", 0, opaque=True)
#: members of a maximum: each a sum over a domain that has so many dimensions more than that of the maximum
Members = Sequence[tuple[Sum, Any, int]]


def without_common(algebra: Algebra, members: Members) -> tuple[Members, Sum]:
    """The members without the terms that all of them have, wherever a member is, and these terms."""
    present = [(algebra.normal(terms), where, bound) for terms, where, bound in members if not where.is_empty()]
    if all(len(terms) < 2 for terms, _, _ in present):
        return members, ()
    first, where, bound = present[0]
    common: list[Term] = []
    for term in first:
        flat = _constant(algebra, term, where, bound)
        if flat is not None and all(_has(algebra, term, flat, *other) for other in present[1:]):
            common.append(Term(term.coefficient, term.atoms, flat))
    if not common:
        return members, ()
    taken = {(term.atoms, term.coefficient) for term in common}
    kept = [
        (tuple(term for term in terms if (term.atoms, term.coefficient) not in taken), where, bound)
        for terms, where, bound in present
    ]
    return kept, tuple(common)


def _constant(algebra: Algebra, term: Term, where: Any, bound: int) -> Any:
    """Where a term is read, by the position of the maximum alone; None where it depends on the member, or is not in all of them."""
    if INFINITY in term.atoms or not where.is_subset(term.map.domain()):
        return None
    frame = algebra.frame
    count = frame.dims(where)
    flat = frame.drop(term.map, count - bound, bound)
    again = frame.move(count, tuple(range(count - bound))).intersect_domain(where).apply_range(flat)
    return flat if again.is_equal(term.map) else None


def _has(algebra: Algebra, term: Term, flat: Any, terms: Sum, where: Any, bound: int) -> bool:
    for other in terms:
        if other.atoms == term.atoms and other.coefficient == term.coefficient:
            found = _constant(algebra, other, where, bound)
            return found is not None and bool(found.is_equal(flat))
    return False

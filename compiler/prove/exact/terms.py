"""Sums of products of reads: the normal form that two programs are brought to.

A term is `coefficient * product of atoms`, summed over the images of an isl map from positions to the indices of its atoms, one after
the other. An atom is a tensor, or an opaque function of a canonical argument, read at an index.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dslc.analysis.isl import Frame, coalesced
from dslc.analysis.poly import Poly
from dslc.prove.exact.coefficient import ONE, Ratio, from_poly

TERMS = 600  #: terms of one sum, beyond which the comparison is given up
STEPS = 2000  #: steps in a second, about
ROUND = 64  #: steps between two looks at the clock
PATIENCE = 4.0  #: how many times as long as planned a comparison may take


class Unsolved(Exception):
    """Something that the normal form cannot tell, with the reason."""


class Effort:
    """So many steps as take about `seconds`, after which `check` raises Unsolved: the same on every machine.

    Steps within an `outer` one are its steps too. What takes far longer than steps do ends it as well, by the time of this processor.
    """

    def __init__(self, seconds: float, outer: Effort | None = None) -> None:
        self._left = int(seconds * STEPS)
        self._outer = outer
        self._until = time.process_time() + PATIENCE * seconds
        if outer is not None:
            self._until = min(self._until, outer._until)

    def part(self, seconds: float) -> Effort:
        """Another one with a number of steps of its own, that ends when this one does by the clock."""
        found = Effort(seconds, self._outer)
        found._until = min(found._until, self._until)
        return found

    def spend(self, seconds: float) -> None:
        """Counts what took no steps, and as much as mostly takes so long, in the outer one."""
        if self._outer is not None:
            self._outer._left -= int(seconds * STEPS)

    @property
    def is_over(self) -> bool:
        """Whether all steps are taken."""
        return self._left < 0

    def check(self) -> None:
        self._left -= 1
        # the clock is asked rarely: that takes longer than most steps
        if self._left < 0 or (self._left % ROUND == 0 and time.process_time() > self._until):
            raise Unsolved("the time is up")
        if self._outer is not None:
            self._outer.check()

    def check_clock(self) -> None:
        """Before what may take far longer than a step, and is none: whether the clock has ended."""
        if time.process_time() > self._until:
            raise Unsolved("the time is up")


@dataclass(frozen=True, slots=True)
class Atom:
    """A tensor or an opaque function: equal atoms read at equal indices are equal numbers.

    `opaque`: not a free variable, so that sums which look different may still be equal; `truth`: only 0 or 1.
    """

    name: str
    arity: int
    opaque: bool = False
    truth: bool = False


@dataclass(frozen=True, slots=True)
class Term:
    coefficient: Ratio
    atoms: tuple[Atom, ...]
    map: Any


Sum = tuple[Term, ...]


class Algebra:
    """Sums over one frame of parameters. `resolve` gives the representative of an atom (opaque functions may turn out equal)."""

    def __init__(
        self, frame: Frame, monomials: Sequence[Poly], effort: Effort, resolve: Callable[[Atom], Atom]
    ) -> None:
        self.frame = frame
        self._monomials = monomials
        self.check = effort.check
        self.check_clock = effort.check_clock
        self._resolve = resolve
        self._normal: dict[tuple[int, ...], tuple[Sum, Sum]] = {}

    # ---- building --------------------------------------------------------------------------------------------------

    def number(self, coefficient: Ratio, domain: Any) -> Sum:
        return () if coefficient.is_zero else (Term(coefficient, (), self.frame.relation(domain, ())),)

    def product(self, left: Sum, right: Sum) -> Sum:
        out: list[Term] = []
        for a in left:
            for b in right:
                joined = a.map.flat_range_product(b.map) if a.atoms or b.atoms else a.map.intersect(b.map)
                if not joined.is_empty():
                    out.append(Term(a.coefficient * b.coefficient, a.atoms + b.atoms, joined))
        self.check()
        if len(out) > TERMS:
            raise Unsolved("a product of sums has too many terms")
        return tuple(out)

    def summed(self, terms: Sum, count: int, bound: int) -> Sum:
        """The sum over the last `bound` of `count` dimensions."""
        out: list[Term] = []
        for term in terms:
            self.check()
            out.append(self._summed(term, count, bound))
        return tuple(out)

    def _summed(self, term: Term, count: int, bound: int) -> Term:
        frame = self.frame
        outer = count - bound
        prefix = frame.move(count, tuple(range(outer)))
        pairs = prefix.flat_range_product(term.map)
        if pairs.is_injective():
            return Term(term.coefficient, term.atoms, frame.drop(term.map, outer, bound))
        domain = term.map.domain()
        back = pairs.intersect_domain(domain).reverse()
        free = [k for k in range(outer, count) if not back.apply_range(frame.move(count, (k,))).is_single_valued()]
        count_of = self._boxes(domain, count, free)
        if count_of is None:  # the positions themselves are kept, as reads of a tensor of ones
            ones = Atom("one", len(free), opaque=True)
            map = term.map.flat_range_product(frame.move(count, tuple(free)))
            return Term(term.coefficient, (*term.atoms, ones), frame.drop(map, outer, bound))
        order = tuple(k for k in range(count) if k not in free)
        moved = frame.move(count, order).reverse().apply_range(term.map)
        return Term(term.coefficient * count_of, term.atoms, frame.drop(moved, outer, bound - len(free)))

    def _boxes(self, domain: Any, count: int, free: list[int]) -> Ratio | None:
        """How many values the dimensions have that no read determines; None where that is no product of sizes."""
        frame = self.frame
        coefficient = ONE
        box = frame.universe(count)
        for k in free:
            line = domain.apply(frame.move(count, (k,)))
            # what is known of remainders of sizes is no part of a bound
            plain = line.gist_params(line.params())
            line = plain if plain.is_bounded() else line
            low, high = frame.single_piece(line.dim_min(0)), frame.single_piece(line.dim_max(0))
            if low is None or high is None:
                return None
            coefficient = coefficient * from_poly(self.poly(high) - self.poly(low) + 1)
            box = box.intersect(frame.extended_line(count, k, line))
        move = frame.move(count, tuple(k for k in range(count) if k not in free))
        whole = domain.apply(move).apply(move.reverse()).intersect(box)
        # where a range is empty its extent may come out negative, but then the whole domain is empty
        return coefficient if whole.is_subset(domain) else None

    def poly(self, affine: tuple[dict[int, int], int]) -> Poly:
        coefficients, constant = affine
        total = Poly(()) + constant
        for k, coefficient in coefficients.items():
            total = total + self._monomials[k] * coefficient
        return total

    # ---- normal form -----------------------------------------------------------------------------------------------

    def normal(self, terms: Sum) -> Sum:
        """The same sum, by sorted atoms, over disjoint maps: terms with equal atoms have different coefficients and no common point.

        An empty normal form is the zero function; without opaque atoms the converse holds.
        """
        key = tuple(id(t.map) for t in terms) + tuple(hash((t.coefficient, t.atoms)) for t in terms)
        found = self._normal.get(key)
        if found is not None and all(a is b or a == b for a, b in zip(found[0], terms, strict=True)):
            return found[1]
        groups: dict[tuple[Atom, ...], list[tuple[Ratio, Any]]] = {}
        for term in terms:
            for sorted_ in self._ordered(self._sorted(term)):
                groups.setdefault(sorted_.atoms, []).append((sorted_.coefficient, sorted_.map))
        out: list[Term] = []
        for atoms in sorted(groups, key=_names):
            disjoint = self._disjoint(groups[atoms])
            joined: dict[Ratio, Any] = {}
            for coefficient, map in disjoint:
                joined[coefficient] = joined[coefficient].union(map) if coefficient in joined else map
            out.extend(
                Term(coefficient, atoms, coalesced(joined[coefficient])) for coefficient in sorted(joined, key=str)
            )
        self._normal[key] = (terms, tuple(out))
        return tuple(out)

    def _sorted(self, term: Term) -> Term:
        atoms = tuple(self._resolve(atom) for atom in term.atoms)
        order = sorted(range(len(atoms)), key=lambda k: (atoms[k].name, atoms[k].arity))
        if order == list(range(len(atoms))):
            return Term(term.coefficient, atoms, term.map)
        starts = [0]
        for atom in atoms:
            starts.append(starts[-1] + atom.arity)
        dims = tuple(d for k in order for d in range(starts[k], starts[k + 1]))
        return Term(
            term.coefficient, tuple(atoms[k] for k in order), term.map.apply_range(self.frame.move(starts[-1], dims))
        )

    def _ordered(self, term: Term) -> list[Term]:
        """Reads of one tensor in lexicographic order, so that `A[i] * A[j]` is one monomial; a truth value squared is itself."""
        out = [term]
        for _ in term.atoms:  # bubble sort: as many rounds as there are equal neighbours
            changed = False
            for k, (a, b) in enumerate(pairwise(term.atoms)):
                if a == b and a.arity:
                    new: list[Term] = []
                    for part in out:
                        swapped = self._swapped(part, k)
                        changed = changed or swapped is not None
                        new.extend(swapped or [part])
                    out = new
            if not changed:
                break
        merged = [each for part in out for each in self._idempotent(part)]
        inverses = {atom.name[2:] for atom in term.atoms if atom.name.startswith("1/")}
        if inverses.isdisjoint(atom.name for atom in term.atoms):
            return merged
        return [each for part in merged for each in self._cancelled(part)]

    def _cancelled(self, term: Term) -> list[Term]:
        """`a * (1/a)` as 1, where both are read at one place; that `a` is not 0 is asked for elsewhere (see defined)."""
        frame, atoms = self.frame, term.atoms
        starts = [sum(atom.arity for atom in atoms[:k]) for k in range(len(atoms) + 1)]
        for k, below in enumerate(atoms):
            pair = next(
                (j for j, atom in enumerate(atoms) if f"1/{atom.name}" == below.name and atom.arity == below.arity),
                None,
            )
            if pair is None:
                continue
            dims = [tuple(range(starts[at], starts[at + 1])) for at in (k, pair)]
            same = frame.repeated(2 * below.arity, 0, below.arity).apply(
                frame.move(starts[-1], dims[0] + dims[1]).reverse()
            )
            equal, other = term.map.intersect_range(same), term.map.subtract_range(same)
            kept = tuple(dim for dim in range(starts[-1]) if dim not in dims[0] and dim not in dims[1])
            if equal.is_empty() or not self._determined(equal, kept):
                continue
            rest = tuple(atom for at, atom in enumerate(atoms) if at not in {k, pair})
            out = self._cancelled(Term(term.coefficient, rest, equal.apply_range(frame.move(starts[-1], kept))))
            return out if other.is_empty() else [*out, *self._cancelled(Term(term.coefficient, atoms, other))]
        return [term]

    def _determined(self, map: Any, kept: tuple[int, ...]) -> bool:
        """Whether the images of a point differ in some dimension that is kept: nothing is counted less often without the rest."""
        if map.is_single_valued():
            return True
        frame, domain = self.frame, map.domain()
        count = frame.dims(domain)
        pairs = frame.move(count, tuple(range(count))).intersect_domain(domain).flat_range_product(map).range()
        order = (*range(count), *(count + dim for dim in kept))
        return bool(frame.move(count + frame.dims(map), order).intersect_domain(pairs).is_injective())

    def _swapped(self, term: Term, k: int) -> list[Term] | None:
        start, total = sum(a.arity for a in term.atoms[:k]), sum(a.arity for a in term.atoms)
        n = term.atoms[k].arity
        descending = self.frame.descending(total, start, n)
        high = term.map.intersect_range(descending)
        if high.is_empty():
            return None
        order = (
            *range(start),
            *range(start + n, start + 2 * n),
            *range(start, start + n),
            *range(start + 2 * n, total),
        )
        low = term.map.subtract_range(descending)
        swapped = Term(term.coefficient, term.atoms, high.apply_range(self.frame.move(total, order)))
        return [swapped] if low.is_empty() else [Term(term.coefficient, term.atoms, low), swapped]

    def _idempotent(self, term: Term) -> list[Term]:
        for k, (a, b) in enumerate(pairwise(term.atoms)):
            if a == b and a.truth:
                start, total = sum(x.arity for x in term.atoms[:k]), sum(x.arity for x in term.atoms)
                same = self.frame.repeated(total, start, a.arity)
                equal, other = term.map.intersect_range(same), term.map.subtract_range(same)
                out = [] if other.is_empty() else [Term(term.coefficient, term.atoms, other)]
                if not equal.is_empty():
                    kept = (*range(start + a.arity), *range(start + 2 * a.arity, total))
                    merged = Term(
                        term.coefficient,
                        (*term.atoms[:k], *term.atoms[k + 1 :]),
                        equal.apply_range(self.frame.move(total, kept)),
                    )
                    out.extend(self._idempotent(merged))
                return out
        return [term]

    def _disjoint(self, pieces: list[tuple[Ratio, Any]]) -> list[tuple[Ratio, Any]]:
        if len(pieces) == 1:
            return [] if pieces[0][0].is_zero or pieces[0][1].is_empty() else pieces
        atoms: list[tuple[Ratio, Any]] = []
        for coefficient, rest in pieces:
            self.check()
            new: list[tuple[Ratio, Any]] = []
            for known, where in atoms:
                both = where.intersect(rest)
                if both.is_empty():
                    new.append((known, where))
                    continue
                left, rest = where.subtract(rest), rest.subtract(where)
                if not left.is_empty():
                    new.append((known, left))
                total = known + coefficient
                if not total.is_zero:
                    new.append((total, both))
            if not rest.is_empty():
                new.append((coefficient, rest))
            atoms = new
            if len(atoms) > TERMS:
                raise Unsolved("the sums overlap in too many ways")
        return atoms


def negated(terms: Iterable[Term]) -> Sum:
    return tuple(Term(-t.coefficient, t.atoms, t.map) for t in terms)


def _names(atoms: tuple[Atom, ...]) -> list[tuple[str, int]]:
    return [(atom.name, atom.arity) for atom in atoms]

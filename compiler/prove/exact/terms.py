"""Sums of products of reads: the normal form that two programs are brought to.

A term is `coefficient * product of atoms`, summed over the images of an isl map from positions to the indices of its atoms, one after
the other. An atom is a tensor, or an opaque function of a canonical argument, read at an index.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

from dslc.analysis.isl import Frame, coalesced
from dslc.analysis.poly import Poly
from dslc.prove.exact.coefficient import ONE, Ratio, from_poly, is_negative
from dslc.records import record

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
        if outer:
            self._until = min(self._until, outer._until)

    def part(self, seconds: float) -> Effort:
        """Another one with a number of steps of its own, that ends when this one does by the clock."""
        found = Effort(seconds, self._outer)
        found._until = min(found._until, self._until)
        return found

    def spend(self, seconds: float) -> None:
        """Counts what took no steps, and as much as mostly takes so long, in the outer one."""
        if self._outer:
            self._outer._left -= int(seconds * STEPS)

    @property
    def is_over(self) -> bool:
        """Return whether all steps are taken."""
        return self._left < 0

    def check(self) -> None:
        self._left -= 1
        # the clock is asked rarely: that takes longer than most steps
        if self._left < 0 or (self._left % ROUND == 0 and time.process_time() > self._until):
            raise Unsolved("the time is up")
        if self._outer:
            self._outer.check()

    def check_clock(self) -> None:
        """Before what may take far longer than a step, and is none: whether the clock has ended."""
        if time.process_time() > self._until:
            raise Unsolved("the time is up")


@record
class Atom:
    """A tensor or an opaque function: equal atoms read at equal indices are equal numbers.

    `opaque`: not a free variable, so that sums which look different may still be equal; `truth`: only 0 or 1.
    """

    name: str
    arity: int
    opaque: bool = False
    truth: bool = False


INFINITY = Atom("inf", 0, opaque=True)

#: the terms that are added up to a sum of arguments of a function: which argument, which atoms, the coefficient
Label = tuple[int, tuple[Atom, ...], Ratio]


@record
class Term:
    """A coefficient times atoms, summed over the images of a map; `argument`: the one of a function whose part it is."""

    coefficient: Ratio
    atoms: tuple[Atom, ...]
    map: Any
    argument: int = 0

    @property
    def label(self) -> Label:
        """The kind of the term: what it is but for where it is read."""
        return self.argument, self.atoms, self.coefficient

    def read(self, index: Any) -> Term:
        """The term at the images of a map."""
        return replace(self, map=index.apply_range(self.map))


Sum = tuple[Term, ...]
#: maps, each with its coefficient
_Pieces = list[tuple[Ratio, Any]]


def dims_of(atoms: Sequence[Atom]) -> list[tuple[int, ...]]:
    """The dimensions of each atom's index in the range of a term's map."""
    ends = list(accumulate((atom.arity for atom in atoms), initial=0))
    return [tuple(range(*each)) for each in pairwise(ends)]


class Algebra:
    """Sums over one frame of parameters. `resolve` gives the representative of an atom (opaque functions may turn out equal)."""

    def __init__(
        self, frame: Frame, monomials: Sequence[Poly], effort: Effort, resolve: Callable[[Atom], Atom]
    ) -> None:
        self.frame = frame
        self._monomials = monomials
        self.check = effort.check
        self.check_clock = effort.check_clock
        self.resolve = resolve
        self._normal: dict[tuple[int, ...], tuple[Sum, Sum]] = {}

    # ---- building --------------------------------------------------------------------------------------------------

    def number(self, coefficient: Ratio, domain: Any) -> Sum:
        return () if coefficient.is_zero else (Term(coefficient, (), self.frame.relation(domain, ())),)

    def constant(self, atom: Atom, domain: Any, coefficient: Ratio = ONE) -> Sum:
        """A multiple of an atom without an index."""
        return (Term(coefficient, (atom,), self.frame.relation(domain, ())),)

    def signed(self, terms: Sum) -> Sum:
        """The normal form of a sum or of its negation, whichever has a positive coefficient first."""
        normal = self.normal(terms)
        return negated(normal) if normal and is_negative(normal[0].coefficient) else normal

    def factors(self, term: Term) -> list[tuple[Atom, Any]]:
        """The atoms of a term, each with where it is read."""
        dims = dims_of(term.atoms)
        total = sum(map(len, dims))
        return [
            (self.resolve(atom), term.map.apply_range(self.frame.move(total, own)))
            for atom, own in zip(term.atoms, dims, strict=True)
        ]

    def keep(self, term: Term, chosen: Sequence[int]) -> Term:
        """A term of some of the atoms, in another order."""
        dims = dims_of(term.atoms)
        order = tuple(dim for k in chosen for dim in dims[k])
        moved = term.map.apply_range(self.frame.move(sum(map(len, dims)), order))
        return replace(term, atoms=tuple(term.atoms[k] for k in chosen), map=moved)

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
        if not count_of:  # the positions themselves are kept, as reads of a tensor of ones
            ones = Atom("one", len(free), opaque=True)
            map = term.map.flat_range_product(frame.move(count, tuple(free)))
            return Term(term.coefficient, (*term.atoms, ones), frame.drop(map, outer, bound))
        order = tuple(k for k in range(count) if k not in free)
        moved = frame.move(count, order).reverse().apply_range(term.map)
        return Term(term.coefficient * count_of, term.atoms, frame.drop(moved, outer, bound - len(free)))

    def _boxes(self, domain: Any, count: int, free: list[int]) -> Ratio | None:
        """The number of values of the dimensions that no read determines; None where that is no product of sizes."""
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
            box = box.intersect(line.apply(frame.move(count, (k,)).reverse()))
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
        groups: dict[tuple[Atom, ...], _Pieces] = {}
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
        found = Term(term.coefficient, tuple(map(self.resolve, term.atoms)), term.map)
        order = sorted(range(len(found.atoms)), key=lambda k: (found.atoms[k].name, found.atoms[k].arity))
        return found if order == list(range(len(order))) else self.keep(found, order)

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
        frame, dims = self.frame, dims_of(term.atoms)
        total = sum(map(len, dims))
        for k, below in enumerate(term.atoms):
            same = (j for j, a in enumerate(term.atoms) if f"1/{a.name}" == below.name and a.arity == below.arity)
            pair = next(same, None)
            if pair is None:
                continue
            both = frame.move(total, dims[k] + dims[pair])
            equal, other = self._apart(term, frame.repeated(2 * below.arity, 0, below.arity).apply(both.reverse()))
            rest = [j for j in range(len(dims)) if j not in {k, pair}]
            if not equal or not self._determined(equal.map, tuple(dim for j in rest for dim in dims[j])):
                continue
            out = self._cancelled(self.keep(equal, rest))
            return [*out, *self._cancelled(other)] if other else out
        return [term]

    def _apart(self, term: Term, where: Any) -> tuple[Term | None, Term | None]:
        """A term where its index lies in a set, and where it does not; None for what is nowhere."""
        parts = [replace(term, map=map) for map in (term.map.intersect_range(where), term.map.subtract_range(where))]
        inside, outside = [None if part.map.is_empty() else part for part in parts]
        return inside, outside

    def _determined(self, map: Any, kept: tuple[int, ...]) -> bool:
        """Return whether the images of a point differ in some kept dimension: none is counted less often without the rest."""
        if map.is_single_valued():
            return True
        frame, domain = self.frame, map.domain()
        count = frame.dims(domain)
        pairs = frame.move(count, tuple(range(count))).intersect_domain(domain).flat_range_product(map).range()
        order = (*range(count), *(count + dim for dim in kept))
        return bool(frame.move(count + frame.dims(map), order).intersect_domain(pairs).is_injective())

    def _swapped(self, term: Term, k: int) -> list[Term] | None:
        dims = dims_of(term.atoms)
        start, width = (dims[k] or (0,))[0], len(dims[k])
        high, low = self._apart(term, self.frame.descending(sum(map(len, dims)), start, width))
        if not high:
            return None
        order = list(range(len(dims)))
        order[k : k + 2] = k + 1, k
        swapped = self.keep(high, order)
        return [low, swapped] if low else [swapped]

    def _idempotent(self, term: Term) -> list[Term]:
        for k, (a, b) in enumerate(pairwise(term.atoms)):
            if a == b and a.truth:
                dims = dims_of(term.atoms)
                same = self.frame.repeated(sum(map(len, dims)), sum(map(len, dims[:k])), a.arity)
                equal, other = self._apart(term, same)
                out = [other] if other else []
                if equal:
                    out += self._idempotent(self.keep(equal, [j for j in range(len(dims)) if j != k + 1]))
                return out
        return [term]

    def _disjoint(self, pieces: _Pieces) -> _Pieces:
        if len(pieces) == 1:
            return [] if pieces[0][0].is_zero or pieces[0][1].is_empty() else pieces
        atoms: _Pieces = []
        for coefficient, rest in pieces:
            self.check()
            new: _Pieces = []
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
    """The sum with the opposite sign."""
    return tuple(Term(-t.coefficient, t.atoms, t.map) for t in terms)


def _names(atoms: tuple[Atom, ...]) -> list[tuple[str, int]]:
    return [(atom.name, atom.arity) for atom in atoms]

"""Opaque functions of canonical arguments: exp, a quotient, the largest of a set, ... are atoms, equal where their arguments are.

Where an argument is one polynomial, up to the index of its reads, the function is a tensor of its own, read at the smallest index
that the polynomial reads: so what moves elements about (slices, permutations, joins) disappears from inside a function. Two such
tensors are one where they agree as far as both are defined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from dslc.analysis.isl import coalesced
from dslc.analysis.poly import as_poly
from dslc.ir.scalar import Num, apply, num
from dslc.prove.exact.coefficient import (
    MINUS_ONE,
    ONE,
    ZERO,
    NotRational,
    Ratio,
    from_number,
    from_poly,
    is_negative,
    is_positive,
    positive_factor,
)
from dslc.prove.exact.element_types import best, folded, neutral
from dslc.prove.exact.terms import INFINITY, Algebra, Atom, Label, Sum, Term, Unsolved, negated

REGIONS = 48  #: regions of the arguments of one function
POWERS = 4  #: exp(n * x) is a power of exp(x) up to so large a number

#: functions with values 0 and 1
_TRUTHS = frozenset({"positive", "zero", "less", "isnan", "isinf"})
Terms = list[Term]
#: parts of a domain, each with the terms that exist there
Regions = list[tuple[Any, Terms]]
#: members of a maximum: each a sum over a domain that has so many dimensions more than that of the maximum
Members = Sequence[tuple[Sum, Any, int]]


@dataclass(slots=True)
class _Function:
    """`name` of a polynomial, whose `terms` say for every canonical index where they are read."""

    name: str
    terms: Sum
    domain: Any
    atom: Atom
    same: _Function | None = None

    @property
    def representative(self) -> _Function:
        return self.same.representative if self.same else self


class Functions:
    """The opaque functions of one comparison.

    `by_position`: an element of a function is named after the position where it is computed, and not after what it reads. That is
    quick, and tells enough where both sides compute the same functions at the same positions.
    """

    def __init__(self, by_position: bool = False) -> None:
        self._by_position = by_position
        self._known: dict[str, _Function] = {}
        self.algebra: Algebra

    def resolve(self, atom: Atom) -> Atom:
        if atom.name.startswith("1/"):
            below = self.resolve(inverse(atom))
            return atom if below.name == atom.name[2:] else inverse(below)
        found = self._known.get(atom.name)
        return atom if found is None or found.same is None else found.representative.atom

    def name(self, atom: Atom) -> str:
        """The function that an atom stands for."""
        found = self._known.get(atom.name)
        return found.name if found else atom.name

    def definition(self, atom: Atom) -> tuple[str, Sum] | None:
        """The function that an atom is, and its arguments' terms; None for a tensor."""
        found = self._known.get(atom.name)
        return (found.name, tuple(map(self._resolved, found.terms))) if found else None

    # ---- functions of several arguments -------------------------------------------------------------------------------

    def applied(self, name: str, arguments: Sequence[Sum], domain: Any) -> Sum:
        sums = [self.algebra.normal(argument) for argument in arguments]
        parts = [replace(term, argument=k) for k, terms in enumerate(sums) for term in terms]
        regions = self.regions(parts, domain)
        return tuple(t for region, here in regions for t in self._uniform(name, len(arguments), region, here))

    def _uniform(self, name: str, count: int, region: Any, parts: Terms) -> Sum:
        algebra = self.algebra
        if not any(t.atoms for t in parts):
            numbers = [sum((t.coefficient for t in parts if t.argument == at), ZERO).number for at in range(count)]
            folded = _folded(name, numbers)
            if isinstance(folded, Ratio):
                return algebra.number(folded, region)
            if folded:
                return algebra.constant(folded, region)
        if name == "inverse" and len(parts) == 1 and parts[0].map.is_single_valued():
            (part,) = parts
            return (Term(part.coefficient.inverse, tuple(map(inverse, part.atoms)), part.map),)
        if parts and name in {"inverse", "log"} and (factor := self._common(parts)) is not None:
            atom, index, rest = factor
            if name == "log":
                return self._log(atom, index, region) + self._uniform(name, count, region, rest)
            outside: Sum = (Term(ONE, (inverse(atom),), index),)
            return algebra.product(outside, self._uniform(name, count, region, rest))
        if name == "exp" and (found := self._exponential(parts, region)) is not None:
            return found
        if name == "log" and len(parts) == 1 and (found := self._logarithm(parts[0], region)) is not None:
            return found
        return (self._function(name, parts, region),)

    def _common(self, parts: Terms) -> tuple[Atom, Any, Terms] | None:
        """A positive atom that every term of a longer sum has at one index, that index, and the sum without it."""
        if len(parts) == 1 and parts[0].map.is_single_valued():
            return None
        for atom, index in self.algebra.factors(parts[0]):
            if self._positive(atom) and index.is_single_valued():
                rest = [without for part in parts if (without := self._without(part, atom, index))]
                if len(rest) == len(parts):
                    return atom, index, rest
        return None

    def _without(self, part: Term, atom: Atom, index: Any) -> Term | None:
        for k, (other, where) in enumerate(self.algebra.factors(part)):
            if other == atom and where.is_equal(index):
                return self.algebra.keep(part, [at for at in range(len(part.atoms)) if at != k])
        return None

    def _exponential(self, parts: Terms, region: Any) -> Sum | None:
        """`exp(a + b)` as `exp(a) * exp(b)`, and `exp(-a)` as `1 / exp(a)`; None where a part is a sum itself."""
        if not all(part.map.is_single_valued() for part in parts):
            return None
        total = self.algebra.number(ONE, region)
        for part in parts:
            power, unit, number = 1, part.coefficient, part.coefficient.number
            if INFINITY in part.atoms:  # its exponential has no inverse
                pass
            elif number is not None and number.denominator == 1 and abs(number) <= POWERS:
                power, unit = int(number), ONE
            elif is_negative(unit):
                power, unit = -1, -unit
            factor = self._function("exp", [replace(part, coefficient=unit)], region)
            if power < 0:
                factor = replace(factor, atoms=(inverse(factor.atoms[0]),))
            for _ in range(abs(power)):
                total = self.algebra.product(total, (factor,))
        return total

    def _logarithm(self, part: Term, region: Any) -> Sum | None:
        """`log(a * b)` as `log(a) + log(b)` where both are positive, and `log(exp(a))` as `a`; None where that is not known."""
        if part.coefficient != ONE or not part.atoms or not part.map.is_single_valued():
            return None
        if not all(map(self._positive, part.atoms)):
            return None
        return tuple(t for atom, index in self.algebra.factors(part) for t in self._log(atom, index, region))

    def _log(self, atom: Atom, index: Any, region: Any) -> Sum:
        if atom.name.startswith("1/"):
            return negated(self._log(self.resolve(inverse(atom)), index, region))
        below = self._known.get(atom.name)
        if below and below.name in {"exp", "inverse"}:
            inner = tuple(t.read(index) for t in below.terms)
            return inner if below.name == "exp" else negated(self.applied("log", [inner], region))
        return (self._function("log", [Term(ONE, (atom,), index)], region),)

    def _positive(self, atom: Atom) -> bool:
        """Return whether an atom is known to be larger than 0: an exponential, or the inverse of a sum of such."""
        if atom.name.startswith("1/"):
            return self._positive(self.resolve(inverse(atom)))
        found = self._known.get(atom.name)
        if not found or found.name != "inverse":
            return found is not None and found.name == "exp"
        # without terms it is the inverse of 0
        return bool(found.terms) and all(
            (number := t.coefficient.number) is not None
            and number > 0
            and all(self._positive(self.resolve(a)) for a in t.atoms)
            for t in found.terms
        )

    def is_total(self, atom: Atom, is_partial: Callable[[str], bool]) -> bool:
        """Return whether an atom is a tensor, or a function that has a value at every argument, or at the one it has."""
        if atom.name.startswith("1/"):
            return self._positive(self.resolve(inverse(atom)))
        found = self.definition(self.resolve(atom))
        if found is None:
            return True
        head, terms = found[0].partition(":")[0], found[1]
        if not is_partial(head):
            return True
        if head not in {"sqrt", "log", "inverse"} or not all(map(self._never_negative, terms)):
            return False
        # without terms the argument is 0
        return head == "sqrt" or (bool(terms) and all(self._positive(each) for term in terms for each in term.atoms))

    def _never_negative(self, term: Term) -> bool:
        """Return whether a term is a positive coefficient times squares, and what is never negative by itself."""
        if not is_positive(term.coefficient):
            return False
        atoms, start, total, k = term.atoms, 0, sum(atom.arity for atom in term.atoms), 0
        while k < len(atoms):
            atom, arity = atoms[k], atoms[k].arity
            square = self.algebra.frame.repeated(total, start, arity) if atoms[k + 1 : k + 2] == (atom,) else None
            twice = square is not None and term.map.range().is_subset(square)
            if not (twice or self._positive(atom) or atom.truth):
                return False
            k, start = k + 1 + twice, start + arity * (1 + twice)
        return True

    def regions(self, parts: Sequence[Term], domain: Any) -> Regions:
        """The domain cut into regions where the same kinds of terms exist, each with the terms restricted to it."""
        regions: Regions = [(domain, [])]
        for part in parts:
            self.algebra.check()
            where = part.map.domain()
            new: Regions = []
            for region, inside in regions:
                both = region.intersect(where)
                rest = region
                if not both.is_empty():
                    new.append((both, [*inside, part]))
                    rest = region.subtract(where)
                    if rest.is_empty():
                        continue
                new.append((rest, inside))
            regions = new
            if len(regions) > REGIONS:
                raise Unsolved("the argument of a function is a different sum in too many regions")
        if len(regions) == 1:
            return regions
        return [(at, [replace(t, map=t.map.intersect_domain(at)) for t in inside]) for at, inside in regions]

    # ---- one function --------------------------------------------------------------------------------------------------

    def _function(self, name: str, parts: Terms, region: Any) -> Term:
        """The atom at the index where it is read, for a polynomial that is uniform on a region."""
        parts = sorted(parts, key=_order)
        index = self._index([part.map for part in parts], region)
        back = index.reverse()
        terms = tuple(part.read(back) for part in parts)
        return Term(ONE, (self._lookup(name, terms, index.range(), self.algebra.frame.dims(index)),), index)

    def _index(self, maps: list[Any], region: Any) -> Any:
        """A map from positions to indices that determines what every map reads."""
        frame = self.algebra.frame
        index = frame.relation(region, ())
        everything = frame.move(frame.dims(region), tuple(range(frame.dims(region))))
        if self._by_position:
            return index.flat_range_product(everything)
        several = []
        for map in maps:
            self.algebra.check_clock()
            if map.is_single_valued():
                index = index.flat_range_product(map)
            else:
                several.append(map)
                index = index.flat_range_product(map.lexmin())
        if self._determine(index, several):
            return index
        for map in several:
            index = index.flat_range_product(map.lexmax())
        return index if self._determine(index, several) else index.flat_range_product(everything)

    def _determine(self, index: Any, maps: Sequence[Any]) -> bool:
        """Return whether an index determines what every map reads; each takes the longer the more indices there are."""
        for map in maps:
            self.algebra.check_clock()
            if not index.apply_range(index.reverse().apply_range(map)).is_equal(map):
                return False
        return True

    def _lookup(self, name: str, terms: Sum, domain: Any, arity: int) -> Atom:
        found: _Function | None = None
        labels = [t.label for t in terms]
        for known in list(self._known.values()):
            if known.same or known.name != name or known.atom.arity != arity:
                continue
            if [self._resolved(t).label for t in known.terms] != labels:
                continue
            common = known.domain.intersect(domain)
            if arity and common.is_empty():
                continue
            pairs = [(a.map, b.map) for a, b in zip(known.terms, terms, strict=True)]
            if not all(a.intersect_domain(common).is_equal(b.intersect_domain(common)) for a, b in pairs):
                continue
            terms = tuple(replace(t, map=coalesced(a.union(b))) for t, (a, b) in zip(terms, pairs, strict=True))
            domain = coalesced(known.domain.union(domain))
            if not found:
                found = known
            else:
                known.same = found
            found.terms, found.domain = terms, domain
        if not found:
            truth = name.partition(":")[0].partition("[")[0] in _TRUTHS
            atom = Atom(f"~{len(self._known):03d}", arity, opaque=True, truth=truth)
            found = self._known[atom.name] = _Function(name, terms, domain, atom)
        return found.atom

    def of_elements(self, name: str, atom: Atom) -> Atom:
        """The tensor of a function of each element of a tensor, read where that is."""
        frame = self.algebra.frame
        same = frame.move(atom.arity, tuple(range(atom.arity)))
        return self._lookup(name, (Term(ONE, (atom,), same),), frame.universe(atom.arity), atom.arity)

    def _resolved(self, term: Term) -> Term:
        return replace(term, atoms=tuple(map(self.resolve, term.atoms)))

    # ---- the largest of a set ------------------------------------------------------------------------------------------

    def largest(self, members: Members, domain: Any, name: str = "largest") -> Sum:
        """The largest of all members: each a sum over a domain that has so many dimensions more than `domain`.

        `name`: with the type of integers (`largest:int8`, `smallest:int8`) no more is known than that it depends on the set of the
        members alone, and on all members of what is itself one: no translation and no factor is taken out of it.
        """
        common: Sum = ()
        if name == "largest":
            members, common = self._without_common(members)
        elements: dict[Label, Term] = {}
        for terms, where, bound in members:
            for term in self._elements(terms, where, name):
                flat = self.algebra.frame.drop(term.map, self.algebra.frame.dims(where) - bound, bound)
                known = elements.get(term.label)
                elements[term.label] = replace(term, map=coalesced(known.map.union(flat)) if known else flat)
        regions = self.regions(sorted(elements.values(), key=_order), domain)
        return tuple(term for region, parts in regions for term in self._largest(region, parts, name)) + common

    def _largest(self, region: Any, parts: Terms, name: str) -> Sum:
        numbers = [number for part in parts if (number := _number(part)) is not None]
        if len(numbers) > 1 and (top := best(name, numbers)) is not None:
            parts = [part for part in parts if _number(part) in {None, top}]
        if len(parts) > 1 and numbers and ":" in name:  # the end of the type, which says nothing beside others
            end = neutral(name)
            parts = [part for part in parts if end is None or _number(part) != end] or parts[:1]
        if not parts:
            return self.algebra.constant(INFINITY, region, ONE if name.startswith("smallest") else MINUS_ONE)
        if len(parts) == 1 and parts[0].map.is_single_valued():
            (part,) = parts
            if part.coefficient.is_zero:
                return ()
            found = self._single(part)
            if found and found.name == _sum_in(name):
                return tuple(_scaled(t.read(part.map), part.coefficient) for t in found.terms)
            return (part,)
        factor, parts = (ONE, parts) if ":" in name else _homogeneous(parts)
        return (replace(self._function(name, parts, region), coefficient=factor),)

    def _single(self, term: Term) -> _Function | None:
        """The function that a term is a multiple of."""
        return self._known.get(self.resolve(term.atoms[0]).name) if len(term.atoms) == 1 else None

    def _elements(self, terms: Sum, domain: Any, name: str) -> Terms:
        """The members as monomials: a longer sum is an atom of its own; a nested largest is what it is the largest of."""
        lowest = ONE if name.startswith("smallest") else MINUS_ONE
        out: Terms = []
        for region, here in self.regions(self.algebra.normal(terms), domain):
            if not here:
                out.append(Term(ZERO, (), self.algebra.frame.relation(region, ())))
            elif (spread := self._spread(here, region, name)) is not None:
                out.extend(spread)
            elif len(here) > 1 or not here[0].map.is_single_valued():
                factor, here = (ONE, here) if ":" in name else _homogeneous(here)
                out.append(replace(self._function(_sum_in(name), here, region), coefficient=factor))
            elif here[0].atoms != (INFINITY,) or (end := (here[0].coefficient * lowest).number) is None or end <= 0:
                (part,) = here
                taken_out = part.coefficient == ONE if ":" in name else is_positive(part.coefficient)
                found = self._single(part) if taken_out else None
                if found and found.name == name:
                    inner = (self._resolved(t).read(part.map) for t in found.terms)
                    out.extend(_scaled(t, part.coefficient) for t in inner)
                else:
                    out.append(part)
        return [term for term in out if not term.map.is_empty()]

    def _spread(self, parts: Terms, region: Any, name: str) -> Terms | None:
        """The members of `c + max(y)` as those of the maximum of `c + y`; None where a member is no such sum."""
        if len(parts) < 2 or name != "largest" or not all(part.map.is_single_valued() for part in parts):
            return None
        sums = [self._single(part) if is_positive(part.coefficient) else None for part in parts]
        at, found = next(((k, one) for k, one in enumerate(sums) if one and one.name == "largest"), (0, None))
        if not found:
            return None
        part = parts[at]
        frame, count = self.algebra.frame, self.algebra.frame.dims(region)
        out: Terms = []
        for inner in found.terms:
            read = part.map.apply_range(inner.map).intersect_domain(region)
            more = frame.dims(read)
            here = frame.move(count, tuple(range(count))).intersect_domain(region).flat_range_product(read).range()
            back = frame.move(count + more, tuple(range(count))).intersect_domain(here)
            element = frame.move(count + more, tuple(range(count, count + more))).intersect_domain(here)
            rest = tuple(each.read(back) for k, each in enumerate(parts) if k != at)
            member = (*rest, Term(inner.coefficient * part.coefficient, inner.atoms, element))
            made = self._elements(member, here, name)
            out.extend(replace(term, map=frame.drop(term.map, count, more)) for term in made)
        return out

    def _without_common(self, members: Members) -> tuple[Members, Sum]:
        """The members without the terms that all of them have, and these terms: `max(x + c)` → `max(x) + c`."""
        there = [(self.algebra.normal(terms), where, bound) for terms, where, bound in members if not where.is_empty()]
        if all(len(terms) < 2 for terms, _, _ in there):
            return members, ()
        first, where, bound = there[0]
        common: Terms = []
        for term in first:
            flat = self._outer(term, where, bound)
            if flat is not None and all(self._has(term, flat, *other) for other in there[1:]):
                common.append(replace(term, map=flat))
        if not common:
            return members, ()
        taken = {term.label for term in common}
        kept = [(tuple(t for t in terms if t.label not in taken), where, bound) for terms, where, bound in there]
        return kept, tuple(common)

    def _outer(self, term: Term, where: Any, bound: int) -> Any:
        """The index of a term, by the position of the maximum alone; None where it depends on the member, or is not in all of them."""
        if INFINITY in term.atoms or not where.is_subset(term.map.domain()):
            return None
        frame = self.algebra.frame
        count = frame.dims(where)
        flat = frame.drop(term.map, count - bound, bound)
        again = frame.move(count, tuple(range(count - bound))).intersect_domain(where).apply_range(flat)
        return flat if again.is_equal(term.map) else None

    def _has(self, term: Term, flat: Any, terms: Sum, where: Any, bound: int) -> bool:
        alike = next((other for other in terms if other.label == term.label), None)
        found = self._outer(alike, where, bound) if alike else None
        return found is not None and bool(found.is_equal(flat))


def _number(term: Term) -> Fraction | None:
    return None if term.atoms else term.coefficient.number


def _sum_in(name: str) -> str:
    """The function that stands for a longer sum among the members of a largest."""
    return "".join(("sum", *name.partition(":")[1:]))


def _homogeneous(parts: Terms) -> tuple[Ratio, Terms]:
    """The positive factor that all terms have in common, and the terms without it: a sum, or the largest, is that times theirs."""
    factor = positive_factor([part.coefficient for part in parts])
    return (ONE, parts) if factor == ONE else (factor, [_scaled(part, factor.inverse) for part in parts])


def _scaled(term: Term, by: Ratio) -> Term:
    return replace(term, coefficient=term.coefficient * by)


def inverse(atom: Atom) -> Atom:
    """The atom of which each element is one over that of another one."""
    if atom.name.startswith("1/"):
        name = atom.name[2:]
        return Atom(name, atom.arity, opaque=not name.startswith("$"))
    return Atom(f"1/{atom.name}", atom.arity, opaque=True)


def _order(term: Term) -> tuple[int, list[tuple[str, int]], str]:
    return term.argument, [(atom.name, atom.arity) for atom in term.atoms], str(term.coefficient)


def _folded(name: str, numbers: list[Fraction | None]) -> Ratio | Atom | None:
    """The value of a function at numbers: exact, or a constant named after it; None where it is not known."""
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers):
        return None
    if ":" in name:
        return folded(name, known)
    if name in {"inverse", "positive", "zero"}:
        (number,) = known
        if name == "inverse":
            return (
                from_poly(as_poly(number.denominator)) * from_poly(as_poly(number.numerator)).inverse
                if number
                else None
            )
        return ONE if (number > 0 if name == "positive" else number == 0) else ZERO
    result = apply(name, *(num(number) for number in known))
    if not isinstance(result, Num):
        return None
    try:
        return from_number(result.value)
    except NotRational:
        return Atom(f"{name}({', '.join(map(str, known))})", 0, opaque=True)

"""Opaque functions of canonical arguments: exp, a quotient, the largest of a set, ... are atoms, equal where their arguments are.

Where an argument is one polynomial, up to the index of its reads, the function is a tensor of its own, read at the smallest index
that the polynomial reads: so what moves elements about (slices, permutations, joins) disappears from inside a function. Two such
tensors are one where they agree as far as both are defined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from dslc.analysis.isl import Frame, coalesced
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
    is_positive,
    positive_factor,
)
from dslc.prove.exact.element_types import best, folded, neutral
from dslc.prove.exact.shifted import INFINITY, without_common
from dslc.prove.exact.terms import Algebra, Atom, Sum, Term, Unsolved, negated

Label = tuple[int, tuple[Atom, ...], Ratio]


REGIONS = 48  #: regions of the arguments of one function
POWERS = 4  #: exp(n * x) is a power of exp(x) up to so large a number

#: functions with values 0 and 1
_TRUTHS = frozenset({"positive", "zero", "less", "isnan", "isinf"})


@dataclass(slots=True)
class _Function:
    """`name` of a polynomial: `bodies` give, for every canonical index, where each kind of term is read."""

    name: str
    labels: tuple[Label, ...]
    arity: int
    bodies: list[Any]
    domain: Any
    atom: Atom
    same: _Function | None = field(default=None)

    @property
    def representative(self) -> _Function:
        at = self
        while at.same is not None:
            at = at.same
        return at


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
        """What an atom stands for, in words."""
        found = self._known.get(atom.name)
        return atom.name if found is None else found.name

    def definition(self, atom: Atom) -> tuple[str, tuple[Label, ...], list[Any]] | None:
        """The function that an atom is, its arguments' terms, and where they are read; None for a tensor."""
        found = self._known.get(atom.name)
        return (
            None
            if found is None
            else (found.name, tuple(self._resolved(label) for label in found.labels), found.bodies)
        )

    # ---- functions of several arguments -------------------------------------------------------------------------------

    def applied(self, name: str, arguments: Sequence[Sum], domain: Any) -> Sum:
        parts = [
            ((k, t.atoms, t.coefficient), t.map)
            for k, argument in enumerate(arguments)
            for t in self.algebra.normal(argument)
        ]
        out: list[Term] = []
        for region, here in self.regions(parts, domain):
            out.extend(self._uniform(name, len(arguments), region, here))
        return tuple(out)

    def _uniform(self, name: str, count: int, region: Any, parts: list[tuple[Label, Any]]) -> Sum:
        algebra = self.algebra
        if all(not atoms for (_, atoms, _), _ in parts):
            numbers = [sum((c for (k, _, c), _ in parts if k == at), ZERO).number for at in range(count)]
            folded = _folded(name, numbers)
            if isinstance(folded, Ratio):
                return algebra.number(folded, region)
            if folded is not None:
                return (Term(ONE, (folded,), algebra.frame.relation(region, ())),)
        if name == "inverse" and len(parts) == 1:
            (_, atoms, coefficient), map = parts[0]
            if map.is_single_valued():
                return (Term(coefficient.inverse, tuple(inverse(atom) for atom in atoms), map),)
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
        atom, index = self._function(name, parts, region)
        return (Term(ONE, (atom,), index),)

    def _common(self, parts: list[tuple[Label, Any]]) -> tuple[Atom, Any, list[tuple[Label, Any]]] | None:
        """A positive atom that every term of a longer sum has at one index, that index, and the sum without it."""
        if len(parts) == 1 and parts[0][1].is_single_valued():
            return None
        (_, atoms, _), first = parts[0]
        for k, atom in enumerate(atoms):
            if not self._positive(self.resolve(atom)):
                continue
            index = _component(self.algebra.frame, atoms, first, k)
            if not index.is_single_valued():
                continue
            rest = [self._without(part, atom, index) for part in parts]
            if all(part is not None for part in rest):
                return self.resolve(atom), index, [part for part in rest if part is not None]
        return None

    def _without(self, part: tuple[Label, Any], atom: Atom, index: Any) -> tuple[Label, Any] | None:
        (argument, atoms, coefficient), map = part
        frame = self.algebra.frame
        for k, other in enumerate(atoms):
            if other == atom and _component(frame, atoms, map, k).is_equal(index):
                start, total = sum(a.arity for a in atoms[:k]), sum(a.arity for a in atoms)
                kept = (*range(start), *range(start + atom.arity, total))
                return (argument, (*atoms[:k], *atoms[k + 1 :]), coefficient), map.apply_range(frame.move(total, kept))
        return None

    def _exponential(self, parts: list[tuple[Label, Any]], region: Any) -> Sum | None:
        """`exp(a + b)` as `exp(a) * exp(b)`, and `exp(-a)` as `1 / exp(a)`; None where a part is a sum itself."""
        if not all(map.is_single_valued() for _, map in parts):
            return None
        total = self.algebra.number(ONE, region)
        for (_, atoms, coefficient), map in parts:
            number = coefficient.number
            power, unit = 1, coefficient
            if number is not None and number.denominator == 1 and abs(number) <= POWERS:
                power, unit = int(number), ONE
            elif str(coefficient).lstrip("(").startswith("-"):
                power, unit = -1, -coefficient
            if INFINITY in atoms:  # its exponential has no inverse
                power, unit = 1, coefficient
            atom, index = self._function("exp", [((0, atoms, unit), map)], region)
            factor: Sum = (Term(ONE, (atom if power > 0 else inverse(atom),), index),)
            for _ in range(abs(power)):
                total = self.algebra.product(total, factor)
        return total

    def _logarithm(self, part: tuple[Label, Any], region: Any) -> Sum | None:
        """`log(a * b)` as `log(a) + log(b)` where both are positive, and `log(exp(a))` as `a`; None where that is not known."""
        (_, atoms, coefficient), map = part
        if coefficient != ONE or not atoms or not map.is_single_valued() or not all(self._positive(a) for a in atoms):
            return None
        out: list[Term] = []
        frame, start, total = self.algebra.frame, 0, sum(atom.arity for atom in atoms)
        for atom in atoms:
            index = map.apply_range(frame.move(total, tuple(range(start, start + atom.arity))))
            start += atom.arity
            out.extend(self._log(self.resolve(atom), index, region))
        return tuple(out)

    def _log(self, atom: Atom, index: Any, region: Any) -> Sum:
        below = self._known.get(atom.name)
        if atom.name.startswith("1/"):
            return negated(self._log(self.resolve(inverse(atom)), index, region))
        if below is not None and below.name in {"exp", "inverse"}:
            bodies = zip(below.labels, below.bodies, strict=True)
            inner = tuple(Term(c, atoms, index.apply_range(body)) for (_, atoms, c), body in bodies)
            return inner if below.name == "exp" else negated(self.applied("log", [inner], region))
        symbol, at = self._function("log", [((0, (atom,), ONE), index)], region)
        return (Term(ONE, (symbol,), at),)

    def _positive(self, atom: Atom) -> bool:
        """Whether an atom is known to be larger than 0: an exponential, or the inverse of a sum of such."""
        if atom.name.startswith("1/"):
            return self._positive(self.resolve(inverse(atom)))
        found = self._known.get(atom.name)
        if found is None or found.name not in {"exp", "inverse"}:
            return False
        # without terms it is the inverse of 0
        return found.name == "exp" or (
            bool(found.labels)
            and all(
                (number := c.number) is not None and number > 0 and all(self._positive(self.resolve(a)) for a in atoms)
                for _, atoms, c in found.labels
            )
        )

    def is_total(self, atom: Atom, is_partial: Callable[[str], bool]) -> bool:
        """Whether an atom is a tensor, or a function that has a value at every argument, or at the one it has."""
        if atom.name.startswith("1/"):
            return self._positive(self.resolve(inverse(atom)))
        found = self.definition(self.resolve(atom))
        if found is None:
            return True
        name, labels, bodies = found
        head = name.partition(":")[0]
        if not is_partial(head):
            return True
        if head not in {"sqrt", "log", "inverse"} or not all(map(self._never_negative, labels, bodies)):
            return False
        # without terms the argument is 0
        return head == "sqrt" or (
            bool(labels) and all(self._positive(self.resolve(each)) for label in labels for each in label[1])
        )

    def _never_negative(self, label: Label, body: Any) -> bool:
        """Whether a term is a positive coefficient times squares, and what is never negative by itself."""
        _, atoms, coefficient = label
        if not is_positive(coefficient):
            return False
        frame, start, total, k = self.algebra.frame, 0, sum(atom.arity for atom in atoms), 0
        while k < len(atoms):
            atom, arity = atoms[k], atoms[k].arity
            twice = atoms[k + 1 : k + 2] == (atom,) and body.range().is_subset(frame.repeated(total, start, arity))
            if not (twice or self._positive(self.resolve(atom)) or atom.truth):
                return False
            k, start = k + 1 + twice, start + arity * (1 + twice)
        return True

    def regions(self, parts: list[tuple[Label, Any]], domain: Any) -> list[tuple[Any, list[tuple[Label, Any]]]]:
        """The domain cut into regions where the same kinds of terms exist, each with the maps restricted to it."""
        regions: list[tuple[Any, tuple[int, ...]]] = [(domain, ())]
        for k, (_, map) in enumerate(parts):
            self.algebra.check()
            where = map.domain()
            new: list[tuple[Any, tuple[int, ...]]] = []
            for region, inside in regions:
                both = region.intersect(where)
                if both.is_empty():
                    new.append((region, inside))
                    continue
                new.append((both, (*inside, k)))
                rest = region.subtract(where)
                if not rest.is_empty():
                    new.append((rest, inside))
            regions = new
            if len(regions) > REGIONS:
                raise Unsolved("the argument of a function is a different sum in too many regions")
        return [
            (
                region,
                [
                    (parts[k][0], parts[k][1].intersect_domain(region) if len(regions) > 1 else parts[k][1])
                    for k in inside
                ],
            )
            for region, inside in regions
        ]

    # ---- one function --------------------------------------------------------------------------------------------------

    def _function(self, name: str, parts: list[tuple[Label, Any]], region: Any) -> tuple[Atom, Any]:
        """The atom and the map to its index, for a polynomial that is uniform on a region."""
        parts = sorted(parts, key=lambda part: _label_order(part[0]))
        labels = tuple(label for label, _ in parts)
        maps = [map for _, map in parts]
        index = self._index(maps, region)
        back = index.reverse()
        bodies = [back.apply_range(map) for map in maps]
        return self._lookup(name, labels, bodies, index.range(), self.algebra.frame.dims(index)), index

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
        if self._determine(index, several):
            return index
        return index.flat_range_product(everything)

    def _determine(self, index: Any, maps: Sequence[Any]) -> bool:
        """Whether an index determines what every map reads; each takes the longer the more indices there are."""
        for map in maps:
            self.algebra.check_clock()
            if not _determines(index, map):
                return False
        return True

    def _lookup(self, name: str, labels: tuple[Label, ...], bodies: list[Any], domain: Any, arity: int) -> Atom:
        found: _Function | None = None
        for known in list(self._known.values()):
            if known.same is not None or known.name != name or known.arity != arity or len(known.labels) != len(labels):
                continue
            if tuple(self._resolved(label) for label in known.labels) != labels:
                continue
            common = known.domain.intersect(domain)
            if arity and common.is_empty():
                continue
            if not all(
                a.intersect_domain(common).is_equal(b.intersect_domain(common))
                for a, b in zip(known.bodies, bodies, strict=True)
            ):
                continue
            bodies = [coalesced(a.union(b)) for a, b in zip(known.bodies, bodies, strict=True)]
            domain = coalesced(known.domain.union(domain))
            if found is None:
                found = known
            else:
                known.same = found
            found.bodies, found.domain = bodies, domain
        if found is None:
            atom = Atom(
                f"~{len(self._known):03d}",
                arity,
                opaque=True,
                truth=name.partition(":")[0].partition("[")[0] in _TRUTHS,
            )
            found = self._known[atom.name] = _Function(name, labels, arity, bodies, domain, atom)
        return found.atom

    def of_elements(self, name: str, atom: Atom) -> Atom:
        """The tensor of a function of each element of a tensor, read where that is."""
        frame = self.algebra.frame
        same = frame.move(atom.arity, tuple(range(atom.arity)))
        return self._lookup(name, ((0, (atom,), ONE),), [same], frame.universe(atom.arity), atom.arity)

    def _resolved(self, label: Label) -> Label:
        return label[0], tuple(self.resolve(atom) for atom in label[1]), label[2]

    # ---- the largest of a set ------------------------------------------------------------------------------------------

    def largest(self, members: Sequence[tuple[Sum, Any, int]], domain: Any, name: str = "largest") -> Sum:
        """The largest of all members: each a sum over a domain that has so many dimensions more than `domain`.

        `name`: with the type of integers (`largest:int8`, `smallest:int8`) no more is known than that it depends on the set of the
        members alone, and on all members of what is itself one: no translation and no factor is taken out of it.
        """
        common: Sum = ()
        if name == "largest":
            members, common = without_common(self.algebra, members)
        elements: dict[Label, Any] = {}
        for terms, where, bound in members:
            for label, map in self._elements(terms, where, name):
                outer = self.algebra.frame.dims(where) - bound
                flat = self.algebra.frame.drop(map, outer, bound)
                elements[label] = coalesced(elements[label].union(flat)) if label in elements else flat
        out: list[Term] = []
        for region, parts in self.regions(sorted(elements.items(), key=lambda part: _label_order(part[0])), domain):
            out.extend(self._largest(region, parts, name))
        return tuple(out) + common

    def _largest(self, region: Any, parts: list[tuple[Label, Any]], name: str) -> Sum:
        numbers = {label: label[2].number for label, _ in parts if not label[1] and label[2].number is not None}
        if (
            len(numbers) > 1
            and (top := best(name, [value for value in numbers.values() if value is not None])) is not None
        ):
            parts = [part for part in parts if part[0] not in numbers or numbers[part[0]] == top]
        if len(parts) > 1 and numbers and ":" in name:  # the end of the type, which says nothing beside others
            end = neutral(name)
            parts = [part for part in parts if part[0] not in numbers or numbers[part[0]] != end] or parts[:1]
        if not parts:
            sign = ONE if name.startswith("smallest") else MINUS_ONE
            return (Term(sign, (INFINITY,), self.algebra.frame.relation(region, ())),)
        if len(parts) == 1 and parts[0][1].is_single_valued():
            (_, atoms, coefficient), map = parts[0]
            if coefficient.is_zero:
                return ()
            found = self._known.get(self.resolve(atoms[0]).name) if len(atoms) == 1 else None
            if found is not None and found.name == _sum_in(name):
                return tuple(
                    Term(coefficient * c, inner, map.apply_range(body))
                    for (_, inner, c), body in zip(found.labels, found.bodies, strict=True)
                )
            return (Term(coefficient, atoms, map),)
        factor, parts = (ONE, parts) if ":" in name else _homogeneous(parts)
        atom, index = self._function(name, parts, region)
        return (Term(factor, (atom,), index),)

    def _elements(self, terms: Sum, domain: Any, name: str) -> list[tuple[Label, Any]]:
        """The members as monomials: a longer sum is an atom of its own; a nested largest is what it is the largest of."""
        parts = [((0, t.atoms, t.coefficient), t.map) for t in self.algebra.normal(terms)]
        neutral = ONE if name.startswith("smallest") else MINUS_ONE
        out: list[tuple[Label, Any]] = []
        for region, here in self.regions(parts, domain):
            if not here:
                out.append(((0, (), ZERO), self.algebra.frame.relation(region, ())))
                continue
            if (spread := self._spread(here, region, name)) is not None:
                out.extend(spread)
                continue
            if len(here) > 1 or not here[0][1].is_single_valued():
                factor, here = (ONE, here) if ":" in name else _homogeneous(here)
                atom, index = self._function(_sum_in(name), here, region)
                out.append(((0, (atom,), factor), index))
                continue
            (_, atoms, coefficient), map = here[0]
            if atoms == (INFINITY,) and (value := (coefficient * neutral).number) is not None and value > 0:
                continue
            taken_out = coefficient == ONE if ":" in name else is_positive(coefficient)
            found = self._known.get(atoms[0].name) if len(atoms) == 1 and taken_out else None
            if found is not None and found.name == name:
                bodies = zip(found.labels, found.bodies, strict=True)
                out.extend(
                    (_scaled(self._resolved(label), coefficient), map.apply_range(body)) for label, body in bodies
                )
            else:
                out.append(((0, atoms, coefficient), map))
        return [(label, map) for label, map in out if not map.is_empty()]

    def _spread(self, parts: list[tuple[Label, Any]], region: Any, name: str) -> list[tuple[Label, Any]] | None:
        """The members of `c + max(y)` as those of the maximum of `c + y`; None where a member is no such sum."""
        if len(parts) < 2 or name != "largest" or not all(map.is_single_valued() for _, map in parts):
            return None
        at = next((k for k, (label, _) in enumerate(parts) if self._is_largest(label)), None)
        if at is None:
            return None
        (_, atoms, coefficient), map = parts[at]
        found, frame, count = (
            self._known[self.resolve(atoms[0]).name],
            self.algebra.frame,
            self.algebra.frame.dims(region),
        )
        out: list[tuple[Label, Any]] = []
        for (_, inner, c), body in zip(found.labels, found.bodies, strict=True):
            read = map.apply_range(body).intersect_domain(region)
            more = frame.dims(read)
            here = frame.move(count, tuple(range(count))).intersect_domain(region).flat_range_product(read).range()
            back = frame.move(count + more, tuple(range(count))).intersect_domain(here)
            element = frame.move(count + more, tuple(range(count, count + more))).intersect_domain(here)
            rest = tuple(
                Term(label[2], label[1], back.apply_range(where)) for k, (label, where) in enumerate(parts) if k != at
            )
            sums = (*rest, Term(c * coefficient, inner, element))
            out.extend((label, frame.drop(where, count, more)) for label, where in self._elements(sums, here, name))
        return out

    def _is_largest(self, label: Label) -> bool:
        found = (
            self._known.get(self.resolve(label[1][0]).name) if len(label[1]) == 1 and is_positive(label[2]) else None
        )
        return found is not None and found.name == "largest"


def _sum_in(name: str) -> str:
    """The function that stands for a longer sum among the members of a largest."""
    return "sum" + name[name.index(":") :] if ":" in name else "sum"


def _homogeneous(parts: list[tuple[Label, Any]]) -> tuple[Ratio, list[tuple[Label, Any]]]:
    """The positive factor that all terms have in common, and the terms without it: a sum, or the largest, is that times theirs."""
    factor = positive_factor([coefficient for (_, _, coefficient), _ in parts])
    if factor == ONE:
        return ONE, parts
    return factor, [(_scaled(label, factor.inverse), map) for label, map in parts]


def _scaled(label: Label, by: Ratio) -> Label:
    argument, atoms, coefficient = label
    return argument, atoms, coefficient * by


def _component(frame: Frame, atoms: Sequence[Atom], map: Any, k: int) -> Any:
    """Where the k-th of several atoms is read."""
    start, total = sum(atom.arity for atom in atoms[:k]), sum(atom.arity for atom in atoms)
    return map.apply_range(frame.move(total, tuple(range(start, start + atoms[k].arity))))


def inverse(atom: Atom) -> Atom:
    if atom.name.startswith("1/"):
        name = atom.name[2:]
        return Atom(name, atom.arity, opaque=not name.startswith("$"))
    return Atom(f"1/{atom.name}", atom.arity, opaque=True)


def _determines(index: Any, map: Any) -> bool:
    return bool(index.apply_range(index.reverse().apply_range(map)).is_equal(map))


def _label_order(label: Label) -> tuple[int, list[tuple[str, int]], str]:
    return label[0], [(atom.name, atom.arity) for atom in label[1]], str(label[2])


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

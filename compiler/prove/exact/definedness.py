"""The domain of a program: what it divides by is not 0, and what it takes roots and logarithms of is not negative.

Two programs are equal where both are defined as far as normal forms say; they are the same rewrite only if they are defined for the
same inputs. So for every position the elements are collected on which some partial function depends, as maps from positions to the
indices of the same atoms that the normal form has. Programs with equal maps are undefined together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import chain
from typing import Any

from dslc.analysis.isl import coalesced
from dslc.analysis.poly import Poly, atom, scalar_of
from dslc.ir.dtype import DType
from dslc.ir.fold import least
from dslc.ir.scalar import Num, Read, Reduce, Scalar, Sym, Table, apply, raw_apply, walk
from dslc.prove.exact.affine import NotAffine
from dslc.prove.exact.coefficient import NotRational, from_poly, from_sizes, is_positive
from dslc.prove.exact.evaluate import Evaluator, Place, about_sizes
from dslc.prove.exact.functions import Functions
from dslc.prove.exact.terms import Atom, Sum

#: functions that have a value everywhere; that of data out of a tensor's bounds is no matter of this module
_TOTAL = frozenset(
    "+ * max min abs select == != < <= > >= and or not exp erf sin cos tanh sinh cosh atan asinh floor ceil round trunc sign "
    "isnan isinf positive zero less same largest smallest sum one position when".split()
)
#: elements that are needed, each with where
Found = Iterator[tuple[tuple[Atom, ...], Any]]
#: where each element is needed, by the atoms that it is an element of: the partial one, and what is asked before it
Needs = dict[tuple[Atom, ...], Any]


@cache
def _is_partial(node: Scalar) -> bool:
    """Return whether some partial function occurs."""
    return any(_name_is_partial(part.op) and not _is_known(part) for part in walk(node))


def _name_is_partial(name: str) -> bool:
    return name not in _TOTAL and not name.startswith(("convert:", "read "))


def _is_known(node: Scalar) -> bool:
    """A quotient by a number that is not 0, a power with a small exponent, a function of numbers."""
    if all(isinstance(arg, Num) for arg in node.args):
        return True
    below = node.args[-1]
    if node.op in {"/", "//", "%"} or node.op.startswith("quotient:"):
        return isinstance(below, Num) and below.value != 0
    return node.op == "^" and isinstance(below, Num) and below.value >= 0 and below.value == int(below.value)


class DefinedElements:
    """The elements that one comparison's expressions need."""

    def __init__(self, evaluator: Evaluator, functions: Functions) -> None:
        self._evaluator = evaluator
        self._functions = functions
        self._memo: dict[tuple[Scalar, Place], Needs] = {}

    def alike(self, left: Scalar, right: Scalar, place: Place) -> bool:
        """Return whether both expressions are defined at the same positions, for the same inputs."""
        if not _is_partial(left) and not _is_partial(right):
            return True
        one, other = self._resolved(self._needs(left, place)), self._resolved(self._needs(right, place))
        if one.keys() != other.keys():
            return False
        return all(map.is_equal(other[key]) for key, map in one.items())

    def _resolved(self, needs: Needs) -> Needs:
        out: Needs = {}
        for key, map in needs.items():
            if not map.is_empty():
                _join(out, tuple(self._functions.resolve(each) for each in key), map)
        return {key: map for key, map in out.items() if not self._implied(key, map, out)}

    def _implied(self, key: tuple[Atom, ...], map: Any, needs: Needs) -> bool:
        """Return whether what is needed under a condition is needed anyway."""
        move, arities = self._functions.algebra.frame.move, [each.arity for each in key]
        return any(
            (wider := needs.get(key[:count])) is not None
            and map.apply_range(move(sum(arities), tuple(range(sum(arities[:count]))))).is_subset(wider)
            for count in range(1, len(key))
        )

    def _needs(self, node: Scalar, place: Place) -> Needs:
        if not _is_partial(node) or place.domain.is_empty():
            return {}
        key = (node, place)
        found = self._memo.get(key)
        if found is None:
            found = {}
            for atoms, map in self._fresh(node, place):
                _join(found, atoms, map)
            self._memo[key] = found
        return found

    def _fresh(self, node: Scalar, place: Place) -> Found:
        if about_sizes(node):
            yield from self._of_sizes(node, place)
        elif isinstance(node, Read | Table):
            for index in node.index:
                yield from self._needs(index, place).items()
        elif isinstance(node, Reduce):
            yield from self._of_range(node, place)
        elif node.op == "select":
            yield from self._needs(node.args[0], place).items()
            yield from self._where(node.args[0], True, node.args[1], place)
            yield from self._where(node.args[0], False, node.args[2], place)
        else:
            for arg in node.args:
                yield from self._needs(arg, place).items()
            if _name_is_partial(node.op) and not _is_known(node):
                yield from self._own(node, place)

    def _where(self, condition: Scalar, holds: bool, node: Scalar, place: Place) -> Found:
        """The elements that are needed where a condition holds, or does not: with the condition's value, if that depends on data."""
        if not _is_partial(node):
            return
        if not condition.reads:
            with suppress(NotAffine):
                yield from self._needs(node, self._evaluator.where(place, condition, holds)).items()
                return
        asked = self._evaluator.truth(condition if holds else apply("not", condition), place)
        for term in self._functions.applied("when", [asked], place.domain):
            for atoms, map in self._needs(node, place).items():
                yield (*atoms, *term.atoms), map.flat_range_product(term.map)

    def _of_range(self, node: Reduce, place: Place) -> Found:
        inner = self._evaluator.ranged(place, node.iters)
        if not node.where:
            found: Found = iter(self._needs(node.body, inner).items())
        else:
            found = chain(self._needs(node.where, inner).items(), self._where(node.where, True, node.body, inner))
        for atoms, map in found:
            yield atoms, self._functions.algebra.frame.drop(map, len(place.variables), len(node.iters))

    def _own(self, node: Scalar, place: Place) -> Found:
        """The elements of the function itself."""
        if node.op == "/" or (node.op == "^" and isinstance(node.args[1], Num) and not self._is_whole(node)):
            power = node.args[1].value if isinstance(node.args[1], Num) else -1
            if node.op == "/" or (power < 0 and power == int(power)):
                yield from self._of_divisor(node.args[1] if node.op == "/" else node.args[0], node, place)
                return
            if power == -0.5:  # the inverse of a root
                yield from self._of_terms(self._evaluator.value(raw_apply("sqrt", node.args[0]), place))
        yield from self._of_terms(self._evaluator.value(node, place))

    def _is_whole(self, node: Scalar) -> bool:
        dtype = self._evaluator.dtype(node)
        return dtype is not None and dtype is not DType.BOOL and dtype.is_integer

    def _of_divisor(self, below: Scalar, node: Scalar, place: Place) -> Found:
        if about_sizes(below):
            yield from self._not_zero(below, place)
        elif self._is_whole(node):
            yield from self._of_terms(self._evaluator.value(node, place))
        else:
            yield from self._of_terms(self._evaluator.inverse(below, self._evaluator.dtype(node), place))

    def _of_terms(self, terms: Sum) -> Found:
        for term in terms:
            for each, index in self._functions.algebra.factors(term):
                if not self._functions.is_total(each, _name_is_partial):
                    yield (each,), index
            if not is_positive(from_poly(term.coefficient.bottom)):
                yield from self._of_poly(term.coefficient.bottom, term.map.domain())

    # ---- numbers that a program is written with ------------------------------------------------------------------------

    def _of_sizes(self, node: Scalar, place: Place) -> Found:
        for part in walk(node):
            if not _name_is_partial(part.op) or _is_known(part):
                continue
            power = part.args[1] if part.op == "^" else None
            if part.op in {"/", "//", "%"}:
                yield from self._not_zero(part.args[1], place)
            elif isinstance(power, Num) and power.value == int(power.value):
                yield from self._not_zero(part.args[0], place)
            else:
                yield (Atom(str(part), 0, opaque=True),), self._functions.algebra.frame.relation(place.domain, ())

    def _not_zero(self, below: Scalar, place: Place) -> Found:
        try:
            ratio = from_sizes(below)
        except NotRational:
            return
        if not is_positive(ratio):
            yield from self._of_poly(ratio.top, place.domain)

    def _of_poly(self, poly: Poly, domain: Any) -> Found:
        """A polynomial of numbers that must not be 0: each factor, of a product."""
        if poly.is_constant and poly.constant:
            return
        frame = self._functions.algebra.frame
        if len(poly.terms) == 1:
            parts = [atom(factor) for factor in dict.fromkeys(poly.terms[0][0])]
        else:
            parts = [poly if poly.terms and poly.terms[0][1] > 0 else poly * -1]
        for part in parts:
            if any((least(scalar_of(part * sign)) or 0) > 0 for sign in (1, -1)):
                continue
            where = domain
            if _zeros_are_integers(part):
                with suppress(NotAffine):
                    where = domain.intersect(self._evaluator.zeros(part, frame.dims(domain)))
            if not where.is_empty():
                yield (Atom(f"not 0: {part}", 0, opaque=True),), frame.relation(domain, ())


def _zeros_are_integers(poly: Poly) -> bool:
    """Return whether a polynomial is 0 at integers if it is at all: unknowns that may be no integers have coefficient 1 or -1."""
    free = {each for each in poly.atoms if not (isinstance(each, Sym) and each.least is not None)}
    return all(len(monomial) == 1 and abs(c) == 1 for monomial, c in poly.terms if free.intersection(monomial))


def _join(needs: Needs, key: tuple[Atom, ...], map: Any) -> None:
    needs[key] = coalesced(needs[key].union(map)) if key in needs else map

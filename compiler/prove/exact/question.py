"""A question about pairs of expressions, asked over isl: their normal forms, and the sizes and positions that they are about.

Products of sizes are unknowns of their own; which ones are needed shows while the answer is looked for, and then it is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from dslc.analysis.isl import Frame, coalesced
from dslc.analysis.poly import Monomial, monomial_of
from dslc.ir.scalar import Apply, Iter, Read, Scalar, Sym, apply, num, walk
from dslc.prove.exact.affine import Affine, MissingUnknown, NotAffine, largest_first, strides
from dslc.prove.exact.definedness import DefinedElements
from dslc.prove.exact.evaluate import Evaluator, Place
from dslc.prove.exact.functions import Functions
from dslc.prove.exact.problem import ComparisonProblem, symbols
from dslc.prove.exact.terms import Algebra, Effort, Sum, Unsolved, negated

PARAMETERS = 24  #: products of sizes that are parameters of their own, at most

_Answer = TypeVar("_Answer")


class Question:
    """A question about `roots`: two expressions for each output, over iterators with the given ranges (others are any integer).

    `by_position`: how functions are told apart (see Functions).
    """

    def __init__(
        self,
        problem: ComparisonProblem,
        roots: Sequence[Scalar],
        extents: Mapping[Iter, Scalar],
        conditions: Sequence[Scalar],
        effort: Effort,
        by_position: bool = False,
    ) -> None:
        self.problem = problem
        self.pairs = list(zip(roots[::2], roots[1::2], strict=True))
        #: the strides that make up the index of each axis of a tensor
        self.layouts = _layouts(roots)
        #: the products of sizes that isl's parameters stand for
        self.monomials: list[Monomial] = [(s,) for s in symbols((*roots, *extents.values(), *conditions))]
        self._ranges = extents
        self._conditions = conditions
        self._effort = effort
        self._by_position = by_position

    def asked(self, answer: Callable[[], _Answer]) -> _Answer:
        """The answer, with all unknowns that it turns out to need."""
        while True:
            try:
                self._prepare()
                return answer()
            except MissingUnknown as missing:
                for monomial in missing.monomials:
                    if len(self.monomials) >= PARAMETERS + len(self.problem.parts):
                        raise Unsolved("too many products of sizes") from None
                    self.monomials.append(monomial)

    def _prepare(self) -> None:
        self.frame = Frame([" * ".join(map(str, monomial)) for monomial in self.monomials])
        self.affine = Affine(self.frame, self.monomials)
        self.functions = Functions(self._by_position)
        polys = [monomial_of(monomial) for monomial in self.monomials]
        self._algebra = Algebra(self.frame, polys, self._effort, self.functions.resolve)
        self.functions.algebra = self._algebra
        self._evaluator = Evaluator(self.affine, self.functions, self.problem.inputs, self.layouts, self._ranges)
        self._defined = DefinedElements(self._evaluator, self.functions)
        # the sizes that satisfy the conditions, as far as they are affine (a set without dimensions)
        total = self.frame.universe(0)
        missing: dict[Monomial, None] = {}
        for condition in (*self._conditions, *self._bounds()):
            try:
                total = total.intersect(self.affine.condition(condition, ()))
            except NotAffine:
                continue
            except MissingUnknown as found:
                missing.update(dict.fromkeys(found.monomials))
        if missing:
            raise MissingUnknown(*missing)
        self._sizes = coalesced(total)

    def _bounds(self) -> Iterator[Scalar]:
        for monomial in self.monomials:
            if len(monomial) == 1 and isinstance(monomial[0], Sym):
                if monomial[0].least is not None:
                    yield comparison(">=", monomial[0], num(monomial[0].least))
            elif all(isinstance(factor, Sym) and (factor.least or 0) >= 1 for factor in monomial):
                for factor in dict.fromkeys(monomial):
                    yield comparison(">=", apply("*", *monomial), factor)

    # ---- while it is asked -----------------------------------------------------------------------------------------

    def place(self, variables: tuple[Iter, ...]) -> Place:
        """The positions of some iterators, at all sizes that are possible."""
        return self._evaluator.place(variables, self._sizes)

    def variables(self, number: int) -> tuple[Iter, ...]:
        """The iterators of one output that have a range."""
        return tuple(it for it in self.problem.variables(number) if it in self._ranges)

    def terms(self, number: int, reflexive: bool = False) -> tuple[Place, Sum]:
        """The normal form of the difference of one output. `reflexive`: that each side equals itself is shown first."""
        place = self.place(self.variables(number))
        one, other = self.pairs[number]
        if one is other:
            return place, ()
        left, right = self._evaluator.value(one, place), self._evaluator.value(other, place)
        for side in (left, right) if reflexive else ():
            if self._algebra.normal(side + negated(side)):
                raise Unsolved("a side differs from itself: a mistake in the prover")
        return place, self._algebra.normal(left + negated(right))

    def defined_alike(self, number: int) -> bool:
        """Return whether both sides of an output have a value at the same positions, for the same inputs (see defined)."""
        one, other = self.pairs[number]
        return one is other or self._defined.alike(one, other, self.place(self.variables(number)))


def _layouts(roots: Sequence[Scalar]) -> dict[tuple[int, int], tuple[Monomial, ...]]:
    found: dict[tuple[int, int], set[Monomial]] = {}
    for root in roots:
        for node in walk(root):
            if isinstance(node, Read) and not any(index.reads for index in node.index):
                for axis, index in enumerate(node.index):
                    found.setdefault((node.operand, axis), set()).update(strides(index))
    return {place: largest_first(monomials) for place, monomials in found.items()}


def comparison(name: str, left: Scalar, right: Scalar) -> Scalar:
    """A comparison as it is, also where the smart constructors know its truth."""
    return Apply._make((left, right), name)

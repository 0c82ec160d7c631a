"""The set of positions at which two programs differ, parametric in the sizes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dslc.analysis.isl import Frame, coalesced
from dslc.analysis.numeric import value
from dslc.analysis.poly import monomial_of, scalar_of
from dslc.ir.scalar import Iter, Scalar, Sym, rebuild
from dslc.prove.exact.question import Question
from dslc.prove.strided import Box
from dslc.records import record


@record
class DifferenceRegion:
    """The positions at which two programs differ: per output an isl set of its positions, parametric in the sizes.

    `exact`: they differ at every point of the set, for some tensors; else they are equal outside it, and it may be too large.
    The dimensions of a set are `variables`, in terms of which `positions` gives the axes of the output; `parameters` are what its
    parameters stand for, in order.
    """

    sets: tuple[Any, ...]
    exact: bool
    parameters: tuple[Scalar, ...]
    variables: tuple[tuple[Iter, ...], ...]
    positions: tuple[tuple[Scalar, ...], ...]
    frame: Frame
    #: per output whether both sides have a value at the same positions, for the same inputs
    defined: tuple[bool, ...]

    def lies_in(self, number: int, boxes: Iterable[Box]) -> bool:
        """Return whether an output's positions, at sizes that are numbers, are all in some boxes."""
        variables, left = self.variables[number], self.sets[number]
        at: dict[Scalar, int] = dict.fromkeys(variables, 0)
        # positions are sums of digits and their strides
        axes: list[tuple[dict[int, int], int]] = []
        for position in self.positions[number]:
            least = int(value(position, at))
            axes.append(({k: int(value(position, {**at, it: 1})) - least for k, it in enumerate(variables)}, least))
        for box in boxes:
            part = self.frame.universe(len(variables))
            for (factors, least), start, stop, step in zip(axes, box.start, box.stop, box.step, strict=True):
                above = self.frame.affine(len(variables), factors, {}, least - start)
                below = self.frame.affine(
                    len(variables), {k: -factor for k, factor in factors.items()}, {}, stop - 1 - least
                )
                part = part.intersect(above.nonneg_set()).intersect(below.nonneg_set())
                if step > 1:
                    part = part.intersect(self.frame.remainder(above, step).zero_set())
            left = left.subtract(part)
        return bool(left.is_empty())

    def __str__(self) -> str:
        return "\n".join(str(each) for each in self.sets)


def region(question: Question) -> DifferenceRegion:
    """The positions at which the pairs of a question differ; it is asked for while the question is."""
    exact = all(len(m) == 1 and isinstance(m[0], Sym) for m in question.monomials)
    sets: list[Any] = []
    for number in range(len(question.pairs)):
        place, terms = question.terms(number)
        total = place.domain.subtract(place.domain)
        for term in terms:
            exact = exact and not any(each.opaque for each in term.atoms) and term.coefficient.number is not None
            total = total.union(term.map.domain())
        sets.append(coalesced(total))
    parts: dict[Scalar, Scalar] = dict(question.problem.parts.items())
    return DifferenceRegion(
        tuple(sets),
        exact,
        tuple(scalar_of(monomial_of(monomial)) for monomial in question.monomials),
        tuple(question.variables(number) for number in range(len(sets))),
        tuple(tuple(rebuild(axis, parts.get) for axis in position) for position in question.problem.positions),
        question.frame,
        tuple(question.defined_alike(number) for number in range(len(sets))),
    )

"""Policies for conditions on unknown sizes that nothing decides.

Normally such a condition counts as holding only where it does for all sizes. Whoever looks at all sizes at once (proofs of whole
rules) evaluates with `Rules.assuming` set: then it is asked, and what it answers is a case that it goes on to look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from dslc.analysis.prove import always
from dslc.ir.dtype import DType
from dslc.ir.scalar import Scalar, apply, as_scalar


class Assuming(Protocol):
    """Answers about conditions that are not decided by the sizes' least values alone."""

    def require(self, condition: Scalar) -> bool:
        """A condition that has to hold here: whether it does (in the case that is looked at)."""

    def decide(self, condition: Scalar) -> bool:
        """A condition on which the meaning depends: which of both cases is looked at."""

    def one_of(self, conditions: Sequence[Scalar]) -> int:
        """Conditions of which at least one has to hold: the position of one that does."""

    def quotient(self, size: Scalar, divisor: Scalar) -> Scalar:
        """`size // divisor`, where the division has to be without rest."""

    def dtype_of(self, number: Scalar) -> DType:
        """The element type of an unknown number that stands for a tensor of rank 0."""


def holds(value: Any, assuming: Assuming | None) -> bool:
    """Return whether a required condition holds: for all sizes where nothing is asked."""
    if isinstance(value, Scalar):
        return assuming.require(value) if assuming else always(value)
    return value is True


def decided(value: Any, assuming: Assuming | None) -> Any:
    """A condition on which the meaning depends, decided where someone decides it."""
    return assuming.decide(value) if isinstance(value, Scalar) and assuming else value


def joint(a: Any, b: Any, assuming: Assuming) -> Any:
    """The size of two axes that broadcast, at least one of them unknown: equal, or one of them 1."""
    one = as_scalar(1)
    a, b = as_scalar(a), as_scalar(b)
    options = [apply("==", a, b), apply("==", a, one), apply("==", b, one)]
    return (a, b, a)[assuming.one_of(options)]

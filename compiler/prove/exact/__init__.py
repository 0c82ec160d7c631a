"""The exact prover: a normal form of tensor programs over isl, with all sizes symbolic."""

from dslc.prove.exact.answers import Differs, Equal, Undecided
from dslc.prove.exact.compare import Habit, compare, difference
from dslc.prove.exact.regions import DifferenceRegion
from dslc.prove.exact.terms import Effort

__all__ = ["DifferenceRegion", "Differs", "Effort", "Equal", "Habit", "Undecided", "compare", "difference"]

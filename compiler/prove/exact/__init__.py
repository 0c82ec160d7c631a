"""The exact prover: a normal form of tensor programs over isl, with all sizes symbolic."""

from dslc.prove.exact.answers import Differs, Equal, Undecided
from dslc.prove.exact.compare import Habit, compare, difference
from dslc.prove.exact.regions import Region
from dslc.prove.exact.terms import Effort

__all__ = ["Differs", "Effort", "Equal", "Habit", "Region", "Undecided", "compare", "difference"]

"""The exact prover: a normal form of tensor programs over isl, with all sizes symbolic."""

from dslc.prove.exact.compare import Differs, Equal, Habit, Region, Undecided, compare, difference

__all__ = ["Differs", "Equal", "Habit", "Region", "Undecided", "compare", "difference"]

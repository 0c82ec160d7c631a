"""Provers: equal for every shape, different with a counterexample, or undecided with the reason."""

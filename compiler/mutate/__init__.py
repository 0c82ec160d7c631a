"""Mutants: programs of the shapes of a region that are almost equal to it, and what corrects them (PET, OSDI 2021)."""

"""Finders of programs in the place of hot operators: kernels, derived programs, mutants, joined calls; and what is known of these."""

"""What may stand in the place of hot operators: kernels, derived programs, mutants, joined calls; and what of it is known."""

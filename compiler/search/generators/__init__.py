"""Who proposes candidates: rules, kernels, derivations, mutants."""

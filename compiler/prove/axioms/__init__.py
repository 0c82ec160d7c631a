"""The axioms prover: whether the laws of a library entail a rule, decided by Z3 in a process of its own."""

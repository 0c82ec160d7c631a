"""Generators, which propose candidates: rules, kernels, derivations, mutants."""

"""Derivations: rewrites of expressions by second-order rules that are text (EinNet, OSDI 2023)."""

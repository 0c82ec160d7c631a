"""The exact prover: a normal form of tensor programs over isl, with all sizes symbolic."""

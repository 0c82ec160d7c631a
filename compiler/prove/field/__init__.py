"""The field prover: both sides of a rule on random inputs modulo a prime."""

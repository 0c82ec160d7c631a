"""Symbolic instances: a few pairs of programs at unknown sizes that together stand for every use of a rule."""

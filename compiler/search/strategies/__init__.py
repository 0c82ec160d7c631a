"""Strategies, which search a graph by facts: backtracking, saturation, trees of e-graphs; and what they have in common."""

"""Candidates, and what rewrites the graph of one: regions, stages by size, layouts, constants, chains of rules."""

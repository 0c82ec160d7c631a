"""Operators, rules, libraries, targets and strategies, as rows of plain values."""

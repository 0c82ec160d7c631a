"""Analyses of expressions: linearity, boxes, iterator tables, counts."""

"""Pruning of candidates that follow from rules that are kept already (TASO, section 4)."""

"""Rewrites of whole graphs beside rules: calls of associative operators as one, and other layouts."""

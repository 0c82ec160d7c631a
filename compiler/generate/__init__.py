"""Substitutions that dslc finds itself: enumeration, pruning, naming, writing."""

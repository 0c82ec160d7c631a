"""Kernels from expressions: loop nests, variants, builds. Nothing is generated in this version."""

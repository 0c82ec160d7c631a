"""Kernels on the machine at hand: compiled to a shared library, kept, loaded and run."""

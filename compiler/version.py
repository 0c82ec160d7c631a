"""The version of dslc."""

__version__ = "0.1.0"

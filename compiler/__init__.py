"""dslc: a declarative rule language for tensor programs."""

from dslc.version import __version__

__all__ = ["__version__"]

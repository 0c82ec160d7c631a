"""The Python interface: what each command does, on models and rules in memory or in files, as values."""

from dslc.api.models import bench, build, optimize, optimize_file, register, session, why_not
from dslc.api.rules import check, derive, diff, load, mutants, show, test, verify

__all__ = [
    "bench", "build", "check", "derive", "diff", "load", "mutants", "optimize", "optimize_file", "register", "session", "show",
    "test", "verify", "why_not",
]  # fmt: skip

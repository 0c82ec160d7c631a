"""dslc: a declarative rule language for tensor programs.

`dslc.optimize` makes an ONNX model faster, `dslc.load` reads a rule library, `dslc.verify` proves its
rules, `dslc.session` runs a model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dslc.api import load, optimize, optimize_file, register, session, verify
from dslc.version import __version__

if TYPE_CHECKING:
    from dslc.errors import Diagnostic, DslcError
    from dslc.prove.verdict import RuleVerdict
    from dslc.report import Report
    from dslc.search.optimize import Optimized

__all__ = [
    "Diagnostic",
    "DslcError",
    "Optimized",
    "Report",
    "RuleVerdict",
    "__version__",
    "load",
    "optimize",
    "optimize_file",
    "register",
    "session",
    "verify",
]

_LAZY = {
    "Diagnostic": "dslc.errors",
    "DslcError": "dslc.errors",
    "Optimized": "dslc.search.optimize",
    "Report": "dslc.report",
    "RuleVerdict": "dslc.prove.verdict",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'dslc' has no attribute {name!r}")

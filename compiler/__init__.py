"""dslc: a declarative rule language for tensor programs.

On models: `optimize` makes one faster, `optimize_file` from file to file, `session` runs one with its kernels, `register` gives
these to a session of your own, `build` builds them, `bench` times two models, `why_not` says why a rule does not apply. On rules:
`load`, `check`, `test`, `verify`; `show` an operator, `diff` two programs, `derive` others of one, `mutants` are almost one. Each does
what the command of its name does, and returns what that prints as values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dslc.version import __version__

if TYPE_CHECKING:
    from dslc.api.benchmark import Benched, bench
    from dslc.api.calls import build
    from dslc.api.derivations import DerivedPrograms, derive
    from dslc.api.differences import Compared, diff
    from dslc.api.models import optimize, optimize_file, register, session
    from dslc.api.mutants import FoundMutants, mutants
    from dslc.api.operators import Shown, show
    from dslc.api.rules import Tested, WhyNot, check, load, test, verify, why_not
    from dslc.checking.fixes import Checked
    from dslc.errors import Diagnostic, DslcError
    from dslc.kernels import Kernels
    from dslc.prove.verdict import RuleVerdict
    from dslc.report import Report
    from dslc.search.runs.stages import Optimized
    from dslc.semantics.library import Rules

__all__ = [
    "Benched", "Checked", "Compared", "DerivedPrograms", "Diagnostic", "DslcError", "FoundMutants", "Kernels", "Optimized", "Report",
    "RuleVerdict", "Rules", "Shown", "Tested", "WhyNot", "__version__", "bench", "build", "check", "derive", "diff", "load", "mutants",
    "optimize", "optimize_file", "register", "session", "show", "test", "verify", "why_not",
]  # fmt: skip

#: the module that defines each name
_HOMES = {
    name: module
    for module, names in {
        "dslc.api.benchmark": "Benched bench", "dslc.api.calls": "build", "dslc.api.derivations": "DerivedPrograms derive",
        "dslc.api.differences": "Compared diff", "dslc.api.models": "optimize optimize_file register session",
        "dslc.api.mutants": "FoundMutants mutants", "dslc.api.operators": "Shown show",
        "dslc.api.rules": "Tested WhyNot check load test verify why_not", "dslc.checking.fixes": "Checked",
        "dslc.errors": "Diagnostic DslcError", "dslc.kernels": "Kernels", "dslc.prove.verdict": "RuleVerdict",
        "dslc.report": "Report", "dslc.search.runs.stages": "Optimized", "dslc.semantics.library": "Rules",
    }.items()
    for name in names.split()
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'dslc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
